"""The walking skeleton, end to end: real containers, real kubectl, every component killed once.

The tests build on each other, in the order of the file, as a user's first hour does.
"""

import os
import signal
from pathlib import Path

import pytest

from motley.ops import config as configs
from motley.ops import processes
from motley.ops.testbed import NODE_IP, eventually

pytestmark = pytest.mark.root

HELLO = Path(__file__).parents[2] / "examples" / "hello" / "hello.yaml"
COMPONENTS = (
    *("containerd", "apiserver", "controllers", "scheduler"),
    *("node", "proxy", "gateway", "functions", "slurm"),
)

CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: data
spec:
  accessModes: [ReadWriteOnce]
  resources:
    requests:
      storage: 10Mi
"""

CLAIMANT = """
apiVersion: v1
kind: Pod
metadata:
  name: claimant
spec:
  terminationGracePeriodSeconds: 0
  restartPolicy: Never
  containers:
    - name: shell
      image: localhost/motley/busybox:1
      command: ["sh", "-c", "echo line >> /data/file && wc -l < /data/file"]
      volumeMounts:
        - {name: data, mountPath: /data}
  volumes:
    - name: data
      persistentVolumeClaim: {claimName: data}
"""

CLIENT = """
apiVersion: v1
kind: Pod
metadata:
  name: client
  labels:
    app: client
spec:
  terminationGracePeriodSeconds: 0
  containers:
    - name: shell
      image: localhost/motley/busybox:1
      command: ["sleep", "100000"]
      resources:
        limits: {cpu: 200m, memory: 32Mi}
