"""A cluster of unlike machines that is used like any other: two amd64 nodes and an arm64 one.

The arm64 node is emulated: its containers are real arm64 programs, run by qemu. Images are built by
`motley image build` for both architectures and come from a real registry. The tests build on each
other, in the order of the file.
"""

import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from motley.node import cgroups
from motley.ops import config as configs
from motley.ops import emulation, members, oci
from motley.ops.testbed import Testbed, eventually

pytestmark = pytest.mark.root

REGISTRY = "10.77.0.1:5000"
INDEX = f"{REGISTRY}/team/app:1"  # one name for both
NATIVE_ONLY = f"{REGISTRY}/team/native:1"
NOWHERE = f"{REGISTRY}/team/riscv:1"
LOGICAL = f"{REGISTRY}/team/by-name:latest"  # as the documents have it: a name per architecture
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
ARCHITECTURES = {"node-1": "amd64", "node-2": "amd64", "node-3": "arm64"}
SCHEDULER = "kubehice-scheduler"
WRITTEN = {"requests": Fraction(20), "limits": Fraction(40)}  # millicores
MOTLEY = (sys.executable, "-P", "-m", "motley.cli.main")


def build(directory):
    """An archive of one image for both architectures, by Motley's own tools."""
    target = directory / "app.tar"
    command = [*MOTLEY, "image", "build", "app:1", "--arch", "amd64,arm64"]
    command += ["--cmd", "sleep 100000", "-o", str(target)]
    cache = Path(__file__).parents[2] / ".cache" / "images"
    command += ["--image-cache", str(cache)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return target


def single(archive, arch, called):
    """One of an archive's images alone, by wish under another architecture's name."""
    target = archive.with_name(f"{called}.tar")
    (image,) = (one for one in oci.read(archive) if one.architecture == arch)
    oci.write(target, image.layers, name="x:1", architecture=called, config=image.config)
    return target


@contextlib.contextmanager
def registry(cluster, directory):
    """Debian's docker-registry, in the clear, in the cluster's namespace."""
    settings = {
        "version": "0.1",
        "log": {"level": "error"},
        "storage": {"filesystem": {"rootdirectory": str(directory / "registry")}},
        "http": {"addr": "0.0.0.0:5000"},
    }
    (directory / "registry.yml").write_text(json.dumps(settings))  # YAML, too
    command = [*cluster.inside, "docker-registry", "serve", str(directory / "registry.yml")]
    with (directory / "registry.log").open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        probe = "import socket; socket.create_connection(('127.0.0.1', 5000), 1)"
        eventually(lambda: cluster.run(sys.executable, "-c", f"{probe}; print('up')"))
        yield
    finally:
        process.kill()
        process.wait(10)


def push(cluster, image, *archives):
    near = image.replace(REGISTRY, "127.0.0.1:5000")  # the nodes' network comes later
    cluster.run(*MOTLEY, "images", "push", "--plain-http", near, *archives)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("mixed")


@pytest.fixture(scope="module")
def cluster(cache, directory):
    emulation.prefetch(cache / "images", "arm64", say=lambda _: None)
    testbed = Testbed(cache)
    try:
        testbed.make_bare_namespace()
        reached = directory / "registries.yaml"
        reached.write_text(f"registries: [{{host: '{REGISTRY}', plainHTTP: true}}]\n")
        with registry(testbed, directory), ThreadPoolExecutor(1) as pool:
            up = pool.submit(testbed.up_nodes, 3, "--arch", "arm64", "--registries", reached)
            both = build(directory)
            push(testbed, INDEX, both)
            for image, arch, only in (
                (NATIVE_ONLY, "amd64", "amd64"),
                (NOWHERE, "amd64", "riscv64"),
                (f"{LOGICAL}-amd64", "amd64", "amd64"),
                (f"{LOGICAL}-arm64", "arm64", "arm64"),
            ):
                push(testbed, image, single(both, arch, only))
            up.result()
            yield testbed
    finally:
        testbed.destroy()


def deployment(name, image, replicas, scheduler=SCHEDULER, labels=None, **container):
    labels = {"app": name, **(labels or {})}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "schedulerName": scheduler,
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{"name": "main", "image": image, **container}],
                },
            },
        },
    }


def apply(cluster, *objects):
    document = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    cluster.kubectl("apply", "-f", "-", stdin=msgspec.json.encode(document).decode())


def pods(cluster, name):
    return cluster.get("pods", "-l", f"app={name}")["items"]


