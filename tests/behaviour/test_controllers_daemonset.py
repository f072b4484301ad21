"""DaemonSets with real controllers against a real API server."""

import asyncio
import subprocess

import pytest

from motley.api import status as api
from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.api.views.workloads import ControllerRevision, DaemonSet
from motley.controllers import daemonpod
from motley.controllers.fakenodes import Shape, node_document
from motley.lib.clock import SYSTEM

NODES = {"fake-0", "fake-1", "fake-2"}


def daemon_set(name="agent", image="one", pod=None, **spec):
    return {
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "c", "image": image}],
                    **(pod or {}),
                },
            },
            **spec,
        },
    }


def image_patch(image):
    return {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}}


def placed(c, **labels):
    """Node by node, how many living pods."""
    nodes = [daemonpod.node_of(p) for p in c.living(**labels)]
    return {node: nodes.count(node) for node in set(nodes)}


async def settled(c, count=3, name="agent"):
    """The DaemonSet, once its pods are on as many nodes, of the wanted revision and available."""

    async def look():
        ds = await c.get(DaemonSet, name)
        s = ds.status
        done = (
            s.observed_generation == ds.metadata.generation
            and s.desired_number_scheduled == s.current_number_scheduled == count
            and s.updated_number_scheduled == s.number_available == s.number_ready == count
        )
        return ds if done else None

    return await c.eventually(look, f"{name} settled on {count} nodes")


@pytest.fixture
async def relabelled(shared_server):
    """Change a node for the length of a test: nodes outlive the test's namespace."""
    undo = []

    async def change(name, body, back):
        async with shared_server.client() as client:
            await client.patch(Node, name, "", body)
        undo.append((name, back))

    yield change
    async with shared_server.client() as client:
        for name, body in undo:
            try:
                await client.patch(Node, name, "", body)
            except api.NotFound:
                pass


async def test_every_node_gets_one_pod_that_stays_whatever_happens_to_the_node(cluster):
    async with cluster() as c:
        await c.create(DaemonSet, daemon_set(pod={"hostNetwork": True}))
        ds = await settled(c)
        assert placed(c, app="agent") == dict.fromkeys(NODES, 1)
        (pod, *_) = c.living(app="agent")
        held = {(t.key, t.effect) for t in pod.spec.tolerations if t.operator == "Exists"}
        prefix = "node.kubernetes.io/"
        assert {(prefix + k, "NoExecute") for k in ("not-ready", "unreachable")} <= held
        kinds = ("disk-pressure", "memory-pressure", "pid-pressure", "unschedulable")
        assert {(prefix + k, "NoSchedule") for k in (*kinds, "network-unavailable")} <= held
        assert ds.status.number_misscheduled == ds.status.number_unavailable == 0
        (revision,) = await c.list(ControllerRevision)
        assert (
            pod.metadata.labels["controller-revision-hash"]
            == (revision.metadata.labels["controller-revision-hash"])
        )
        await c.delete(Pod, pod.metadata.name)

        def again():
            present = c.living(app="agent")
            others = pod.metadata.uid not in {p.metadata.uid for p in present}
            return others and placed(c, app="agent") == dict.fromkeys(NODES, 1)

        await c.eventually(again, "a new pod on the same node")


async def test_pods_follow_the_labels_of_nodes(cluster, relabelled):
    async with cluster() as c:
        await c.create(DaemonSet, daemon_set(pod={"nodeSelector": {"disk": "fast"}}))
        await settled(c, 0)
        for node in ("fake-0", "fake-1"):
            labels = {"metadata": {"labels": {"disk": "fast"}}}
            await relabelled(node, labels, {"metadata": {"labels": {"disk": None}}})
        await settled(c, 2)
        assert placed(c, app="agent") == {"fake-0": 1, "fake-1": 1}
        body = {"metadata": {"labels": {"disk": "slow"}}}
        await relabelled("fake-0", body, {"metadata": {"labels": {"disk": None}}})
        await settled(c, 1)
        await c.eventually(lambda: placed(c, app="agent") == {"fake-1": 1}, "fake-0 is left")


