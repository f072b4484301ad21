"""Deployments, ReplicaSets and Services with real controllers against a real API server."""

import asyncio
import subprocess

import pytest

from motley.api.views.core import EndpointSlice, Event, Service
from motley.api.views.pod import Pod
from motley.controllers.rollout import REVISION
from motley.controllers.workload import Deployment, ReplicaSet, condition


def deployment(name="web", replicas=3, image="one", **spec):
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [
                        {
                            "name": "c",
                            "image": image,
                            "ports": [{"name": "http", "containerPort": 8080}],
                        }
                    ],
                },
            },
            **spec,
        },
    }


def image_patch(image):
    return {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}}


async def rolled_out(c, name="web", replicas=3):
    async def settled():
        d = await c.get(Deployment, name)
        s = d.status
        done = (
            s.observed_generation >= d.metadata.generation
            and s.updated_replicas == s.replicas == s.available_replicas == replicas
        )
        return d if done else None

    return await c.eventually(settled, f"{name} rolled out to {replicas}")


def images(pods):
    return sorted({p.spec.containers[0].image for p in pods})


async def test_a_deployment_gets_its_pods_and_says_so(cluster):
    async with cluster() as c:
        await c.create(Deployment, deployment())
        d = await rolled_out(c)
        assert len(c.living(app="web")) == 3
        assert d.metadata.annotations[REVISION] == "1"
        assert condition(d.status.conditions, "Available").status == "True"
        progressing = condition(d.status.conditions, "Progressing")
        assert progressing.reason == "NewReplicaSetAvailable"
        (rs,) = await c.list(ReplicaSet)
        assert rs.metadata.name.startswith("web-")
        assert rs.status.available_replicas == 3

        async def reasons():
            found = {e.reason for e in await c.list(Event)}
            return {"ScalingReplicaSet", "SuccessfulCreate"} <= found

        await c.eventually(reasons, "events")


async def test_scaling_up_and_down_ends_with_exactly_as_many_pods(cluster):
    async with cluster() as c:
        await c.create(Deployment, deployment())
        await rolled_out(c)
        for wanted in (8, 1, 5, 0):
            await c.patch(Deployment, "web", {"spec": {"replicas": wanted}})
            await rolled_out(c, replicas=wanted)

            async def exact(wanted=wanted):
                return len(await c.list(Pod)) == wanted

            await c.eventually(exact, f"exactly {wanted} pods")


async def test_a_rolling_update_keeps_its_promises(cluster):
    async with cluster() as c:
        strategy = {"rollingUpdate": {"maxSurge": 2, "maxUnavailable": 1}}
        await c.create(Deployment, deployment(replicas=6, strategy=strategy))
        await rolled_out(c, replicas=6)
        low, high = 6, 6

        def look(_change):
            nonlocal low, high
            living = c.living(app="web")
            low = min(low, sum(1 for p in living if p.is_ready))
            high = max(high, len(living))

        c.pods.add_handler(look)
        await c.patch(Deployment, "web", image_patch("two"), type="strategic")
        d = await rolled_out(c, replicas=6)
        assert images(c.living(app="web")) == ["two"]
        assert low >= 5
        assert high <= 8
        assert d.metadata.annotations[REVISION] == "2"


async def test_a_rollback_uses_the_old_set_and_a_new_revision(cluster):
    async with cluster() as c:
        await c.create(Deployment, deployment())
        await rolled_out(c)
        first = (await c.list(ReplicaSet))[0].metadata.name
        await c.patch(Deployment, "web", image_patch("two"), type="strategic")
        await rolled_out(c)
        await c.patch(Deployment, "web", image_patch("one"), type="strategic")
        d = await rolled_out(c)
        sets = {rs.metadata.name: rs for rs in await c.list(ReplicaSet)}
        assert len(sets) == 2
        assert sets[first].spec.replicas == 3
        assert d.metadata.annotations[REVISION] == "3"
        assert sets[first].metadata.annotations[REVISION] == "3"


