"""Plugins that look at nodes, their pods and their volumes, against the plain reference.

On random clusters: after some pods have come and some have gone, so that counts kept along are
compared with counts made afresh. `REFERENCE_EXAMPLES=5000` looks at more of them than the thirty
of an ordinary run; `REFERENCE_SHRINK=1` makes a failing one small, which takes minutes.
"""

import os
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.api.views.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from motley.scheduler.plugins.node_resources_balanced_allocation import (
    NodeResourcesBalancedAllocation,
)
from motley.scheduler.plugins.node_resources_fit import NodeResourcesFit

from .conftest import Cluster
from .reference import OLD, ZONE, Doc, Reference
from .stored import forget, know

EXAMPLES = settings(
    max_examples=int(os.environ.get("REFERENCE_EXAMPLES", "30")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    phases=[Phase.generate, *([Phase.shrink] if "REFERENCE_SHRINK" in os.environ else [])],
)
NODES = [f"n{i}" for i in range(5)]
GPU = "example.com/gpu"
HOST = "kubernetes.io/hostname"
IMAGES = ["web:1", "db", "registry.example:5000/tool:2"]


def often(strategy: Any, chance: int = 2) -> Any:
    """None in one case of `chance`."""
    return st.integers(0, chance - 1).flatmap(lambda n: strategy if n else st.none())


def given_(**members: Any) -> Any:
    """A dict of those members that are not None."""
    return st.fixed_dictionaries(members).map(
        lambda d: {key: value for key, value in d.items() if value is not None}
    )


# -- nodes and pods -------------------------------------------------------------------------

_amounts = given_(
    cpu=often(st.sampled_from(["100m", "500m", "1", "1700m"])),
    memory=often(st.sampled_from(["64Mi", "300Mi", "1Gi"])),
    **{
        "ephemeral-storage": often(st.sampled_from(["1Gi", "3Gi"]), 4),
        GPU: often(st.sampled_from(["1", "2"]), 4),
    },
)
_port = given_(
    containerPort=st.just(80),
    hostPort=st.sampled_from([8080, 8081]),
    hostIP=often(st.sampled_from(["10.0.0.1", "10.0.0.2", "0.0.0.0"])),
    protocol=st.sampled_from(["TCP", "UDP"]),
)
_container = given_(
    name=st.just("c"),
    image=st.sampled_from(IMAGES),
    resources=st.fixed_dictionaries({"requests": _amounts}),
    ports=often(st.lists(_port, min_size=1, max_size=2), 4),
)
_init = st.tuples(_container, st.booleans()).map(
    lambda pair: {**pair[0], **({"restartPolicy": "Always"} if pair[1] else {})}
)
_effect = st.sampled_from(["NoSchedule", "PreferNoSchedule", "NoExecute"])
_taint = given_(key=st.sampled_from("kl"), value=often(st.sampled_from("12")), effect=_effect)
_toleration = st.one_of(
    given_(
        key=often(st.sampled_from(["k", "l", "node.kubernetes.io/unschedulable"])),
        operator=st.just("Exists"),
        effect=often(_effect),
    ),
    given_(key=st.sampled_from("kl"), value=often(st.sampled_from("12")), effect=often(_effect)),
)
_expression = st.one_of(
    given_(
        key=st.sampled_from(["disk", "tier", "absent"]),
        operator=st.sampled_from(["In", "NotIn"]),
        values=st.lists(st.sampled_from(["ssd", "hdd", "1", "7"]), min_size=1, max_size=2),
    ),
    given_(
        key=st.sampled_from(["disk", "tier", "absent"]),
        operator=st.sampled_from(["Exists", "DoesNotExist"]),
    ),
    given_(
        key=st.sampled_from(["disk", "tier"]),
        operator=st.sampled_from(["Gt", "Lt"]),
        values=st.sampled_from([["1"], ["5"], ["x"]]),
    ),
)
_field = given_(
    key=st.just("metadata.name"),
    operator=st.sampled_from(["In", "NotIn"]),
    values=st.sampled_from(NODES).map(lambda name: [name]),
)
_term = given_(
    matchExpressions=often(st.lists(_expression, max_size=2), 4),
    matchFields=often(st.lists(_field, min_size=1, max_size=1), 4),
)
_affinity = given_(
    requiredDuringSchedulingIgnoredDuringExecution=often(
        st.fixed_dictionaries({"nodeSelectorTerms": st.lists(_term, min_size=1, max_size=2)})
    ),
    preferredDuringSchedulingIgnoredDuringExecution=often(
        st.lists(
            st.fixed_dictionaries({"weight": st.integers(1, 100), "preference": _term}),
            max_size=3,
        )
    ),
)
_spec = given_(
    containers=st.lists(_container, min_size=1, max_size=2),
    initContainers=often(st.lists(_init, max_size=3)),
    overhead=often(_amounts, 4),
    tolerations=often(st.lists(_toleration, max_size=2)),
    nodeSelector=often(st.sampled_from([{"disk": "ssd"}, {"tier": "1", "disk": "hdd"}]), 4),
    affinity=often(_affinity.map(lambda found: {"nodeAffinity": found})),
)


def pod_document(name: str, spec: Doc) -> Doc:
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec}


