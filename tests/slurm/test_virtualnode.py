"""A Slurm cluster as a Node: pods with a toleration run there as jobs."""

from motley.ops import images


def _pod(world, name, node, code="0"):
    world.pod(
        name,
        node,
        command=["sh", "-c", "echo pod $WHO; exit $CODE"],
        env=[{"name": "WHO", "value": "in slurm"}, {"name": "CODE", "value": code}],
        resources={"requests": {"cpu": "1500m", "memory": "64Mi"}},
    )


def test_the_node_has_what_the_partition_has_and_a_taint(nodes):
    node = nodes.get("slurm-default", "nodes")

    capacity = node["status"]["capacity"]
    assert (capacity["cpu"], capacity["nvidia.com/gpu"]) == ("16", "2")
    assert capacity["memory"] == "8000Mi"
    taint = {"key": "motley.io/slurm", "value": "default", "effect": "NoSchedule"}
    assert taint in node["spec"]["taints"]
    assert node["metadata"]["labels"]["kubernetes.io/arch"] == images.architecture()
    assert node["status"]["nodeInfo"]["architecture"] == images.architecture()
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/slurm-default"
    assert nodes.call("GET", lease)["spec"]["holderIdentity"] == "slurm-default"


def test_a_pod_runs_in_the_sites_container_runtime(nodes):
    _pod(nodes, "works", "slurm-default")
    _pod(nodes, "breaks", "slurm-default", code="5")

    status = nodes.until_pod("works", "Succeeded")
    broken = nodes.until_pod("breaks", "Failed")

    ended = status["containerStatuses"][0]["state"]["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (0, "Completed")
    log = nodes.get("works-slurm-log", "configmaps")["data"]["works.out"]
    assert log == "image docker://example.com/tool:1\npod in slurm\n"
    assert broken["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 5
    asked = nodes.get("works")["spec"]
    assert (asked["cpusPerTask"], asked["memory"]) == (2, "64Mi")


def test_a_pod_is_refused_where_no_images_can_be_run(nodes):
    _pod(nodes, "refused", "plain-node")

    status = nodes.until_pod("refused", "Failed")

    assert status["reason"] == "NoContainerRuntime"
    assert "neither Apptainer" in status["message"]


def test_enroot_imports_unpacks_starts_and_removes_an_image(nodes):
    """The stand-in refuses what enroot's command line does not have."""
    variables = [{"name": "WHO", "value": "it's $HOME"}, {"name": "EMPTY", "value": ""}]
    shows = ["sh", "-c", 'echo "$WHO[$EMPTY] in $PWD with $*"; exit 3', "sh"]
    nodes.pod(
        "unpacked", "slurm-unpacking", command=shows, args=["a b"], workingDir="/usr", env=variables
    )
    nodes.pod("entered", "slurm-unpacking", image="busybox", args=["x"], workingDir="/")

    status = nodes.until_pod("unpacked", "Failed")
    nodes.until_pod("entered", "Succeeded")

    assert status["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    printed = nodes.kubectl("logs", "unpacked").out
    assert printed == "image docker://example.com#tool:1\nit's $HOME[] in /usr with a b\n"
    assert nodes.kubectl("logs", "entered").out == "image docker://busybox\nentrypoint x\n"
    assert list((nodes.slurm.directory / "enroot").iterdir()) == []


def test_a_pod_whose_name_another_job_has_says_so(nodes):
    nodes.job("taken", command="true")
    nodes.pod("taken", "slurm-default", command=["true"])

    def why():
        (seen,) = nodes.get("taken", "pods")["status"].get("containerStatuses", [{}])
        return seen.get("state", {}).get("waiting", {}).get("reason") == "NameTaken"

    nodes.wait(why, "the pod says why it waits")
    nodes.delete("taken", "pods")


def test_a_deleted_pod_stops_its_job(nodes):
    nodes.pod("stopped", "slurm-default", command=["sleep", "100"])
    nodes.until_pod("stopped", "Running")
    number = nodes.status("stopped")["jobID"]

    nodes.delete("stopped", "pods")
    nodes.wait(lambda: nodes.is_gone("stopped", "pods"), "the pod is gone")

    assert nodes.slurm.command("squeue", "-h", "-j", number) == ""
