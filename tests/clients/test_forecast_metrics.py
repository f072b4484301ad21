"""Forecasts for any HorizontalPodAutoscaler: pods are there before the load of every hour.

The past is written by the test, so that nobody waits for it; what happens then is what happens on a
cluster. With `MOTLEY_STOCK_BINARIES` it is kube-controller-manager that scales (see `stock.py`).
"""

import json
import math
import re
from contextlib import ExitStack, contextmanager

import pytest
import yaml

from motley.lib.clock import SYSTEM
from motley.metrics.history import WORKLOAD, History, Sample, Series
from motley.metrics.history_ring import Ring
from motley.ops.freeports import free_port

from . import stock as stocks

HISTORY, FORECASTS = stocks.DEPLOY / "history", stocks.DEPLOY / "forecasts"
HORIZONTAL = stocks.DEPLOY / "horizontal"
NAMESPACE = "shop"
SERIES = 64
PATH = "/apis/external.metrics.k8s.io/v1beta1"
FORESEEN = ("foresees", "annotated", "reacts")
PEAK, LEAST = 4.5, 0.5
FAILED = "FailedGetExternalMetric"


def remember(path, now):
    """A day of three workloads whose load is lowest now and highest in half an hour, every hour."""
    history = History(Ring(path, SERIES, matters_less=Series.matters_less))
    for step in range(288, -1, -1):
        at = now - step * 300
        middle, swing = (PEAK + LEAST) / 2, (PEAK - LEAST) / 2
        cpu = middle - swing * math.cos(2 * math.pi * (at - now) / 3600)
        sample = Sample(cpu, cpu, 2e8, cpu, 2e8, 1.0)
        history.write(
            at, {Series(WORKLOAD, NAMESPACE, n, "Deployment", "app"): sample for n in FORESEEN}
        )
    history.close()


@pytest.fixture(scope="module")
def cluster(stock):
    """A Kubernetes with nodes, a metrics server and Motley's history as `deploy/` has it."""
    port = free_port()
    (volume,) = _volumes(HISTORY / "deployment.yaml")
    place = stock.directory / f"volume-kube-system-{volume}"
    place.mkdir()
    remember(place / "history.ring", SYSTEM.now())
    for path in (*sorted(HISTORY.glob("*.yaml")), *sorted(FORECASTS.glob("*.yaml"))):
        stock.apply(path, stocks.lead_here(port))
    stock.namespace(NAMESPACE)
    (patch,) = re.findall(r"-p '(.+)'", (FORECASTS / "external-metrics.yaml").read_text())
    words = ("patch", "deployment", "motley-history", "-n", "kube-system", "--type=json")
    stock.kubectl(*words, "-p", patch)
    shown = stock.kubectl("get", "deployment", "motley-history", "-n", "kube-system", "-o", "json")
    containers = shown.json["spec"]["template"]["spec"]["containers"]
    assert containers[0]["args"][-1] == "--external-metrics"
    with ExitStack() as stack:
        stack.enter_context(stock.nodes(1))
        stack.enter_context(stock.metrics())
        options = ("--external-metrics", f"--history-series={SERIES}", "--history-every-s=1")
        options += ("--bind-address=127.0.0.1", f"--secure-port={port}")
        stack.enter_context(stock.deployment(HISTORY / "deployment.yaml", *options))
        stocks.eventually(
            lambda: stock.kubectl("get", "--raw", PATH, fails=None).code == 0, "it is served"
        )
        yield stock
    assert stock.refused("kube-system", "motley-history") == []


def _volumes(path):
    (found,) = [d for d in stocks.documents(path) if d["kind"] == "Deployment"]
    return [v["name"] for v in found["spec"]["template"]["spec"]["volumes"] if "emptyDir" in v]


def deployment(name, replicas=1):
    labels = {"app": name}
    annotations = {"fake.motley.io/usage": "cpu=100m,memory=64Mi"}
    resources = {"requests": {"cpu": "100m"}}
    containers = [{"name": "app", "image": "app:1", "resources": resources}]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": annotations},
                "spec": {"nodeName": "n-0", "containers": containers},
            },
        },
    }


