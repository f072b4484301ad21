"""VolumeBinding: where a pod's volumes let it run, and what is promised to whom."""

import asyncio

import pytest

from motley.api import storage
from motley.api.views.base import Key
from motley.api.views.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from motley.api.views.volume import PersistentVolumeClaimVolumeSource, Volume
from motley.scheduler.contract import SKIP, Reject
from motley.scheduler.plugins.volume_binding import NotBound

from .conftest import Cluster, make_node, make_pod

NAME = "VolumeBinding"


def claim(name, size=1, bound_to="", storage_class="local", **meta):
    annotations = dict(meta.pop("annotations", {}))
    if bound_to:
        annotations[storage.BIND_COMPLETED] = "yes"
    return PersistentVolumeClaim.of(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": f"uid-{name}",
                "resourceVersion": "1",
                "annotations": annotations,
                **meta,
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": f"{size}Gi"}},
                "storageClassName": storage_class,
                "volumeName": bound_to,
            },
            "status": {"phase": "Bound" if bound_to else "Pending"},
        }
    )


def volume(name, size=1, on="", storage_class="local"):
    spec = {
        "capacity": {"storage": f"{size}Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": storage_class,
    }
    if on:
        expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [on]}
        terms = [{"matchExpressions": [expression]}]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    meta = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1"}
    return PersistentVolume.of({"metadata": meta, "spec": spec, "status": {"phase": "Available"}})


def storage_class(name="local", provisioner="kubernetes.io/no-provisioner", **more):
    body = {"volumeBindingMode": "WaitForFirstConsumer", "provisioner": provisioner, **more}
    return StorageClass.of({"metadata": {"name": name}, **body})


@pytest.fixture
def cluster():
    names = ("a", "b", "c")
    made = Cluster(*(make_node(n, labels={"kubernetes.io/hostname": n}) for n in names))
    made.plugin = made.profile.plugins[NAME]
    return made


def know(cluster, *found):
    book = cluster.handle.volumes
    for one in found:
        setter = {
            PersistentVolumeClaim: book.set_claim,
            PersistentVolume: book.set_volume,
            StorageClass: book.set_class,
        }[type(one)]
        setter(one.key, one)


def pod(name, *claims):
    made = make_pod(name)
    made.spec.volumes = [
        Volume(name=c, persistent_volume_claim=PersistentVolumeClaimVolumeSource(claim_name=c))
        for c in claims
    ]
    return made


def decide(cluster, *claims, name="p"):
    """The pod, and the nodes its claims allow (or why none does)."""
    info = cluster.info(pod(name, *claims))
    answer = cluster.plugin.pre_filter(info, cluster.nodes)
    if isinstance(answer, Reject):
        return info, answer.reason
    mask = cluster.plugin.filter(info, cluster.nodes)
    rows = cluster.nodes.rows
    return info, [n for n in sorted(rows) if mask[rows[n]]]


def test_a_pod_without_claims_is_not_looked_at(cluster):
    info = cluster.info(make_pod("p"))
    assert cluster.plugin.pre_filter(info, cluster.nodes) is SKIP
    assert cluster.plugin.reserve(info, "a") is None
    assert cluster.plugin.waits_s(info) == 0


def test_a_bound_claim_ties_the_pod_to_where_its_volume_is(cluster):
    know(
        cluster,
        volume("v", on="b"),
        volume("w"),
        claim("x", bound_to="v"),
        claim("y", bound_to="w"),
    )
    assert decide(cluster, "x")[1] == ["b"]
    assert decide(cluster, "y")[1] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ([], 'persistentvolumeclaim "x" not found'),
        ([claim("x", storage_class="")], "pod has unbound immediate PersistentVolumeClaims"),
        (
            [claim("x", bound_to="v", deletionTimestamp="2026-01-01T00:00:00Z")],
            'persistentvolumeclaim "x" is being deleted',
        ),
    ],
)
def test_some_claims_make_every_node_impossible(cluster, found, why):
    know(cluster, *found)
    assert decide(cluster, "x")[1] == why


def test_a_claim_of_a_missing_volume_fits_nowhere_and_says_so(cluster):
    know(cluster, claim("x", bound_to="gone"))
    info, fits = decide(cluster, "x")
    assert fits == []
    counts = cluster.plugin.explain(info, cluster.nodes, cluster.nodes.live)
    assert counts == {
        "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)": 3
    }


