"""`kubectl debug`: a container that looks into a running pod."""

import pytest

from .conftest import BUSYBOX, eventually

pytestmark = pytest.mark.root


def test_an_ephemeral_container_sees_the_processes_of_its_target_and_runs_once(rig):
    rig.pod("patient", "sleep", "4321")
    rig.until_ready("patient")
    before = rig.container("patient")
    rig.kubectl(
        "debug",
        "patient",
        *(f"--image={BUSYBOX}", "--target=main", "--container=doctor", "--profile=general"),
        *("--", "sh", "-c", "ps; exit 3"),
    )

    def ended():
        found = rig.status("patient").get("ephemeralContainerStatuses") or [{}]
        return found[0].get("state", {}).get("terminated")

    assert eventually(ended)["exitCode"] == 3
    assert "sleep 4321" in rig.kubectl("logs", "patient", "-c", "doctor")
    rig.kubectl("annotate", "pod", "patient", "look=again")  # one more round of the worker
    eventually(lambda: rig.get("pod", "patient")["metadata"]["annotations"]["look"] == "again")
    status = rig.status("patient")
    assert status["ephemeralContainerStatuses"][0]["restartCount"] == 0
    assert status["containerStatuses"][0]["containerID"] == before["containerID"]
    assert status["phase"] == "Running"
    rig.delete("patient")


def test_one_may_type_into_an_ephemeral_container(rig):
    rig.pod("quiet", "sleep", "1000")
    rig.until_ready("quiet")
    said = rig.kubectl(
        *("debug", "quiet", f"--image={BUSYBOX}", "--container=shell", "--profile=general", "-i"),
        *("--", "sh", "-c", "read line; echo heard $line"),
        input="hello in there\n",
        timeout_s=20,
    )
    assert "heard hello in there" in said
    rig.delete("quiet")
