"""Certificates: made once, good for their names, renewed in time."""

import ssl

import pytest
import yaml
from cryptography import x509

from motley.apiserver import tls
from motley.apiserver.authn import certificates


class At:
    """A clock that stands still."""

    def __init__(self, now: float) -> None:
        self._now = now

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody should sleep here")


def names(path) -> set[str]:
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return {str(n.value) for n in found}


def test_everything_is_made_at_first_and_kept_afterwards(tmp_path):
    pki = tls.ensure(tmp_path, addresses=["10.1.1.1"])
    files = sorted(p for p in tmp_path.rglob("*") if p.is_file())
    before = {p: p.read_bytes() for p in files}

    tls.ensure(tmp_path, addresses=["10.1.1.1"])

    assert {p.name for p in files} == {
        "ca.crt",
        "ca.key",
        "apiserver.crt",
        "apiserver.key",
        "kubelet-client.crt",
        "kubelet-client.key",
        "admin.kubeconfig",
    }
    assert {p: p.read_bytes() for p in files} == before
    assert all(p.stat().st_mode & 0o777 == 0o600 for p in files)
    assert tls.load(tmp_path).ca_pem == pki.ca_pem


def test_the_serving_certificate_covers_every_way_to_the_server(tmp_path):
    pki = tls.ensure(tmp_path, addresses=["10.1.1.1", "api.example.com", "0.0.0.0"])

    covered = names(pki.cert_file)
    assert {"127.0.0.1", "localhost", "10.96.0.1", "kubernetes.default.svc"} <= covered
    assert {"10.1.1.1", "api.example.com"} <= covered
    assert "0.0.0.0" not in covered


def test_a_new_address_gets_a_new_serving_certificate_from_the_same_authority(tmp_path):
    pki = tls.ensure(tmp_path, addresses=["10.1.1.1"])
    before, authority = pki.cert_file.read_bytes(), pki.ca_file.read_bytes()

    tls.ensure(tmp_path, addresses=["10.2.2.2"])

    assert pki.cert_file.read_bytes() != before
    assert "10.2.2.2" in names(pki.cert_file)
    assert pki.ca_file.read_bytes() == authority


def test_certificates_are_renewed_a_month_before_they_end(tmp_path):
    begin = 1_800_000_000.0
    day = 86_400.0
    pki = tls.ensure(tmp_path, addresses=[], now=At(begin))
    before = (pki.cert_file.read_bytes(), pki.admin_kubeconfig.read_bytes())

    tls.ensure(tmp_path, addresses=[], now=At(begin + 300 * day))
    assert (pki.cert_file.read_bytes(), pki.admin_kubeconfig.read_bytes()) == before
    tls.ensure(tmp_path, addresses=[], now=At(begin + 340 * day))

    assert pki.cert_file.read_bytes() != before[0]
    assert pki.admin_kubeconfig.read_bytes() != before[1]


def test_a_client_certificate_names_its_user_and_groups(tmp_path):
    pki = tls.ensure(tmp_path, addresses=[])

    pem, _ = tls.issue_client(pki, "system:node:n1", ("system:nodes", "x"))

    user = certificates.user_of(ssl.PEM_cert_to_DER_cert(pem.decode()))
    assert user is not None
    assert user.name == "system:node:n1"
    assert user.groups == ("system:nodes", "x", "system:authenticated")
    assert user.node_name == "n1"


def test_a_kubeconfig_follows_the_server(tmp_path):
    tls.ensure(tmp_path, addresses=[], server_url="https://127.0.0.1:6443")
    first = yaml.safe_load((tmp_path / "admin.kubeconfig").read_text())
    tls.ensure(tmp_path, addresses=[], server_url="https://127.0.0.1:7443")
    second = yaml.safe_load((tmp_path / "admin.kubeconfig").read_text())

    assert second["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:7443"
    assert second["users"] == first["users"]


def test_openssl_accepts_the_chain(tmp_path):
    pki = tls.ensure(tmp_path, addresses=[])

    context = ssl.create_default_context(cafile=str(pki.ca_file))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_cert_chain(pki.cert_file, pki.key_file)
    context.load_cert_chain(pki.kubelet_client_cert_file, pki.kubelet_client_key_file)


def test_there_is_nothing_to_load_before_the_first_start(tmp_path):
    with pytest.raises(FileNotFoundError):
        tls.load(tmp_path)
