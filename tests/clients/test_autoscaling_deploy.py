"""`deploy/autoscaling` on a Kubernetes that is not Motley: pods get what they use, hot nodes cool.

The manifests are applied as they are; see `stock.py` for how the same is tried on kube-apiserver.
"""

from contextlib import ExitStack

import pytest

from motley.api import quantity

from .stock import DEPLOY, Call, eventually

HERE = DEPLOY / "autoscaling"
ACCOUNT = ("kube-system", "motley-autoscaling")
# Haste, and what an operator uncomments: rebalancing is off in the manifest.
QUICK = (
    *("--health-port=0", "--history-every-s=1", "--vertical-pod-autoscaler-sync-period-s=1"),
    *("--rebalance", "--rebalance-every-s=1"),
)


@pytest.fixture(scope="module")
def cluster(stock):
    """Two nodes of four cores, with the controllers of `deploy/autoscaling`."""
    stock.apply(DEPLOY / "crds/verticalpodautoscalers.yaml")
    for name in ("rbac", "deployment"):
        stock.apply(HERE / f"{name}.yaml")
    with ExitStack() as stack:
        stack.enter_context(stock.workloads())
        stack.enter_context(stock.nodes(2))
        stack.enter_context(stock.metrics())
        stack.enter_context(stock.deployment(HERE / "deployment.yaml", *QUICK))
        yield stock


def deployment(name, node, uses):
    """One pod that says what it uses, on a node of our choice."""
    requests = {"cpu": "100m", "memory": "64Mi"}
    container = {"name": "c", "image": "app:1", "resources": {"requests": requests}}
    template = {
        "metadata": {"labels": {"app": name}, "annotations": {"fake.motley.io/usage": uses}},
        "spec": {"nodeName": node, "containers": [container]},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}
    metadata = {"name": name}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def autoscaler(name, mode):
    spec = {
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "updatePolicy": {"updateMode": mode},
    }
    metadata = {"name": name}
    version = "autoscaling.k8s.io/v1"
    return {
        "apiVersion": version,
        "kind": "VerticalPodAutoscaler",
        "metadata": metadata,
        "spec": spec,
    }


def pods(cluster, namespace, app):
    words = ("get", "pods", "-n", namespace, "-l", f"app={app}", "-o", "json")
    return cluster.kubectl(*words).json["items"]


def cpu(amount):
    return quantity.quantity(amount).nano / 1e9


def requested(cluster, namespace, app):
    (found,) = pods(cluster, namespace, app)
    return cpu(found["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def test_a_pod_is_resized_in_place_to_what_it_uses_unless_that_is_off(cluster):
    namespace = cluster.namespace("vertical")
    for name, mode in (("web", "InPlaceOrRecreate"), ("quiet", "Off")):
        cluster.create(deployment(name, "n-1", "cpu=400m,memory=200Mi"), namespace)
        cluster.create(autoscaler(name, mode), namespace)
    eventually(lambda: len(pods(cluster, namespace, "web")) == 1, "the pod")
    (first,) = pods(cluster, namespace, "web")

    def recommended(name):
        words = ("get", "verticalpodautoscaler", name, "-n", namespace, "-o", "json")
        found = cluster.kubectl(*words).json.get("status", {}).get("recommendation")
        return found["containerRecommendations"][0]["target"] if found else None

    for name in ("web", "quiet"):
        target = eventually(lambda name=name: recommended(name), f"a recommendation for {name}")
        assert cpu(target["cpu"]) == pytest.approx(0.46, rel=0.1)  # what it uses and a margin
    eventually(lambda: requested(cluster, namespace, "web") > 0.1, "the resize")
    assert requested(cluster, namespace, "web") == pytest.approx(0.46, rel=0.1)
    (now,) = pods(cluster, namespace, "web")
    assert now["metadata"]["uid"] == first["metadata"]["uid"]  # the same pod, not another
    assert requested(cluster, namespace, "quiet") == 0.1
    words = ("get", "events", "-n", namespace, "--field-selector", "reason=ResizedByVPA")
    told = eventually(lambda: cluster.kubectl(*words, "-o", "json").json["items"], "the event")
    assert "c: cpu 460m, memory 230Mi" in told[0]["message"]


def test_a_hot_node_loses_the_pod_that_may_go_and_keeps_the_guarded_one(cluster):
    namespace = cluster.namespace("hot")
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "guarded"}}}
    cluster.create(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "guarded"},
            "spec": budget,
        },
        namespace,
    )
    cluster.create(deployment("guarded", "n-0", "cpu=2,memory=1Gi"), namespace)
    cluster.create(deployment("free", "n-0", "cpu=1500m,memory=1Gi"), namespace)
    names = ("guarded", "free")
    eventually(lambda: all(pods(cluster, namespace, name) for name in names), "both pods")
    before = {name: pods(cluster, namespace, name)[0]["metadata"]["uid"] for name in names}

    def events(reason):
        words = ("get", "events", "-n", namespace, "--field-selector", f"reason={reason}")
        return cluster.kubectl(*words, "-o", "json").json["items"]

    (moved,) = eventually(lambda: events("Rebalanced"), "a pod is moved")
    assert moved["involvedObject"]["uid"] == before["free"]
    assert moved["message"].startswith("Evicted: it takes 38% of the cpu of n-0")
    (kept,) = pods(cluster, namespace, "guarded")
    assert kept["metadata"]["uid"] == before["guarded"]


def test_the_role_is_enough_and_no_more(cluster):
    assert cluster.refused(*ACCOUNT) == []
    again = {Call("", "events", "patch")}  # what happens twice is counted
    assert cluster.unused(HERE / "rbac.yaml", *ACCOUNT) <= again
    for words in (
        ("get", "secrets"),
        ("delete", "pods"),
        ("patch", "pods"),
        ("patch", "nodes"),
        ("patch", "deployments"),
        ("patch", "verticalpodautoscalers"),
        ("patch", "leases/kube-controller-manager"),
    ):
        assert not cluster.may(ACCOUNT, *words, "-n", "kube-system"), words
