"""Workloads by real kubectl: server, controllers and scheduler as processes, on fake nodes."""

import subprocess
import sys
import time

import pytest

WAIT = "--timeout=60s"


@pytest.fixture(scope="module", autouse=True)
def components(server):
    """The rest of a cluster beside the module's server."""
    config = ["--kubeconfig", str(server.kubeconfig), "--log-level", "warning"]
    commands = [
        ["controllers", *config, "--health-port", "0", "--no-leader-elect"],
        ["scheduler", *config, "--health-port", "0", "--no-leader-elect"],
        ["fake-nodes", *config, "--count", "3", "--prefix", "k-"],
    ]
    with (server.directory / "components.log").open("wb") as log:
        running = [
            subprocess.Popen([sys.executable, "-m", "motley.cli.main", *c], stdout=log, stderr=log)
            for c in commands
        ]
        yield
        for process in running:
            process.terminate()
        for process in running:
            process.wait(30)


def eventually(condition, what, timeout_s=60.0):
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
    return found


@pytest.fixture
def web(kubectl):
    """A Deployment of three, rolled out."""
    kubectl("create", "deployment", "web", "--image=one", "--replicas=3")
    kubectl("rollout", "status", "deploy/web", WAIT)
    return kubectl


def images(kubectl):
    path = "jsonpath={.items[*].spec.containers[0].image}"
    return sorted(kubectl("get", "pods", "-l", "app=web", "-o", path).out.split())


def placed(kubectl):
    return kubectl("get", "pods", "-o", "jsonpath={.items[*].spec.nodeName}").out.split()


def names(kubectl, what):
    return sorted(kubectl("get", what, "-o", "name").out.split())


def test_rollout_status_follows_a_change_to_its_end(web):
    web("set", "image", "deploy/web", "one=two")
    shown = web("rollout", "status", "deploy/web", WAIT)
    assert 'deployment "web" successfully rolled out' in shown.out
    eventually(lambda: images(web) == ["two"] * 3, "only new pods")


def test_history_and_undo_to_the_last_and_to_a_named_revision(web):
    for image in ("two", "three"):
        web("set", "image", "deploy/web", f"one={image}")
        web("rollout", "status", "deploy/web", WAIT)
    shown = web("rollout", "history", "deploy/web").out
    assert [line.split()[0] for line in shown.splitlines()[2:] if line] == ["1", "2", "3"]
    assert "Image:\ttwo" in web("rollout", "history", "deploy/web", "--revision=2").out
    web("rollout", "undo", "deploy/web")
    web("rollout", "status", "deploy/web", WAIT)
    eventually(lambda: images(web) == ["two"] * 3, "the revision before")
    web("rollout", "undo", "deploy/web", "--to-revision=1")
    web("rollout", "status", "deploy/web", WAIT)
    eventually(lambda: images(web) == ["one"] * 3, "the first revision")
    shown = web("rollout", "history", "deploy/web").out
    assert [line.split()[0] for line in shown.splitlines()[2:] if line] == ["3", "4", "5"]
    assert (
        "unable to find specified revision"
        in web("rollout", "undo", "deploy/web", "--to-revision=99", fails=True).err
    )


def test_restart_replaces_every_pod(web):
    before = set(names(web, "pods"))
    web("rollout", "restart", "deploy/web")
    web("rollout", "status", "deploy/web", WAIT)
    eventually(lambda: len(names(web, "pods")) == 3, "old pods gone")
    assert not before & set(names(web, "pods"))


def test_pause_holds_a_change_and_resume_lets_it_go(web):
    web("rollout", "pause", "deploy/web")
    web("set", "image", "deploy/web", "one=two")
    web("scale", "deploy/web", "--replicas=4")
    eventually(lambda: images(web) == ["one"] * 4, "scaled, not changed")
    assert "paused" in web("rollout", "restart", "deploy/web", fails=True).err
    web("rollout", "resume", "deploy/web")
    web("rollout", "status", "deploy/web", WAIT)
    eventually(lambda: images(web) == ["two"] * 4, "changed")


def test_scale_with_a_condition_and_wait(web):
    refused = web("scale", "deploy/web", "--replicas=5", "--current-replicas=9", fails=True)
    assert "Expected replicas to be 9, was 3" in refused.err
    web("scale", "deploy/web", "--replicas=5", "--current-replicas=3", WAIT)
    web("wait", "deploy/web", "--for=jsonpath={.status.readyReplicas}=5", WAIT)
    web("wait", "deploy/web", "--for=condition=Available", WAIT)
    web("scale", "deploy/web", "--replicas=0")
    web("wait", "pods", "-l", "app=web", "--for=delete", WAIT)


def test_a_rollout_that_does_not_progress_is_reported(web):
    web("patch", "deploy/web", "-p", '{"spec":{"progressDeadlineSeconds":2}}')
    stuck = '{"spec":{"template":{"spec":{"nodeSelector":{"no":"such"}}}}}'
    web("patch", "deploy/web", "-p", stuck)
    shown = web("rollout", "status", "deploy/web", WAIT, fails=True)
    assert "exceeded its progress deadline" in shown.err
    assert len([i for i in images(web) if i == "one"]) >= 3


def test_drain_waits_for_the_budget_and_moves_everything(web):
    web("create", "poddisruptionbudget", "web", "--selector=app=web", "--min-available=2")
    web("wait", "pdb/web", "--for=jsonpath={.status.disruptionsAllowed}=1", WAIT)
    shown = web("drain", "k-0", "--ignore-daemonsets", WAIT).out
    assert "node/k-0 drained" in shown
    try:
        eventually(lambda: len(placed(web)) == 3 and "k-0" not in placed(web), "three elsewhere")
        web("delete", "pdb/web")
        web("create", "poddisruptionbudget", "all", "--selector=app=web", "--min-available=3")
        web("wait", "pdb/all", "--for=jsonpath={.status.desiredHealthy}=3", WAIT)
        node = placed(web)[0]
        refused = web("drain", node, "--ignore-daemonsets", "--timeout=2s", fails=True)
        assert "Cannot evict pod as it would violate the pod's disruption budget" in refused.err
        web("uncordon", node)
        eventually(lambda: len(placed(web)) == 3, "three stay")
    finally:
        web("uncordon", "k-0")


def test_deletes_cascade_as_asked(web):
    web("delete", "deploy/web", "--cascade=orphan")
    eventually(lambda: names(web, "deploy") == [], "the deployment is gone")
    sets = names(web, "rs")
    assert len(sets) == 1
    owners = "jsonpath={.metadata.ownerReferences}"
    eventually(lambda: web("get", sets[0], "-o", owners).out == "", "the set is free")
    assert len(names(web, "pods")) == 3
    web("create", "deployment", "web", "--image=one", "--replicas=3")  # adopts it
    web("rollout", "status", "deploy/web", WAIT)
    assert names(web, "rs") == sets
    web("delete", "deploy/web", "--cascade=foreground", WAIT)
    assert names(web, "rs") == []  # gone before the deployment was
    assert names(web, "pods") == []
    web("create", "deployment", "web", "--image=one", "--replicas=3")
    web("rollout", "status", "deploy/web", WAIT)
    web("delete", "deploy/web")
    eventually(lambda: names(web, "rs,pods") == [], "all gone in the background")


def test_a_namespace_takes_everything_with_it(web):
    web("delete", "namespace", web.namespace, WAIT)
    assert "NotFound" in web("get", "namespace", web.namespace, fails=True).err
