"""Metrics are asked for as Kubernetes asks, so every metrics server and adapter answers."""

import msgspec
import pytest

from motley.api import status
from motley.api.views.autoscaling import CrossVersionObjectReference, MetricSpec
from motley.autoscale import proposals, readers, rules
from motley.autoscale.calculator import MetricError, Pods, Settings
from motley.autoscale.hpa import Scale
from motley.autoscale.readers import Readers, duration_s
from motley.autoscale.scales import Mapper, NoScale, Scales

AT = "2023-11-14T22:13:20Z"


class Server:
    """Answers by path; remembers what was asked."""

    def __init__(self):
        self.answers = {}
        self.asked = []

    async def raw(self, method, path, *, params=None, body=None):
        self.asked.append((method, path, dict(params or {})))
        answer = self.answers.get(path)
        if isinstance(answer, list):
            answer = answer.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            raise status.NotFound("the server could not find the requested resource")
        return answer


def reader(answers):
    server = Server()
    server.answers = answers
    return Readers(server, Mapper(server)), server


def resource(name="cpu", container=""):
    kind = "ContainerResource" if container else "Resource"
    source = {"name": name, "target": {"type": "Utilization", "averageUtilization": 50}}
    field = "containerResource" if container else "resource"
    if container:
        source["container"] = container
    return _spec({"type": kind, field: source})


def _spec(document):
    return msgspec.convert(document, MetricSpec)


PODS = "/apis/metrics.k8s.io/v1beta1/namespaces/ns/pods"


def a_pod_metric(name, **containers):
    listed = [{"name": c, "usage": usage} for c, usage in containers.items()]
    return {
        "metadata": {"name": name},
        "timestamp": AT,
        "window": "15.5s",
        "containers": listed,
    }


async def test_use_is_summed_over_the_containers_of_a_pod():
    items = [
        a_pod_metric("p0", a={"cpu": "250m"}, b={"cpu": "1500000n"}),
        a_pod_metric("p1", a={"cpu": "1"}, b={"memory": "1Mi"}),  # of b nothing is known
    ]
    read, server = reader({PODS: {"items": items}})
    found = await read.read(resource(), "ns", "app=web")
    assert {name: s.milli for name, s in found.items()} == {"p0": 252}
    assert found["p0"].window_s == 15.5
    assert server.asked == [("GET", PODS, {"labelSelector": "app=web"})]


async def test_one_container_may_be_meant():
    read, _ = reader({PODS: {"items": [a_pod_metric("p", a={"cpu": "1"}, b={"cpu": "2"})]}})
    found = await read.read(resource(container="b"), "ns", "app=web")
    assert found["p"].milli == 2000


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (
            None,
            "unable to get metrics for resource cpu: unable to fetch metrics from resource metrics"
            " API: the server could not find the requested resource (get pods.metrics.k8s.io)",
        ),
        (
            {"items": []},
            "unable to get metrics for resource cpu: no metrics returned from resource metrics API",
        ),
    ],
)
async def test_what_cannot_be_read_is_told_in_kubernetes_words(answer, problem):
    read, _ = reader({PODS: answer})
    with pytest.raises(MetricError) as raised:
        await read.read(resource(), "ns", "app=web")
    assert str(raised.value) == problem
    failure = proposals.failed(resource(), problem)
    assert failure.reason == "FailedGetResourceMetric"
    assert failure.error == (
        f"failed to get cpu resource metric value: failed to get cpu utilization: {problem}"
    )


CUSTOM = "/apis/custom.metrics.k8s.io"
VERSIONS = {"versions": [{"version": "v1beta1"}, {"version": "v1beta2"}]}


async def test_a_metric_of_pods_comes_from_the_custom_metrics_api():
    values = [{"describedObject": {"name": "p"}, "timestamp": AT, "value": "1500m"}]
    path = f"{CUSTOM}/v1beta2/namespaces/ns/pods/*/qps"
    read, server = reader({CUSTOM: VERSIONS, path: {"items": values}})
    metric = {"name": "qps", "selector": {"matchLabels": {"verb": "GET"}}}
    spec = _spec({"type": "Pods", "pods": {"metric": metric, "target": {"averageValue": "1"}}})
    found = await read.read(spec, "ns", "app=web")
    assert (found["p"].milli, found["p"].window_s) == (1500, 60.0)
    assert server.asked[-1] == (
        "GET",
        path,
        {"labelSelector": "app=web", "metricLabelSelector": "verb=GET"},
    )


async def test_a_metric_of_an_object_names_its_resource():
    path = f"{CUSTOM}/v1beta2/namespaces/ns/ingresses.networking.k8s.io/main/rps"
    group = {"versions": [{"version": "v1"}], "preferredVersion": {"version": "v1"}}
    listed = {"resources": [{"name": "ingresses", "kind": "Ingress"}]}
    read, _ = reader(
        {
            CUSTOM: VERSIONS,
            "/apis/networking.k8s.io": group,
            "/apis/networking.k8s.io/v1": listed,
            path: {"items": [{"value": "2k", "timestamp": AT}]},
        }
    )
    described = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "main"}
    target = {"type": "Value", "value": "1k"}
    spec = _spec(
        {
            "type": "Object",
            "object": {"describedObject": described, "metric": {"name": "rps"}, "target": target},
        }
    )
    assert await read.read(spec, "ns", "app=web") == 2_000_000


