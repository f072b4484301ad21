"""Where a pod that runs on one node could run as well."""

import json

import pytest

from motley.api.views.core import Node
from motley.api.views.motley import ImageMap
from motley.api.views.pod import Pod
from motley.api.views.policy import PodDisruptionBudget
from motley.api.views.storage import PersistentVolume
from motley.autoscale.rebalance import Amount, Settings
from motley.controllers import rebalancing
from motley.controllers.placement import Placement
from motley.controllers.rebalancing import Seen
from motley.controllers.topowner import Owner

WEB = Owner("Deployment", "web")


def node(name, arch="amd64", pods="110", **labels):
    known = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/arch": arch,
        "kubernetes.io/os": "linux",
    }
    return Node.of(
        {
            "metadata": {"name": name, "labels": {**known, **labels}},
            "status": {
                "allocatable": {"cpu": "4", "memory": "8Gi", "pods": pods},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
    )


def pod(name, on="here", annotations=None, labels=None, image="r/web", **spec):
    container = {"name": "c", "image": image, "resources": {"requests": {"cpu": "1"}}}
    return Pod.of(
        {
            "metadata": {
                "name": name,
                "namespace": "d",
                "uid": name,
                "labels": labels or {},
                "annotations": annotations or {},
            },
            "spec": {"nodeName": on, "containers": [container], **spec},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        }
    )


def why_not(moved, to, *others, nodes=(), **more):
    placement = Placement([node("here"), to, *nodes], [moved, *others], lambda _: WEB, **more)
    return placement.why_not(moved, to)


OTHER = "may not run its images"


def image_map(name, *architectures):
    listed = [{"architecture": a, "os": "linux"} for a in architectures]
    return ImageMap.of(
        {"metadata": {"name": "m"}, "spec": {"images": [{"name": name, "architectures": listed}]}}
    )


@pytest.mark.parametrize(
    ("moved", "images", "expected"),
    [
        (pod("p"), [], OTHER),
        (pod("p"), [image_map("r/web:latest", "amd64", "arm64")], ""),
        (pod("p"), [image_map("docker.io/r/web", "amd64", "arm64")], ""),
        (pod("p"), [image_map("r/web", "amd64")], OTHER),
        (pod("p"), [image_map("r/web", "arm64"), image_map("r/web", "amd64")], OTHER),
        (pod("p", annotations={"motley.io/architectures": "amd64, arm64"}), [], ""),
        (pod("p", annotations={"motley.io/architectures": "amd64"}), [], OTHER),
        (
            pod(
                "p",
                image="r/web:1-amd64",
                annotations={"motley.io/images-as-written": json.dumps({"c": "r/web:1"})},
            ),
            [image_map("r/web:1", "amd64", "arm64")],
            "",
        ),
        (
            pod("p", initContainers=[{"name": "i", "image": "r/init"}]),
            [image_map("r/web", "amd64", "arm64")],
            OTHER,
        ),
    ],
)
def test_another_architecture_takes_only_what_is_built_for_it(moved, images, expected):
    assert why_not(moved, node("there", arch="arm64"), images=images) == expected
    assert why_not(moved, node("there"), images=images) == ""


def test_where_a_replica_runs_another_can():
    there = node("there", arch="arm64")
    assert why_not(pod("p"), there, pod("q", on="there")) == ""


def a_volume(claim, *nodes):
    terms = [
        {
            "matchExpressions": [
                {"key": "kubernetes.io/hostname", "operator": "In", "values": list(nodes)}
            ]
        }
    ]
    spec = {"claimRef": {"namespace": "d", "name": claim}}
    if nodes:
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": terms}}
    return PersistentVolume.of({"metadata": {"name": f"pv-{claim}"}, "spec": spec})


def test_a_pod_stays_where_its_volumes_can_be_reached():
    moved = pod("p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    assert (
        why_not(moved, node("there"), volumes=[a_volume("data", "here")])
        == "do not reach its volumes"
    )
    assert why_not(moved, node("there"), volumes=[a_volume("data", "here", "there")]) == ""
    assert (
        why_not(moved, node("there"), volumes=[a_volume("data"), a_volume("of-others", "here")])
        == ""
    )
    untold = Placement([node("here")], [moved], lambda _: WEB, volumes=None)
    assert untold.objection(moved) == "where its volumes can be reached is not known"
    assert untold.objection(pod("q")) == ""


def test_a_node_with_as_many_pods_as_it_takes_takes_no_more():
    crowd = [pod(f"q-{i}", on="there") for i in range(3)]
    assert why_not(pod("p"), node("there", pods="3"), *crowd) == "have no room for one more pod"
    assert why_not(pod("p"), node("there", pods="4"), *crowd) == ""


def apart(topology, **selector):
    term = {"topologyKey": topology, "labelSelector": {"matchLabels": selector}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def test_replicas_that_must_be_apart_are_not_brought_together():
    moved = pod("p", labels={"app": "web"}, affinity=apart("kubernetes.io/hostname", app="web"))
    peer, stranger = pod("q", on="there", labels={"app": "web"}), pod("s", on="there")
    expected = "have pods that it must be kept apart from"
    assert why_not(moved, node("there"), peer) == expected
    assert why_not(moved, node("there"), stranger) == ""


def test_a_pod_is_not_kept_apart_from_itself_in_its_own_zone():
    moved = pod("p", labels={"app": "web"}, affinity=apart("zone", app="web"))
    here, there = node("here", zone="a"), node("there", zone="a")
    alone = Placement([here, there], [moved], lambda _: WEB)
    assert alone.why_not(moved, there) == ""


def test_what_a_pod_asks_for_includes_its_sidecars_and_its_hungriest_beginning():
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}}
    first = {"name": "i", "resources": {"requests": {"cpu": "3"}}}
    moved = pod("p", initContainers=[sidecar, first], overhead={"cpu": "500m"})
    busy = {("d", "p"): Amount(1.0, 0.0), ("d", "q"): Amount(0.1, 0.0)}
    there = pod("q", on="there")
    seen = Seen(
        [node("here"), node("there")],
        [moved, there],
        [],
        {"here": Amount(3.6, 0.0), "there": Amount(0.5, 0.0)},
        busy,
    )
    plan = rebalancing.plan(seen, lambda _: WEB, Settings(), {}, 0.0)
    assert plan.moves == [], "five and a half cores beside one of four"
    assert "too little cpu left to request" in plan.refusals[0].reason


def test_a_pod_of_two_budgets_stays_for_the_api_would_not_evict_it():
    budgets = [
        PodDisruptionBudget.of(
            {
                "metadata": {"name": name, "namespace": "d"},
                "spec": {"selector": {"matchLabels": {"app": "web"}}},
                "status": {"disruptionsAllowed": 1},
            }
        )
        for name in ("one", "two")
    ]
    moved = pod("p", labels={"app": "web"})
    use = {"here": Amount(3.6, 0.0), "there": Amount(0.5, 0.0)}
    seen = [[node("here"), node("there")], [moved], budgets, use, {("d", "p"): Amount(1.0, 0.0)}]
    plan = rebalancing.plan(Seen(*seen), lambda _: WEB, Settings(), {}, 0.0)
    assert [r.reason for r in plan.refusals] == [
        "more than one disruption budget counts it: it cannot be evicted"
    ]
    seen[2] = budgets[:1]
    assert rebalancing.plan(Seen(*seen), lambda _: WEB, Settings(), {}, 0.0).moves
