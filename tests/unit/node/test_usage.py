"""Usage as the kernel tells it, and as Kubernetes wants it told."""

import pytest

from motley.api.views.pod import Pod
from motley.node import access, cadvisor, summary, usage
from motley.node.cgroups import Hierarchies
from motley.node.diskusage import PodDisk, Used
from motley.node.summary import ContainerSample, Disk, NodeSample, PodSample
from motley.node.usage import Cpu, Groups, GroupUsage, Interface, Memory, Rates

NET_DEV = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs
    lo:     100       1    0    0    0     0          0         0      100       1    0    0 0 0 0 0
  eth0:    2000      20    1    0    0     0          0         0     3000      30    2    0 0 0 0 0
"""


def _write(directory, **files):
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (directory / name.replace("__", ".")).write_text(text)


def test_groups_of_version_1_are_read_from_their_controllers(tmp_path):
    controllers = {name: tmp_path / name for name in ("cpu", "cpuacct", "memory", "pids")}
    _write(tmp_path / "cpuacct/pods/a", cpuacct__usage="2500000000\n")
    _write(
        tmp_path / "memory/pods/a",
        memory__usage_in_bytes="1000\n",
        memory__limit_in_bytes="4096\n",
        memory__stat="total_inactive_file 300\ntotal_rss 500\ntotal_pgfault 7\n",
        cgroup__procs="42\n43\n",
    )
    _write(tmp_path / "pids/pods/a", pids__current="3\n")
    groups = Groups(Hierarchies(False, controllers, tuple(controllers.values())))
    found = groups.read("/pods/a", 10.0)
    assert found == GroupUsage(Cpu(10.0, 2.5), Memory(1000, 700, 500, 7, 0, 4096), 3)
    assert groups.first_pid("/pods/a") == 42
    assert groups.read("/pods/gone", 10.0) is None
    (tmp_path / "memory/pods/a/memory.limit_in_bytes").write_text("9223372036854771712")
    assert groups.read("/pods/a", 10.0).memory.limit == 0


def test_groups_of_version_2_are_read_from_one_place(tmp_path):
    _write(
        tmp_path / "pods/a",
        cpu__stat="usage_usec 1500000\nuser_usec 1\n",
        memory__current="1000\n",
        memory__max="max\n",
        memory__stat="anon 500\ninactive_file 100\npgfault 9\npgmajfault 1\n",
        pids__current="2\n",
        cgroup__procs="",
    )
    groups = Groups(Hierarchies(True, {}, (tmp_path,)))
    found = groups.read("/pods/a", 5.0)
    assert found == GroupUsage(Cpu(5.0, 1.5), Memory(1000, 900, 500, 9, 1, 0), 2)
    assert groups.first_pid("/pods/a") is None


def test_interfaces_are_counted_but_for_the_loopback():
    assert usage.interfaces(NET_DEV) == [Interface("eth0", 2000, 1, 3000, 2)]


def test_a_rate_needs_two_looks_and_survives_quick_ones():
    rates = Rates()
    assert rates.rated("a", Cpu(0.0, 1.0)).cores is None
    assert rates.rated("a", Cpu(10.0, 6.0)).cores == 0.5
    assert rates.rated("a", Cpu(10.2, 6.2)).cores == 0.5  # too soon for a new rate
    assert rates.rated("a", Cpu(20.0, 16.0)).cores == 1.0
    assert rates.rated("a", Cpu(30.0, 1.0)).cores == 1.0  # begun anew: the old rate, once
    rates.keep_only(())
    assert rates.rated("a", Cpu(40.0, 2.0)).cores is None


USED = GroupUsage(Cpu(100.0, 2.0, 0.25), Memory(1000, 800, 600, 5, 1, 2000), 4)
DISK = Disk(1000, 400, 50, 20)
NODE = NodeSample("n1", 1.0, USED, 7000, usage.interfaces(NET_DEV), DISK, DISK, 99, 32768)
POD = PodSample(
    Pod.of({"metadata": {"name": "web", "namespace": "ns", "uid": "u"}}),
    USED,
    [ContainerSample("c", 50.0, USED)],
    [Interface("eth0", 10, 0, 20, 0)],
    PodDisk({"scratch": Used(30, 2)}, {"c": Used(12, 1)}),
)


def test_the_summary_is_the_kubelets():
    found = summary.document(NODE, [POD], 100.0)
    node, (pod,) = found["node"], found["pods"]
    assert node["nodeName"] == "n1"
    assert node["memory"]["availableBytes"] == 7000
    assert node["fs"]["usedBytes"] == 600
    assert node["rlimit"]["maxpid"] == 32768
    assert pod["podRef"] == {"name": "web", "namespace": "ns", "uid": "u"}
    assert pod["containers"][0]["cpu"]["usageNanoCores"] == 250_000_000
    assert pod["containers"][0]["memory"]["workingSetBytes"] == 800
    assert pod["containers"][0]["memory"]["availableBytes"] == 1200
    assert pod["containers"][0]["rootfs"]["usedBytes"] == 12
    assert pod["network"]["rxBytes"] == 10
    assert pod["volume"][0]["usedBytes"] == 30
    assert pod["ephemeral-storage"]["usedBytes"] == 42
    assert pod["process_stats"] == {"process_count": 4}


def test_every_series_names_its_node():
    text = cadvisor.exposition(NODE, [POD])
    series = [line for line in text.splitlines() if not line.startswith("#")]
    assert series
    assert all('node="n1"' in line for line in series)
    labels = 'node="n1",namespace="ns",pod="web",container="c"'
    assert f"container_memory_working_set_bytes{{{labels}}} 800" in series


@pytest.mark.parametrize(
    ("method", "path", "verb", "part"),
    [
        ("GET", "/metrics/resource", "get", "metrics"),
        ("GET", "/stats/summary", "get", "stats"),
        ("GET", "/logs/syslog", "get", "log"),
        ("GET", "/pods", "get", "proxy"),
        ("POST", "/exec/ns/p/c", "create", "proxy"),
    ],
)
def test_a_request_is_named_as_the_kubelet_names_it(method, path, verb, part):
    found = access.attributes("n1", method, path)
    assert (found["verb"], found["subresource"], found["name"]) == (verb, part, "n1")