@st.composite
def _node(draw: Any, name: str) -> Doc:
    labels = draw(
        given_(
            disk=often(st.sampled_from(["ssd", "hdd", "4"])),
            tier=often(st.sampled_from(["1", "7", "x"])),
        )
    )
    allocatable = {
        "cpu": draw(st.sampled_from(["0", "1", "4", "4500m"])),
        "memory": draw(st.sampled_from(["512Mi", "2Gi", "7Gi"])),
        "pods": draw(st.sampled_from(["2", "10"])),
        **draw(given_(**{"ephemeral-storage": often(st.just("8Gi")), GPU: often(st.just("4"))})),
    }
    sizes = draw(st.dictionaries(st.sampled_from(["web:1", "db:latest"]), st.integers(1, 4)))
    images = [{"names": [n], "sizeBytes": size * 400 * 2**20} for n, size in sizes.items()]
    return {
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "taints": draw(
                st.lists(_taint, max_size=2, unique_by=lambda t: (t["key"], t["effect"]))
            ),
            "unschedulable": not draw(st.integers(0, 3)),
        },
        "status": {"allocatable": allocatable, "images": images},
    }


_resources = st.lists(
    st.fixed_dictionaries(
        {
            "name": st.sampled_from(["cpu", "memory", "ephemeral-storage", GPU]),
            "weight": st.integers(1, 5),
        }
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda r: r["name"],
)
_shape = st.lists(
    st.fixed_dictionaries({"utilization": st.integers(0, 100), "score": st.integers(0, 10)}),
    min_size=1,
    max_size=4,
    unique_by=lambda p: p["utilization"],
).map(lambda points: sorted(points, key=lambda p: p["utilization"]))
_strategy = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]),
        "resources": _resources,
        "requestedToCapacityRatio": st.fixed_dictionaries({"shape": _shape}),
    }
)


class Compared:
    """A cluster twice: as columns, and as the reference."""

    def __init__(self, nodes: dict[str, Doc]) -> None:
        self.world = Cluster(*(Node.of(n) for n in nodes.values()))
        self.plain = Reference(dict(nodes))

    def place(self, pod: Doc, node: str) -> None:
        self.remove(pod)
        self.world.place(Pod.of(pod), node)
        self.plain.placed.append((pod, node))

    def remove(self, pod: Doc) -> None:
        uid = pod["metadata"]["uid"]
        self.world.nodes.remove_pod(uid)
        self.plain.placed = [p for p in self.plain.placed if p[0]["metadata"]["uid"] != uid]

    def change(self, name: str, node: Doc) -> None:
        self.world.nodes.set_node(Node.of(node))
        self.plain.nodes[name] = node

    def allowed(self, plugin: str, pod: Doc) -> list[str]:
        made = self.world.profile.plugins[plugin]
        info = self.world.info(Pod.of(pod))
        rows = self.world.nodes.rows
        answer = made.pre_filter(info, self.world.nodes) if hasattr(made, "pre_filter") else None
        if hasattr(answer, "reason"):
            return []
        mask = self.world.nodes.live.copy()
        if isinstance(answer, np.ndarray):
            mask &= answer
        if answer is None or isinstance(answer, np.ndarray):
            mask &= made.filter(info, self.world.nodes)
        return sorted(name for name, row in rows.items() if mask[row])

    def check_filters(self, pod: Doc, filters: dict[str, Any]) -> None:
        for plugin, allows in filters.items():
            expected = sorted(n for n in self.plain.nodes if allows(pod, n))
            assert self.allowed(plugin, pod) == expected, plugin

    def made(self, cls: Any, args: Doc) -> Any:
        return cls(msgspec.convert(args, cls.Args), self.world.handle)

    def by_name(self, scores: Any) -> dict[str, float]:
        return {name: float(scores[row]) for name, row in self.world.nodes.rows.items()}

    def check(self, pod: Doc, strategy: Doc, balanced: list[str]) -> None:
        world, plain = self.world, self.plain
        self.check_filters(
            pod,
            {
                "NodeName": plain.node_name,
                "NodeUnschedulable": plain.node_unschedulable,
                "TaintToleration": plain.taint_toleration,
                "NodeAffinity": plain.node_affinity,
                "NodePorts": plain.node_ports,
                "NodeResourcesFit": plain.node_resources_fit,
            },
        )
        info, nodes = world.info(Pod.of(pod)), world.nodes
        names = list(plain.nodes)
        for plugin, wanted in (
            ("NodeAffinity", plain.affinity_scores(pod)),
            ("TaintToleration", plain.taint_scores(pod)),
            ("ImageLocality", {n: plain.image_score(pod, n) for n in names}),
        ):
            assert world.scores(world.profile.plugins[plugin], Pod.of(pod)) == wanted, plugin
        fit = self.made(NodeResourcesFit, {"scoringStrategy": strategy})
        wanted = {n: plain.fit_score(pod, n, strategy) for n in names}
        assert self.by_name(fit.score(info, nodes)) == wanted
        args = {"resources": [{"name": r, "weight": 1} for r in balanced]}
        balance = self.made(NodeResourcesBalancedAllocation, args)
        expected = {n: plain.balance_score(pod, n, balanced) for n in names}
        if balance.pre_score(info, nodes, nodes.live) is None:
            assert self.by_name(balance.score(info, nodes)) == expected
        else:
            assert set(expected.values()) == {None}


