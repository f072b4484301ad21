"""Golden traces of ReplicaSets: who goes first when there are too many; how a refusal is met."""

from world import Behaviour, Trace, pods, simulate
from world.workloads import replica_set

from motley.api.views.pod import Pod
from motley.controllers.resourcequota import ResourceQuota
from motley.controllers.workload import ReplicaSet

COST = "controller.kubernetes.io/pod-deletion-cost"


def ready_count(world):
    return sum(p.is_ready for p in world.living(app="web"))


def placement(trace):
    parts = [
        f"{trace.name(p)}@{p.spec.node_name or 'nowhere'}{'' if p.is_ready else ' unready'}"
        for p in trace.world.living(app="web")
    ]
    return "left: " + ", ".join(parts)


@simulate(nodes=3)
async def test_scaling_down_takes_the_pods_that_are_missed_least(world, golden):
    async def grow(replicas):
        await world.patch(ReplicaSet, "web", {"spec": {"replicas": replicas}})
        await world.until(lambda: ready_count(world) == replicas)

    async def shrink(why, replicas):
        trace.say(f"{why}: scale to {replicas}")
        await world.patch(ReplicaSet, "web", {"spec": {"replicas": replicas}})
        await world.sleep(3)

    await world.create(ReplicaSet, replica_set(replicas=0))
    for replicas in range(1, 9):  # each is half as old as the one before
        await grow(replicas)
        await world.sleep(1024 / 2**replicas)
    trace = await Trace.begin(world, pods, placement, hide=("Scheduled", "SuccessfulCreate"))
    named = {trace.name(p): p for p in world.living()}
    world.kubelets.script = lambda p: Behaviour(start_s=1000)
    await world.patch(ReplicaSet, "web", {"spec": {"replicas": 10}})
    await world.sleep(5)
    await shrink("two of ten have not started", 8)
    world.kubelets.set_ready(named["web.1"], False)
    await world.sleep(1)
    await shrink("web.1 is not ready", 7)
    await world.patch(
        Pod, named["web.2"].metadata.name, {"metadata": {"annotations": {COST: "-5"}}}
    )
    await shrink("web.2 costs less to delete", 6)
    await world.patch(
        Pod, named["web.8"].metadata.name, {"metadata": {"annotations": {COST: "100"}}}
    )
    await shrink("every node has two, web.8 is the youngest but costs much", 5)
    await shrink("node-0 has one only", 3)
    golden("scale_down", trace)


@simulate(nodes=3)
async def test_a_refused_pod_is_met_once_and_not_a_hundred_times(world, golden):
    quota = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "6"}}}
    await world.create(ResourceQuota, quota)
    await world.sleep(2)
    trace = await Trace.begin(
        world, pods, failures, hide=("Scheduled", "SuccessfulCreate", "FailedCreate")
    )
    trace.say("50 pods, the quota allows 6")
    await world.create(ReplicaSet, replica_set(replicas=50))
    await world.sleep(1)
    trace.say(f"creations asked for: {batches(world)}")
    await world.sleep(9)
    trace.say("the quota allows 8")
    await world.patch(ResourceQuota, "q", {"spec": {"hard": {"pods": "8"}}})
    await world.sleep(120)
    trace.say("the quota is gone")
    await world.delete(ResourceQuota, "q")
    await world.until(lambda: ready_count(world) == 50)
    trace.say(f"pods created: {created(world)}")
    golden("quota_slow_start", trace)


def failures(trace):
    parts = []
    for rs in trace.world.informer(ReplicaSet).items():
        for c in rs.status.conditions:
            _, _, why = c.message.partition("exceeded")
            parts.append(f"{rs.metadata.name}: {c.type}={c.status}({c.reason}) exceeded{why}")
    return "; ".join(parts) or "no failure"


def batches(world):
    """Answers to pod creations, in order: + made, - refused."""
    asked = [
        a for a in world.wire.log if a.asked.method == "POST" and a.asked.path.endswith("/pods")
    ]
    return "".join("+" if a.code == 201 else "-" for a in asked[:12])


def created(world):
    asked = [
        a for a in world.wire.log if a.asked.method == "POST" and a.asked.path.endswith("/pods")
    ]
    return sum(a.code == 201 for a in asked)
