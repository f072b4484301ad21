"""Golden traces of StatefulSets: the order in which pods come, change and go."""

from world import Behaviour, Trace, simulate
from world.trace import letter

from motley.api.views.pod import Pod
from motley.api.views.workloads import StatefulSet

HIDE = ("Scheduled",)


def stateful_set(replicas=3, **spec):
    return {
        "metadata": {"name": "db"},
        "spec": {
            "serviceName": "db",
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "db"}},
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {"containers": [{"name": "c", "image": "one"}]},
            },
            **spec,
        },
    }


def members(trace):
    """Every pod by its ordinal: its state and the image it has."""
    found = sorted(
        trace.world.informer(Pod).items(), key=lambda p: int(p.metadata.name.rpartition("-")[2])
    )
    parts = [
        f"{p.metadata.name}={letter(p)}{'' if p.spec.containers[0].image == 'one' else '*'}"
        for p in found
        if p.metadata.namespace == trace.world.namespace
    ]
    return " ".join(parts) or "none"


async def image(world, name):
    containers = [{"name": "c", "image": name}]
    change = {"spec": {"template": {"spec": {"containers": containers}}}}
    await world.patch(StatefulSet, "db", change, type="strategic")


def play(world):
    world.kubelets.script = lambda _pod: Behaviour(start_s=1, ready_s=2, stop_s=3)


@simulate(nodes=2)
async def test_an_ordered_set_grows_rolls_and_shrinks_one_by_one(world, golden):
    play(world)
    trace = await Trace.begin(world, members, hide=HIDE)
    trace.say("create, three replicas")
    await world.create(StatefulSet, stateful_set())
    await world.sleep(20)
    trace.say("another image")
    await image(world, "two")
    await world.sleep(40)
    trace.say("scale to 1")
    await world.patch(StatefulSet, "db", {"spec": {"replicas": 1}})
    await world.sleep(20)
    golden("stateful_ordered", trace)


@simulate(nodes=2)
async def test_a_parallel_set_with_a_partition_touches_only_what_lies_above_it(world, golden):
    play(world)
    trace = await Trace.begin(world, members, hide=HIDE)
    trace.say("create, four replicas at once, partition 2")
    update = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
    body = stateful_set(4, podManagementPolicy="Parallel", updateStrategy=update)
    await world.create(StatefulSet, body)
    await world.sleep(10)
    trace.say("another image")
    await image(world, "two")
    await world.sleep(30)
    trace.say("db-0 is deleted: it comes back as it was")
    await world.delete(Pod, "db-0")
    await world.sleep(10)
    trace.say("partition 0")
    await world.patch(
        StatefulSet, "db", {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}}
    )
    await world.sleep(30)
    golden("stateful_partition", trace)


@simulate(nodes=2)
async def test_an_ordered_set_waits_for_a_member_that_does_not_become_ready(world, golden):
    slow = Behaviour(start_s=1, ready_s=1000, stop_s=3)
    quick = Behaviour(start_s=1, ready_s=2, stop_s=3)
    world.kubelets.script = lambda pod: slow if pod.metadata.name == "db-1" else quick
    trace = await Trace.begin(world, members, hide=HIDE)
    trace.say("create; db-1 does not get ready")
    await world.create(StatefulSet, stateful_set())
    await world.sleep(30)
    trace.say("it does after all")
    world.kubelets.set_ready(world.cached(Pod, "db-1"), True)
    await world.sleep(10)
    golden("stateful_waits", trace)
