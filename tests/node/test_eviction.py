"""Eviction under real pressure, in the pods' own control group and on a disk made for it."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from motley.api import quantity
from motley.node import cgroups
from motley.node.eviction import signals, thresholds
from motley.node.eviction.pressure import Pressure

from .conftest import eventually

pytestmark = pytest.mark.root

Mi = 1 << 20
# Holds this many MiB of memory (tmpfs pages of its own), then sleeps.
HOLD = "dd if=/dev/zero of=/hold/x bs=1M count={0} && sleep 1000"


def _memory(rig, of):
    return quantity.to_int(rig.get("node", "node-1")["status"][of]["memory"])


@pytest.fixture(scope="module")
def small_node(rig):
    """The node, with 256 MiB for pods and a pressure that ends soon."""
    reserved = _memory(rig, "capacity") - 256 * Mi
    rig.end("node", signal.SIGKILL)
    rig.spawn(
        "node",
        *rig.agent_command(
            system_reserved=f"memory={reserved}",
            eviction_hard="memory.available<100Mi",
            eviction_pressure_transition_period="3s",
        ),
    )
    eventually(lambda: _memory(rig, "allocatable") == 256 * Mi)
    yield rig
    rig.end("node", signal.SIGKILL)
    rig.start_agent()
    eventually(lambda: _memory(rig, "allocatable") > 256 * Mi)
    eventually(lambda: rig.node_condition("MemoryPressure") == "False")


def _holder(rig, name, mi, **resources):
    volume = {"name": "hold", "emptyDir": {"medium": "Memory"}}
    rig.pod(
        name,
        *("sh", "-c", HOLD.format(mi)),
        pod_spec={"volumes": [volume], "restartPolicy": "Never"},
        volumeMounts=[{"name": "hold", "mountPath": "/hold"}],
        resources=resources,
    )


def test_under_memory_pressure_the_right_pod_goes_and_is_told_why(small_node):
    rig = small_node
    _holder(rig, "kept", 20, requests={"cpu": "10m", "memory": "64Mi"})
    rig.until_ready("kept")
    _holder(rig, "greedy", 150)
    status = rig.until_phase("greedy", "Failed")
    rig.pod("late", "sleep", "1000")  # at once: the pressure is over soon
    assert status["reason"] == "Evicted"
    assert "The node was low on resource: memory. Threshold quantity: 100Mi" in status["message"]
    assert "Container main was using 15" in status["message"]
    condition = next(c for c in status["conditions"] if c["type"] == "DisruptionTarget")
    assert condition["reason"] == "TerminationByKubelet"
    assert rig.status("kept")["phase"] == "Running"
    eventually(lambda: rig.node_condition("MemoryPressure") == "True")
    # Who promised nothing is not taken in meanwhile.
    late = rig.until_phase("late", "Failed")
    assert (late["reason"], late["message"]) == (
        "Evicted",
        "The node had condition: [MemoryPressure]. ",
    )
    eventually(lambda: rig.node_condition("MemoryPressure") == "False")
    rig.pod("later", "sleep", "1000")
    rig.until_ready("later")
    events = rig.kubectl("get", "events", "--field-selector=reason=Evicted")
    assert "pod/greedy" in events
    assert "EvictionThresholdMet" in rig.kubectl("get", "events", "-A")
    for name in ("kept", "greedy", "late", "later"):
        rig.delete(name)


def test_pods_together_get_no_more_than_is_allocatable(small_node):
    rig = small_node
    tree = rig.cgroup_tree()
    limit = next(p for p in (tree / "memory.max", tree / "memory.limit_in_bytes") if p.exists())
    assert int(limit.read_text()) == 256 * Mi
    shares = Path("/sys/fs/cgroup/cpu") / rig.cgroup_root / "cpu.shares"
    if shares.exists():
        assert int(shares.read_text()) >= 1024


def test_an_empty_dir_over_its_limit_costs_the_pod_its_place(rig):
    volume = {"name": "scratch", "emptyDir": {"sizeLimit": "2Mi"}}
    rig.pod(
        "messy",
        *("sh", "-c", "dd if=/dev/zero of=/scratch/x bs=1M count=4 && sleep 1000"),
        pod_spec={"volumes": [volume]},
        volumeMounts=[{"name": "scratch", "mountPath": "/scratch"}],
    )
    status = rig.until_phase("messy", "Failed")
    assert status["reason"] == "Evicted"
    assert status["message"] == 'Usage of EmptyDir volume "scratch" exceeds the limit "2Mi". '
    rig.delete("messy")


def test_a_file_system_that_fills_up_is_noticed(tmp_path):
    """Read from a real one, in space and in inodes; evictions by it go the way of memory's."""
    disk = tmp_path / "disk"
    disk.mkdir()
    options = "size=20m,nr_inodes=1000"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", disk], check=True)
    try:
        group = cgroups.Cgroups(f"motley-unused-{os.getpid()}")
        pressure = Pressure(thresholds.parse("nodefs.available<10%,nodefs.inodesFree<5%"))

        def look():
            return pressure.step(signals.observe(disk, disk, group, {}), 0.0)

        assert look() == []
        (disk / "large").write_bytes(b"x" * (19 * Mi))
        (shortage,) = look()
        assert shortage.threshold.signal == "nodefs.available"
        assert shortage.observed.capacity == 20 * Mi
        (disk / "large").unlink()
        assert look() == []
        for number in range(960):
            (disk / str(number)).touch()
        assert [s.threshold.signal for s in look()] == ["nodefs.inodesFree"]
        assert pressure.conditions == {"DiskPressure"}
    finally:
        subprocess.run(["umount", disk], check=True)
