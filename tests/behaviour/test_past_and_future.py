"""What is decided by the past of a workload, over hours and days, on virtual time."""

import math

from world import World, loop, simulate

from motley.api.views.autoscaling import HorizontalPodAutoscaler
from motley.api.views.core import Event, Node
from motley.api.views.pod import Pod
from motley.api.views.policy import PodDisruptionBudget
from motley.api.views.verticalautoscaling import VerticalPodAutoscaler
from motley.autoscale import rebalance
from motley.cli import rebalance_options
from motley.controllers import service
from motley.controllers.workload import Deployment
from motley.metrics import serving
from motley.metrics.history import WORKLOAD, Sample, Series

USAGE = "fake.motley.io/usage"
MIB = 1 << 20
SERIES = 64


class Measured:
    """The groups of `metrics`, with the history at hand, so that a test may write a past."""

    def __init__(self, every_s=30.0):
        self.brought = []
        self.extensions = [
            lambda core, make=make: self._keep(make(core))
            for make in serving.extensions(every_s, None, SERIES)
        ]

    def _keep(self, made):
        self.brought.append(made)
        return made

    def remember(self, clock, name, cpu_at, hours, pods=3, memory=100 * MIB, container="c"):
        """A past of `hours` in which all pods together used `cpu_at(moment)`."""
        history = next(one.history for one in self.brought if one.group == "history.motley.io")
        now = clock.now()
        for step in range(int(hours * 12), 0, -1):
            at = now - step * 300
            cpu = cpu_at(at)
            one = cpu / pods
            sample = Sample(cpu, cpu, float(memory * pods), one, float(memory), float(pods))
            history.write(at, {Series(WORKLOAD, "default", name, "Deployment", container): sample})


def a_deployment(name, replicas, usage, cpu="100m", memory="64Mi"):
    resources = {"requests": {"cpu": cpu, "memory": memory}}
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels, "annotations": {USAGE: usage}},
        "spec": {"containers": [{"name": "c", "image": "x", "resources": resources}]},
    }
    selector = {"matchLabels": labels}
    spec = {"replicas": replicas, "selector": selector, "template": template}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec}


def an_autoscaler(name, annotations=None, *metrics):
    target = {"type": "AverageValue", "averageValue": "500m"}
    down = {"stabilizationWindowSeconds": 0}
    return {
        "metadata": {"name": name, "namespace": "default", "annotations": annotations or {}},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1,
            "maxReplicas": 20,
            "metrics": [
                {"type": "Resource", "resource": {"name": "cpu", "target": target}},
                *metrics,
            ],
            "behavior": {"scaleDown": down},
        },
    }


def a_forecast(name, ahead):
    selector = {"matchLabels": {"workload": name, "kind": "Deployment", "ahead": ahead}}
    metric = {"name": "motley_forecast_cpu", "selector": selector}
    target = {"type": "AverageValue", "averageValue": "500m"}
    return {"type": "External", "external": {"metric": metric, "target": target}}


def a_vertical(mode, name="web"):
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "updatePolicy": {"updateMode": mode},
        },
    }


def simulated(test, **options):
    """Run a test in a world that measures."""
    measured = Measured()

    async def main():
        async with World.open(extensions=measured.extensions, **options) as world:
            await test(world, measured)

    loop.run(main())


async def share_load(world, name, total):
    """The pods of a deployment share a load evenly."""
    pods = [p for p in world.living(app=name) if p.status.phase == "Running"]
    for pod in pods:
        use = f"cpu={max(1, round(1000 * total / len(pods)))}m,memory=50Mi"
        note = {"metadata": {"annotations": {USAGE: use}}}
        await world.patch(Pod, pod.metadata.name, note)


def condition(found, type_):
    listed = found.status.get("conditions") or ()
    return next((c for c in listed if c["type"] == type_), None)


def test_pods_are_there_before_the_load_of_every_hour():
    """Three workloads under the same load; two look ten minutes ahead: by the annotation, which
    Motley's controller reads, and by the external metric, which every controller does."""

    async def scenario(world, measured):
        names = ("reacts", "foresees", "told")
        lowest = world.clock.now()

        def load(at):
            return 2.5 - 2.0 * math.cos(2 * math.pi * (at - lowest) / 3600)

        for name in names:
            measured.remember(world.clock, name, load, hours=12)
            await world.create(Deployment, a_deployment(name, 1, "cpu=500m,memory=50Mi"))
        await world.until(lambda: len(world.living(app="foresees")) == 1, "pods")
        for name in names:
            await share_load(world, name, load(world.clock.now()))
        await world.create(HorizontalPodAutoscaler, an_autoscaler("reacts"))
        told = an_autoscaler("told", None, a_forecast("told", "10m"))
        await world.create(HorizontalPodAutoscaler, told)
        notes = {"autoscaling.motley.io/predict": "10m"}
        await world.create(HorizontalPodAutoscaler, an_autoscaler("foresees", notes))
        short = dict.fromkeys(names, 0)
        fewer = 0
        for minute in range(30):
            for name in names:
                await share_load(world, name, load(world.clock.now()))
            await world.sleep(60)
            if minute < 3:
                continue
            sizes = {name: (await world.get(Deployment, name)).spec.replicas for name in names}
            coming = max(load(world.clock.now() + 30 * i) for i in range(14))
            for name in names:
                short[name] += sizes[name] * 0.5 * 1.1 < coming
            fewer += min(sizes["foresees"], sizes["told"]) < sizes["reacts"]
        assert short["reacts"] > 15, "whoever reacts is behind while the load rises"
        assert short["foresees"] <= 5
        assert short["told"] <= 5
        assert fewer == 0, "a forecast takes no pod away"
        told = condition(await world.get(HorizontalPodAutoscaler, "foresees"), "Predicting")
        assert (told["status"], told["reason"]) == ("True", "ForecastAvailable")
        assert "season 1h" in told["message"]
        assert "error" in told["message"]
        reacts = await world.get(HorizontalPodAutoscaler, "reacts")
        assert condition(reacts, "Predicting") is None
        reasons = {e.message for e in await world.list(Event) if e.reason == "SuccessfulRescale"}
        assert any("forecast of cpu for the next 600 s above target" in r for r in reasons)
        assert any("external metric motley_forecast_cpu" in r for r in reasons)

    simulated(scenario, nodes=3)


