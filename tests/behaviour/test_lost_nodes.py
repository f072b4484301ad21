"""Nodes that stay away for very long, or for good, on virtual time."""

from world import OPTIONS, Behaviour, simulate
from world.workloads import completed, deployment

from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.controllers.service import Options
from motley.controllers.workload import Deployment

DELETING = Options(leader_elect=False, delete_lost_nodes_after_s=900.0)


async def reasons(world, kind):
    await world.sleep(2)
    return {e["reason"] for e in await events(world) if e["involvedObject"]["kind"] == kind}


async def events(world):
    return (await world.client.raw("GET", "/api/v1/events"))["items"]


@simulate(nodes=3, options=DELETING)
async def test_a_node_that_is_lost_for_long_is_deleted_with_its_pods_and_may_register_again(world):
    await world.create(Deployment, deployment(replicas=6))
    await completed(world)
    world.kubelets.down("node-1")
    await world.sleep(800)
    assert await world.exists(Node, "node-1")
    await completed(world)  # five minutes after it fell silent its pods were replaced
    await world.sleep(200)
    assert not await world.exists(Node, "node-1")
    assert "DeletingNode" in await reasons(world, "Node")
    await world.sleep(60)
    assert not [p for p in world.pods() if p.spec.node_name == "node-1"]
    await completed(world)
    await world.add_node("node-1")
    node = await world.get(Node, "node-1")
    await world.sleep(10)
    assert (await world.get(Node, "node-1")).metadata.uid == node.metadata.uid
    assert (await world.get(Node, "node-1")).spec.taints == []


@simulate(nodes=2, options=DELETING)
async def test_no_node_is_deleted_while_all_are_silent(world):
    for name in ("node-0", "node-1"):
        world.kubelets.down(name)
    await world.sleep(3600)
    assert len(await world.list(Node)) == 2
    world.kubelets.up("node-0")
    await world.sleep(120)
    assert [n.metadata.name for n in await world.list(Node)] == ["node-0"]


@simulate(nodes=2, options=DELETING)
async def test_a_node_that_returns_before_its_time_stays(world):
    world.kubelets.down("node-1")
    await world.sleep(800)
    world.kubelets.up("node-1")
    await world.sleep(60)
    world.kubelets.down("node-1")
    await world.sleep(800)  # counted anew
    assert await world.exists(Node, "node-1")


@simulate(nodes=2)
async def test_without_the_option_a_lost_node_stays(world):
    world.kubelets.down("node-1")
    await world.sleep(1800)
    assert await world.exists(Node, "node-1")


@simulate(nodes=2, options=OPTIONS)
async def test_pods_of_a_deleted_node_fail_before_they_go(world):
    world.kubelets.script = lambda pod: Behaviour()
    body = {"metadata": {"name": "p", "finalizers": ["example.com/look"]}, "spec": {}}
    body["spec"] = {"nodeName": "node-1", "containers": [{"name": "c", "image": "i"}]}
    await world.create(Pod, body)
    await world.until(lambda: world.cached(Pod, "p") and world.cached(Pod, "p").is_ready)
    world.kubelets.down("node-1")
    await world.delete(Node, "node-1")
    await world.sleep(60)
    pod = await world.get(Pod, "p")
    assert pod.status.phase == "Failed"
    [why] = [c.reason for c in pod.status.conditions if c.type == "DisruptionTarget"]
    assert why == "DeletionByPodGC"
    await world.patch(Pod, "p", {"metadata": {"finalizers": None}})
    await world.until(lambda: world.cached(Pod, "p") is None, within_s=10)


@simulate(nodes=2)
async def test_a_node_declared_out_of_service_gives_its_deleted_pods_up(world):
    await world.create(Deployment, deployment(replicas=2))
    await completed(world)
    world.kubelets.down("node-1")
    await world.sleep(60)
    [stuck] = [p for p in world.pods() if p.spec.node_name == "node-1"]
    await world.delete(Pod, stuck.metadata.name)
    await world.sleep(120)
    assert await world.exists(Pod, stuck.metadata.name)  # its node must confirm, and cannot
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "x", "effect": "NoExecute"}
    change = [{"op": "add", "path": "/spec/taints/-", "value": taint}]
    await world.patch(Node, "node-1", change, type="json")
    await world.until(lambda: world.cached(Pod, stuck.metadata.name) is None, within_s=30)


@simulate(nodes=1)
async def test_a_node_that_never_reported_has_a_minute_to_start(world):
    await world.create(Node, {"metadata": {"name": "by-hand"}})
    await world.sleep(50)
    assert (await world.get(Node, "by-hand")).status.condition("Ready") is None
    await world.sleep(20)
    ready = (await world.get(Node, "by-hand")).status.condition("Ready")
    assert (ready.status, ready.reason) == ("Unknown", "NodeStatusNeverUpdated")