"""


def pods(cluster):
    return [
        pod
        for pod in cluster.get("pods", "-l", "app=hello")["items"]
        if "deletionTimestamp" not in pod["metadata"]
    ]


def ready(pod):
    return any(
        c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ())
    )


def names(found):
    return {pod["metadata"]["name"] for pod in found}


def address(cluster):
    return cluster.get("service", "hello")["spec"]["clusterIP"]


def answering(cluster, where, port, count):
    """The pods that answer on an address, once `count` different ones have."""
    seen = set()

    def enough():
        seen.add(cluster.fetch(where, port).removeprefix("hello from "))
        return seen if len(seen) == count else None

    return eventually(enough, pause_s=0)


def test_kubectl_applies_the_example_and_sees_the_rollout(cluster):
    assert "deployment.apps/hello created" in cluster.kubectl("apply", "-f", HELLO)
    told = cluster.kubectl("rollout", "status", "deployment/hello", "--timeout=120s")
    assert 'deployment "hello" successfully rolled out' in told
    assert len(pods(cluster)) == 3
    assert all(ready(pod) for pod in pods(cluster))


def test_the_service_answers_from_every_pod_through_its_cluster_address(cluster):
    assert answering(cluster, address(cluster), 80, 3) == names(pods(cluster))


def test_the_service_answers_on_the_nodes_port(cluster):
    assert answering(cluster, NODE_IP, 30080, 3) == names(pods(cluster))


def test_the_demo_agrees_with_kubectl_about_what_is_applied(cluster):
    told = cluster.motley("demo")
    rows = [line.split() for line in told.splitlines() if line.startswith("hello-")]
    assert {row[0] for row in rows} == names(pods(cluster))
    assert sum(int(row[-1]) for row in rows) == 10
    assert f"export KUBECONFIG={cluster.kubeconfig}" in told
    assert "deployment.apps/hello unchanged" in cluster.kubectl("apply", "-f", HELLO)


def test_a_pod_reaches_the_service_by_its_name(cluster):
    cluster.kubectl("apply", "-f", "-", stdin=CLIENT)
    cluster.kubectl("wait", "--for=condition=Ready", "pod/client", "--timeout=60s")
    inside = ("exec", "client", "--")
    told = cluster.kubectl(*inside, "nslookup", "hello.default.svc.cluster.local")
    assert address(cluster) in told
    # `timeout`: this busybox's own `wget -T` crashes.
    body = cluster.kubectl(*inside, "timeout", "5", "wget", "-q", "-O", "-", "http://hello")
    assert body.strip().removeprefix("hello from ") in names(pods(cluster))


def test_logs_of_a_pod_are_what_it_printed(cluster):
    name = pods(cluster)[0]["metadata"]["name"]
    assert f"{name} listens on port 8080" in cluster.kubectl("logs", name)


def test_no_request_fails_while_the_deployment_grows_and_shrinks(cluster):
    with cluster.requests(address(cluster)) as requests:
        for count in (5, 1):
            cluster.kubectl("scale", "deployment/hello", f"--replicas={count}")
            cluster.kubectl("rollout", "status", "deployment/hello", "--timeout=120s")
            eventually(lambda count=count: len(pods(cluster)) == count)
            # Whoever was told to leave may still answer for a moment.
            eventually(
                lambda count=count: (
                    answering(cluster, address(cluster), 80, count) == names(pods(cluster))
                )
            )
        # Those told to leave keep serving what is on its way; wait until they are gone.
        eventually(lambda: len(cluster.get("pods", "-l", "app=hello")["items"]) == 1)
    assert requests.failures == []
    assert requests.answers > 50


def test_a_killed_container_is_started_again_in_the_same_pod(cluster):
    (before,) = pods(cluster)
    process = container_process(cluster, before)
    processes.send(process, signal.SIGKILL)

    def restarted():
        (after,) = pods(cluster)
        (status,) = after["status"]["containerStatuses"]
        return after if status["restartCount"] == 1 and ready(after) else None

    after = eventually(restarted)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    last = after["status"]["containerStatuses"][0]["lastState"]["terminated"]
    assert last["exitCode"] == 137
    assert answering(cluster, address(cluster), 80, 1) == names([after])


def container_process(cluster, pod):
    """The process of a pod's container: the Python in the pod's cgroup."""
    root = configs.load(cluster.root).cgroup_root
    for process in processes.in_cgroup(root):
        cgroup = Path(f"/proc/{process.pid}/cgroup").read_text()
        command = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        if pod["metadata"]["uid"] in cgroup.replace("_", "-") and b"server.py" in command:
            return process
    raise AssertionError(f"no process of {pod['metadata']['name']}")


def restarts(cluster):
    """How often each pod's container was started again, by the pod's uid."""
    return {
        pod["metadata"]["uid"]: pod["status"]["containerStatuses"][0]["restartCount"]
        for pod in pods(cluster)
    }


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_killed_component_comes_back_and_no_request_fails_meanwhile(cluster, name):
    if name == COMPONENTS[0]:
        cluster.kubectl("scale", "deployment/hello", "--replicas=3")
        cluster.kubectl("rollout", "status", "deployment/hello", "--timeout=120s")
    before = cluster.components()[name]
    running = restarts(cluster)
    with cluster.requests(address(cluster)) as requests:
        os.kill(before["pid"], signal.SIGKILL)

        eventually(lambda: cluster.components()[name]["pid"] != before["pid"], 60)
        eventually(cluster.all_run, 60)
        eventually(lambda: sum(ready(pod) for pod in pods(cluster)) == 3, 60)
        assert answering(cluster, address(cluster), 80, 3) == names(pods(cluster))
    assert requests.failures == []
    assert requests.answers > 10
    # The same pods, none restarted: nobody noticed but the component itself.
    assert restarts(cluster) == running
    assert cluster.components()[name]["restarts"] == before["restarts"] + 1


def test_kubectl_top_shows_what_pods_and_the_node_really_use(cluster):
    def used():
        told = cluster.kubectl("top", "pods", "-l", "app=hello", "--no-headers")
        rows = {line.split()[0]: line.split()[1:] for line in told.splitlines()}
        return rows if set(rows) == names(pods(cluster)) else None

    for cpu, memory in eventually(used, 60, pause_s=1).values():
        assert cpu.endswith("m")
        assert 1 <= int(memory.removesuffix("Mi")) < 500
    (_, cores, _, memory, _) = cluster.kubectl("top", "nodes", "--no-headers").split()
    assert int(cores.removesuffix("m")) > 0
    assert int(memory.removesuffix("Mi")) > 100


def test_kubectl_shows_the_truth_after_all_that(cluster):
    (node,) = cluster.get("nodes")["items"]
    assert ready(node)
    deployment = cluster.get("deployment", "hello")
    assert deployment["status"]["readyReplicas"] == 3
    name = sorted(names(pods(cluster)))[0]
    cluster.kubectl("delete", "pod", name, "--wait=true", "--timeout=60s")
    eventually(lambda: len(pods(cluster)) == 3 and all(ready(pod) for pod in pods(cluster)))
    assert name not in names(pods(cluster))


def test_up_again_changes_nothing(cluster):
    before = {name: one["pid"] for name, one in cluster.components().items()}
    told = cluster.up()
    assert "The cluster is up" in told
    assert f"export KUBECONFIG={cluster.kubeconfig}" in told
    assert "kubectl get nodes" in told
    assert cluster.status()["running"]
    assert {name: one["pid"] for name, one in cluster.components().items()} == before


def test_a_killed_supervisor_is_replaced_by_the_next_up(cluster):
    before = {name: one["pid"] for name, one in cluster.components().items()}
    with cluster.requests(address(cluster)) as requests:
        os.kill(cluster.status()["supervisor"]["pid"], signal.SIGKILL)
        eventually(lambda: not cluster.all_run())
        assert not cluster.status()["running"]
        cluster.up()
    assert requests.failures == []
    assert {name: one["pid"] for name, one in cluster.components().items()} == before


def test_a_restart_replaces_every_component_and_no_request_fails(cluster):
    before, running = cluster.components(), restarts(cluster)
    with cluster.requests(address(cluster)) as requests:
        cluster.up("--restart")
    assert requests.failures == []
    after = cluster.components()
    replaced = {name for name in after if after[name]["pid"] != before[name]["pid"]}
    assert replaced == set(COMPONENTS) - {"containerd"}
    assert restarts(cluster) == running


def test_pods_run_again_after_down_and_up(cluster):
    cluster.motley("down", "--pods")
    assert cluster.leftovers() == {}
    cluster.up()
    eventually(lambda: sum(ready(pod) for pod in pods(cluster)) == 3, 90)
    assert answering(cluster, address(cluster), 80, 3) == names(pods(cluster))


def test_pods_go_on_through_a_down_that_was_not_asked_to_stop_them(cluster):
    before = restarts(cluster)
    with cluster.requests(address(cluster)) as requests:
        cluster.motley("down")
        config = configs.load(cluster.root)
        assert [p for p in processes.of_cluster(cluster.root) if is_component(p)] == []
        assert processes.in_cgroup(config.cgroup_root)
        cluster.up()
        eventually(lambda: sum(ready(pod) for pod in pods(cluster)) == 3)
    assert requests.failures == []
    assert requests.answers > 50
    assert restarts(cluster) == before


def is_component(process):
    """Not a container's shim: those belong to the pods."""
    command = Path(f"/proc/{process.pid}/cmdline").read_bytes()
    return b"containerd-shim" not in command


