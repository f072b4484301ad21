"""CPU is shared by the ratio of requests when it is short, and free for all when it is not."""

import os
import subprocess
from pathlib import Path

import pytest

from motley.node.cgroups import detect
from motley.node.usage import Groups

pytestmark = pytest.mark.root

SECONDS = 1.5  # a look's length; all that time nobody else on the machine gets on
# One busy process per CPU, so that two such pods cannot both have what they would take.
SPIN = "for i in $(seq {0}); do (while true; do :; done) & done; wait"


def _spinner(rig, name, milli=0):
    requests = {"cpu": f"{milli}m"} if milli else {}
    words = ("sh", "-c", SPIN.format(os.cpu_count()))
    rig.pod(name, *words, resources={"requests": requests} if requests else {})


def _cpu_s(rig, names):
    groups = Groups(detect(Path("/proc/self/mountinfo").read_text()))
    found = {}
    for name in names:
        uid = rig.get("pod", name)["metadata"]["uid"]
        for parent in ("", "burstable/", "besteffort/"):
            used = groups.read(f"/{rig.cgroup_root}/{parent}pod{uid}", 0.0)
            if used is not None:
                found[name] = used.cpu.core_s
    return found


def _used(rig, *names, seconds=SECONDS):
    before = _cpu_s(rig, names)
    subprocess.run(["sleep", str(seconds)], check=True)
    after = _cpu_s(rig, names)
    return {name: after[name] - before[name] for name in names}


def _in_some_window(rig, names, right, windows=20):
    """Usage in the first window that is right, for other work on the machine comes in bursts."""
    for _ in range(windows - 1):
        used = _used(rig, *names)
        if right(used):
            return used
    return _used(rig, *names)


def test_a_busy_node_shares_by_requests_and_an_idle_neighbour_lets_one_use_all(rig):
    _spinner(rig, "large", milli=300)
    rig.until_ready("large")
    # No limit: alone it may take far more than the 300m it asked for.
    far_more = 1.5 * 0.3 * SECONDS
    alone = _in_some_window(rig, ["large"], lambda used: used["large"] > far_more)
    assert alone["large"] > far_more
    _spinner(rig, "small", milli=100)
    _spinner(rig, "nothing")
    rig.until_ready("small")
    rig.until_ready("nothing")

    # Three to one; the kernel balances per CPU, so beside other work it is only about that. Who
    # asks for nothing gets next to nothing when others want what they asked for.
    def fair(used):
        ratio = used["large"] / max(used["small"], 0.001)
        return 1.5 < ratio < 6.0 and used["nothing"] < 0.2 * used["small"]

    used = _in_some_window(rig, ["large", "small", "nothing"], fair)
    assert fair(used), used
    for name in ("large", "small", "nothing"):
        rig.delete(name)
