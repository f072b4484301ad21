"""Many pods at once, and nothing of them left when they are gone."""

import asyncio
import json
from pathlib import Path

import pytest

from motley.node.cri import cri_pb2 as cri
from motley.node.cri.runtime import Runtime

from .conftest import BUSYBOX, NODE, eventually

pytestmark = pytest.mark.root

MANY = 15


def _pod(name):
    main = {"name": "main", "image": BUSYBOX, "command": ["sleep", "1000"]}
    main["volumeMounts"] = [{"name": "memory", "mountPath": "/memory"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"test": "many"}},
        "spec": {
            "nodeName": NODE,
            "terminationGracePeriodSeconds": 0,
            "containers": [main],
            "volumes": [{"name": "memory", "emptyDir": {"medium": "Memory"}}],
        },
    }


def _network_namespaces(rig, uids):
    """Where the runtime has mounted the network namespaces of pods."""

    async def look():
        runtime = Runtime(f"unix://{rig.socket}")
        found = set()
        for sandbox in await runtime.list_sandboxes():
            if sandbox.uid not in uids:
                continue
            asked = cri.PodSandboxStatusRequest(pod_sandbox_id=sandbox.id, verbose=True)
            answer = await runtime._runtime("PodSandboxStatus", asked, cri.PodSandboxStatusResponse)
            spaces = json.loads(answer.info["info"])["runtimeSpec"]["linux"]["namespaces"]
            found |= {s["path"] for s in spaces if s["type"] == "network"}
        await runtime.close()
        return found

    return asyncio.run(look())


def test_many_pods_at_once_run_and_leave_nothing(rig):
    rig.create(*(_pod(f"many-{number}") for number in range(MANY)))
    selector = ("-l", "test=many")
    rig.kubectl("wait", "pod", *selector, "--for=condition=Ready", "--timeout=60s")
    pods = rig.get("pods", *selector)["items"]
    uids = {pod["metadata"]["uid"] for pod in pods}
    addresses = {pod["status"]["podIP"] for pod in pods}
    assert len(addresses) == MANY
    assert all(p["status"]["containerStatuses"][0]["restartCount"] == 0 for p in pods)
    spaces = _network_namespaces(rig, uids)
    assert len(spaces) == MANY
    assert all(Path(space).exists() for space in spaces)
    held = {p.name for p in (rig.root / "cni").glob("**/10.244.7.*")}
    assert addresses <= held, "the look at what is left below looks at the right place"
    rig.kubectl("delete", "pod", *selector, "--timeout=60s", "--grace-period=0")

    def left():
        everything = rig.leftovers()
        found = {k: [p for p in v if any(u in str(p) for u in uids)] for k, v in everything.items()}
        found["addresses"] = addresses & {p.name for p in (rig.root / "cni").glob("**/10.244.7.*")}
        found["namespaces"] = {space for space in spaces if Path(space).exists()}
        found["sandboxes"] = _network_namespaces(rig, uids)
        return {kind: things for kind, things in found.items() if things}

    eventually(lambda: not left(), pause_s=0.3)