async def test_taints_keep_pods_off_and_new_nodes_get_one(cluster, relabelled):
    async with cluster() as c:
        taint = {"key": "test/reserved", "effect": "NoSchedule"}
        await relabelled("fake-2", {"spec": {"taints": [taint]}}, {"spec": {"taints": None}})
        await c.create(DaemonSet, daemon_set())
        tolerant = [{"key": "test/reserved", "operator": "Exists"}]
        await c.create(DaemonSet, daemon_set("everywhere", pod={"tolerations": tolerant}))
        await settled(c, 2)
        await settled(c, 3, "everywhere")
        assert placed(c, app="agent") == {"fake-0": 1, "fake-1": 1}
        await relabelled("fake-2", {"spec": {"taints": None}}, {"spec": {"taints": None}})
        await settled(c, 3)
        await c.client.create(Node, node_document("late", 9, Shape(), SYSTEM.now()))
        try:
            await c.eventually(lambda: "late" in placed(c, app="agent"), "the new node gets one")
        finally:
            await c.client.delete(Node, "late")
        await c.eventually(lambda: "late" not in placed(c, app="agent"), "and loses it")
        await settled(c, 3)


async def test_a_rolling_update_keeps_all_but_one_node_served(cluster):
    async with cluster() as c:
        await c.create(DaemonSet, daemon_set())
        await settled(c)
        low, most = [3], [1]

        def look(_change):
            low.append(sum(1 for p in c.living(app="agent") if p.is_ready))
            most.append(max(placed(c, app="agent").values(), default=0))

        c.pods.add_handler(look)
        await c.patch(DaemonSet, "agent", image_patch("two"), type="strategic")
        await settled(c)
        assert min(low) == 2
        assert max(most) == 1
        assert {p.spec.containers[0].image for p in c.living(app="agent")} == {"two"}
        revisions = await c.list(ControllerRevision)
        assert sorted(r.revision for r in revisions) == [1, 2]


async def test_surge_starts_the_new_pod_before_the_old_one_ends(cluster):
    async with cluster() as c:
        rolling = {"maxSurge": 1, "maxUnavailable": 0}
        strategy = {"type": "RollingUpdate", "rollingUpdate": rolling}
        await c.create(DaemonSet, daemon_set(updateStrategy=strategy))
        await settled(c)
        served, doubled = [], []

        def look(_change):
            ready = {daemonpod.node_of(p) for p in c.living(app="agent") if p.is_ready}
            served.append(len(ready))
            doubled.append(sum(1 for n in placed(c, app="agent").values() if n > 1))

        c.pods.add_handler(look)
        await c.patch(DaemonSet, "agent", image_patch("two"), type="strategic")
        await settled(c)

        def single():
            return placed(c, app="agent") == dict.fromkeys(NODES, 1)

        await c.eventually(single, "one pod per node")
        assert min(served) == 3
        assert max(doubled) == 1


async def test_on_delete_waits_for_the_user(cluster):
    async with cluster() as c:
        await c.create(DaemonSet, daemon_set(updateStrategy={"type": "OnDelete"}))
        await settled(c)
        await c.patch(DaemonSet, "agent", image_patch("two"), type="strategic")
        target = next(p for p in c.living(app="agent") if p.spec.node_name == "fake-1")
        await c.delete(Pod, target.metadata.name)

        def images():
            ready = [p for p in c.living(app="agent") if p.is_ready]
            return {p.spec.node_name: p.spec.containers[0].image for p in ready}

        wanted = {"fake-0": "one", "fake-1": "two", "fake-2": "one"}
        await c.eventually(lambda: images() == wanted, "only fake-1 is new")
        await SYSTEM.sleep(1.5)  # a rolling update would have gone on by now
        assert images() == wanted