def test_waiting_claims_need_a_volume_each_on_the_same_node(cluster):
    know(cluster, storage_class(), volume("a1", on="a"), volume("b1", on="b"), volume("b2", on="b"))
    know(cluster, claim("x"), claim("y"))
    assert decide(cluster, "x")[1] == ["a", "b"]
    assert decide(cluster, "x", "y")[1] == ["b"]


def test_the_smallest_claim_takes_the_smallest_volume(cluster):
    know(cluster, storage_class(), volume("big", 9, on="a"), volume("small", 2, on="a"))
    know(cluster, claim("large", 5), claim("little", 1))
    info, fits = decide(cluster, "large", "little")
    assert fits == ["a"]
    cluster.plugin.reserve(info, "a")
    bindings = cluster.handle.volumes.promises[info.uid].bindings
    assert {c.metadata.name: v.metadata.name for v, c in bindings} == {
        "large": "big",
        "little": "small",
    }


def test_what_is_promised_to_one_pod_is_not_free_for_another(cluster):
    know(cluster, storage_class(), volume("only", on="a"), claim("x"), claim("y"))
    first, _ = decide(cluster, "x", name="first")
    cluster.plugin.reserve(first, "a")
    assert decide(cluster, "y", name="second")[1] == []
    cluster.plugin.unreserve(first, "a")
    assert decide(cluster, "y", name="second")[1] == ["a"]


def test_a_class_with_a_provisioner_can_make_volumes_where_its_topology_allows(cluster):
    know(cluster, storage_class("anywhere", "p"), claim("x", storage_class="anywhere"))
    assert decide(cluster, "x")[1] == ["a", "b", "c"]
    topology = [{"matchLabelExpressions": [{"key": "kubernetes.io/hostname", "values": ["c"]}]}]
    know(cluster, storage_class("there", "p", allowedTopologies=topology))
    know(cluster, claim("y", storage_class="there"))
    assert decide(cluster, "y")[1] == ["c"]


def test_a_claim_whose_node_is_chosen_stays_with_it(cluster):
    know(cluster, storage_class("made", "p"))
    chosen = {storage.SELECTED_NODE: "b"}
    know(cluster, claim("x", storage_class="made", annotations=chosen))
    assert decide(cluster, "x")[1] == ["b"]
    know(cluster, claim("y", storage_class="made"))
    first, _ = decide(cluster, "y", name="first")
    cluster.plugin.reserve(first, "c")
    assert decide(cluster, "y", name="second")[1] == ["c"]


class Writer:
    """Answers patches as the API would."""

    def __init__(self, cluster):
        self.book = cluster.handle.volumes
        self.written = []

    async def patch(self, cls, key, body):
        self.written.append((key.name, body))
        known = self.book.claims if cls is PersistentVolumeClaim else self.book.volumes
        return known[key]


async def test_the_pod_is_bound_after_its_volume(cluster):
    know(cluster, storage_class("made", "p"), claim("x", storage_class="made"))
    info, _ = decide(cluster, "x")
    cluster.plugin.reserve(info, "b")
    assert cluster.plugin.waits_s(info) == 600
    writer = Writer(cluster)
    marked = claim("x", storage_class="made", annotations={storage.SELECTED_NODE: "b"})
    async with asyncio.TaskGroup() as group:
        know(cluster, marked)
        task = group.create_task(cluster.plugin.pre_bind(info, "b", writer))
        for _ in range(3):
            await asyncio.wait([task], timeout=0.01)
        assert not task.done()
        know(cluster, volume("v", on="b", storage_class="made"))
        know(cluster, claim("x", bound_to="v", annotations={storage.SELECTED_NODE: "b"}))
        await task
    [(name, body)] = writer.written
    assert name == "x"
    assert body["metadata"]["annotations"] == {storage.SELECTED_NODE: "b"}
    assert not cluster.handle.volumes.promises


async def test_a_choice_that_was_taken_back_fails_the_binding(cluster):
    know(cluster, storage_class("made", "p"), claim("x", storage_class="made"))
    info, _ = decide(cluster, "x")
    cluster.plugin.reserve(info, "b")
    with pytest.raises(NotBound, match="provisioning failed"):
        await cluster.plugin.pre_bind(info, "b", Writer(cluster))
    cluster.handle.volumes.set_claim(Key("default", "x"), None)


def test_an_older_version_never_replaces_a_newer_one(cluster):
    newer = claim("x", resourceVersion="7")
    know(cluster, newer, claim("x", resourceVersion="6"))
    assert cluster.handle.volumes.claims[newer.key] is newer
