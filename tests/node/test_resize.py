"""Other resources for a running pod, and cores of its own: looked at where they take effect."""

import json
import os
import signal
from pathlib import Path

import pytest

from .conftest import eventually

pytestmark = pytest.mark.root


def _id(rig, name):
    pod = rig.get("pod", name)
    return pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["containerID"][13:]


def _value(rig, name, v1, v2):
    """A cgroup value of the pod's container: (controller, file) on v1, file on v2."""
    uid, container = _id(rig, name)
    if Path("/sys/fs/cgroup/cgroup.controllers").exists():
        return rig.cgroup_file(uid, container, ".", v2)
    return rig.cgroup_file(uid, container, *v1)


def _quota(rig, name):
    return _value(rig, name, ("cpu", "cpu.cfs_quota_us"), "cpu.max").split()[0]


def _memory(rig, name):
    return int(_value(rig, name, ("memory", "memory.limit_in_bytes"), "memory.max"))


def _resize(rig, name, **amounts):
    container = {"name": "main", "resources": {"requests": amounts, "limits": amounts}}
    body = json.dumps({"spec": {"containers": [container]}})
    rig.kubectl("patch", "pod", name, "--subresource=resize", "-p", body)


def _started(rig, start):
    before = rig.agent_log().count("agent ready")
    start()
    eventually(lambda: rig.agent_log().count("agent ready") > before)


def _condition(rig, name, kind):
    found = rig.status(name).get("conditions", [])
    return next((c for c in found if c["type"] == kind), None)


def test_cpu_and_memory_change_in_place_without_a_restart(rig):
    amounts = {"cpu": "200m", "memory": "32Mi"}
    rig.pod("grows", "sleep", "1000", resources={"requests": amounts, "limits": amounts})
    rig.until_ready("grows")
    before = rig.container("grows")
    assert before["resources"]["limits"] == amounts
    _resize(rig, "grows", cpu="500m", memory="64Mi")
    eventually(lambda: _quota(rig, "grows") == "50000")
    eventually(lambda: _memory(rig, "grows") == 64 << 20)
    after = eventually(
        lambda: (c := rig.container("grows"))["resources"]["limits"]["cpu"] == "500m" and c
    )
    assert after["containerID"] == before["containerID"]
    assert after["restartCount"] == 0
    assert after["allocatedResources"] == {"cpu": "500m", "memory": "64Mi"}
    uid, _ = _id(rig, "grows")
    if not Path("/sys/fs/cgroup/cgroup.controllers").exists():
        above = Path(f"/sys/fs/cgroup/cpu/{rig.cgroup_root}/pod{uid}/cpu.cfs_quota_us")
        assert above.read_text().strip() == "50000", "the pod's own bound grows with it"
    _resize(rig, "grows", cpu="100m", memory="48Mi")
    eventually(lambda: _quota(rig, "grows") == "10000")
    eventually(lambda: _memory(rig, "grows") == 48 << 20)
    eventually(lambda: _condition(rig, "grows", "PodResizeInProgress") is None)
    rig.delete("grows")


def test_a_resize_that_does_not_fit_waits_also_over_a_restart_of_the_agent(rig):
    cpus = os.cpu_count()
    half = {"cpu": f"{cpus * 500}m", "memory": "16Mi"}
    rig.pod("first", "sleep", "1000", resources={"requests": half})
    rig.pod("second", "sleep", "1000", resources={"requests": {"cpu": "100m", "memory": "16Mi"}})
    rig.until_ready("first")
    rig.until_ready("second")

    def ask(milli):
        container = {"name": "main", "resources": {"requests": {"cpu": f"{milli}m"}}}
        body = json.dumps({"spec": {"containers": [container]}})
        rig.kubectl("patch", "pod", "second", "--subresource=resize", "-p", body)

    ask(cpus * 700)
    pending = eventually(lambda: _condition(rig, "second", "PodResizePending"))
    assert pending["reason"] == "Deferred"
    assert "Node didn't have enough resource: cpu" in pending["message"]
    rig.end("node", signal.SIGKILL)
    _started(rig, rig.start_agent)
    assert rig.container("second")["allocatedResources"]["cpu"] == "100m"
    rig.delete("first")
    eventually(lambda: rig.container("second")["allocatedResources"]["cpu"] == f"{cpus * 700}m")
    eventually(lambda: _condition(rig, "second", "PodResizePending") is None)
    shares = cpus * 700 * 1024 // 1000
    eventually(
        lambda: (
            _value(rig, "second", ("cpu", "cpu.shares"), "cpu.weight")
            in (str(shares), str(1 + (shares - 2) * 9999 // 262142))
        )
    )
    ask(cpus * 5000)
    eventually(
        lambda: (c := _condition(rig, "second", "PodResizePending")) and c["reason"] == "Infeasible"
    )
    rig.delete("second")


def test_a_container_whose_policy_says_so_is_made_anew(rig):
    amounts = {"cpu": "100m", "memory": "32Mi"}
    rig.pod(
        "anew",
        *("sleep", "1000"),
        resources={"requests": amounts, "limits": amounts},
        resizePolicy=[{"resourceName": "memory", "restartPolicy": "RestartContainer"}],
    )
    rig.until_ready("anew")
    _resize(rig, "anew", cpu="100m", memory="48Mi")
    eventually(lambda: rig.container("anew")["restartCount"] == 1)
    rig.until_ready("anew")
    assert _memory(rig, "anew") == 48 << 20
    rig.delete("anew")


def test_whole_cpus_belong_to_one_container_until_it_ends(rig):
    command = rig.agent_command(cpu_manager_policy="static", reserved_cpus="0")

    def start():
        rig.spawn("node", *command)

    rig.end("node", signal.SIGKILL)
    _started(rig, start)
    try:
        every = Path("/sys/devices/system/cpu/online").read_text().strip()
        rig.pod("shares", "sleep", "1000")
        rig.until_ready("shares")

        def cpuset(name):
            return _value(rig, name, ("cpuset", "cpuset.cpus"), "cpuset.cpus")

        assert cpuset("shares") == every
        amounts = {"cpu": "1", "memory": "32Mi"}
        rig.pod("owns", "sleep", "1000", resources={"requests": amounts, "limits": amounts})
        rig.until_ready("owns")
        assert cpuset("owns") == "1"
        assert rig.exec("owns", "grep", "Cpus_allowed_list", "/proc/self/status").split()[1] == "1"
        eventually(lambda: "1" not in cpuset("shares").split("-")[0] and cpuset("shares") != every)
        rig.end("node", signal.SIGKILL)  # the next agent knows whose they are
        _started(rig, start)
        rig.pod("late", "sleep", "1000")
        rig.until_ready("late")
        assert cpuset("late") == cpuset("shares") != every
        assert cpuset("owns") == "1"
        rig.delete("owns")
        eventually(lambda: cpuset("shares") == cpuset("late") == every)
        rig.delete("shares")
        rig.delete("late")
    finally:
        rig.end("node", signal.SIGKILL)
        _started(rig, rig.start_agent)