def autoscaler(name, *metrics, **annotations):
    target = {"type": "AverageValue", "averageValue": "500m"}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": annotations},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1,
            "maxReplicas": 20,
            "metrics": [
                {"type": "Resource", "resource": {"name": "cpu", "target": target}},
                *metrics,
            ],
            "behavior": {
                "scaleUp": {"policies": [{"type": "Pods", "value": 20, "periodSeconds": 15}]},
                "scaleDown": {"stabilizationWindowSeconds": 0},
            },
        },
    }


def forecast(workload, ahead="30m"):
    labels = {"workload": workload, "kind": "Deployment", "ahead": ahead}
    target = {"type": "AverageValue", "averageValue": "500m"}
    metric = {"name": "motley_forecast_cpu", "selector": {"matchLabels": labels}}
    return {"type": "External", "external": {"metric": metric, "target": target}}


def replicas(cluster, name):
    words = ("get", "deployment", name, "-n", NAMESPACE, "-o", "jsonpath={.spec.replicas}")
    return int(cluster.kubectl(*words).out)


def hpa(cluster, name):
    return cluster.kubectl("get", "hpa", name, "-n", NAMESPACE, "-o", "json").json


def condition(cluster, name, kind):
    listed = hpa(cluster, name).get("status", {}).get("conditions") or ()
    return next((c for c in listed if c["type"] == kind), {})


def measured(cluster, name):
    return {m["type"] for m in hpa(cluster, name).get("status", {}).get("currentMetrics") or ()}


@contextmanager
def scaled(cluster, *names):
    """Workloads and their autoscalers, of which nothing is left in the end."""
    try:
        yield
    finally:
        words = ("delete", "-n", NAMESPACE, "--ignore-not-found", "--wait=false")
        for kind in ("hpa", "deployment"):
            cluster.kubectl(*words, kind, *names)


def raw(cluster, metric, selector, fails=False):
    path = f"{PATH}/namespaces/{NAMESPACE}/{metric}?labelSelector={selector}"
    return cluster.kubectl("get", "--raw", path, fails=fails)


def test_the_figure_its_origin_and_its_error_can_be_looked_at(cluster):
    listed = cluster.kubectl("get", "--raw", PATH).json
    names = [r["name"] for r in listed["resources"]]
    assert names[0] == "motley_forecast_cpu"
    (item,) = raw(cluster, "motley_forecast_cpu", "workload%3Dreacts,ahead%3D30m").json["items"]
    labels = item["metricLabels"]
    assert (labels["source"], labels["season"], labels["measured"]) == ("forecast", "1h", "500m")
    assert float(labels["error"].removesuffix("%")) < 10
    assert int(item["value"].removesuffix("m")) == pytest.approx(1000 * PEAK, rel=0.1)
    refused = raw(cluster, "motley_forecast_cpu", "workload%3Dreacts,ahead%3Dsoon", fails=True)
    assert "is no duration such as 5m" in refused.err


def test_who_has_the_role_may_look_and_others_may_not(cluster):
    for name in ("viewer", "nobody"):
        cluster.kubectl("create", "serviceaccount", name, "-n", NAMESPACE)
    who = f"--serviceaccount={NAMESPACE}:viewer"
    role = "motley-history:forecast-reader"  # which is part of `view` by its labels
    cluster.kubectl("create", "rolebinding", "v", f"--clusterrole={role}", who, "-n", NAMESPACE)

    def refused(account, namespace=NAMESPACE):
        path = f"{PATH}/namespaces/{namespace}/motley_forecast_cpu?labelSelector=workload%3Dnone"
        done = cluster.kubectl(
            "get", "--raw", path, f"--as=system:serviceaccount:{account}", fails=True
        )
        assert ("Forbidden" in done.err) != ("nothing was measured" in done.err), done.err
        return "Forbidden" in done.err

    stocks.eventually(lambda: not refused(f"{NAMESPACE}:viewer"), "the role counts")
    assert refused(f"{NAMESPACE}:viewer", "kube-system")
    assert refused(f"{NAMESPACE}:nobody")
    assert not refused("kube-system:horizontal-pod-autoscaler")