def rolled_out(cluster, name):
    cluster.kubectl("rollout", "status", f"deployment/{name}", "--timeout=60s")
    return pods(cluster, name)


def arch_of(pod):
    return ARCHITECTURES[pod["spec"]["nodeName"]]


def message(pod):
    found = [c for c in pod["status"].get("conditions", ()) if c["type"] == "PodScheduled"]
    return found[0].get("message", "") if found else ""


def waiting(pod):
    (status,) = pod["status"].get("containerStatuses") or [{}]
    return status.get("state", {}).get("waiting", {})


def test_the_emulated_node_is_an_arm64_node_and_known_to_be_slow(cluster):
    nodes = {one["metadata"]["name"]: one for one in cluster.get("nodes")["items"]}
    for name, arch in ARCHITECTURES.items():
        node = nodes[name]
        assert node["metadata"]["labels"]["kubernetes.io/arch"] == arch
        assert node["status"]["nodeInfo"]["architecture"] == arch

    def speeds():
        found = cluster.get("nodes")["items"]
        return [float(node["metadata"]["labels"]["hice.kj"]) for node in found]

    fast, also, slow = eventually(speeds)
    assert fast == also
    assert 3 < fast / slow < 40


def test_one_deployment_without_a_selector_runs_everywhere_with_each_nodes_own_image(cluster):
    apply(cluster, deployment("app", INDEX, 4))
    found = rolled_out(cluster, "app")
    assert {arch_of(pod) for pod in found} == set(MACHINES)
    index = msgspec.json.decode(
        cluster.run(
            sys.executable,
            "-c",
            "import urllib.request as u; print(u.urlopen(u.Request("
            "'http://127.0.0.1:5000/v2/team/app/manifests/1',"
            f" headers={{'Accept': '{oci.INDEX}'}})).read().decode())",
        )
    )
    digests = {one["platform"]["architecture"]: one["digest"] for one in index["manifests"]}
    for arch in MACHINES:
        pod = next(pod for pod in found if arch_of(pod) == arch)
        name = pod["metadata"]["name"]
        assert cluster.kubectl("exec", name, "--", "uname", "-m").strip() == MACHINES[arch]
        (status,) = pod["status"]["containerStatuses"]
        assert pod["spec"]["containers"][0]["image"] == status["image"] == INDEX
        if arch == "arm64":
            assert status["imageID"] == f"{REGISTRY}/team/app@{digests[arch]}"
    # What the registry said is there for everybody to see.
    maps = [one for m in cluster.get("imagemaps")["items"] for one in m["spec"]["images"]]
    (known,) = [one for one in maps if one["name"] == INDEX]
    assert known["source"] == "registry"
    assert {one["architecture"] for one in known["architectures"]} == set(MACHINES)


def test_a_name_per_architecture_is_chosen_at_binding_and_the_owner_stays_as_it_is(
    cluster, tmp_path
):
    file = tmp_path / "images.yaml"
    variants = "".join(
        f"    - {{name: '{LOGICAL}-{arch}', arch: {arch}, os: linux}}\n" for arch in MACHINES
    )
    file.write_text(f"list:\n  - name: {LOGICAL}\n    images:\n{variants}")
    cluster.run(*MOTLEY, "images", "import", file, "--kubeconfig", cluster.kubeconfig)
    apply(cluster, deployment("by-name", LOGICAL, 4, imagePullPolicy="Always"))
    found = rolled_out(cluster, "by-name")
    assert {arch_of(pod) for pod in found} == set(MACHINES)
    for pod in found:
        assert pod["spec"]["containers"][0]["image"] == f"{LOGICAL}-{arch_of(pod)}"
    slow = next(pod for pod in found if arch_of(pod) == "arm64")
    name = slow["metadata"]["name"]
    assert cluster.kubectl("exec", name, "--", "uname", "-m").strip() == "aarch64"
    owner = cluster.get("deployment", "by-name")
    assert owner["spec"]["template"]["spec"]["containers"][0]["image"] == LOGICAL
    assert owner["status"]["observedGeneration"] == owner["metadata"]["generation"]
    # Nobody takes a pod that differs from its template for one that is wrong.
    (replicas,) = cluster.get("replicasets", "-l", "app=by-name")["items"]
    assert replicas["status"]["readyReplicas"] == 4
    made = cluster.get("events", "--field-selector", "reason=SuccessfulCreate")["items"]
    of_it = [e for e in made if e["involvedObject"]["name"] == replicas["metadata"]["name"]]
    assert sum(e.get("count") or 1 for e in of_it) == 4
    assert {pod["metadata"]["uid"] for pod in pods(cluster, "by-name")} == {
        pod["metadata"]["uid"] for pod in found
    }


