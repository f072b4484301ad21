"""Autoscalers with a real API server, real kubectl and nodes that report a scripted use."""

import asyncio
import json
import shutil
from pathlib import Path

import msgspec
import pytest

from motley.api import status
from motley.api.views.autoscaling import HorizontalPodAutoscaler
from motley.api.views.base import Object
from motley.api.views.core import Event
from motley.api.views.pod import Pod
from motley.autoscale.calculator import Settings
from motley.controllers import service
from motley.controllers.workload import Deployment, ReplicaSet

SERVER_FLAGS = ("--metrics-every-s", "0.2")
FAST = Settings(sync_s=0.2, downscale_stabilization_s=1.0, cpu_initialization_s=0.0)


@pytest.fixture
def scaled(cluster):
    """A cluster whose autoscalers are in a hurry."""

    def run(settings=FAST):
        options = service.Options(leader_elect=False, autoscaling=settings)
        return cluster(options=options)

    return run


@pytest.fixture
def kubectl(shared_server):
    program = shutil.which("kubectl") or str(Path(__file__).parents[2] / ".cache/bin/kubectl")

    async def run(namespace, *arguments, stdin=None):
        process = await asyncio.create_subprocess_exec(
            program,
            f"--kubeconfig={shared_server.kubeconfig}",
            f"--namespace={namespace}",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate(stdin.encode() if stdin else None)
        assert process.returncode == 0, f"{arguments}: {out.decode()}{err.decode()}"
        return out.decode()

    return run


def a_template(usage, requests=None):
    resources = {"requests": requests or {"cpu": "200m", "memory": "100Mi"}}
    return {
        "metadata": {"labels": {"app": "web"}, "annotations": {"fake.motley.io/usage": usage}},
        "spec": {"containers": [{"name": "c", "image": "nginx", "resources": resources}]},
    }


def a_workload(usage, replicas=1, **options):
    return {
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": a_template(usage, **options),
        },
    }


def cpu_at(percent):
    target = {"type": "Utilization", "averageUtilization": percent}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def an_autoscaler(kind="Deployment", name="web", **spec):
    target = {"apiVersion": "apps/v1", "kind": kind, "name": "web"}
    body = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 10, **spec}
    return {"metadata": {"name": name}, "spec": body}


async def uses(c, text):
    """Tell every pod of the test what it uses from now on."""
    for pod in c.living(app="web"):
        note = {"metadata": {"annotations": {"fake.motley.io/usage": text}}}
        await c.patch(Pod, pod.metadata.name, note)


async def size_is(c, number, cls=Deployment):
    return (await c.get(cls, "web")).spec.replicas == number


async def condition(c, type_, reason, name="web"):
    found = await c.get(HorizontalPodAutoscaler, name)
    listed = found.status.get("conditions") or ()
    return next((x for x in listed if (x["type"], x["reason"]) == (type_, reason)), None)


async def events(c, reason):
    return [e for e in await c.list(Event) if e.reason == reason]


async def test_a_deployment_grows_with_its_load_and_shrinks_after_it(scaled, kubectl):
    async with scaled() as c:
        await c.create(Deployment, a_workload("cpu=100m,memory=50Mi", replicas=2))
        await c.eventually(lambda: len(c.living(app="web")) == 2, "two pods")
        await kubectl(
            c.namespace, "autoscale", "deployment", "web", "--min=2", "--max=4", "--cpu-percent=50"
        )
        await c.eventually(lambda: condition(c, "ScalingActive", "ValidMetricFound"), "active")
        assert await size_is(c, 2)
        listed = await kubectl(c.namespace, "get", "hpa", "web")
        assert "cpu: 50%/50%" in listed
        assert listed.split("\n")[0].split() == (
            ["NAME", "REFERENCE", "TARGETS", "MINPODS", "MAXPODS", "REPLICAS", "AGE"]
        )
        # Changing the template would roll the pods; their own annotations are the load.
        await uses(c, "cpu=190m,memory=50Mi")
        await c.eventually(lambda: size_is(c, 4), "four pods for twice the load")
        told = await c.eventually(lambda: events(c, "SuccessfulRescale"), "an event")
        assert told[0].message == (
            "New size: 4; reason: cpu resource utilization (percentage of request) above target"
        )

        await c.eventually(lambda: len(c.living(app="web")) == 4, "four pods")
        await c.eventually(lambda: condition(c, "ScalingLimited", "TooManyReplicas"), "no more")
        await uses(c, "cpu=20m,memory=50Mi")
        await c.eventually(lambda: size_is(c, 2), "down to the minimum, after the window")
        shown = await kubectl(c.namespace, "describe", "hpa", "web")
        assert "SuccessfulRescale" in shown
        assert "reason: All metrics below target" in shown
        for type_ in ("AbleToScale", "ScalingActive", "ScalingLimited"):
            assert f"\n  {type_}  " in shown, shown


