"""A whole cluster's certificates: those of its components change with the authority."""

import pytest

from motley.apiserver import tls
from motley.ops import certificates, members
from motley.ops.authority import Authority
from motley.ops.config import Config
from motley.ops.failure import Failure


@pytest.fixture
def config(tmp_path):
    made = Config(root=tmp_path, node_name="n1", node_ip="10.9.9.9")
    made.save()
    certificates.ensure(made)
    return made


def pairs(config):
    files = certificates.located(config)
    names = certificates.identities(config.node_name)
    found = {name: tls.pair_of(files.kubeconfig(name))[0] for name in names}
    return found | {"node.crt": files.node_cert.read_bytes()}


def test_components_get_certificates_of_the_new_authority_in_the_first_step(config):
    authority = Authority(config.root)
    before, old = pairs(config), tls.load(config.root / "apiserver").ca_pem

    authority.begin()

    first = pairs(config)
    pki = tls.load(config.root / "apiserver")
    assert all(first[name] != before[name] for name in before)
    assert all(tls.issued_by_us(pem, old) is None for pem in first.values())
    files = certificates.located(config)
    assert pki.ca_pem in _authority_of(files.kubeconfig("scheduler"))

    authority.finish()

    last, ended = pairs(config), tls.load(config.root / "apiserver")
    assert all(tls.issued_by_us(pem, ended.ca_pem) for pem in last.values())
    assert _authority_of(files.kubeconfig("scheduler")) == ended.ca_pem
    assert last["node.crt"] == first["node.crt"]


def _authority_of(path):
    from motley.client import kubeconfig

    return kubeconfig.load(path).ca


def test_every_certificate_is_listed_and_can_be_renewed(config):
    authority = Authority(config.root)
    names = [one.name for one in authority.listed()]

    assert {"scheduler.kubeconfig", "node.crt", "apiserver", "ca"} <= set(names)
    assert names[-1] in ("ca", "front-proxy-ca")
    before = pairs(config)
    assert authority.renew(["node.crt", "proxy.kubeconfig"]) == ["proxy.kubeconfig", "node.crt"]
    after = pairs(config)
    assert {name for name in before if before[name] != after[name]} == {"proxy", "node.crt"}
    with pytest.raises(Failure, match="no certificate moon"):
        authority.renew(["moon"])


def test_without_certificates_it_says_where_it_looked(tmp_path):
    with pytest.raises(Failure, match="there are no certificates in"):
        Authority(tmp_path)


def test_certificates_of_further_nodes_are_listed_and_renewed_with_the_others(tmp_path):
    config = Config(root=tmp_path, node_name="node-1", node_ip="10.77.0.1", nodes=2)
    config.save()
    certificates.ensure(config)
    member = members.member(config, "node-2")
    member.save()
    files = certificates.ensure_member(config, member)
    authority = Authority(config.root)
    names = {one.name for one in authority.listed()}
    assert {"node-2/node.kubeconfig", "node-2/proxy.kubeconfig", "node-2/node.crt"} < names
    assert "node-2/gateway.kubeconfig" not in names
    before = tls.pair_of(files.kubeconfig("node")), tls.pair_of(files.kubeconfig("proxy"))

    assert authority.renew(["node-2/node.kubeconfig"]) == ["node-2/node.kubeconfig"]

    after = tls.pair_of(files.kubeconfig("node")), tls.pair_of(files.kubeconfig("proxy"))
    assert after[0] != before[0]
    assert after[1] == before[1]
    old = files.node_cert.read_bytes()
    assert "node-2/node.crt" in authority.renew([])
    assert files.node_cert.read_bytes() != old


def test_a_new_authority_signs_for_further_nodes_as_well(tmp_path):
    config = Config(root=tmp_path, node_name="node-1", node_ip="10.77.0.1", nodes=2)
    config.save()
    certificates.ensure(config)
    member = members.member(config, "node-2")
    member.save()
    files = certificates.ensure_member(config, member)
    authority = Authority(config.root)
    authority.begin()
    authority.finish()
    pki = tls.load(config.root / "apiserver")
    assert _authority_of(files.kubeconfig("node")) == pki.ca_pem
    assert tls.issued_by_us(files.node_cert.read_bytes(), pki.ca_pem)