@st.composite
def _history(draw: Any) -> Any:
    nodes = {name: draw(_node(name)) for name in NODES[: draw(st.integers(1, 5))]}
    pods = [pod_document(f"p{i}", draw(_spec)) for i in range(draw(st.integers(0, 6)))]
    where = [draw(st.sampled_from(sorted(nodes))) for _ in pods]
    changed = draw(st.sampled_from(sorted(nodes)))
    new = pod_document("new", draw(_spec))
    if not draw(st.integers(0, 5)):
        new["spec"]["nodeName"] = draw(st.sampled_from(NODES))
    return nodes, pods, where, (changed, draw(_node(changed))), new


@EXAMPLES
@given(
    history=_history(),
    strategy=_strategy,
    balanced=st.lists(
        st.sampled_from(["cpu", "memory", "ephemeral-storage", GPU]),
        min_size=1,
        max_size=3,
        unique=True,
    ),
)
def test_nodes_resources_and_ports_are_judged_as_the_plain_reference_does(
    history, strategy, balanced
):
    nodes, pods, where, (changed, node), new = history
    both = Compared(nodes)
    for pod, name in zip(pods, where, strict=True):
        both.place(pod, name)
    both.check(new, strategy, balanced)
    for pod in pods[::2]:
        both.remove(pod)
    for pod in pods[1::4]:
        both.place(pod, changed)
    both.change(changed, node)
    both.check(new, strategy, balanced)


# -- volumes --------------------------------------------------------------------------------

# What a cluster is about mostly, so that few examples meet what seldom happens by itself.
ABOUT = ["disks", "limits", "zones", "binding"]
CLAIMS = [f"c{i}" for i in range(5)]
VOLUMES = [f"v{i}" for i in range(5)]
HOSTS = NODES[:3]
DRIVERS = ["d.example", "ebs.csi.aws.com", "pd.csi.storage.gke.io"]
REGION = "topology.kubernetes.io/region"
OLD_ZONE = next(iter(OLD))
_bools = st.booleans()
_zone = st.sampled_from(["x", "y", "x__y"])
_disk = st.one_of(
    given_(gcePersistentDisk=given_(pdName=st.just("a"), readOnly=_bools)),
    given_(awsElasticBlockStore=given_(volumeID=st.just("vol-1"), readOnly=_bools)),
    given_(iscsi=given_(iqn=st.just("a"), readOnly=_bools)),
    given_(
        rbd=given_(
            monitors=st.lists(st.sampled_from("mno"), min_size=1, max_size=2, unique=True),
            pool=st.sampled_from(["rbd", "fast"]),
            image=st.just("i"),
            readOnly=_bools,
        )
    ),
)


