"""Parts that die: the runtime, the API server, the sandbox."""

import os
import signal

import pytest

from .conftest import NODE, eventually

pytestmark = pytest.mark.root


def test_a_restarted_runtime_keeps_its_pods_and_starts_new_ones(rig):
    rig.pod("survivor", "sleep", "1000")
    rig.until_ready("survivor")
    before = rig.container("survivor")
    rig.end("containerd", signal.SIGKILL)
    rig.pod("latecomer", "sleep", "1000")
    eventually(lambda: "round failed" in rig.agent_log())
    rig.spawn("containerd", "containerd", "-c", rig.layout.config)
    rig.until_ready("latecomer")
    assert rig.node_condition("Ready") == "True"
    after = rig.container("survivor")
    assert after["containerID"] == before["containerID"]
    assert after["restartCount"] == 0
    os.kill(rig.pid(before["containerID"].removeprefix("containerd://")), signal.SIGKILL)
    eventually(lambda: rig.container("survivor")["restartCount"] == 1, timeout_s=15)
    rig.delete("survivor")
    rig.delete("latecomer")


def test_containers_are_restarted_while_the_api_server_is_stopped(rig):
    rig.pod("alone", "sleep", "1000")
    rig.until_ready("alone")
    pod = rig.get("pod", "alone")
    first = pod["status"]["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    server = rig.processes["apiserver"]
    server.send_signal(signal.SIGSTOP)
    try:
        os.kill(rig.pid(first), signal.SIGKILL)
        group = f"**/pod{pod['metadata']['uid']}"

        def another():
            top = rig.cgroup_tree()
            found = {p.name for p in top.glob(f"{group}/*") if p.is_dir()}
            return len(found - {first}) >= 2  # the sandbox's and the new container's

        eventually(another, timeout_s=10)
    finally:
        server.send_signal(signal.SIGCONT)
    status = eventually(lambda: (c := rig.container("alone"))["restartCount"] == 1 and c)
    assert status["lastState"]["terminated"]["exitCode"] == 137
    rig.delete("alone")


def test_a_dead_sandbox_is_replaced_with_a_new_address(rig):
    rig.pod("moved", "sleep", "1000")
    before = rig.until_ready("moved")
    uid = rig.get("pod", "moved")["metadata"]["uid"]
    container = before["containerStatuses"][0]["containerID"].removeprefix("containerd://")
    groups = [p for p in rig.cgroup_tree().glob(f"**/pod{uid}/*") if p.is_dir()]
    (sandbox,) = [p for p in groups if p.name != container]
    os.kill(int((sandbox / "cgroup.procs").read_text().split()[0]), signal.SIGKILL)

    def replaced():
        now = rig.status("moved")
        return now["containerStatuses"][0]["restartCount"] == 1 and now.get("podIP") and now

    after = eventually(replaced, timeout_s=20)
    assert after["podIPs"] == [{"ip": after["podIP"]}]
    assert after["podIP"] != before["podIP"]
    rig.until_ready("moved")
    rig.delete("moved")


def test_a_deleted_node_object_is_registered_again(rig):
    uid = rig.get("node", NODE)["metadata"]["uid"]
    rig.kubectl("delete", "node", NODE)
    eventually(lambda: rig.get("node", NODE)["metadata"]["uid"] != uid, timeout_s=20)
    rig.kubectl("patch", "node", NODE, "-p", '{"spec":{"podCIDR":"10.244.7.0/24"}}')
    eventually(lambda: rig.node_condition("Ready") == "True")
