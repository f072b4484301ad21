"""A pod's life on a real node: starting, restarting, ending, and an agent that dies meanwhile."""

import os
import signal
import subprocess
import time

import pytest

from .conftest import BUSYBOX, NODE, eventually

pytestmark = pytest.mark.root


def test_a_pod_runs_and_reports_itself(rig):
    rig.pod("hello", "sh", "-c", "echo hello from $HOSTNAME; sleep 1000")
    status = rig.until_ready("hello")
    assert status["phase"] == "Running"
    assert status["podIP"].startswith("10.244.7.")
    assert status["hostIP"] == "10.77.0.1"
    assert status["startTime"]
    conditions = {c["type"]: c["status"] for c in status["conditions"]}
    assert conditions["PodReadyToStartContainers"] == "True"
    assert conditions["Initialized"] == conditions["ContainersReady"] == "True"
    container = status["containerStatuses"][0]
    assert container["image"] == BUSYBOX
    assert container["imageID"].startswith("sha256:")
    assert container["containerID"].startswith("containerd://")
    assert container["started"] is True
    events = rig.kubectl("get", "events", "-o", "jsonpath={.items[*].reason}").split()
    assert {"Pulled", "Created", "Started"} <= set(events)
    rig.delete("hello")


def test_the_node_says_what_it_is(rig):
    node = rig.get("node", NODE)
    status = node["status"]
    assert node["metadata"]["labels"]["kubernetes.io/os"] == "linux"
    assert node["metadata"]["labels"]["kubernetes.io/hostname"] == NODE
    assert status["nodeInfo"]["containerRuntimeVersion"].startswith("containerd://")
    assert status["capacity"]["cpu"] == str(os.cpu_count())
    assert status["allocatable"]["cpu"] == f"{os.cpu_count() * 1000 - 100}m"
    assert status["daemonEndpoints"]["kubeletEndpoint"]["Port"] == 10250
    assert any(BUSYBOX in i["names"] for i in status["images"])
    lease = rig.get("lease", NODE, "-n", "kube-node-lease")
    assert lease["spec"]["holderIdentity"] == NODE


def test_a_killed_process_is_restarted_and_the_story_is_kept(rig):
    rig.pod("phoenix", "sh", "-c", "trap 'exit 3' TERM; sleep 1000 & wait")
    rig.until_ready("phoenix")
    before = rig.container("phoenix")
    os.kill(rig.pid(before["containerID"].removeprefix("containerd://")), signal.SIGKILL)

    def restarted():
        now = rig.container("phoenix")
        return now["restartCount"] == 1 and now["ready"] and now

    after = eventually(restarted)
    assert after["containerID"] != before["containerID"]
    ended = after["lastState"]["terminated"]
    assert ended["exitCode"] == 137
    assert ended["containerID"] == before["containerID"]
    rig.delete("phoenix")


