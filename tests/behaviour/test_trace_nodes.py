"""Golden traces of lost nodes: one lost and found, a zone lost, everything lost."""

from world import Trace, nodes, pods, simulate
from world.workloads import completed, deployment

from motley.api.views.core import Node
from motley.controllers.workload import Deployment

HIDE = ("Scheduled", "SuccessfulCreate", "SuccessfulDelete", "ScalingReplicaSet")


def tolerating(seconds):
    """Tolerations that let a pod stay this long on a lost node."""
    return [
        {
            "key": f"node.kubernetes.io/{why}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": seconds,
        }
        for why in ("not-ready", "unreachable")
    ]


def staying(seconds, **options):
    body = deployment(**options)
    body["spec"]["template"]["spec"]["tolerations"] = tolerating(seconds)
    return body


@simulate(nodes=3)
async def test_a_lost_node_is_replaced_and_taken_back(world, golden):
    await world.create(Deployment, staying(60, replicas=6))
    await completed(world)
    await world.sleep(30)
    trace = await Trace.begin(world, pods, nodes, hide=HIDE)
    trace.say("node-1 falls silent; pods tolerate that for 60 s")
    world.kubelets.down("node-1")
    await world.sleep(150)
    trace.say("node-1 is back")
    world.kubelets.up("node-1")
    await world.sleep(60)
    golden("node_loss", trace)
    await completed(world)


@simulate(nodes=3)
async def test_a_node_that_returns_in_time_keeps_its_pods(world, golden):
    await world.create(Deployment, staying(60, replicas=6))
    await completed(world)
    await world.sleep(30)
    before = {p.metadata.uid for p in world.living(app="web")}
    trace = await Trace.begin(world, pods, nodes, hide=HIDE)
    trace.say("node-1 falls silent")
    world.kubelets.down("node-1")
    await world.sleep(70)
    trace.say("node-1 is back")
    world.kubelets.up("node-1")
    await world.sleep(120)
    golden("node_blink", trace)
    assert before == {p.metadata.uid for p in world.living(app="web")}


def tainted(trace):
    """How many nodes of each zone are lost, and how many of them are evicted."""
    zones = {}
    for node in trace.world.informer(Node).items():
        zone = node.metadata.labels["topology.kubernetes.io/zone"]
        total, lost, evicted = zones.get(zone, (0, 0, 0))
        evicts = any(t.effect == "NoExecute" for t in node.spec.taints)
        zones[zone] = (total + 1, lost + (not node.is_ready), evicted + evicts)
    parts = [f"{z}: {lost} of {n} lost, {e} evicted" for z, (n, lost, e) in sorted(zones.items())]
    return "; ".join(parts)


async def add_zone(world, zone, count):
    for number in range(count):
        name = f"{zone}{number}"
        await world.add_node(name, labels={"topology.kubernetes.io/zone": zone})


@simulate(nodes=0)
async def test_nodes_are_given_up_one_after_the_other(world, golden):
    await add_zone(world, "a", 6)
    await add_zone(world, "b", 6)
    await world.sleep(20)
    trace = await Trace.begin(world, tainted, hide=(*HIDE, "NodeNotReady"))
    trace.say("three of six nodes of zone a: one every ten seconds")
    for number in range(3):
        world.kubelets.down(f"a{number}")
    await world.sleep(100)
    trace.say("four of six: too many for a small zone, nobody is evicted")
    world.kubelets.down("a3")
    await world.sleep(100)
    trace.say("all of zone a: zone b can take the work")
    for number in (4, 5):
        world.kubelets.down(f"a{number}")
    await world.sleep(120)
    trace.say("zone b as well: we are cut off ourselves, nobody is evicted")
    for number in range(6):
        world.kubelets.down(f"b{number}")
    await world.sleep(100)
    trace.say("all are back")
    for number in range(6):
        world.kubelets.up(f"a{number}")
        world.kubelets.up(f"b{number}")
    await world.sleep(60)
    golden("zones", trace)