async def test_kubectl_follows_undoes_restarts_and_lists_rollouts(cluster, shared_server):
    async with cluster() as c:

        async def kubectl(*arguments):
            command = ["kubectl", "--kubeconfig", str(shared_server.kubeconfig), "-n", c.namespace]
            done = await asyncio.to_thread(
                subprocess.run, [*command, *arguments], capture_output=True, text=True, timeout=90
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        await c.create(Deployment, deployment())
        status = ("rollout", "status", "deploy/web", "--timeout=60s")
        assert "successfully rolled out" in await kubectl(*status)
        await kubectl("set", "image", "deploy/web", "c=two")
        assert "successfully rolled out" in await kubectl(*status)
        history = await kubectl("rollout", "history", "deploy/web")
        assert [line.split()[0] for line in history.splitlines()[2:] if line] == ["1", "2"]
        await kubectl("rollout", "undo", "deploy/web")
        await kubectl(*status)
        assert images(c.living(app="web")) == ["one"]
        before = {p.metadata.uid for p in c.living(app="web")}
        await kubectl("rollout", "restart", "deploy/web")
        await kubectl(*status)
        assert not before & {p.metadata.uid for p in c.living(app="web")}


async def test_recreate_never_mixes_old_and_new(cluster):
    async with cluster() as c:
        await c.create(Deployment, deployment(strategy={"type": "Recreate"}))
        await rolled_out(c)
        mixed = []

        def look(_change):
            present = [p for p in c.pods.items() if p.metadata.namespace == c.namespace]
            if len(images(present)) > 1:
                mixed.append(images(present))

        c.pods.add_handler(look)
        await c.patch(Deployment, "web", image_patch("two"), type="strategic")
        await rolled_out(c)
        assert images(c.living(app="web")) == ["two"]
        assert mixed == []


async def test_a_paused_deployment_scales_but_does_not_roll(cluster):
    async with cluster() as c:
        await c.create(Deployment, deployment())
        await rolled_out(c)
        await c.patch(Deployment, "web", {"spec": {"paused": True}})
        await c.patch(Deployment, "web", image_patch("two"), type="strategic")
        await c.patch(Deployment, "web", {"spec": {"replicas": 5}})

        async def five():
            return len([p for p in c.living(app="web") if p.is_ready]) == 5

        await c.eventually(five, "five pods")
        assert images(c.living(app="web")) == ["one"]
        await c.patch(Deployment, "web", {"spec": {"paused": False}})
        await rolled_out(c, replicas=5)
        assert images(c.living(app="web")) == ["two"]


async def test_history_is_cut_to_its_limit(cluster):
    async with cluster() as c:
        await c.create(Deployment, deployment(replicas=1, revisionHistoryLimit=1))
        for image in ("one", "two", "three", "four"):
            await c.patch(Deployment, "web", image_patch(image), type="strategic")
            await rolled_out(c, replicas=1)

        async def two_sets():
            return len(await c.list(ReplicaSet)) == 2

        await c.eventually(two_sets, "new and one old set")


async def test_a_broken_image_leaves_the_old_pods_and_says_the_deadline_passed(cluster):
    async with cluster() as c:
        await c.create(Deployment, deployment(progressDeadlineSeconds=2))
        await rolled_out(c)
        unschedulable = {
            "spec": {"template": {"spec": {"schedulerName": "nobody", "nodeName": "absent"}}}
        }
        await c.patch(Deployment, "web", unschedulable)

        async def exceeded():
            d = await c.get(Deployment, "web")
            found = condition(d.status.conditions, "Progressing")
            return found.reason == "ProgressDeadlineExceeded"

        await c.eventually(exceeded, "deadline exceeded")
        assert sum(1 for p in c.living(app="web") if p.is_ready) >= 3


def replica_set(name="rs", replicas=2):
    body = deployment(name, replicas)
    spec = {k: body["spec"][k] for k in ("replicas", "selector", "template")}
    return {"metadata": body["metadata"], "spec": spec}


async def test_a_stray_pod_is_adopted_and_a_relabelled_one_released(cluster):
    async with cluster() as c:
        template = replica_set()["spec"]["template"]
        stray = {"metadata": {"name": "stray", **template["metadata"]}, "spec": template["spec"]}
        await c.create(Pod, stray)
        await c.create(ReplicaSet, replica_set())

        async def two():
            pods = [p for p in c.living(app="rs") if p.is_ready]
            return pods if len(pods) == 2 else None

        pods = await c.eventually(two, "two pods, one of them adopted")
        assert "stray" in {p.metadata.name for p in pods}
        assert all(p.metadata.controller().name == "rs" for p in pods)
        await c.patch(Pod, "stray", {"metadata": {"labels": {"app": "free"}}})

        async def released():
            stray = await c.get(Pod, "stray")
            return stray.metadata.controller() is None and len(c.living(app="rs")) == 2

        await c.eventually(released, "released and replaced")
        assert len(await c.list(ReplicaSet)) == 1


async def test_a_lost_pod_is_replaced(cluster):
    async with cluster() as c:
        await c.create(ReplicaSet, replica_set(replicas=3))

        async def three():
            pods = [p for p in c.living(app="rs") if p.is_ready]
            return pods if len(pods) == 3 else None

        pods = await c.eventually(three, "three pods")
        await c.delete(Pod, pods[0].metadata.name)
        gone = pods[0].metadata.uid

        async def replaced():
            return len(c.living(app="rs")) == 3 and all(
                p.metadata.uid != gone for p in c.living(app="rs")
            )

        await c.eventually(replaced, "replaced")


async def test_a_lagging_watch_never_makes_a_pod_too_many_or_too_few(cluster):
    async with cluster(pod_lag_s=0.05) as c:
        made, ended = set(), set()

        def look(change):
            if change.key.namespace == c.namespace:
                made.add(change.object.metadata.uid)
                if change.new is None or change.new.metadata.deletion_timestamp:
                    ended.add(change.object.metadata.uid)

        c.pods.add_handler(look)  # this one does not lag
        await c.create(ReplicaSet, replica_set(replicas=20))

        async def all_made():
            return len(made) >= 20

        async def poke(times):
            for i in range(times):  # every poke is a pass over a stale cache
                note = {"metadata": {"annotations": {"poke": str(i)}}}
                await c.patch(ReplicaSet, "rs", note)

        await poke(10)
        await c.eventually(all_made, "twenty pods")
        await poke(10)
        await c.patch(ReplicaSet, "rs", {"spec": {"replicas": 5}})
        await poke(20)

        async def exact():
            rs = await c.get(ReplicaSet, "rs")
            settled = rs.status.replicas == rs.status.ready_replicas == 5
            return settled and len(await c.list(Pod)) == 5

        await c.eventually(exact, "five left")
        assert len(made) == 20
        assert len(ended) == 15


async def test_pods_that_become_ready_late_are_available_later(cluster):
    async with cluster() as c:
        await c.create(Deployment, deployment(replicas=1, minReadySeconds=2))

        async def ready():
            d = await c.get(Deployment, "web")
            return d if d.status.ready_replicas == 1 else None

        assert (await c.eventually(ready, "ready")).status.available_replicas == 0
        await rolled_out(c, replicas=1)


@pytest.mark.parametrize("target", [8080, "http"])
async def test_slices_follow_the_pods_of_a_service(cluster, target):
    async with cluster() as c:
        await c.create(
            Service,
            {
                "metadata": {"name": "web"},
                "spec": {
                    "selector": {"app": "web"},
                    "ports": [{"port": 80, "targetPort": target}],
                },
            },
        )
        await c.create(Deployment, deployment())

        async def addresses():
            slices = await c.list(EndpointSlice, label_selector="kubernetes.io/service-name=web")
            return {
                a
                for s in slices
                if [p.port for p in s.ports] == [8080]
                for e in s.endpoints
                if e.conditions.ready
                for a in e.addresses
            }

        async def equal():
            ready = {p.status.pod_ip for p in c.living(app="web") if p.is_ready}
            return len(ready) == 3 and await addresses() == ready

        await c.eventually(equal, "the slices name the ready pods")
        await c.patch(Deployment, "web", {"spec": {"replicas": 0}})

        async def empty():
            return await addresses() == set()

        await c.eventually(empty, "no addresses")
        assert len(await c.list(EndpointSlice)) == 1
        await c.delete(Service, "web")

        async def gone():
            return await c.list(EndpointSlice) == []

        await c.eventually(gone, "slices gone with the service")