async def test_a_metric_of_the_namespace_has_a_path_of_its_own():
    path = f"{CUSTOM}/v1beta2/namespaces/ns/metrics/rps"
    read, _ = reader({CUSTOM: VERSIONS, path: {"items": [{"value": "3"}]}})
    described = {"kind": "Namespace", "name": "whatever"}
    spec = _spec(
        {"type": "Object", "object": {"describedObject": described, "metric": {"name": "rps"}}}
    )
    assert await read.read(spec, "ns", "app=web") == 3000


async def test_external_values_are_summed():
    path = "/apis/external.metrics.k8s.io/v1beta1/namespaces/ns/queue"
    read, server = reader({path: {"items": [{"value": "2"}, {"value": "500m"}]}})
    metric = {"name": "queue", "selector": {"matchLabels": {"q": "a"}}}
    spec = _spec({"type": "External", "external": {"metric": metric}})
    assert await read.read(spec, "ns", "app=web") == 2500
    assert server.asked[-1][2] == {"labelSelector": "q=a"}
    server.answers = {}
    with pytest.raises(MetricError) as raised:
        await read.read(spec, "ns", "app=web")
    assert str(raised.value).startswith(
        "unable to get external metric ns/queue/"
        "&LabelSelector{MatchLabels:map[string]string{q: a,},"
        "MatchExpressions:[]LabelSelectorRequirement{},}: unable to fetch metrics from external"
    )


@pytest.mark.parametrize(
    ("target", "replicas", "shown"),
    [
        ({"type": "Value", "value": "1"}, 6, {"value": "2"}),
        ({"type": "AverageValue", "averageValue": "500m"}, 4, {"averageValue": "667m"}),
    ],
)
def test_one_figure_is_for_the_whole_or_for_each(
    a_pod, start, an_autoscaler, target, replicas, shown
):
    spec = _spec({"type": "External", "external": {"metric": {"name": "q"}, "target": target}})
    pods = Pods([a_pod(f"p{i}") for i in range(3)], Settings(), start)
    tolerances = rules.tolerances(an_autoscaler(), Settings())
    found = proposals.propose(spec, 2000, Scale(3, 3, "app=web"), pods, tolerances)
    assert (found.replicas, found.current["external"]["current"]) == (replicas, shown)


@pytest.mark.parametrize(
    ("text", "seconds"), [("15s", 15.0), ("1m30.5s", 90.5), ("500ms", 0.5), ("0s", 0.0)]
)
def test_durations_are_gos(text, seconds):
    assert duration_s(text) == pytest.approx(seconds)


def test_what_is_no_duration_is_told():
    with pytest.raises(MetricError, match="no duration"):
        duration_s("15 parsecs")


def test_memory_is_shown_in_binary_units(a_pod, start, an_autoscaler):
    pod = a_pod("p")
    pod.spec.containers[0].resources.requests = {"memory": "100Mi"}
    sample = readers.pod_usage([a_pod_metric("p", c={"memory": "64Mi"})], "memory", "")
    pods = Pods([pod], Settings(), start)
    tolerances = rules.tolerances(an_autoscaler(), Settings())
    found = proposals.propose(resource("memory"), sample, Scale(1, 1, "a=b"), pods, tolerances)
    assert found.current["resource"]["current"] == {
        "averageUtilization": 64,
        "averageValue": "64Mi",
    }


DEPLOYMENT = CrossVersionObjectReference(api_version="apps/v1", kind="Deployment", name="web")
APPS = {
    "/apis/apps": {"versions": [{"version": "v1"}], "preferredVersion": {"version": "v1"}},
    "/apis/apps/v1": {
        "resources": [
            {"name": "deployments", "kind": "Deployment"},
            {"name": "deployments/scale", "kind": "Scale"},
        ]
    },
}
SCALE = "/apis/apps/v1/namespaces/ns/deployments/web/scale"


async def test_a_conflict_over_the_scale_is_read_again_and_retried():
    first = {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 1}, "status": {}}
    newer = {**first, "metadata": {"resourceVersion": "2"}}
    server = Server()
    server.answers = {**APPS, SCALE: [first, status.Conflict("stale"), newer, newer]}
    scales = Scales(server, Mapper(server))
    found = await scales.get(DEPLOYMENT, "ns")
    await scales.set(found, 3)
    assert [method for method, path, _ in server.asked if path == SCALE] == (
        ["GET", "PUT", "GET", "PUT"]
    )


async def test_a_kind_nobody_serves_has_no_scale():
    server = Server()
    server.answers = dict(APPS)
    odd = CrossVersionObjectReference(api_version="apps/v1", kind="Odd", name="web")
    with pytest.raises(NoScale, match='no matches for kind "Odd" in group "apps"'):
        await Scales(server, Mapper(server)).get(odd, "ns")