def test_an_image_for_amd64_only_lands_on_amd64_only_also_by_the_default_scheduler(cluster):
    apply(
        cluster,
        deployment("native", NATIVE_ONLY, 3),
        deployment("default", NATIVE_ONLY, 3, scheduler="default-scheduler"),
    )
    for name in ("native", "default"):
        assert {arch_of(pod) for pod in rolled_out(cluster, name)} == {"amd64"}


def test_a_pod_that_no_node_can_run_says_so_and_a_name_is_believed_where_no_registry_answers(
    cluster,
):
    unreachable = "10.77.0.1:9/team/app:1-arm64"
    apply(cluster, deployment("nowhere", NOWHERE, 1), deployment("unanswered", unreachable, 1))

    def refused():
        (pod,) = pods(cluster, "nowhere")
        assert "nodeName" not in pod["spec"]
        return "3 node(s)'s arch isn't included in pods arches" in message(pod)

    def believed():
        (pod,) = pods(cluster, "unanswered")
        return pod["spec"]["nodeName"] == "node-3" and waiting(pod).get("reason", "").endswith(
            ("ErrImagePull", "ImagePullBackOff")
        )

    eventually(refused)
    eventually(believed)
    cluster.kubectl("delete", "deployment", "nowhere", "unanswered")


def test_what_is_bound_to_the_wrong_node_by_hand_does_not_run_there(cluster):
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "wrong"},
        "spec": {
            "nodeName": "node-3",
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": NATIVE_ONLY}],
        },
    }
    apply(cluster, pod)

    def refused():
        said = waiting(cluster.get("pod", "wrong")).get("message", "")
        return "no match for platform linux/arm64 in manifest: it is for linux/amd64" in said

    eventually(refused)
    cluster.kubectl("delete", "pod", "wrong")


def test_of_an_archive_for_both_the_emulated_node_takes_what_it_runs(cluster, directory):
    root = cluster.root / "nodes" / "node-3"
    cluster.run(*MOTLEY, "image", "import", directory / "app.tar", "--root", root)
    cluster.kubectl(
        "run",
        "imported",
        "--image=localhost/app:1",
        "--overrides",
        '{"spec":{"nodeName":"node-3"}}',
    )
    cluster.kubectl("wait", "--for=condition=Ready", "pod/imported", "--timeout=60s")
    assert cluster.kubectl("exec", "imported", "--", "uname", "-m").strip() == "aarch64"
    cluster.kubectl("delete", "pod", "imported", "--now", "--wait=false")