def test_an_autoscaler_without_a_past_reacts_and_says_so():
    async def scenario(world, measured):
        await world.create(Deployment, a_deployment("web", 1, "cpu=900m,memory=50Mi"))
        notes = {"autoscaling.motley.io/predict": "5m"}
        await world.create(HorizontalPodAutoscaler, an_autoscaler("web", notes))

        async def is_scaled():
            return (await world.get(Deployment, "web")).spec.replicas >= 2

        await world.until(is_scaled, "two pods", within_s=600)
        told = condition(await world.get(HorizontalPodAutoscaler, "web"), "Predicting")
        assert (told["status"], told["reason"]) == ("False", "NoForecast")

    simulated(scenario, nodes=1)


def requests(pod):
    return pod.spec.containers[0].resources.requests


def test_pods_that_request_too_little_are_evicted_one_by_one_and_come_back_larger():
    async def scenario(world, measured):
        await world.create(Deployment, a_deployment("web", 3, "cpu=400m,memory=200Mi"))
        budget = {
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        }
        await world.create(PodDisruptionBudget, budget)
        await world.until(lambda: sum(p.is_ready for p in world.living(app="web")) == 3, "pods")
        measured.remember(world.clock, "web", lambda _: 1.2, hours=48, memory=200 * MIB)
        await world.create(VerticalPodAutoscaler, a_vertical("Recreate"))
        least = 3

        async def all_larger():
            nonlocal least
            ready = [p for p in world.living(app="web") if p.is_ready]
            least = min(least, len(ready))
            sizes = [requests(p) for p in ready]
            return sizes == [{"cpu": "460m", "memory": "230Mi"}] * 3

        await world.until(all_larger, "three larger pods", within_s=900)
        assert least == 2, "never more than one away"
        told = await world.get(VerticalPodAutoscaler, "web")
        assert condition(told, "RecommendationProvided")["status"] == "True"
        assert condition(told, "LowConfidence")["status"] == "False"
        names = {p.metadata.name for p in world.living(app="web")}
        await world.sleep(400)
        assert {p.metadata.name for p in world.living(app="web")} == names, "and that was all"
        pod = world.living(app="web")[0]
        assert "updated by web" in pod.metadata.annotations["vpaUpdates"]

    simulated(scenario, nodes=3)


def test_off_only_recommends_and_initial_leaves_running_pods_alone():
    async def scenario(world, measured):
        for name in ("quiet", "fresh"):
            await world.create(Deployment, a_deployment(name, 2, "cpu=400m,memory=200Mi"))
            await world.until(lambda name=name: len(world.living(app=name)) == 2, "pods")
            measured.remember(world.clock, name, lambda _: 0.8, 24, pods=2, memory=200 * MIB)
        await world.create(VerticalPodAutoscaler, a_vertical("Off", "quiet"))
        await world.create(VerticalPodAutoscaler, a_vertical("Initial", "fresh"))
        await world.sleep(300)
        for name in ("quiet", "fresh"):
            found = await world.get(VerticalPodAutoscaler, name)
            listed = found.status["recommendation"]["containerRecommendations"]
            assert listed[0]["target"] == {"cpu": "460m", "memory": "230Mi"}
            assert {requests(p)["cpu"] for p in world.living(app=name)} == {"100m"}
            await world.patch(Deployment, name, {"spec": {"replicas": 3}})
        for name, sizes in (("quiet", ["100m"] * 3), ("fresh", ["100m", "100m", "460m"])):
            await world.until(lambda name=name: len(world.living(app=name)) == 3, "a third")
            assert sorted(requests(p)["cpu"] for p in world.living(app=name)) == sizes

    simulated(scenario, nodes=2)