async def test_kubectl_top_shows_what_pods_and_nodes_use(scaled, kubectl):
    async with scaled() as c:
        await c.create(Deployment, a_workload("cpu=250m,memory=64Mi"))
        pod = (await c.eventually(lambda: c.living(app="web"), "a pod"))[0]

        async def top():
            path = f"/apis/metrics.k8s.io/v1beta1/namespaces/{c.namespace}/pods"
            return (await c.client.raw("GET", path))["items"]

        await c.eventually(top, "a sample")
        lines = (await kubectl(c.namespace, "top", "pods")).splitlines()
        assert lines[1].split() == [pod.metadata.name, "250m", "64Mi"]
        assert "250m" in await kubectl(c.namespace, "top", "pods", "--containers")
        assert "fake-0" in await kubectl(c.namespace, "top", "nodes")
        table = await kubectl(c.namespace, "get", "pods.metrics.k8s.io")
        assert table.splitlines()[1].split()[:3] == [pod.metadata.name, "250m", "64Mi"]
        one = json.loads(
            await kubectl(
                c.namespace, "get", "pods.metrics.k8s.io", pod.metadata.name, "-o", "json"
            )
        )
        assert one["kind"] == "PodMetrics"
        assert one["containers"] == [
            {"name": "c", "usage": {"cpu": "250000000n", "memory": "64Mi"}}
        ]
        assert "v1beta1.metrics.k8s.io" in await kubectl(c.namespace, "get", "apiservices")
        await kubectl(
            c.namespace, "create", "rolebinding", "viewers", "--clusterrole=view", "--user=eve"
        )

        async def may():
            return await kubectl(c.namespace, "top", "pods", "--as=eve")

        await c.eventually(lambda: is_fine(may), "who may view pods may view their use")


V2BETA2 = """
apiVersion: autoscaling/v2beta2
kind: HorizontalPodAutoscaler
metadata:
  name: hpa-practice-cpu-policy-scale-up
  annotations: {autoscaling.motley.io/semantics: minik8s}
spec:
  minReplicas: 3
  maxReplicas: 6
  metrics:
  - type: Resource
    resource:
      name: cpu
      target:
        type: Utilization
        averageUtilization: 20
  - type: Resource
    resource:
      name: memory
      target:
        type: Utilization
        averageUtilization: 20
  scaleTargetRef:
    apiVersion: apps/v1
    kind: ReplicaSet
    name: web
  behavior:
    scaleUp:
      selectPolicy: Max
      stabilizationWindowSeconds: 0
      policies:
      - type: Pods
        value: 1
        periodSeconds: 1
"""


async def test_the_v2beta2_manifest_of_the_documents_scales_a_replica_set_step_by_step(
    scaled, kubectl
):
    async with scaled() as c:
        await c.create(ReplicaSet, a_workload("cpu=20m,memory=80Mi", replicas=1))
        await kubectl(c.namespace, "apply", "-f", "-", stdin=V2BETA2)

        await c.eventually(lambda: size_is(c, 6, ReplicaSet), "up to the maximum")

        told = await c.eventually(lambda: four_events(c), "an event for each step")
        assert [e.message for e in told] == [
            "New size: 3; reason: Current number of replicas below Spec.MinReplicas",
            *(
                f"New size: {size}; reason: memory resource utilization (percentage of request)"
                " above target"
                for size in (4, 5, 6)
            ),
        ]


async def four_events(c):
    found = sorted(await events(c, "SuccessfulRescale"), key=lambda e: e.message)
    return found if len(found) == 4 else None