def test_a_claim_keeps_its_files_from_pod_to_pod_and_leaves_none_behind(cluster):
    cluster.kubectl("apply", "-f", "-", stdin=CLAIM)
    assert "local-path (default)" in cluster.kubectl("get", "storageclass")
    eventually(lambda: "WaitForFirstConsumer" in cluster.kubectl("describe", "pvc", "data"))
    for lines in (1, 2):
        cluster.kubectl("apply", "-f", "-", stdin=CLAIMANT)
        eventually(lambda: cluster.get("pod", "claimant")["status"]["phase"] == "Succeeded")
        assert cluster.kubectl("logs", "claimant").split() == [str(lines)]
        cluster.kubectl("delete", "pod", "claimant")
    volume = cluster.get("pvc", "data")["spec"]["volumeName"]
    directory = Path(cluster.get("pv", volume)["spec"]["hostPath"]["path"])
    assert (directory / "file").read_text() == "line\n" * 2
    change = '{"spec":{"resources":{"requests":{"storage":"20Mi"}}}}'
    cluster.kubectl("patch", "pvc", "data", "-p", change)
    eventually(lambda: cluster.get("pvc", "data")["status"]["capacity"] == {"storage": "20Mi"})
    cluster.kubectl("delete", "pvc", "data", "--timeout=60s")
    cluster.kubectl("wait", "pv", volume, "--for=delete", "--timeout=60s")
    assert list(directory.parent.iterdir()) == []
    eventually(lambda: not cluster.get("pods", "-n", "kube-system")["items"])


def test_everything_can_be_deleted(cluster):
    cluster.kubectl("delete", "-f", HELLO, "--timeout=60s")
    cluster.kubectl("delete", "pod", "client", "--timeout=60s")
    eventually(lambda: cluster.get("pods")["items"] == [])
    eventually(lambda: cluster.get("replicasets")["items"] == [])
    config = configs.load(cluster.root)
    eventually(lambda: processes.in_cgroup(config.cgroup_root) == [])


def test_down_after_everything_was_killed_leaves_nothing(cluster):
    cluster.kubectl("apply", "-f", "-", stdin=CLIENT)
    cluster.kubectl("wait", "--for=condition=Ready", "pod/client", "--timeout=60s")
    for process in processes.of_cluster(cluster.root):
        processes.send(process, signal.SIGKILL)
    cluster.motley("down", "--delete-data", "--yes")
    assert cluster.leftovers() == {}
    assert not cluster.root.exists()
