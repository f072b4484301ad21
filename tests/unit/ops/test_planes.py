"""Several control planes, and etcd as their store: what is started, what is refused."""

import pytest
from cryptography import x509

from motley.client import kubeconfig
from motley.lib.clock import SYSTEM
from motley.ops import certificates, components, etcdmembers, tokens
from motley.ops import config as configs
from motley.ops.certificates import Credentials
from motley.ops.failure import Failure
from motley.ops.joining import Invitation, others


def resolve(root, **options):
    return configs.resolve(root, {"node_ip": "10.1.2.3", **options})


def made(root, **options):
    config = resolve(root, **options)
    config.save()
    return config


def specs(config):
    credentials = Credentials(directory=config.root / "pki", ca=config.root / "ca.crt")
    return {spec.name: spec for spec in components.specs(config, credentials)}


def option(spec, name):
    found = [w.partition("=")[2] for w in spec.command if w.startswith(f"--{name}=")]
    return found[0] if found else None


def test_one_plane_with_sqlite_is_as_it_always_was(tmp_path):
    found = specs(resolve(tmp_path))
    assert "etcd" not in found
    assert option(found["apiserver"], "store") is None
    assert option(found["apiserver"], "servers") is None
    assert "--no-leader-elect" in found["scheduler"].command


def test_controllers_that_others_stand_in_for_are_left_out(tmp_path):
    assert option(specs(resolve(tmp_path))["controllers"], "controllers") is None
    chosen = "*,-horizontalpodautoscaling"
    config = made(tmp_path, controllers=chosen)
    assert option(specs(config)["controllers"], "controllers") == chosen
    assert resolve(tmp_path).controllers == chosen  # remembered


def test_three_planes_are_three_of_each_with_their_own_ports(tmp_path):
    config = resolve(tmp_path, control_planes=3)
    assert config.store == "etcd"
    found = specs(config)
    ports = list(config.ports)
    assert len(ports) == len(set(ports))
    for component in ("etcd", "apiserver", "controllers", "scheduler"):
        three = [found[component], found[f"{component}-2"], found[f"{component}-3"]]
        assert len({spec.probe for spec in three}) == 3
        assert len({spec.command for spec in three}) == 3
    assert "--no-leader-elect" not in found["controllers-2"].command
    assert found["apiserver-3"].after == ("etcd-3",)
    assert found["scheduler-2"].after == ("apiserver-2",)
    directories = {option(found[name], "data-dir") for name in found if "apiserver" in name}
    assert len(directories) == 3


def test_each_api_server_asks_its_own_member_first_and_knows_all(tmp_path):
    found = specs(resolve(tmp_path, control_planes=3))
    lists = [option(found[n], "etcd-servers").split(",") for n in found if "apiserver" in n]
    assert len({one[0] for one in lists}) == 3
    assert len({frozenset(one) for one in lists}) == 1


def test_members_listen_on_loopback_and_want_certificates_of_an_authority_of_their_own(tmp_path):
    config = resolve(tmp_path, control_planes=3)
    etcdmembers.prepare(config, print, SYSTEM)
    certificates.ensure(config, SYSTEM)
    for name in ("etcd", "etcd-2", "etcd-3"):
        spec = specs(config)[name]
        for which in ("listen-client-urls", "listen-peer-urls"):
            assert option(spec, which).startswith("https://127.0.0.1:")
        assert option(spec, "client-cert-auth") == option(spec, "peer-client-cert-auth") == "true"
    files = etcdmembers.directory(config)
    own = x509.load_pem_x509_certificate((files / "ca.crt").read_bytes())
    client = x509.load_pem_x509_certificate((files / "client.crt").read_bytes())
    client.verify_directly_issued_by(own)
    # What every node holds opens nothing here.
    cluster = (tmp_path / "apiserver" / "pki" / "ca.crt").read_bytes()
    assert cluster != (files / "ca.crt").read_bytes()
    assert (files / "client.key").stat().st_mode & 0o777 == 0o600
    before = (files / "member.crt").read_bytes()
    etcdmembers.prepare(config, print, SYSTEM)
    assert (files / "member.crt").read_bytes() == before


