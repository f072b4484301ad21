"""What lets a pod run on a node, with kubectl: volumes, pressure, taints, ports, resources.

One cluster of three fake nodes; every reason is read from the pods themselves, then what stands in
the way is removed and the pods run.
"""

import json
from typing import Any

import pytest

from .conftest import wait_until
from .test_scheduler_profiles import processes

HOST = "kubernetes.io/hostname"
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
DONGLE = "example.com/dongle"
PRESSURES = {"n-0": "MemoryPressure", "n-1": "DiskPressure", "n-2": "PIDPressure"}
Doc = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def components(server):
    """Controllers, nodes and the scheduler as it is without a file."""
    commands = [
        ["controllers", "--health-port", "0", "--no-leader-elect"],
        ["fake-nodes", "--count", "3", "--prefix", "n-"],
        ["scheduler", "--health-port", "0", "--no-leader-elect"],
    ]
    with processes(server, commands):
        yield


@pytest.fixture
def cluster(kubectl):
    """The kubectl, once there are nodes."""
    wait_until(lambda: len(kubectl.ready_nodes()) == 3, "nodes")
    return kubectl


def create(kubectl, *documents: Doc) -> None:
    kubectl(
        "create",
        "-f",
        "-",
        stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}),
    )


def pod(name: str, *, node: str = "", claims=(), volumes=(), cpu="", ports=(), **spec) -> Doc:
    container: Doc = {"name": "c", "image": "app:1", "ports": list(ports)}
    if cpu:
        container["resources"] = {"requests": {"cpu": cpu}}
    used = [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]
    body = {"containers": [container], "volumes": [*used, *volumes], **spec}
    if node:
        body["nodeSelector"] = {HOST: node, **body.get("nodeSelector", {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": body}


def claim(name: str, *, kind: str = "", volume: str = "", mode: str = "ReadWriteOnce") -> Doc:
    spec = {
        "accessModes": [mode],
        "storageClassName": kind,
        "volumeName": volume,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    meta = {"name": name}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": spec}


def volume(name: str, *, kind: str = "", on: str = "", labels=None, mode="ReadWriteOnce", **source):
    spec: Doc = {
        "capacity": {"storage": "1Gi"},
        "accessModes": [mode],
        "storageClassName": kind,
        **(source or {"csi": {"driver": "d.example", "volumeHandle": name}}),
    }
    if on:
        terms = [{"matchExpressions": [{"key": HOST, "operator": "In", "values": [on]}]}]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    meta = {"name": name, "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec}


def csi_node(name: str, count: int) -> Doc:
    driver = {"name": "d.example", "nodeID": name, "topologyKeys": None}
    spec = {"drivers": [{**driver, "allocatable": {"count": count}}]}
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


def seen(kubectl) -> dict[str, str]:
    """Of every pod its node, or why it has none."""
    found = {}
    for item in kubectl("get", "pods", "-o", "json").json["items"]:
        conditions = {c["type"]: c for c in item.get("status", {}).get("conditions", [])}
        why = conditions.get("PodScheduled", {}).get("message", "")
        found[item["metadata"]["name"]] = item["spec"].get("nodeName") or why
    return found


def become(kubectl, expected: dict[str, str]) -> dict[str, str]:
    """Wait until each pod's node or reason is, or contains, what is expected."""
    last: dict[str, str] = {}

    def matches() -> bool:
        last.clear()
        last.update(seen(kubectl))
        return all(words in last.get(name, "") for name, words in expected.items())

    try:
        wait_until(matches, "what is expected")
    except AssertionError:
        assert last == expected
    return last


def patch_status(kubectl, node: str, status: Doc) -> None:
    body = json.dumps({"status": status})
    kubectl("patch", "node", node, "--subresource=status", "--type=strategic", "-p", body)


def test_volumes_decide_where_pods_run(cluster):
    """Late binding, zones, disks, limits; each refusal ends when its cause does."""
    cluster("label", "--overwrite", "node", "n-0", f"{ZONE}=z0", f"{REGION}=r")
    cluster("label", "--overwrite", "node", "n-1", f"{ZONE}=z1", f"{REGION}=r")
    local = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "late"},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    disk = {"name": "d", "gcePersistentDisk": {"pdName": "disk"}}
    create(
        cluster,
        local,
        volume("local", kind="late", on="n-1", local={"path": "/mnt/disk"}),
        claim("late-1", kind="late"),
        claim("late-2", kind="late"),
        volume("zonal", labels={ZONE: "z0__z9"}),
        claim("zonal", volume="zonal"),
        csi_node("n-2", 1),
        *(volume(f"v{i}") for i in range(2)),
        *(claim(f"v{i}", volume=f"v{i}") for i in range(2)),
        pod("by-disk", node="n-2", volumes=[disk]),
        pod("by-limit", node="n-2", claims=["v0"]),
        pod("by-late", claims=["late-1"]),
    )
    become(cluster, {"by-disk": "n-2", "by-limit": "n-2", "by-late": "n-1"})
    bound = cluster("get", "pvc", "late-1", "-o", "json").json
    assert (bound["status"]["phase"], bound["spec"]["volumeName"]) == ("Bound", "local")

    create(
        cluster,
        pod("too-late", claims=["late-2"]),
        pod("zoned", node="n-1", claims=["zonal"]),
        pod("in-zone", node="n-0", claims=["zonal"]),
        pod("same-disk", node="n-2", volumes=[disk]),
        pod("too-many", node="n-2", claims=["v1"]),
        pod("no-claim", claims=["nothing"]),
    )
    other = "2 node(s) didn't match Pod's node affinity/selector"
    become(
        cluster,
        {
            "too-late": "3 node(s) didn't find available persistent volumes to bind",
            "zoned": f"1 node(s) had no available volume zone, {other}",
            "in-zone": "n-0",
            "same-disk": f"1 node(s) had no available disk, {other}",
            "too-many": f"1 node(s) exceed max volume count, {other}",
            "no-claim": 'persistentvolumeclaim "nothing" not found',
        },
    )
    cluster("delete", "pod", "by-disk", "--now")
    cluster("label", "--overwrite", "node", "n-1", f"{ZONE}=z9")
    cluster("replace", "-f", "-", stdin=json.dumps(csi_node("n-2", 2)))
    create(cluster, volume("more", kind="late", on="n-2", local={"path": "/mnt/more"}))
    become(cluster, {"same-disk": "n-2", "zoned": "n-1", "too-many": "n-2", "too-late": "n-2"})


def test_a_claim_for_one_pod_goes_to_the_more_important_one(cluster):
    mode = "ReadWriteOncePod"
    urgent = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "urgent"},
        "value": 1000,
    }
    create(
        cluster, urgent, volume("single", mode=mode), claim("single", volume="single", mode=mode)
    )
    create(cluster, pod("first", claims=["single"], terminationGracePeriodSeconds=0))
    become(cluster, {"first": "n-"})
    create(cluster, pod("second", claims=["single"]))
    why = "ReadWriteOncePod access mode already in-use by another pod"
    become(cluster, {"second": f"3 node(s) unavailable due to PersistentVolumeClaim with {why}"})
    create(cluster, pod("third", claims=["single"], priorityClassName="urgent"))
    found = become(cluster, {"third": "n-"})
    assert "first" not in found


def test_the_eight_checks_of_acceptance(cluster):
    """Resources, pressure, name, selector, port, volume, taints, affinity: each can refuse."""
    holder = [{"containerPort": 80, "hostPort": 8080}]
    disk = {"name": "d", "awsElasticBlockStore": {"volumeID": "vol-1"}}
    create(
        cluster,
        pod("holder", node="n-0", ports=holder, volumes=[disk]),
        pod("named", nodeName="n-1"),
    )
    become(cluster, {"holder": "n-0", "named": "n-1"})
    for node, kind in PRESSURES.items():
        patch_status(cluster, node, {"conditions": [{"type": kind, "status": "True"}]})
    assert cluster("taint", "node", "n-0", "team=a:NoSchedule").out == "node/n-0 tainted\n"

    def taints(node):
        spec = cluster("get", "node", node, "-o", "json").json["spec"]
        return {taint["key"] for taint in spec.get("taints", [])}

    pressed = {
        "n-0": "node.kubernetes.io/memory-pressure",
        "n-1": "node.kubernetes.io/disk-pressure",
        "n-2": "node.kubernetes.io/pid-pressure",
    }
    for node, key in pressed.items():
        wait_until(lambda node=node, key=key: key in taints(node), f"{key} on {node}")
    memory = {"key": pressed["n-0"], "operator": "Exists"}
    team = {"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}
    fine = {"tolerations": [memory, team]}
    anti = {"labelSelector": {}, "topologyKey": HOST}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    create(
        cluster,
        pod("pressure-0", node="n-0", tolerations=[team]),
        pod("pressure-1", node="n-1"),
        pod("pressure-2", node="n-2"),
        pod("resources", node="n-0", cpu="1000", **fine),
        pod("selector", nodeSelector={"disk": "none"}, **fine),
        pod("port", node="n-0", ports=holder, **fine),
        pod("volume", node="n-0", volumes=[disk], **fine),
        pod("taint", node="n-0", tolerations=[memory]),
        pod("affinity", node="n-0", affinity={"podAntiAffinity": {required: [anti]}}, **fine),
        pod("all-fine", node="n-0", **fine),
    )
    become(
        cluster,
        {
            **{f"pressure-{i}": "3 node(s) had untolerated taint(s)" for i in range(3)},
            "resources": "1 Insufficient cpu",
            "selector": "1 node(s) didn't match Pod's node affinity/selector",
            "port": "1 node(s) didn't have free ports for the requested pod ports",
            "volume": "1 node(s) had no available disk",
            "taint": "3 node(s) had untolerated taint(s)",
            "affinity": "1 node(s) didn't match pod anti-affinity rules",
            "all-fine": "n-0",
        },
    )
    for node, kind in PRESSURES.items():
        patch_status(cluster, node, {"conditions": [{"type": kind, "status": "False"}]})
    assert cluster("taint", "node", "n-0", "team-").out == "node/n-0 untainted\n"
    cluster("delete", "pod", "holder", "--now")
    cluster("label", "node", "n-0", "disk=none")
    expected = {"pressure-0": "n-0", "pressure-1": "n-1", "pressure-2": "n-2"}
    become(cluster, expected | dict.fromkeys(["selector", "port", "volume", "taint"], "n-0"))


def test_resources_of_ones_own_and_well_known_labels(cluster):
    patch_status(cluster, "n-1", {"capacity": {DONGLE: "2"}, "allocatable": {DONGLE: "2"}})
    bare = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "bare"}}
    create(cluster, bare)
    patch_status(cluster, "bare", {"capacity": {DONGLE: "3"}})
    shown = cluster("get", "node", "bare", "-o", "json").json["status"]
    assert shown["allocatable"] == shown["capacity"] == {DONGLE: "3"}
    cluster("delete", "node", "bare")
    refused = json.dumps({"status": {"capacity": {DONGLE: "1.5"}}})
    arguments = ("patch", "node", "n-1", "--subresource=status", "-p", refused)
    assert "must be an integer" in cluster(*arguments, fails=True).err

    def wants(name, number, **spec):
        made = pod(name, **spec)
        amounts = {DONGLE: str(number)}
        made["spec"]["containers"][0]["resources"] = {"requests": amounts, "limits": amounts}
        return made

    cluster("label", "--overwrite", "node", "n-2", f"{ZONE}=z2", f"{REGION}=r")
    known = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", ZONE: "z2", REGION: "r"}
    create(
        cluster,
        wants("plugged-1", 1),
        wants("plugged-2", 1),
        pod("labelled", nodeSelector={HOST: "n-2", **known}),
    )
    become(cluster, {"plugged-1": "n-1", "plugged-2": "n-1", "labelled": "n-2"})
    create(cluster, wants("unplugged", 1))
    become(cluster, {"unplugged": f"3 Insufficient {DONGLE}"})
    described = cluster("describe", "node", "n-1").out
    assert DONGLE in described
    cluster("delete", "pod", "plugged-1", "--now")
    become(cluster, {"unplugged": "n-1"})
