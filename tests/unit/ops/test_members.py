import msgspec
import pytest

from motley.client import kubeconfig
from motley.ops import certificates, components, members
from motley.ops import config as configs
from motley.ops.failure import Failure


def several(root, count=3, **options):
    return configs.resolve(root, {"nodes": count, **options})


def test_the_first_of_several_nodes_has_the_first_address_and_the_others_follow(tmp_path):
    config = several(tmp_path, underlay="10.9.8.0/24")
    assert (config.node_name, config.node_ip) == ("node-1", "10.9.8.1")
    found = [members.member(config, name) for name in members.names(config)]
    assert [(one.node_name, one.node_ip) for one in found] == [
        ("node-2", "10.9.8.2"),
        ("node-3", "10.9.8.3"),
    ]


def test_further_nodes_share_nothing_that_could_clash(tmp_path):
    config = several(tmp_path)
    every = [config, *(members.member(config, name) for name in members.names(config))]
    assert len({one.root for one in every}) == 3
    assert len({one.cgroup_root for one in every}) == 3
    assert len({components.layout(one).socket for one in every}) == 3
    assert len({one.namespace for one in every}) == 3
    assert {one.images for one in every} == {config.images}


def test_a_further_node_is_like_a_machine_that_has_joined(tmp_path):
    config = several(tmp_path)
    one = members.member(config, "node-2")
    assert one.is_joined
    assert one.server == "https://10.77.0.1:6443"
    credentials = certificates.ensure_member(config, one)
    specs = components.member(one, credentials)
    assert [spec.name for spec in specs] == ["containerd", "node", "proxy"]
    for part in ("node", "proxy"):
        assert kubeconfig.load(credentials.kubeconfig(part)).server == one.server
    assert not credentials.kubeconfig("scheduler").exists()
    before = credentials.node_cert.read_bytes()
    certificates.ensure_member(config, one)
    assert credentials.node_cert.read_bytes() == before


def test_only_nodes_that_were_made_are_present(tmp_path):
    config = several(tmp_path)
    assert members.present(config) == []
    one = members.member(config, "node-3")
    one.save()
    (config.root / "nodes" / "node-4").mkdir()
    assert members.present(config) == [one]


def test_two_clusters_use_different_names(tmp_path):
    first, second = (msgspec.structs.replace(several(tmp_path), root=tmp_path / n) for n in "ab")
    assert members.uplink(first) != members.uplink(second)
    assert len(members.uplink(first)) <= 15
    assert members.namespace(first, "node-2") != members.namespace(second, "node-2")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"node_ip": "10.1.2.3"}, "address of --underlay"),
        ({"underlay": "10.244.7.0/24"}, "overlap"),
        ({"underlay": "10.9.8.0/30"}, "no room for 3 nodes"),
        ({"underlay": "nonsense"}, "does not appear"),
    ],
)
def test_nonsense_about_several_nodes_is_refused(tmp_path, options, message):
    with pytest.raises(Failure, match=message):
        several(tmp_path, **options)


def test_a_cluster_keeps_its_kind_of_nodes_and_their_range(tmp_path):
    several(tmp_path / "a").save()
    assert several(tmp_path / "a", 5).nodes == 5
    assert configs.resolve(tmp_path / "a", {}).nodes == 3
    with pytest.raises(Failure, match=r"addresses of 10\.77\.0\.0/24"):
        several(tmp_path / "a", underlay="10.9.8.0/24")
    configs.resolve(tmp_path / "b", {"node_ip": "10.1.2.3"}).save()
    with pytest.raises(Failure, match="with this machine as its node"):
        several(tmp_path / "b")