async def test_without_requests_a_share_is_no_number_and_nothing_is_scaled(scaled):
    async with scaled() as c:
        await c.create(Deployment, a_workload("cpu=1", requests={"memory": "1Mi"}))
        await c.create(HorizontalPodAutoscaler, an_autoscaler(metrics=[cpu_at(50)]))

        async def told():
            found = await condition(c, "ScalingActive", "FailedGetResourceMetric")
            return (
                found and "missing request for cpu in container c of Pod web-" in found["message"]
            )

        await c.eventually(told, "it says why")
        assert await size_is(c, 1)
        assert await c.eventually(lambda: events(c, "FailedComputeMetricsReplicas"), "an event")


async def test_a_target_at_zero_is_left_alone(scaled):
    async with scaled() as c:
        await c.create(Deployment, a_workload("cpu=1", replicas=0))
        await c.create(HorizontalPodAutoscaler, an_autoscaler(metrics=[cpu_at(50)]))

        found = await c.eventually(
            lambda: condition(c, "ScalingActive", "ScalingDisabled"), "disabled"
        )

        assert found["status"] == "False"
        assert await size_is(c, 0)


async def test_two_autoscalers_of_the_same_pods_both_stand_still(scaled):
    async with scaled() as c:
        await c.create(Deployment, a_workload("cpu=1"))
        for name in ("one", "two"):
            body = an_autoscaler(name=name, metrics=[cpu_at(50)])
            await c.create(HorizontalPodAutoscaler, body)

        for name in ("one", "two"):
            found = await c.eventually(
                lambda name=name: condition(c, "ScalingActive", "AmbiguousSelector", name),
                "ambiguous",
            )
            assert f"[{c.namespace}/one {c.namespace}/two]" in found["message"]
        assert (await c.get(HorizontalPodAutoscaler, "two")).status["currentReplicas"] >= 1


async def test_a_target_that_does_not_exist_is_named(scaled):
    async with scaled() as c:
        await c.create(HorizontalPodAutoscaler, an_autoscaler(metrics=[cpu_at(50)]))
        body = an_autoscaler(kind="Nothing", name="odd", metrics=[cpu_at(50)])
        await c.create(HorizontalPodAutoscaler, body)

        found = await c.eventually(lambda: condition(c, "AbleToScale", "FailedGetScale"), "why")
        odd = await c.eventually(
            lambda: condition(c, "AbleToScale", "FailedGetScale", "odd"), "why"
        )

        assert 'deployments.apps "web" not found' in found["message"]
        assert 'no matches for kind "Nothing" in group "apps"' in odd["message"]


class Definition(Object):
    API_VERSION = "apiextensions.k8s.io/v1"
    KIND = "CustomResourceDefinition"
    PLURAL = "customresourcedefinitions"
    NAMESPACED = False


class Farm(Object):
    API_VERSION = "example.org/v1"
    KIND = "Farm"
    PLURAL = "farms"

    spec: dict = msgspec.field(default_factory=dict)


FARMS = {
    "metadata": {"name": "farms.example.org"},
    "spec": {
        "group": "example.org",
        "scope": "Namespaced",
        "names": {"plural": "farms", "kind": "Farm"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.size",
                        "statusReplicasPath": ".status.size",
                        "labelSelectorPath": ".status.selector",
                    },
                },
            }
        ],
    },
}


async def test_a_custom_resource_with_a_scale_is_scaled_like_any_other(scaled):
    async with scaled() as c:
        await c.client.create(Definition, FARMS)
        await c.create(ReplicaSet, a_workload("cpu=300m", replicas=2))

        async def made():
            path = f"/apis/example.org/v1/namespaces/{c.namespace}/farms"
            return "items" in await c.client.raw("GET", path)

        await c.eventually(lambda: is_fine(made), "farms are served")
        await c.create(Farm, {"metadata": {"name": "web"}, "spec": {"size": 2}})
        state = {"status": {"size": 2, "selector": "app=web"}}
        await c.patch(Farm, "web", state, subresource="status")
        target = {"apiVersion": "example.org/v1", "kind": "Farm", "name": "web"}
        body = an_autoscaler(metrics=[cpu_at(50)], scaleTargetRef=target)
        await c.create(HorizontalPodAutoscaler, body)

        async def grown():
            return (await c.get(Farm, "web")).spec["size"] >= 4

        await c.eventually(grown, "the farm grows")


async def is_fine(check):
    try:
        return await check()
    except (status.ApiError, AssertionError):
        return False