@st.composite
def _volume_pod(draw: Any, name: str, about: str) -> Doc:
    few = {"disks": (0, 1), "limits": (1, 2), "zones": (1, 1), "binding": (1, 3)}[about]
    claims = draw(st.lists(st.sampled_from(CLAIMS), min_size=few[0], max_size=few[1], unique=True))
    volumes: list[Doc] = [{"persistentVolumeClaim": {"claimName": c}} for c in claims]
    volumes += draw(st.lists(_disk, min_size=about == "disks", max_size=about != "zones"))
    for number, volume in enumerate(volumes):
        volume["name"] = f"v{number}"
    return pod_document(name, {"containers": [{"name": "c", "image": "i"}], "volumes": volumes})


def _zones(about: str) -> Any:
    if about != "zones":
        return st.just({})
    return st.one_of(
        given_(**{ZONE: _zone}),
        given_(**{OLD_ZONE: _zone}),
        given_(**{ZONE: often(_zone), OLD_ZONE: often(_zone), REGION: often(st.just("r"))}),
    )


@st.composite
def _volume(draw: Any, name: str, about: str) -> Doc:
    spec: Doc = {
        "capacity": {"storage": draw(st.sampled_from(["1Gi", "2Gi", "5Gi"]))},
        "accessModes": ["ReadWriteOnce", *draw(st.sampled_from([[], ["ReadWriteOncePod"]]))],
        "storageClassName": draw(st.sampled_from(["made", "local"])),
    }
    if about == "limits":
        driver = draw(st.sampled_from(DRIVERS[:2]))
        spec["csi"] = {"driver": driver, "volumeHandle": draw(st.sampled_from("hijk"))}
    if about == "binding" and draw(_bools):
        hosts = draw(st.lists(st.sampled_from(HOSTS), min_size=1, max_size=2))
        expression = {"key": HOST, "operator": "In", "values": hosts}
        terms = [{"matchExpressions": [expression]}]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    return {
        "metadata": {"name": name, "labels": draw(_zones(about))},
        "spec": spec,
        "status": {"phase": draw(st.sampled_from(["Available", "Available", "Released"]))},
    }


@st.composite
def _claim(draw: Any, name: str, about: str) -> Doc:
    modes = [["ReadWriteOnce"], ["ReadWriteOnce"], ["ReadWriteOncePod"]]
    spec: Doc = {
        "accessModes": draw(st.sampled_from(modes if about in ("disks", "binding") else modes[:1])),
        "storageClassName": draw(st.sampled_from(["made", "local"])),
        "resources": {"requests": {"storage": draw(st.sampled_from(["1Gi", "2Gi", "3Gi"]))}},
    }
    annotations = {}
    if draw(st.integers(0, 2)) < (1 if about == "binding" else 2):
        spec["volumeName"] = draw(st.sampled_from(VOLUMES))
        annotations["pv.kubernetes.io/bind-completed"] = "yes"
    meta = {"name": name, "namespace": "default", "uid": name, "annotations": annotations}
    return {"metadata": meta, "spec": spec}


@st.composite
def _csi_node(draw: Any, name: str) -> Doc:
    limits = draw(st.fixed_dictionaries({driver: st.integers(0, 2) for driver in DRIVERS}))
    drivers = [{"name": d, "allocatable": {"count": n + 1}} for d, n in limits.items()]
    if not draw(st.integers(0, 4)):
        del drivers[0]["allocatable"]
    return {"metadata": {"name": name}, "spec": {"drivers": drivers}}