async def test_a_failed_pod_is_replaced_and_not_in_a_hot_loop(cluster):
    async with cluster() as c:
        await c.create(DaemonSet, daemon_set(pod={"nodeSelector": {"none": "of-these"}}))
        await c.patch(DaemonSet, "agent", {"spec": {"template": {"spec": {"nodeSelector": None}}}})
        await settled(c)
        made = []

        def fail(change):
            if change.old is None and change.object.metadata.labels.get("app") == "agent":
                made.append(change.key.name)

        async def break_one(pod):
            state = {"status": {"phase": "Failed", "reason": "NodeAffinity"}}
            await c.patch(Pod, pod.metadata.name, state, subresource="status")

        (victim,) = [p for p in c.living(app="agent") if p.spec.node_name == "fake-0"]
        c.pods.add_handler(fail)
        del made[:]
        await break_one(victim)
        await c.eventually(lambda: made, "replaced at once")
        await settled(c)
        (second,) = [p for p in c.living(app="agent") if p.spec.node_name == "fake-0"]
        broken = SYSTEM.monotonic()
        await break_one(second)
        await c.eventually(lambda: len(made) == 2, "replaced after the back-off")
        assert SYSTEM.monotonic() - broken > 0.9  # one second, as in Kubernetes
        await settled(c)


async def test_a_lagging_watch_never_doubles_a_daemon(cluster):
    async with cluster(pod_lag_s=0.05) as c:
        made = set()

        def look(change):
            if change.key.namespace == c.namespace:
                made.add(change.object.metadata.uid)

        c.pods.add_handler(look)
        await c.create(DaemonSet, daemon_set())
        for i in range(10):  # every poke is a pass over a stale cache
            await c.patch(DaemonSet, "agent", {"metadata": {"annotations": {"poke": str(i)}}})
        await settled(c)
        assert len(made) == 3
        await c.patch(DaemonSet, "agent", image_patch("two"), type="strategic")
        await settled(c)
        assert len(made) == 6


async def test_kubectl_rolls_a_daemonset_out_back_and_anew(cluster, shared_server):
    async with cluster() as c:

        async def kubectl(*arguments):
            command = ["kubectl", "--kubeconfig", str(shared_server.kubeconfig), "-n", c.namespace]
            done = await asyncio.to_thread(
                subprocess.run, [*command, *arguments], capture_output=True, text=True, timeout=90
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        await c.create(DaemonSet, daemon_set(revisionHistoryLimit=2))
        status = ("rollout", "status", "ds/agent", "--timeout=60s")
        assert "successfully rolled out" in await kubectl(*status)
        await kubectl("set", "image", "ds/agent", "c=two")
        assert "successfully rolled out" in await kubectl(*status)
        history = await kubectl("rollout", "history", "ds/agent")
        assert [line.split()[0] for line in history.splitlines()[2:] if line] == ["1", "2"]
        await kubectl("rollout", "undo", "ds/agent", "--to-revision=1")
        await kubectl(*status)
        await settled(c)
        assert {p.spec.containers[0].image for p in c.living(app="agent")} == {"one"}
        before = {p.metadata.uid for p in c.living(app="agent")}
        await kubectl("rollout", "restart", "ds/agent")
        await kubectl(*status)
        await settled(c)
        assert not before & {p.metadata.uid for p in c.living(app="agent")}
        kept = {p.metadata.uid for p in c.living(app="agent")}
        await kubectl("delete", "ds", "agent", "--cascade=orphan")

        def free():
            return all(p.metadata.controller() is None for p in c.living(app="agent"))

        await c.eventually(free, "nobody owns the pods")
        # The same template again: its revision and pods are taken over as they are.
        fresh = daemon_set()
        stamp = next(iter(c.living(app="agent"))).metadata.annotations
        fresh["spec"]["template"]["metadata"]["annotations"] = stamp
        await c.create(DaemonSet, fresh)
        ds = await settled(c)
        assert {p.metadata.uid for p in c.living(app="agent")} == kept
        owners = {p.metadata.controller().uid for p in c.living(app="agent")}
        assert owners == {ds.metadata.uid}
        shown = await kubectl("get", "ds", "agent", "--no-headers")
        assert shown.split()[1:6] == ["3"] * 5