def test_a_crashing_container_backs_off(rig):
    rig.pod("crash", "sh", "-c", "echo boom >&2; echo why > /dev/termination-log; exit 7")

    def backing_off():
        now = rig.container("crash")
        return now["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff" and now

    status = eventually(backing_off)
    assert status["restartCount"] == 1
    assert status["lastState"]["terminated"]["exitCode"] == 7
    assert status["lastState"]["terminated"]["reason"] == "Error"
    assert status["lastState"]["terminated"]["message"] == "why\n"
    assert rig.kubectl("logs", "crash", "--previous") == "boom\n"
    rig.delete("crash", "--grace-period=1")


def test_succeeded_and_failed_pods_end_for_good(rig):
    for name, code in (("won", 0), ("lost", 4)):
        rig.pod(name, "sh", "-c", f"exit {code}", pod_spec={"restartPolicy": "Never"})
    won = rig.until_phase("won", "Succeeded")
    assert won["containerStatuses"][0]["state"]["terminated"]["reason"] == "Completed"
    assert {c["type"]: c.get("reason") for c in won["conditions"]}["Ready"] == "PodCompleted"
    lost = rig.until_phase("lost", "Failed")
    assert lost["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 4
    assert lost["containerStatuses"][0]["restartCount"] == 0
    rig.delete("won")
    rig.delete("lost")


def test_on_failure_restarts_until_success_and_then_rests(rig):
    script = "test -e /data/again && exit 0; touch /data/again; exit 1"
    volumes = {
        "restartPolicy": "OnFailure",
        "volumes": [{"name": "data", "emptyDir": {}}],
    }
    mounts = [{"name": "data", "mountPath": "/data"}]
    rig.pod("retry", "sh", "-c", script, pod_spec=volumes, volumeMounts=mounts)
    status = rig.until_phase("retry", "Succeeded")
    assert status["containerStatuses"][0]["restartCount"] == 1
    rig.delete("retry")


def test_init_containers_run_in_order_before_the_main_one(rig):
    def step(name, text):
        return {
            "name": name,
            "image": BUSYBOX,
            "command": ["sh", "-c", f"{text} >> /data/order"],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        }

    spec = {
        "volumes": [{"name": "data", "emptyDir": {"medium": "Memory"}}],
        "initContainers": [step("first", "sleep 0.3; echo 1"), step("second", "echo 2")],
    }
    mounts = [{"name": "data", "mountPath": "/data"}]
    rig.pod("steps", "sleep", "1000", pod_spec=spec, volumeMounts=mounts)
    status = rig.until_ready("steps")
    assert rig.exec("steps", "cat", "/data/order") == "1\n2\n"
    assert "tmpfs" in rig.exec("steps", "sh", "-c", "grep ' /data ' /proc/mounts")
    assert [s["state"]["terminated"]["exitCode"] for s in status["initContainerStatuses"]] == [0, 0]
    rig.delete("steps")


def test_deletion_is_graceful_with_its_hook_and_its_last_words(rig):
    script = "trap 'echo term >> /host/story; exit 0' TERM; sleep 1000 & wait"
    story = rig.root / "story"
    story.mkdir()
    rig.pod(
        "polite",
        *("sh", "-c", script),
        pod_spec={
            "terminationGracePeriodSeconds": 50,
            "volumes": [{"name": "host", "hostPath": {"path": str(story)}}],
        },
        volumeMounts=[{"name": "host", "mountPath": "/host"}],
        lifecycle={"preStop": {"exec": {"command": ["sh", "-c", "echo hook >> /host/story"]}}},
    )
    rig.until_ready("polite")
    began = time.monotonic()
    rig.delete("polite")
    assert time.monotonic() - began < 40, "a process that obeys is not waited for"
    assert (story / "story").read_text() == "hook\nterm\n"


def test_a_stubborn_process_is_killed_when_its_grace_is_over(rig):
    rig.pod("stubborn", "sh", "-c", "trap '' TERM; while true; do sleep 0.1; done")
    rig.until_ready("stubborn")
    began = time.monotonic()
    rig.delete("stubborn", "--grace-period=2")
    assert 1.5 < time.monotonic() - began < 25


def test_an_agent_killed_and_restarted_adopts_what_runs(rig):
    rig.kubectl("create", "configmap", "words", "--from-literal=word=old")
    rig.pod(
        "kept",
        *("sleep", "1000"),
        pod_spec={"volumes": [{"name": "words", "configMap": {"name": "words"}}]},
        volumeMounts=[{"name": "words", "mountPath": "/words"}],
    )
    rig.pod("doomed", "sleep", "1000")
    rig.pod(
        "judged",
        *("sleep", "1000"),
        readinessProbe={"exec": {"command": ["true"]}, "periodSeconds": 1},
    )
    for name in ("kept", "doomed", "judged"):
        rig.until_ready(name)
    before = {name: rig.container(name) for name in ("kept", "judged")}
    since = next(c for c in rig.status("judged")["conditions"] if c["type"] == "Ready")
    doomed = rig.container("doomed")["containerID"].removeprefix("containerd://")
    rig.end("node", signal.SIGKILL)
    rig.kubectl("delete", "pod", "doomed", "--grace-period=0", "--force")
    rig.pod("newcomer", "sleep", "1000")
    rig.kubectl("patch", "configmap", "words", "-p", '{"data":{"word":"new"}}')
    rig.start_agent()
    rig.until_ready("newcomer")
    for name, container in before.items():
        now = rig.container(name)
        assert now["containerID"] == container["containerID"]
        assert now["restartCount"] == 0
        assert now["state"] == container["state"]
        assert now["ready"]
    still = next(c for c in rig.status("judged")["conditions"] if c["type"] == "Ready")
    assert still["lastTransitionTime"] == since["lastTransitionTime"], "it never was unready"

    def gone():
        try:
            rig.pid(doomed)
        except LookupError:
            return True
        return False

    eventually(gone)
    eventually(lambda: rig.exec("kept", "cat", "/words/word") == "new")
    for name in ("kept", "judged", "newcomer"):
        rig.delete(name)


def test_a_pod_that_does_not_fit_is_rejected(rig):
    rig.pod("huge", "sleep", "1", resources={"requests": {"cpu": "500"}})
    status = rig.until_phase("huge", "Failed")
    assert status["reason"] == "OutOfcpu"
    assert "requested: 500000" in status["message"]
    assert not status.get("containerStatuses")  # nothing is being created, and none says so
    rig.delete("huge")


def test_a_missing_image_is_said_and_never_pulled(rig):
    rig.pod("nowhere", "true", image="localhost/motley/none:1", imagePullPolicy="Never")

    def waiting():
        return rig.container("nowhere")["state"].get("waiting", {}).get("reason")

    eventually(lambda: waiting() == "ErrImageNeverPull")
    rig.delete("nowhere")


def test_a_command_that_cannot_start_is_a_start_error(rig):
    rig.pod("typo", "/no/such/program", pod_spec={"restartPolicy": "Never"})
    status = rig.until_phase("typo", "Failed")
    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (128, "StartError")
    assert "no such file" in ended["message"]
    rig.delete("typo")


def test_a_second_agent_with_another_configuration_is_refused(rig):
    command = rig.agent_command(root=rig.root / "other", port=10999, health_port=0)
    done = subprocess.run(
        [*rig.inside, *map(str, command)], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 1
    assert 'node "node-1" is registered with another configuration' in done.stderr
    assert "kubectl delete node node-1" in done.stderr
