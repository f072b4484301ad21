"""A Slurm cluster as a Node: pods with a toleration run there as jobs."""

import pytest

POD = {
    "restartPolicy": "Never",
    "tolerations": [{"key": "motley.io/slurm", "operator": "Exists"}],
    "containers": [
        {
            "name": "main",
            "image": "example.com/tool:1",
            "command": ["sh", "-c", "echo pod $WHO; exit $CODE"],
            "env": [{"name": "WHO", "value": "in slurm"}, {"name": "CODE", "value": "0"}],
            "resources": {"requests": {"cpu": "1500m", "memory": "64Mi"}},
        }
    ],
}


@pytest.fixture(scope="module")
def nodes(world):
    """Two clusters as nodes: one can run images, the other cannot."""
    world.cluster("default", virtualNode={})
    bare = [f"127.0.0.1:{world.slurm.bare_port}"]
    world.cluster("plain", hosts=bare, virtualNode={"name": "plain-node"})
    for name in ("slurm-default", "plain-node"):
        world.wait(lambda name=name: _is_ready(world, name), f"{name} is ready")
    return world


def _is_ready(world, name):
    if world.is_gone(name, "nodes"):
        return False
    node = world.get(name, "nodes")
    conditions = node.get("status", {}).get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _pod(world, name, node, code="0"):
    spec = {**POD, "nodeName": node}
    variables = [{"name": "WHO", "value": "in slurm"}, {"name": "CODE", "value": code}]
    spec["containers"] = [{**POD["containers"][0], "env": variables}]
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    world.call("POST", "/api/v1/namespaces/default/pods", body)


def _until(world, name, phase):
    def seen():
        status = world.get(name, "pods")["status"]
        return status if status["phase"] == phase else None

    return world.wait(seen, f"pod {name} is {phase}")


def test_the_node_has_what_the_partition_has_and_a_taint(nodes):
    node = nodes.get("slurm-default", "nodes")

    capacity = node["status"]["capacity"]
    assert (capacity["cpu"], capacity["nvidia.com/gpu"]) == ("16", "2")
    assert capacity["memory"] == "8000Mi"
    taint = {"key": "motley.io/slurm", "value": "default", "effect": "NoSchedule"}
    assert taint in node["spec"]["taints"]
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/slurm-default"
    assert nodes.call("GET", lease)["spec"]["holderIdentity"] == "slurm-default"


def test_a_pod_runs_in_the_sites_container_runtime(nodes):
    _pod(nodes, "works", "slurm-default")
    _pod(nodes, "breaks", "slurm-default", code="5")

    status = _until(nodes, "works", "Succeeded")
    broken = _until(nodes, "breaks", "Failed")

    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (0, "Completed")
    log = nodes.get("works-slurm-log", "configmaps")["data"]["works.out"]
    assert log == "image docker://example.com/tool:1\npod in slurm\n"
    assert broken["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 5
    asked = nodes.get("works")["spec"]
    assert (asked["cpusPerTask"], asked["memory"]) == (2, "64Mi")


def test_a_pod_is_refused_where_no_images_can_be_run(nodes):
    _pod(nodes, "refused", "plain-node")

    status = _until(nodes, "refused", "Failed")

    assert status["reason"] == "NoContainerRuntime"
    assert "neither Apptainer" in status["message"]


def test_a_deleted_pod_stops_its_job(nodes):
    spec = {**POD, "nodeName": "slurm-default"}
    spec["containers"] = [{**POD["containers"][0], "command": ["sleep", "100"]}]
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stopped"}, "spec": spec}
    nodes.call("POST", "/api/v1/namespaces/default/pods", body)
    _until(nodes, "stopped", "Running")
    number = nodes.status("stopped")["jobID"]

    nodes.delete("stopped", "pods")
    nodes.wait(lambda: nodes.is_gone("stopped", "pods"), "the pod is gone")

    assert nodes.slurm.command("squeue", "-h", "-j", number) == ""


def test_a_job_with_a_toleration_is_scheduled_there_and_completes(nodes):
    template = {
        "restartPolicy": "Never",
        "nodeSelector": {"motley.io/slurm-cluster": "default"},
        "tolerations": POD["tolerations"],
        "containers": [{"name": "main", "image": "x.org/y:1", "command": ["echo", "scheduled"]}],
    }
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "batch"},
        "spec": {"template": {"spec": template}},
    }
    with nodes.components(["controllers"], ["scheduler"]):
        nodes.call("POST", "/apis/batch/v1/namespaces/default/jobs", body)
        path = "/apis/batch/v1/namespaces/default/jobs/batch"
        nodes.wait(lambda: nodes.call("GET", path)["status"].get("succeeded"), "the Job succeeds")

    selector = "?labelSelector=job-name=batch"
    (pod,) = nodes.call("GET", f"/api/v1/namespaces/default/pods{selector}")["items"]
    assert pod["spec"]["nodeName"] == "slurm-default"