def test_cpu_is_scaled_by_speed_and_the_control_group_holds_the_scaled_values(cluster):
    resources = {part: {"cpu": f"{milli}m"} for part, milli in WRITTEN.items()}
    made = []
    for arch in MACHINES:
        one = deployment(f"cpu-{arch}", INDEX, 1, labels={"hice.kb": "1.0"}, resources=resources)
        one["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/arch": arch}
        made.append(one)
    apply(cluster, *made)
    speeds = {
        node["metadata"]["name"]: Fraction(node["metadata"]["labels"]["hice.kj"])
        for node in cluster.get("nodes")["items"]
    }
    quotas = {}
    for arch in MACHINES:
        (pod,) = rolled_out(cluster, f"cpu-{arch}")
        speed = speeds[pod["spec"]["nodeName"]]
        given = pod["spec"]["containers"][0]["resources"]
        wanted = {part: math.ceil(milli / speed) for part, milli in WRITTEN.items()}
        assert given["requests"]["cpu"] == f"{wanted['requests']}m"
        assert given["limits"]["cpu"] == f"{wanted['limits']}m"
        uid, container = pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]
        quotas[arch] = enforced(uid, container["containerID"].rpartition("/")[2])
        shares, quota = quotas[arch]
        assert quota == wanted["limits"] * 100
        assert shares == max(2, wanted["requests"] * 1024 // 1000)
    assert quotas["arm64"][1] > 3 * quotas["amd64"][1]


def enforced(uid, container):
    """CPU shares and quota per 100 ms of a container, from its control group."""
    mounts = cgroups.detect(Path("/proc/self/mountinfo").read_text())
    if mounts.is_v2:
        (group,) = mounts.every[0].glob(f"motley*/**/pod{uid}/{container}")
        weight = int((group / "cpu.weight").read_text())
        shares = (weight - 1) * 262142 // 9999 + 2
        return shares, int((group / "cpu.max").read_text().split()[0])
    (group,) = mounts.controllers["cpu"].glob(f"motley*/**/pod{uid}/{container}")
    assert int((group / "cpu.cfs_period_us").read_text()) == 100_000
    quota = int((group / "cpu.cfs_quota_us").read_text())
    return int((group / "cpu.shares").read_text()), quota


SERVER = """
import http.server, json, time
spent = []
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        total = 0
        for number in range(4000 if self.path == "/" else 0):
            total = (total * 31 + number) & 0xFFFFFFFF
        spent.append(time.process_time())
        body = json.dumps(spent).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
http.server.HTTPServer(("", 8080), Handler).serve_forever()
"""
REQUESTS = 40
ASK = """
import sys, urllib.request
for _ in range(int(sys.argv[2])):
    with urllib.request.urlopen(sys.argv[1], timeout=30) as answer:
        said = answer.read().decode()
print(said)
"""


def cores(pod):
    return float(pod["spec"]["containers"][0]["resources"]["limits"]["cpu"].rstrip("m")) / 1000


def test_replicas_behind_one_service_use_equal_shares_of_their_own_cpu(cluster):
    resources = {"requests": {"cpu": "60m"}, "limits": {"cpu": "200m"}}
    apart = {}
    for name, scheduler in (("equal", "default-scheduler"), ("by-speed", SCHEDULER)):
        one = deployment(
            name,
            "localhost/motley/python:1",
            2,
            scheduler,
            {"hice.kb": "1.0"},
            command=["python3", "-c", SERVER],
            resources=resources,
        )
        # One replica on a node of each kind.
        one["spec"]["template"]["spec"]["affinity"] = {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "labelSelector": {"matchLabels": {"app": name}},
                        "topologyKey": "kubernetes.io/arch",
                    }
                ]
            }
        }
        apply(cluster, one)
        found = rolled_out(cluster, name)
        cluster.kubectl("expose", "deployment", name, "--port=8080")
        assert {arch_of(pod) for pod in found} == set(MACHINES)

        def spent(pod):
            """The CPU time that it had used at the end of each request."""
            url = f"http://{pod['status']['podIP']}:8080/cpu"
            return json.loads(eventually(lambda: cluster.run(sys.executable, "-c", ASK, url, 1)))

        def share(pod):
            """What its requests used of its CPU: each as much as the usual one of them, because on
            a busy machine there are always some that cost far more."""
            seen = spent(pod)[:-1]
            costs = [after - before for before, after in pairwise(seen)]
            return statistics.median(costs) * len(costs) / cores(pod)

        for pod in found:
            spent(pod)
        address = cluster.get("service", name)["spec"]["clusterIP"]
        cluster.run(sys.executable, "-c", ASK, f"http://{address}:8080/", REQUESTS)
        shares = [share(pod) for pod in found]
        apart[name] = 1 - min(shares) / max(shares)
        cluster.kubectl("delete", "deployment,service", name, "--wait=false")
    # A speed learnt in a moment on a busy machine is rough; `bench/heterogeneous.py` is exact.
    assert apart["by-speed"] < 0.5 < 0.6 < apart["equal"], apart


def test_doctor_and_up_know_what_is_emulated(cluster):
    _, out, _ = cluster.answer(*MOTLEY, "doctor", "--root", cluster.root)
    assert "node-3 runs arm64 programs" in out
    code, out, _ = cluster.answer(*MOTLEY, "up", "--arch", "node-2=arm64", "--root", cluster.root)
    assert code == 1
    assert "node-2 was made as a node like the machine" in out


def test_down_leaves_no_trace_in_the_kernel_and_keeps_what_others_registered(cluster):
    foreign = f"test-{os.getpid()}"
    entry = emulation.entry(members.member(configs.load(cluster.root), "node-3"))
    with emulation.mounted() as place:
        (place / "register").write_text(f":{foreign}:E::{foreign}::/bin/true:")
        try:
            assert (place / entry).exists()
            cluster.motley("down", "--grace", 0)
            assert not (place / entry).exists()
            assert (place / foreign).exists()
        finally:
            (place / foreign).write_text("-1")
    assert cluster.leftovers() == {}