def test_pods_are_there_before_the_load_and_without_the_metric_they_are_not(cluster):
    names = ("foresees", "reacts", "mistyped", "lowered")
    with scaled(cluster, *names), cluster.workloads(autoscale_every_s=1):
        for name in names:
            cluster.create(deployment(name, 3 if name in ("mistyped", "lowered") else 1))
        cluster.create(autoscaler("foresees", forecast("foresees")))
        cluster.create(autoscaler("reacts"))
        cluster.create(autoscaler("mistyped", forecast("mistypt")))
        cluster.create(autoscaler("lowered"))
        stocks.eventually(lambda: replicas(cluster, "foresees") >= 8, "pods for what comes")
        words = ("get", "events", "-n", NAMESPACE, "-o", "jsonpath={.items[*].message}")
        stocks.eventually(
            lambda: "external metric motley_forecast_cpu" in cluster.kubectl(*words).out,
            "an event tells why",
        )
        stocks.eventually(
            lambda: measured(cluster, "foresees") == {"Resource", "External"}, "both are measured"
        )
        # Under the same settings, without a forecast: one goes by what is used now, ...
        stocks.eventually(lambda: replicas(cluster, "lowered") == 1, "fewer pods")
        stocks.eventually(
            lambda: condition(cluster, "reacts", "ScalingActive").get("status") == "True",
            "what is used is known",
        )
        assert replicas(cluster, "reacts") == 1
        # ... and a forecast that fails says so, and takes no pod away.
        stocks.eventually(
            lambda: condition(cluster, "mistyped", "ScalingActive").get("reason") == FAILED,
            "that the metric fails is told",
        )
        told = condition(cluster, "mistyped", "ScalingActive")
        assert told["status"] == "False"
        assert "nothing was measured of Deployment shop/mistypt" in told["message"]
        assert replicas(cluster, "mistyped") == 3


def test_motleys_controller_in_the_place_of_kubernetes_own(cluster):
    for name in ("rbac", "deployment"):
        cluster.apply(HORIZONTAL / f"{name}.yaml")
    options = ("--health-port", "0", "--horizontal-pod-autoscaler-sync-period-s", "1")
    with (
        scaled(cluster, "annotated", "foresees"),
        cluster.workloads("horizontalpodautoscaling"),
        cluster.deployment(HORIZONTAL / "deployment.yaml", *options),
    ):
        for name in ("annotated", "foresees"):
            cluster.create(deployment(name))
        predict = {"autoscaling.motley.io/predict": "30m"}
        cluster.create(autoscaler("annotated", **predict))
        cluster.create(autoscaler("foresees", forecast("foresees")))
        for name in ("annotated", "foresees"):
            stocks.eventually(
                lambda name=name: replicas(cluster, name) >= 8, f"pods for what comes to {name}"
            )
        told = condition(cluster, "annotated", "Predicting")
        assert (told["status"], told["reason"]) == ("True", "ForecastAvailable")
        lease = cluster.kubectl("get", "lease", "motley-horizontal", "-n", "kube-system").out
        assert "motley-horizontal" in lease
    account = ("kube-system", "motley-horizontal")
    assert cluster.refused(*account) == []
    unused = cluster.unused(HORIZONTAL / "rbac.yaml", *account)
    unused.discard(stocks.Call("", "events", "patch"))  # only what happens twice is told so
    assert {c.resource for c in unused} == {"*", "*/scale"}, "what is named is used"
    assert not cluster.may(account, "get", "secrets")
    assert not cluster.may(account, "patch", "deployments.apps")


def test_the_examples_name_metrics_there_are(cluster):
    text = (stocks.ROOT / "examples/hpa/forecast-metric.yaml").read_text()
    metrics = yaml.safe_load(text)["spec"]["metrics"]
    (external,) = [m["external"]["metric"] for m in metrics if m["type"] == "External"]
    listed = json.loads(cluster.kubectl("get", "--raw", PATH).out)["resources"]
    assert external["name"] in {r["name"] for r in listed}
    selector = ",".join(f"{k}%3D{v}" for k, v in external["selector"]["matchLabels"].items())
    answered = raw(cluster, external["name"], selector, fails=True)
    assert "nothing was measured of Deployment shop/web" in answered.err
