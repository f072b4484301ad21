"""The sidecar that ships a log file to a store elsewhere, while both of them are killed.

Everything is as in `examples/logging/shipping.yaml`. What the store has at the end is every line of
the application exactly once, its last words among them.
"""

import signal
from pathlib import Path

import pytest

from motley.ops import config as configs
from motley.ops import members, processes
from motley.ops.testbed import eventually

pytestmark = pytest.mark.root

SHIPPING = Path(__file__).parents[2] / "examples/logging/shipping.yaml"


@pytest.fixture(scope="module")
def cluster(three):
    """The three nodes that these files share, with the example; all of it is gone afterwards."""
    three.kubectl("apply", "-f", SHIPPING)
    try:
        three.kubectl("rollout", "status", "deployment/log-store", "--timeout=60s")
        three.kubectl("wait", "--for=condition=Ready", "pod/shipped", "--timeout=60s")
        volume = three.get("pvc", "log-store")["spec"]["volumeName"]
        yield three
    finally:
        three.kubectl("delete", "-f", SHIPPING, "--ignore-not-found", "--timeout=60s")
    three.kubectl("wait", "pv", volume, "--for=delete", "--timeout=60s")


def stored(cluster, pod):
    """The lines that have come."""
    name = f"default_shipped_{pod['metadata']['uid']}.log"
    return cluster.kubectl("exec", "deploy/log-store", "--", "cat", f"/store/{name}").splitlines()


def more_than(cluster, pod, count):
    """How many lines have come, once that is more."""

    def look():
        lines = stored(cluster, pod)
        return len(lines) if len(lines) > count else None

    return eventually(look, 40)


def kill(cluster, pod, script):
    """End the process of a pod that runs a script, and give it no time."""
    config = configs.load(cluster.root)
    for node in (config, *members.present(config)):
        for process in processes.in_cgroup(node.cgroup_root):
            if runs(process, pod, script):
                processes.send(process, signal.SIGKILL)
                return
    raise AssertionError(f"no process of {pod['metadata']['name']} runs {script}")


def runs(process, pod, script):
    about = Path(f"/proc/{process.pid}")
    try:
        cgroup = (about / "cgroup").read_text().replace("_", "-")
        return pod["metadata"]["uid"] in cgroup and script in (about / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False  # one of the application's many short ones


def restarts(pod):
    status = pod["status"]
    every = [*status.get("initContainerStatuses", ()), *status["containerStatuses"]]
    return {one["name"]: one["restartCount"] for one in every}


def test_no_line_is_lost_or_doubled_whoever_is_killed_and_the_last_words_arrive(cluster):
    pod = cluster.get("pod", "shipped")
    (store,) = cluster.get("pods", "-l", "app=log-store")["items"]
    count = more_than(cluster, pod, 3)

    kill(cluster, pod, b"ship.py")
    kill(cluster, store, b"store.py")
    eventually(lambda: restarts(cluster.get("pod", "shipped")) == {"ship-logs": 1, "app": 0})
    eventually(lambda: restarts(cluster.get("pod", store["metadata"]["name"])) == {"store": 1})
    count = more_than(cluster, pod, count)
    told = cluster.kubectl("logs", "shipped", "-c", "ship-logs")
    assert int(told.splitlines()[0].removeprefix("shipping from byte ")) > 0

    # A new pod in its place: the volume goes on, the sidecar waits for it.
    cluster.kubectl("delete", "pod", store["metadata"]["name"], "--timeout=60s")
    cluster.kubectl("rollout", "status", "deployment/log-store", "--timeout=60s")
    more_than(cluster, pod, count)

    cluster.kubectl("delete", "pod", "shipped", "--timeout=60s")
    *lines, last = (line.split(maxsplit=1) for line in stored(cluster, pod))
    assert [number for number, _ in lines] == [str(n) for n in range(len(lines))]
    assert last == [str(len(lines)), "the end"]
