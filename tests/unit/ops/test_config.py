import msgspec
import pytest

from motley.ops import components
from motley.ops import config as configs
from motley.ops.certificates import Credentials
from motley.ops.failure import Failure


def test_options_given_once_are_remembered(tmp_path):
    first = configs.resolve(tmp_path, {"api_port": 7443, "node_ip": "10.1.2.3", "bridge": None})
    first.save()
    again = configs.resolve(tmp_path, {})
    assert (again.api_port, again.node_ip, again.bridge) == (7443, "10.1.2.3", "motley0")
    assert configs.load(tmp_path) == again


def test_what_objects_depend_on_cannot_change(tmp_path):
    configs.resolve(tmp_path, {"service_cidr": "10.96.0.0/16"}).save()
    with pytest.raises(Failure, match="service-cidr"):
        configs.resolve(tmp_path, {"service_cidr": "10.97.0.0/16", "cluster_dns": "10.97.0.10"})
    configs.resolve(tmp_path, {"service_cidr": "10.96.0.0/16", "api_port": 1234})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pod_cidr": "10.96.0.0/12"}, "overlap"),
        ({"cluster_dns": "10.1.0.10"}, "not in the service range"),
        ({"pod_cidr": "10.244.0.0/33"}, "does not appear"),
        ({"node_ip": "localhost"}, "does not appear"),
        ({"bridge": "a-very-long-bridge-name"}, "15 characters"),
    ],
)
def test_nonsense_is_refused_before_anything_starts(tmp_path, options, message):
    with pytest.raises(Failure, match=message):
        configs.resolve(tmp_path, options)


def test_an_address_that_was_found_and_is_gone_is_found_again(tmp_path):
    config = configs.resolve(tmp_path, {})
    gone = msgspec.structs.replace(config, node_ip="203.0.113.7", is_node_ip_found=True)
    gone.save()
    assert configs.resolve(tmp_path, {}).node_ip == config.node_ip
    msgspec.structs.replace(gone, is_node_ip_found=False).save()
    assert configs.resolve(tmp_path, {}).node_ip == "203.0.113.7"


def test_there_is_no_cluster_in_an_empty_directory(tmp_path):
    assert configs.load(tmp_path) is None


def test_an_unreadable_file_says_which(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(Failure, match=r"config\.json"):
        configs.load(tmp_path)


def test_every_cluster_has_its_own_cgroup(tmp_path):
    one = configs.Config(root=tmp_path / "one")
    two = configs.Config(root=tmp_path / "two")
    assert configs.Config().cgroup_root == "/motley"
    assert len({one.cgroup_root, two.cgroup_root, "/motley"}) == 3


def test_ports_are_those_of_kubernetes_unless_moved():
    gateway, others = {10280, 10281, 10282}, {10285, 10286, 10287, 10288}
    assert (
        set(configs.Config().ports) == {6443, 10248, 10250, 10256, 10257, 10259} | gateway | others
    )
    assert set(configs.Config(host_ports=True).ports) >= {80, 443}
    slim = configs.Config(functions=False, slurm=False)
    assert not set(slim.ports) & others
    assert min(configs.Config(port_base=20000, api_port=30000).ports) == 20008


def test_the_slurm_bridge_serves_where_nodes_say_with_the_nodes_certificate(tmp_path):
    config = configs.resolve(tmp_path, {"node_ip": "10.1.2.3"})
    credentials = Credentials(directory=tmp_path, ca=tmp_path / "ca.crt")
    (bridge,) = [s for s in components.specs(config, credentials) if s.name == "slurm"]

    assert {
        "--node-ip=10.1.2.3",
        "--port=10288",
        f"--tls-cert={credentials.node_cert}",
        f"--tls-key={credentials.node_key}",
        f"--client-ca={credentials.ca}",
    } <= set(bridge.command)
    assert config.ports[10288] == "slurm"


def test_compatibility_is_a_matter_of_the_api_server_and_the_scheduler(tmp_path):
    for compat, wanted in (("minik8s", ["apiserver", "scheduler"]), ("", [])):
        config = configs.resolve(tmp_path, {"compat": compat, "node_ip": "10.1.2.3"})
        credentials = Credentials(directory=tmp_path, ca=tmp_path / "ca.crt")
        specs = components.specs(config, credentials)
        assert [s.name for s in specs if "--compat=minik8s" in s.command] == wanted
