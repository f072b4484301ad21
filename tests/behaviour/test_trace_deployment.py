"""Golden traces of Deployments: what a rollout looks like from outside, moment by moment."""

import pytest
from world import Behaviour, Trace, pods, simulate
from world.workloads import completed, deployment, set_image

from motley.controllers.workload import Deployment, ReplicaSet


def rolling(surge, unavailable):
    return {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}


def conditions(trace):
    """The Deployments' numbers and conditions."""
    parts = []
    for d in sorted(trace.world.informer(Deployment).items(), key=lambda d: d.metadata.name):
        s = d.status
        about = [f"{c.type}={c.status}({c.reason})" for c in s.conditions]
        numbers = f"{s.replicas} pods {s.updated_replicas} updated {s.available_replicas} available"
        parts.append(f"{d.metadata.name}: {numbers} {' '.join(sorted(about))}")
    return "; ".join(parts)


async def rolled_out(world, **spec):
    await world.create(Deployment, deployment(**spec))
    await completed(world)
    await world.sleep(5)


@pytest.mark.parametrize(
    ("surge", "unavailable"),
    [(1, 0), (0, 1), ("25%", "25%"), ("100%", 0), (0, "100%"), (3, 2)],
    ids=lambda v: str(v).rstrip("%"),
)
@simulate(nodes=3)
async def test_a_rolling_update_keeps_its_bounds(world, golden, surge, unavailable):
    await rolled_out(world, replicas=8, strategy=rolling(surge, unavailable))
    trace = await Trace.begin(world)
    trace.say(f"image two, maxSurge {surge}, maxUnavailable {unavailable}")
    await set_image(world, "two")
    await completed(world)
    await world.sleep(5)
    golden(f"rolling_{surge}_{unavailable}".replace("%", ""), trace)


@simulate(nodes=3)
async def test_recreate_ends_all_before_it_starts_any(world, golden):
    world.kubelets.script = lambda _: Behaviour(stop_s=3)
    await rolled_out(world, strategy={"type": "Recreate"})
    trace = await Trace.begin(world, pods, conditions)
    trace.say("image two")
    await set_image(world, "two")
    await completed(world)
    golden("recreate", trace)


@simulate(nodes=3)
async def test_a_paused_rollout_stands_still_and_goes_on(world, golden):
    world.kubelets.script = lambda _: Behaviour(start_s=2, ready_s=3)
    await rolled_out(world, replicas=4, strategy=rolling(1, 0))
    trace = await Trace.begin(world, pods, conditions)
    trace.say("image two")
    await set_image(world, "two")
    await world.sleep(7)
    trace.say("pause")
    await world.patch(Deployment, "web", {"spec": {"paused": True}})
    await world.sleep(20)
    trace.say("image three, while paused")
    await set_image(world, "three")
    await world.sleep(20)
    trace.say("resume")
    await world.patch(Deployment, "web", {"spec": {"paused": False}})
    await completed(world)
    await world.sleep(5)
    golden("pause", trace)


@simulate(nodes=3)
async def test_undo_rolls_back_to_the_old_replica_set(world, golden):
    await rolled_out(world)
    await set_image(world, "two")
    await completed(world)
    await world.sleep(5)
    trace = await Trace.begin(world, pods, revisions)
    trace.say("undo: the first template again")
    await set_image(world, "one")
    await completed(world)
    await world.sleep(5)
    golden("undo", trace)


def revisions(trace):
    sets = sorted(trace.world.informer(ReplicaSet).items(), key=trace.name)
    key = "deployment.kubernetes.io/revision"
    parts = [f"{trace.name(rs)} is {rs.metadata.annotations.get(key)}" for rs in sets]
    return "revisions: " + ", ".join(parts)


@simulate(nodes=3)
async def test_a_rollout_that_does_not_progress_says_so(world, golden):
    await rolled_out(world, progressDeadlineSeconds=60)
    never = Behaviour(ready_s=None)
    world.kubelets.script = lambda p: never if p.spec.containers[0].image == "bad" else Behaviour()
    trace = await Trace.begin(world, pods, conditions)
    trace.say("image bad, which never gets ready; the deadline is 60 s")
    await set_image(world, "bad")
    await world.sleep(120)
    trace.say("image two")
    await set_image(world, "two")
    await completed(world)
    await world.sleep(5)
    golden("progress_deadline", trace)


@simulate(nodes=3)
async def test_scaling_amid_a_rollout_is_in_proportion(world, golden):
    world.kubelets.script = lambda _: Behaviour(start_s=5, ready_s=5)
    await rolled_out(world, replicas=10, strategy=rolling(3, 2))
    trace = await Trace.begin(world)
    trace.say("image two")
    await set_image(world, "two")
    await world.sleep(3)
    trace.say("scale to 15")
    await world.patch(Deployment, "web", {"spec": {"replicas": 15}})
    await world.sleep(3)
    trace.say("scale to 6")
    await world.patch(Deployment, "web", {"spec": {"replicas": 6}})
    await completed(world)
    await world.sleep(5)
    golden("proportional_scaling", trace)


@simulate(nodes=3)
async def test_pods_must_stay_ready_to_count(world, golden):
    await rolled_out(world, replicas=3, minReadySeconds=10, strategy=rolling(1, 0))
    trace = await Trace.begin(world, pods, conditions)
    trace.say("image two, minReadySeconds 10")
    await set_image(world, "two")
    await completed(world)
    await world.sleep(5)
    golden("min_ready_seconds", trace)
