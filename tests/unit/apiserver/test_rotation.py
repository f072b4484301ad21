"""A new authority: two steps, each of which can be run again from wherever it was stopped."""

import pytest
from cryptography import x509

from motley.apiserver import rotation, tls
from motley.apiserver.serving import authorities


@pytest.fixture
def data(tmp_path):
    pki = tls.ensure(tmp_path, addresses=["10.1.1.1"])
    tls.front_proxy(pki)
    return tmp_path


def is_good(pem, pki):
    return tls.issued_by_us(pem, pki.ca_pem) is not None


def test_both_authorities_are_trusted_until_the_second_step(data):
    before = tls.load(data)
    old_admin, serving = rotation.kubeconfig_pair(before)[0], before.cert_file.read_bytes()

    begun = rotation.begin(data)

    assert len(authorities(begun.ca_pem)) == 2
    assert begun.cert_file.read_bytes() == serving
    new_admin = rotation.kubeconfig_pair(begun)[0]
    assert new_admin != old_admin
    assert is_good(old_admin, begun)
    assert is_good(new_admin, begun)
    assert not is_good(new_admin, before)

    # A server that starts now keeps what old clients trust.
    tls.ensure(data, addresses=["10.1.1.1"])
    assert begun.cert_file.read_bytes() == serving

    ended = rotation.finish(data)

    assert len(authorities(ended.ca_pem)) == 1
    assert not is_good(old_admin, ended)
    assert rotation.kubeconfig_pair(ended)[0] == new_admin
    for path in (ended.cert_file, ended.kubelet_client_cert_file):
        assert is_good(path.read_bytes(), ended)
    covered = x509.load_pem_x509_certificate(ended.cert_file.read_bytes())
    assert "10.1.1.1" in {str(n.value) for n in tls.alternative_names(covered)}
    assert all(p.stat().st_mode & 0o777 == 0o600 for p in data.rglob("*") if p.is_file())


@pytest.mark.parametrize("steps", range(5))
def test_a_first_step_that_was_stopped_is_run_again(data, monkeypatch, steps):
    real, left = tls.write, [steps]

    def stop(path, data_):
        if left[0] == 0:
            raise OSError("no power")
        left[0] -= 1
        real(path, data_)

    monkeypatch.setattr(tls, "write", stop)
    with pytest.raises(OSError, match="no power"):
        rotation.begin(data)
    monkeypatch.setattr(tls, "write", real)
    tls.ensure(data, addresses=["10.1.1.1"])  # a server that starts in between minds nothing

    begun = rotation.begin(data)

    assert len(authorities(begun.ca_pem)) == 2
    pair = tls.issue_client(begun, "somebody")
    assert is_good(pair[0], begun)
    assert len(authorities(rotation.finish(data).ca_pem)) == 1


def test_steps_out_of_order_are_refused(data):
    with pytest.raises(rotation.Refused, match="begin one"):
        rotation.finish(data)
    rotation.begin(data)
    with pytest.raises(rotation.Refused, match="--finish"):
        rotation.begin(data)
    with pytest.raises(rotation.Refused, match="--finish"):
        rotation.renew(data, ["apiserver"])


def test_renewed_certificates_are_for_the_same_names_and_last_longer(data):
    before = {one.name: one for one in rotation.of_server(data)}

    assert rotation.renew(data, rotation.LEAVES) == list(rotation.LEAVES)

    after = {one.name: one for one in rotation.of_server(data)}
    assert set(after) == set(before)
    for name in rotation.LEAVES:
        assert after[name].subject == before[name].subject
        assert set(after[name].names) == set(before[name].names)
        assert after[name].expires >= before[name].expires
    assert after["ca"] == before["ca"]