def test_a_pod_is_not_evicted_for_a_change_that_goes_the_other_way_than_asked_for():
    async def scenario(world, measured):
        await world.create(Deployment, a_deployment("web", 2, "cpu=400m,memory=200Mi"))
        await world.until(lambda: sum(p.is_ready for p in world.living(app="web")) == 2, "pods")
        measured.remember(world.clock, "web", lambda _: 0.8, 24, pods=2, memory=200 * MIB)
        names = {p.metadata.name for p in world.living(app="web")}
        asked = {"resources": ["cpu"], "changeRequirement": "TargetLowerThanRequests"}
        vertical = a_vertical("Recreate")
        vertical["spec"]["updatePolicy"]["evictionRequirements"] = [asked]
        await world.create(VerticalPodAutoscaler, vertical)
        await world.sleep(300)
        found = await world.get(VerticalPodAutoscaler, "web")
        assert found.status["recommendation"], "it does want more"
        assert {p.metadata.name for p in world.living(app="web")} == names
        asked["changeRequirement"] = "TargetHigherThanRequests"
        change = {"spec": {"updatePolicy": {"evictionRequirements": [asked]}}}
        await world.patch(VerticalPodAutoscaler, "web", change)
        await world.until(
            lambda: {requests(p)["cpu"] for p in world.living(app="web")} == {"460m"},
            "larger ones",
            within_s=900,
        )

    simulated(scenario, nodes=2)


def test_where_nobody_keeps_the_past_the_controllers_keep_it_themselves(tmp_path):
    """As on somebody else's Kubernetes, which has `metrics.k8s.io` and no more."""
    path = tmp_path / "history.ring"
    given = {"high_cpu": 80, "high_memory": 80, "middle_cpu": 65, "middle_memory": 65}
    given |= {"max_moves": 5, "max_moves_per_node": 2, "rebalance": False}
    given |= {"rebalance_every_s": 120.0, "rebalance_rest_s": 600.0, "vpa_sync_s": 60.0}
    given |= {"history_file": path, "history_every_s": 30.0}
    options = service.Options(leader_elect=False, **rebalance_options.chosen(given))

    async def main():
        brought = serving.extensions(30.0, None, 0)
        async with World.open(nodes=2, options=options, extensions=brought) as world:
            await world.create(Deployment, a_deployment("web", 2, "cpu=400m,memory=200Mi"))
            await world.create(VerticalPodAutoscaler, a_vertical("Off"))

            async def recommended():
                state = (await world.get(VerticalPodAutoscaler, "web")).status
                return (state.get("recommendation") or {}).get("containerRecommendations")

            found = await world.until(recommended, "a recommendation", within_s=600)
            assert found[0]["target"] == {"cpu": "460m", "memory": "230Mi"}

    loop.run(main())
    assert path.stat().st_size > 0


MOVING = service.Options(
    leader_elect=False, rebalance=rebalance.Settings(every_s=60.0, rest_s=300.0)
)


def test_pods_leave_a_hot_node_a_few_at_a_time_and_not_for_nothing():
    async def scenario(world, measured):
        await world.create(Deployment, a_deployment("web", 6, "cpu=200m,memory=50Mi"))
        await world.until(lambda: len(world.living(app="web")) == 6, "pods")
        budget = {
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        }
        await world.create(PodDisruptionBudget, budget)
        whole = int((await world.get(Node, "node-0")).status.allocatable["cpu"])
        there = [p for p in world.living(app="web") if p.spec.node_name == "node-0"]
        assert len(there) == 2
        before = {p.metadata.name for p in world.living(app="web")}
        # One of its pods begins to take half of the node, a lone pod nearly all of the rest.
        half = f"cpu={whole * 500 - 200}m,memory=50Mi"
        note = {"metadata": {"annotations": {USAGE: half}}}
        await world.patch(Pod, there[0].metadata.name, note)
        lone = {
            "metadata": {
                "name": "lone",
                "namespace": "default",
                "annotations": {USAGE: f"cpu={whole * 400}m,memory=50Mi"},
            },
            "spec": {"nodeName": "node-0", "containers": [{"name": "c", "image": "x"}]},
        }
        await world.create(Pod, lone)
        await world.until(
            lambda: there[0].metadata.name not in {p.metadata.name for p in world.living()},
            "the busy pod leaves",
            within_s=300,
        )
        await world.until(lambda: len(world.living(app="web")) == 6, "its successor")
        told = [e for e in await world.list(Event) if e.reason == "Rebalanced"]
        assert [e.involved_object.name for e in told] == [there[0].metadata.name]
        assert "of the cpu of node-0" in told[0].message
        await world.sleep(400)
        after = {p.metadata.name for p in world.living(app="web")}
        assert len(after & before) == 5, "the others stay: nothing is hot any more"
        assert "lone" in {p.metadata.name for p in world.living()}

    simulated(scenario, nodes=3, options=MOVING)


@simulate(nodes=2)
async def test_nothing_is_moved_unless_an_operator_says_so(world):
    await world.create(Deployment, a_deployment("web", 2, "cpu=3900m,memory=50Mi"))
    await world.until(lambda: len(world.living(app="web")) == 2, "pods")
    before = {p.metadata.uid for p in world.living(app="web")}
    await world.sleep(600)
    assert {p.metadata.uid for p in world.living(app="web")} == before