def test_an_etcd_that_exists_is_used_and_none_is_started(tmp_path):
    ca = tmp_path / "ca.crt"
    ca.write_text("x")
    urls = "https://e1:2379,https://e2:2379"
    config = resolve(tmp_path, etcd_servers=urls, etcd_cafile=str(ca), etcd_prefix="/mine")
    found = specs(config)
    assert not [name for name in found if name.startswith("etcd")]
    server = found["apiserver"]
    assert option(server, "etcd-servers") == urls
    assert option(server, "etcd-cafile") == str(ca)
    assert option(server, "etcd-prefix") == "/mine"
    assert server.after == ()


def test_of_members_elsewhere_the_one_on_this_machine_is_asked_first(tmp_path):
    urls = "http://10.1.2.2:2379,http://10.1.2.3:2379,http://10.1.2.4:2379"
    server = specs(resolve(tmp_path, etcd_servers=urls))["apiserver"]
    found = option(server, "etcd-servers").split(",")
    assert found[0] == "http://10.1.2.3:2379"
    assert sorted(found) == urls.split(",")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"control_planes": 2}, "odd number"),
        ({"control_planes": 9}, "between 1 and 7"),
        ({"control_planes": 3, "store": "sqlite"}, "can share"),
        ({"servers": "https://a:6443"}, "can share"),
        ({"servers": "a:6443", "store": "etcd"}, "no address"),
        ({"etcd_servers": "ftp://x:1"}, "ftp://x:1"),
        ({"control_planes": 3, "api_port": 65535}, "above 65535"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_starts(tmp_path, options, told):
    with pytest.raises(Failure, match=told):
        resolve(tmp_path, **options)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ({}, {"store": "etcd"}, "keeps its objects in sqlite"),
        ({}, {"control_planes": 3}, "keeps its objects in sqlite"),
        ({"store": "etcd"}, {"store": "sqlite"}, "keeps its objects in etcd"),
        ({"store": "etcd"}, {"etcd_servers": "http://x:1"}, "etcd of its own"),
        ({"store": "etcd"}, {"control_planes": 3}, "made with 1 members"),
        ({"control_planes": 3}, {"control_planes": 1}, "made with 3 members"),
    ],
)
def test_a_cluster_keeps_the_store_it_was_made_with(tmp_path, before, after, told):
    made(tmp_path, **before)
    with pytest.raises(Failure, match=told) as failure:
        resolve(tmp_path, **after)
    assert failure.value.advice
    assert resolve(tmp_path).store == before.get("store", "etcd" if before else "")


def test_planes_over_an_etcd_elsewhere_may_become_more(tmp_path):
    made(tmp_path, etcd_servers="http://x:1")
    assert resolve(tmp_path, control_planes=3).control_planes == 3


def test_everybody_is_given_the_list_of_servers(tmp_path):
    config = made(tmp_path, control_planes=3)
    credentials = certificates.ensure(config, SYSTEM)
    here = tuple(f"https://127.0.0.1:{port}" for port in (6443, 6444, 6445))
    for path in (config.admin_kubeconfig, credentials.kubeconfig("scheduler")):
        assert kubeconfig.load(path).servers == here
    (_, info), *_ = tokens.published(config, b"ca")
    asked = Invitation("https://10.1.2.3:6443", "", ())
    assert others(info["data"]["kubeconfig"], asked) == (
        "https://10.1.2.3:6444",
        "https://10.1.2.3:6445",
    )


def test_servers_of_other_machines_come_after_those_of_this_one(tmp_path):
    every = "https://10.1.2.2:6443,https://10.1.2.3:6443,https://10.1.2.4:6443"
    config = made(tmp_path, etcd_servers="http://x:1", servers=every)
    found = kubeconfig.load(certificates.ensure(config, SYSTEM).kubeconfig("node"))
    wanted = ("https://127.0.0.1:6443", "https://10.1.2.2:6443", "https://10.1.2.4:6443")
    assert found.servers == wanted
    assert "--no-leader-elect" not in specs(config)["gateway"].command


def test_further_api_servers_share_the_first_ones_authority_and_keys(tmp_path):
    config = made(tmp_path, control_planes=3)
    certificates.ensure(config, SYSTEM)
    first = tmp_path / "apiserver" / "pki" / "ca.key"
    assert (tmp_path / "apiserver-3" / "pki" / "ca.key").samefile(first)
    certificates.ensure(config, SYSTEM)