@st.composite
def _storage(draw: Any, about: str) -> Reference:
    nodes = {}
    for name in HOSTS:
        nodes[name] = {
            "metadata": {"name": name, "labels": {HOST: name, **draw(_zones(about))}},
            "spec": {},
            "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}, "images": []},
        }
    topology = often(
        st.lists(st.sampled_from(HOSTS), min_size=1, max_size=2).map(
            lambda hosts: [{"matchLabelExpressions": [{"key": HOST, "values": hosts}]}]
        )
    )
    made = {"provisioner": "d.example", "allowedTopologies": draw(topology)}
    kinds = {"made": made, "local": {"provisioner": "kubernetes.io/no-provisioner"}}
    for name, kind in kinds.items():
        kind |= {"metadata": {"name": name}, "volumeBindingMode": "WaitForFirstConsumer"}
        kinds[name] = {key: value for key, value in kind.items() if value is not None}
    world = Reference(nodes, classes=kinds, tracked=about == "binding" and draw(_bools))
    world.volumes = {name: draw(_volume(name, about)) for name in VOLUMES}
    world.claims = {name: draw(_claim(name, about)) for name in CLAIMS}
    if about in ("limits", "disks"):
        world.csi_nodes = {name: draw(_csi_node(name)) for name in HOSTS[:2]}
    for number in range(draw(st.integers(1, 4)) if about == "limits" else 0):
        spec = {
            "attacher": draw(st.sampled_from(DRIVERS[:2])),
            "nodeName": draw(st.sampled_from(HOSTS[:2])),
            "source": {"persistentVolumeName": draw(st.sampled_from(VOLUMES))},
        }
        world.attachments.append({"metadata": {"name": f"a{number}"}, "spec": spec})
    for number in range(draw(st.integers(0, 4)) if world.tracked else 0):
        world.capacities.append(
            {
                "metadata": {"name": f"k{number}", "namespace": "kube-system"},
                "storageClassName": draw(st.sampled_from(["made", "made", "other"])),
                "capacity": draw(st.sampled_from(["1Gi", "2Gi", "9Gi"])),
                "nodeTopology": {"matchLabels": {HOST: draw(st.sampled_from(HOSTS))}},
            }
        )
    return world


_VIEWS: dict[str, Any] = {
    "classes": StorageClass,
    "volumes": PersistentVolume,
    "claims": PersistentVolumeClaim,
    "csi_nodes": CSINode,
}


def know_all(world: Cluster, plain: Reference) -> None:
    for name, view in _VIEWS.items():
        know(world, *(view.of(document) for document in getattr(plain, name).values()))
    know(world, *(VolumeAttachment.of(document) for document in plain.attachments))
    know(world, *(CSIStorageCapacity.of(document) for document in plain.capacities))
    driver = {"metadata": {"name": "d.example"}, "spec": {"storageCapacity": plain.tracked}}
    know(world, CSIDriver.of(driver))


@st.composite
def _volume_history(draw: Any, about: str) -> Any:
    plain = draw(_storage(about))
    pods = [draw(_volume_pod(f"p{i}", about)) for i in range(draw(st.integers(2, 6)))]
    where = [draw(st.sampled_from(HOSTS)) for _ in pods]
    changed = [draw(_claim(name, about)) for name in CLAIMS[:3]]
    moved = [draw(_volume(name, about)) for name in VOLUMES[:2]]
    asked = [draw(_volume_pod(f"new-{i}", about)) for i in range(3)]
    return plain, pods, where, changed, moved, asked


def check_volumes(both: Compared, pod: Doc) -> None:
    plain = both.plain
    both.check_filters(
        pod,
        {
            "VolumeRestrictions": plain.volume_restrictions,
            "NodeVolumeLimits": plain.node_volume_limits,
            "VolumeBinding": plain.volume_binding,
            "VolumeZone": plain.volume_zone,
        },
    )


@pytest.mark.parametrize("about", ABOUT)
@EXAMPLES
@given(data=st.data())
def test_volumes_are_judged_as_the_plain_reference_does(about, data):
    plain, pods, where, changed, moved, asked = data.draw(_volume_history(about))
    early = data.draw(_bools)
    both = Compared(plain.nodes)
    both.plain = plain
    if early:
        know_all(both.world, plain)
    for pod, name in zip(pods, where, strict=True):
        both.place(pod, name)
    if not early:
        know_all(both.world, plain)
    for pod in asked:
        check_volumes(both, pod)
    plain.claims.update((claim["metadata"]["name"], claim) for claim in changed)
    plain.volumes.update((volume["metadata"]["name"], volume) for volume in moved)
    know(both.world, *map(PersistentVolumeClaim.of, changed), *map(PersistentVolume.of, moved))
    gone, plain.attachments = plain.attachments[:1], plain.attachments[1:]
    forget(both.world, *map(VolumeAttachment.of, gone))
    for pod in asked:
        check_volumes(both, pod)
    for pod in pods[::2]:
        both.remove(pod)
    for pod in asked:
        check_volumes(both, pod)
    # Nodes go with all that was known of their rows, and come back to other ones.
    for name in HOSTS[:2]:
        both.world.nodes.remove_node(name)
    for name in HOSTS[:2]:
        both.world.nodes.set_node(Node.of(plain.nodes[name]))
    for pod in asked:
        check_volumes(both, pod)
