"""Nodes that fall silent, come back, disappear; address ranges; leadership."""

import asyncio

from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.client.lease import LostLeadership
from motley.controllers import service
from motley.controllers.fakenodes import FakeNodes
from motley.controllers.workload import ReplicaSet

QUICK = service.Options(leader_elect=False, node_monitor_grace_s=2.0, orphan_quarantine_s=0.5)


def replica_set(replicas, *, stay_s=1):
    tolerations = [
        {
            "key": f"node.kubernetes.io/{key}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": stay_s,
        }
        for key in ("not-ready", "unreachable")
    ]
    return {
        "metadata": {"name": "rs"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "rs"}},
            "template": {
                "metadata": {"labels": {"app": "rs"}},
                "spec": {
                    "tolerations": tolerations,
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "c", "image": "i"}],
                },
            },
        },
    }


async def ready_pods(c, count):
    async def ready():
        pods = [p for p in c.living(app="rs") if p.is_ready]
        return pods if len(pods) == count else None

    return await c.eventually(ready, f"{count} ready pods")


def taints(node):
    return {(t.key.rpartition("/")[2], t.effect) for t in node.spec.taints}


async def test_a_silent_node_is_tainted_its_pods_move_and_it_may_come_back(cluster):
    async with cluster(options=QUICK, node_count=2) as c, asyncio.TaskGroup() as group:
        # A third node with a life of its own, which the test can end.
        mortal = FakeNodes(c.client, 1, prefix="mortal-")
        life = group.create_task(mortal.run())
        await c.eventually(mortal.is_ready, "the third node")
        await c.create(ReplicaSet, replica_set(6))
        pods = await ready_pods(c, 6)
        doomed = {p.metadata.uid for p in pods if p.spec.node_name == "mortal-0"}
        assert doomed
        life.cancel()

        async def marked():
            node = await c.client.get(Node, "mortal-0")
            return node if taints(node) else None

        node = await c.eventually(marked, "tainted")
        ready = node.status.condition("Ready")
        assert (ready.status, ready.reason) == ("Unknown", "NodeStatusUnknown")

        async def moved():
            living = [p for p in c.living(app="rs") if p.is_ready]
            node = await c.client.get(Node, "mortal-0")
            both = {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}
            return (
                len(living) == 6
                and taints(node) == both
                and all(p.spec.node_name != "mortal-0" for p in living)
            )

        await c.eventually(moved, "six pods run elsewhere")
        # Nobody confirmed the end of the old ones: they are kept, marked and not ready.
        stuck = [p for p in await c.list(Pod) if p.metadata.uid in doomed]
        assert {p.metadata.uid for p in stuck} == doomed
        assert all(p.metadata.deletion_timestamp and not p.is_ready for p in stuck)

        second = FakeNodes(c.client, 1, prefix="mortal-")
        life = group.create_task(second.run())

        async def back():
            node = await c.client.get(Node, "mortal-0")
            left = [p for p in await c.list(Pod) if p.metadata.uid in doomed]
            return node.is_ready and not taints(node) and not left

        await c.eventually(back, "the node is back, untainted, and its old pods have ended")
        life.cancel()
        await c.client.delete(Node, "mortal-0")


async def test_pods_of_a_deleted_node_are_removed_by_force_and_replaced(cluster):
    async with cluster(options=QUICK, node_count=2) as c, asyncio.TaskGroup() as group:
        mortal = FakeNodes(c.client, 1, prefix="doomed-")
        life = group.create_task(mortal.run())
        await c.eventually(mortal.is_ready, "the third node")
        await c.create(ReplicaSet, replica_set(6, stay_s=600))
        pods = await ready_pods(c, 6)
        gone = {p.metadata.uid for p in pods if p.spec.node_name == "doomed-0"}
        assert gone
        life.cancel()
        await c.client.delete(Node, "doomed-0")

        async def replaced():
            present = await c.list(Pod)
            living = [p for p in present if p.is_ready and p.spec.node_name != "doomed-0"]
            return len(living) == 6 and not gone & {p.metadata.uid for p in present}

        await c.eventually(replaced, "replaced")


async def test_a_cordoned_node_is_tainted_until_it_is_released(cluster):
    async with cluster(node_count=2) as c:
        await c.client.patch(Node, "fake-1", "", {"spec": {"unschedulable": True}})

        async def cordoned():
            return ("unschedulable", "NoSchedule") in taints(await c.client.get(Node, "fake-1"))

        await c.eventually(cordoned, "tainted")
        await c.client.patch(Node, "fake-1", "", {"spec": {"unschedulable": None}})

        async def released():
            return not taints(await c.client.get(Node, "fake-1"))

        await c.eventually(released, "released")


async def test_nodes_get_ranges_that_never_overlap_also_after_a_restart(cluster, shared_server):
    options = service.Options(
        leader_elect=False, pod_cidr="10.200.0.0/22", node_monitor_grace_s=600
    )
    names = [f"real-{i}" for i in range(5)]
    async with cluster(options=options, node_count=1) as c:
        for name in names[:2]:
            await c.client.create(Node, {"metadata": {"name": name}})
        await c.eventually(lambda: _ranges(c, names[:2]), "two ranges")
    async with cluster(options=options, node_count=1) as c:  # new controllers, nothing remembered
        for name in names[2:]:
            await c.client.create(Node, {"metadata": {"name": name}})
        found = await c.eventually(lambda: _ranges(c, names, at_least=4), "four ranges")
        assert sorted(found) == [f"10.200.{i}.0/24" for i in range(4)]
        without = [n for n in names if not (await c.client.get(Node, n)).spec.pod_cidr]
        assert len(without) == 1  # /22 has four; the fifth waits …
        holder = next(n for n in names if n not in without)
        await c.client.delete(Node, holder)
        names.remove(holder)
        found = await c.eventually(lambda: _ranges(c, names, at_least=4), "… until one is free")
        assert len(set(found)) == 4
        for name in names:
            await c.client.delete(Node, name)


async def _ranges(c, names, at_least=None):
    found = []
    for name in names:
        node = await c.client.get(Node, name)
        if node.spec.pod_cidr:
            assert node.spec.pod_cidrs == [node.spec.pod_cidr]
            found.append(node.spec.pod_cidr)
    return found if len(found) >= (at_least or len(names)) else None


async def test_of_two_managers_one_works(cluster):
    async with cluster(node_count=1) as c, asyncio.TaskGroup() as group:
        first = service.build(c.client, service.Options())
        second = service.build(c.client, service.Options())
        first._election._identity, second._election._identity = "first", "second"
        runs = {
            "first": group.create_task(_until_lost(first)),
            "second": group.create_task(_until_lost(second)),
        }
        managers = {"first": first, "second": second}

        def leaders():
            return [name for name, m in managers.items() if m._election.is_leader]

        await c.eventually(lambda: len(leaders()) == 1, "one leads")
        (leader,) = leaders()
        (other,) = set(managers) - {leader}
        assert managers[other].is_ready is not None
        await c.eventually(managers[other].is_ready, "the standby is warm")
        runs[leader].cancel()
        await c.eventually(lambda: leaders() == [other], "the other takes over", timeout_s=10)
        runs[other].cancel()


async def _until_lost(manager):
    try:
        await manager.run()
    except* LostLeadership:
        pass
