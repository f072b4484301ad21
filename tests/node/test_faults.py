"""Parts that die: the agent, the runtime, the API server, the sandbox, the disk."""

import asyncio
import os
import signal

import pytest

from motley.node.cri.runtime import Runtime

from .conftest import BUSYBOX, NODE, eventually
from .gate import Gate

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
    eventually(lambda: rig.container("survivor")["restartCount"] == 1)
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

        eventually(another)
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

    after = eventually(replaced)
    assert after["podIPs"] == [{"ip": after["podIP"]}]
    assert after["podIP"] != before["podIP"]
    rig.until_ready("moved")
    rig.delete("moved")


def test_a_deleted_node_object_is_registered_again(rig):
    uid = rig.get("node", NODE)["metadata"]["uid"]
    rig.kubectl("delete", "node", NODE)
    eventually(lambda: rig.get("node", NODE)["metadata"]["uid"] != uid)
    rig.kubectl("patch", "node", NODE, "-p", '{"spec":{"podCIDR":"10.244.7.0/24"}}')
    eventually(lambda: rig.node_condition("Ready") == "True")


# Where the agent is when it is killed: which call of the pod's, and before, during or after it.
WHILE_STARTING = {
    "before-sandbox": ("RunPodSandbox", 0, "before"),
    "sandbox-half-made": ("RunPodSandbox", 0, "during"),
    "sandbox-made": ("RunPodSandbox", 0, "after"),
    "init-created": ("CreateContainer", 0, "after"),
    "init-half-started": ("StartContainer", 0, "during"),
    "init-running": ("StartContainer", 0, "after"),
    "init-done": ("CreateContainer", 1, "before"),
    "main-created": ("StartContainer", 1, "before"),
    "main-running": ("StartContainer", 1, "after"),
}
WHILE_ENDING = {
    "in-pre-stop": ("ExecSync", 0, "after"),
    "half-stopped": ("StopContainer", 0, "during"),
    "stopped": ("StopPodSandbox", 0, "before"),
    "removed": ("RemovePodSandbox", 0, "after"),
}
PULLED = "localhost/motley/pulled-by-phases:1"


def _says(name, word):
    return ["sh", "-c", f"echo {word} >> /out/{name}"]


def _pod_of_phases(name, image=BUSYBOX, **container):
    out = [{"name": "out", "mountPath": "/out"}]
    first = {"name": "first", "image": BUSYBOX, "command": _says(name, "init")}
    main = {
        "name": "main",
        "image": image,
        "command": ["sh", "-c", f"echo main >> /out/{name}; trap 'exit 0' TERM; sleep 1000 & wait"],
        "lifecycle": {"preStop": {"exec": {"command": _says(name, "stop")}}},
        **container,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"test": "phases"}},
        "spec": {
            "nodeName": NODE,
            "terminationGracePeriodSeconds": 5,
            "initContainers": [{**first, "volumeMounts": out}],
            "containers": [{**main, "volumeMounts": out}],
            "volumes": [{"name": "out", "hostPath": {"path": "/replaced"}}],
        },
    }


@pytest.fixture
def agent_is_put_back(rig):
    """The agent as the other tests have it, whatever this one did with it."""
    yield
    if "node" in rig.processes:
        rig.end("node")
    rig.start_agent()
    rig.kubectl("delete", "pod", "-l", "test=phases", "--timeout=60s")


def _in_runtime(rig):
    async def look():
        runtime = Runtime(f"unix://{rig.socket}")
        try:
            return await runtime.list_sandboxes(), await runtime.list_containers()
        finally:
            await runtime.close()

    return asyncio.run(look())


def test_an_agent_killed_in_any_phase_of_a_pods_life_loses_nothing(rig, agent_is_put_back):
    """Every phase is a pod of its own, stopped there; then the agent is killed, once for all."""
    out = rig.root / "phases"
    out.mkdir()
    ctr = ["ctr", "--address", rig.socket, "-n", "k8s.io"]
    rig.run(*ctr, "images", "tag", BUSYBOX, PULLED)
    running = _pod_of_phases("running")
    starting = [_pod_of_phases(name) for name in WHILE_STARTING]
    starting.append(_pod_of_phases("pulling", PULLED, imagePullPolicy="Always"))
    ending = [_pod_of_phases(name) for name in WHILE_ENDING]
    for pod in (*starting, *ending, running):
        pod["spec"]["volumes"][0]["hostPath"]["path"] = str(out)
    stops = {**WHILE_STARTING, **WHILE_ENDING, PULLED: ()}
    with Gate(rig.root / "gate.sock", rig.socket, stops) as gate:
        through_gate = rig.agent_command(runtime_endpoint=f"unix://{gate.socket}")
        rig.end("node")
        rig.spawn("node", *through_gate)
        rig.create(*ending, running)
        for name in (*WHILE_ENDING, "running"):
            rig.until_ready(name)
        rig.create(*starting)
        rig.kubectl("delete", "pod", *WHILE_ENDING, "--wait=false")
        eventually(lambda: gate.reached == set(stops))
        rig.end("node", signal.SIGKILL)
        # A call that was held is gone with its caller; let loose too soon it would still be made.
        eventually(lambda: not gate.held)
        gate.open()
        rig.spawn("node", *through_gate)
        living = {*WHILE_STARTING, "pulling", "running"}
        for name in living:
            status = rig.until_ready(name)
            (first,), (main,) = status["initContainerStatuses"], status["containerStatuses"]
            assert first["state"]["terminated"]["exitCode"] == 0, name
            said = (out / name).read_text().split()
            if name == "init-half-started" and first["restartCount"]:
                # The runtime undid a start whose caller was gone: that was an attempt.
                first["restartCount"] -= 1
                said = list(dict.fromkeys(said))
            assert (first["restartCount"], main["restartCount"]) == (0, 0), name
            assert said == ["init", "main"], name
        eventually(lambda: len(rig.get("pods", "-l", "test=phases")["items"]) == len(living))
        for name in WHILE_ENDING:
            # The hook may be run again by who does not know that it was; the rest may not.
            said = (out / name).read_text().split()
            assert said[:3] == ["init", "main", "stop"], name
            assert set(said[3:]) <= {"stop"}, name
        sandboxes, containers = _in_runtime(rig)
        ours = [s for s in sandboxes if s.name in living | set(WHILE_ENDING)]
        assert sorted(s.name for s in ours) == sorted(living), "each has one sandbox, none more"
        uids = {s.uid for s in ours}
        assert all(len(containers[uid]) == 2 for uid in uids)
        rig.kubectl("delete", "pod", "-l", "test=phases", "--timeout=60s")
        eventually(lambda: not {s.uid for s in _in_runtime(rig)[0]} & uids)
    rig.run(*ctr, "images", "rm", PULLED)
