"""Static pods: they run without the API server, and the API shows them by mirrors."""

import json
import signal

import pytest

from .conftest import BUSYBOX, eventually

pytestmark = pytest.mark.root

MIRROR = "kubernetes.io/config.mirror"


def _manifest(words, **spec):
    container = {"name": "main", "image": BUSYBOX, "command": words}
    body = {"containers": [container], "terminationGracePeriodSeconds": 1, **spec}
    return json.dumps(
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "own"}, "spec": body}
    )


def _processes(rig, words):
    return rig.run("pgrep", "-f", words, check=False).split()


@pytest.fixture
def directory(rig):
    path = rig.root / "node" / "static"
    path.mkdir(exist_ok=True)
    yield path
    for file in path.iterdir():
        file.unlink()
    eventually(lambda: "own-node-1" not in rig.kubectl("get", "pods", "-o", "name"))


def test_a_file_is_a_pod_that_the_api_shows_and_cannot_take_away(rig, directory):
    file = directory / "own.json"
    file.write_text(_manifest(["sleep", "7001"]))
    rig_status = eventually(lambda: rig.until_ready("own-node-1", timeout_s=10))
    assert rig_status["phase"] == "Running"
    pod = rig.get("pod", "own-node-1")
    assert pod["metadata"]["annotations"][MIRROR]
    assert pod["metadata"]["ownerReferences"][0]["kind"] == "Node"
    (process,) = _processes(rig, "sleep 7001")
    rig.kubectl("delete", "pod", "own-node-1", "--wait=false")
    eventually(lambda: rig.get("pod", "own-node-1")["metadata"]["uid"] != pod["metadata"]["uid"])
    rig.until_ready("own-node-1")
    assert _processes(rig, "sleep 7001") == [process], "only the picture was taken away"
    assert "hello" in rig.exec("own-node-1", "echo", "hello")
    file.write_text(_manifest(["sleep", "7002"]))  # another text, another pod
    eventually(lambda: _processes(rig, "sleep 7002") and not _processes(rig, "sleep 7001"))
    eventually(lambda: rig.until_ready("own-node-1", timeout_s=10))
    file.unlink()
    eventually(lambda: not _processes(rig, "sleep 7002"))
    eventually(lambda: "own-node-1" not in rig.kubectl("get", "pods", "-o", "name"))


def test_it_runs_without_the_api_server_and_the_next_agent_takes_it_over(rig, directory):
    rig.end("node", signal.SIGKILL)
    nowhere = rig.root / "nowhere.kubeconfig"
    text = (rig.root / "node.kubeconfig").read_text()
    nowhere.write_text(text.replace("127.0.0.1:6443", "127.0.0.1:1"))
    (directory / "own.json").write_text(_manifest(["sleep", "7003"], hostNetwork=True))
    rig.spawn("node", *rig.agent_command(kubeconfig=nowhere))
    (process,) = eventually(lambda: _processes(rig, "sleep 7003"))
    rig.end("node", signal.SIGKILL)
    rig.start_agent()
    eventually(lambda: rig.until_ready("own-node-1", timeout_s=10))
    assert _processes(rig, "sleep 7003") == [process]
