"""StatefulSets and ReplicationControllers with real controllers against a real API server."""

import asyncio
import subprocess

from motley.api.views.base import Key
from motley.api.views.core import Event
from motley.api.views.pod import Pod
from motley.api.views.storage import PersistentVolumeClaim
from motley.api.views.workloads import ControllerRevision, ReplicationController, StatefulSet


def stateful_set(name="web", replicas=3, image="one", **spec):
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "serviceName": "headless",
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "c", "image": image}],
                },
            },
            **spec,
        },
    }


def with_claims(**spec):
    return stateful_set(
        volumeClaimTemplates=[
            {
                "metadata": {"name": "data"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Gi"}},
                },
            }
        ],
        **spec,
    )


def image_patch(image):
    return {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}}


GATED = {"spec": {"template": {"spec": {"schedulingGates": [{"name": "test/closed"}]}}}}


async def settled(c, replicas=3, name="web"):
    """The set, once all its pods are of the wanted revision and ready."""

    async def look():
        sts = await c.get(StatefulSet, name)
        s = sts.status
        done = (
            s.observed_generation == sts.metadata.generation
            and s.replicas == s.ready_replicas == s.updated_replicas == replicas
            and s.current_revision == s.update_revision
        )
        return sts if done else None

    return await c.eventually(look, f"{name} settled at {replicas}")


def names(pods):
    return sorted(p.metadata.name for p in pods)


def trace(c, name="web"):
    """Pods made (+) and deleted (-), in the order the server did it."""
    seen, gone, lines = set(), set(), []

    def look(change):
        pod = change.object
        uid = pod.metadata.uid
        if pod.metadata.namespace != c.namespace or pod.metadata.labels.get("app") != name:
            return
        if uid not in seen:
            seen.add(uid)
            lines.append(f"+{pod.metadata.name}")
        if uid not in gone and (change.new is None or pod.metadata.deletion_timestamp):
            gone.add(uid)
            lines.append(f"-{pod.metadata.name}")

    c.pods.add_handler(look)
    return lines


def kubectl_of(c, server):
    async def kubectl(*arguments):
        command = ["kubectl", "--kubeconfig", str(server.kubeconfig), "-n", c.namespace]
        done = await asyncio.to_thread(
            subprocess.run, [*command, *arguments], capture_output=True, text=True, timeout=90
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return kubectl


async def test_pods_come_in_order_with_names_that_stay(cluster):
    async with cluster() as c:
        lines = trace(c)
        ready_before = {}

        def look(change):
            pod = change.new
            if change.old is None and pod.metadata.namespace == c.namespace:
                ready_before[pod.metadata.name] = names(p for p in c.living() if p.is_ready)

        c.pods.add_handler(look)
        await c.create(StatefulSet, stateful_set(ordinals={"start": 5}))
        sts = await settled(c)
        assert lines == ["+web-5", "+web-6", "+web-7"]
        assert ready_before == {"web-5": [], "web-6": ["web-5"], "web-7": ["web-5", "web-6"]}
        pod = await c.get(Pod, "web-6")
        assert (pod.spec.hostname, pod.spec.subdomain) == ("web-6", "headless")
        assert pod.metadata.labels == {
            "app": "web",
            "statefulset.kubernetes.io/pod-name": "web-6",
            "apps.kubernetes.io/pod-index": "6",
            "controller-revision-hash": sts.status.update_revision,
        }
        await c.delete(Pod, "web-6")

        async def again():
            pods = {p.metadata.name: p for p in c.living(app="web")}
            return pods.get("web-6") and pods["web-6"].metadata.uid != pod.metadata.uid

        await c.eventually(again, "web-6 is made again")


async def test_a_set_shrinks_from_the_top_one_at_a_time(cluster):
    async with cluster() as c:
        await c.create(StatefulSet, stateful_set(replicas=4))
        await settled(c, 4)
        lines = trace(c)
        present_at = []

        def look(change):
            if change.new is not None and change.new.metadata.deletion_timestamp:
                present_at.append(
                    len([p for p in c.pods.items() if p.key.namespace == c.namespace])
                )

        c.pods.add_handler(look)
        await c.patch(StatefulSet, "web", {"spec": {"replicas": 1}})
        await settled(c, 1)
        assert lines[4:] == ["-web-3", "-web-2", "-web-1"]
        assert present_at == [4, 3, 2]


async def test_parallel_sets_make_and_remove_their_pods_at_once(cluster):
    async with cluster() as c:
        body = stateful_set(replicas=6, podManagementPolicy="Parallel")
        body["spec"]["template"]["spec"]["schedulingGates"] = [{"name": "test/closed"}]
        await c.create(StatefulSet, body)
        await c.eventually(lambda: len(c.living(app="web")) == 6, "six pods, none of them ready")
        await c.patch(StatefulSet, "web", {"spec": {"replicas": 0}})

        async def gone():
            return await c.list(Pod) == []

        await c.eventually(gone, "no pods")


async def test_an_update_goes_from_the_highest_down_and_waits_for_each(cluster):
    async with cluster() as c:
        await c.create(StatefulSet, stateful_set())
        first = (await settled(c)).status.update_revision
        lines = trace(c)
        low = [3]

        def look(_change):
            low.append(sum(1 for p in c.living(app="web") if p.is_ready))

        c.pods.add_handler(look)
        await c.patch(StatefulSet, "web", image_patch("two"), type="strategic")
        sts = await settled(c)
        steps = ["-web-2", "+web-2", "-web-1", "+web-1", "-web-0", "+web-0"]
        assert lines[3:] == steps
        assert min(low) == 2
        assert sts.status.update_revision != first
        assert {p.spec.containers[0].image for p in c.living(app="web")} == {"two"}
        await c.patch(StatefulSet, "web", image_patch("one"), type="strategic")
        back = await settled(c)
        assert back.status.update_revision == first
        revisions = {r.metadata.name: r.revision for r in await c.list(ControllerRevision)}
        assert sorted(revisions.values()) == [2, 3]
        assert revisions[first] == 3


async def test_a_partition_holds_the_lower_ordinals_back(cluster):
    async with cluster() as c:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}
        await c.create(StatefulSet, stateful_set(replicas=4, updateStrategy=strategy))
        first = (await settled(c, 4)).status.current_revision
        await c.patch(StatefulSet, "web", image_patch("two"), type="strategic")

        def images():
            return {p.metadata.name: p.spec.containers[0].image for p in c.living(app="web")}

        wanted = {"web-0": "one", "web-1": "one", "web-2": "two", "web-3": "two"}
        await c.eventually(lambda: images() == wanted, "two are new")
        await c.delete(Pod, "web-0")
        await c.delete(Pod, "web-3")

        async def back():
            sts = await c.get(StatefulSet, "web")
            return sts.status if sts.status.ready_replicas == 4 and images() == wanted else None

        status = await c.eventually(back, "made again, each of its revision")
        assert (status.current_replicas, status.updated_replicas) == (2, 2)
        assert status.current_revision == first
        await c.patch(
            StatefulSet, "web", {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}}
        )
        await settled(c, 4)
        assert set(images().values()) == {"two"}


async def test_on_delete_replaces_only_what_the_user_deletes(cluster):
    async with cluster() as c:
        await c.create(StatefulSet, stateful_set(updateStrategy={"type": "OnDelete"}))
        await settled(c)
        await c.patch(StatefulSet, "web", image_patch("two"), type="strategic")
        await c.delete(Pod, "web-1")

        def images():
            ready = [p for p in c.living(app="web") if p.is_ready]
            return {p.metadata.name: p.spec.containers[0].image for p in ready}

        wanted = {"web-0": "one", "web-1": "two", "web-2": "one"}
        await c.eventually(lambda: images() == wanted, "only web-1 is new")


async def test_a_broken_revision_stops_the_update_until_its_pod_is_deleted(cluster):
    async with cluster() as c:
        await c.create(StatefulSet, stateful_set())
        await settled(c)
        await c.patch(StatefulSet, "web", GATED)

        def stuck():
            top = c.pods.get(Key(c.namespace, "web-2"))
            return top is not None and top.spec.scheduling_gates

        await c.eventually(stuck, "web-2 is of the broken revision")
        await c.patch(
            StatefulSet, "web", {"spec": {"template": {"spec": {"schedulingGates": None}}}}
        )

        async def seen():
            sts = await c.get(StatefulSet, "web")
            return sts.status.observed_generation == sts.metadata.generation

        await c.eventually(seen, "the rollback is seen")
        assert stuck()
        assert names(p for p in c.living(app="web") if p.is_ready) == ["web-0", "web-1"]
        await c.delete(Pod, "web-2")
        await settled(c)


async def test_a_failed_pod_is_replaced_under_its_name(cluster):
    async with cluster() as c:
        await c.create(StatefulSet, stateful_set(replicas=2))
        await settled(c, 2)
        before = await c.get(Pod, "web-0")
        await c.patch(
            Pod,
            "web-0",
            {"status": {"phase": "Failed", "reason": "Evicted"}},
            subresource="status",
        )

        def again():
            pod = c.pods.get(Key(c.namespace, "web-0"))
            return pod is not None and pod.metadata.uid != before.metadata.uid and pod.is_ready

        await c.eventually(again, "a new web-0")


async def test_claims_are_made_first_and_go_when_the_policy_says(cluster):
    async with cluster() as c:
        policy = {"whenDeleted": "Delete", "whenScaled": "Delete"}
        await c.create(StatefulSet, with_claims(persistentVolumeClaimRetentionPolicy=policy))
        sts = await settled(c)
        claims = {claim.metadata.name: claim for claim in await c.list(PersistentVolumeClaim)}
        assert sorted(claims) == ["data-web-0", "data-web-1", "data-web-2"]
        owners = {r.uid for claim in claims.values() for r in claim.metadata.owner_references}
        assert owners == {sts.metadata.uid}
        pod = await c.get(Pod, "web-1")
        sources = {v.name: v.persistent_volume_claim for v in pod.spec.volumes}
        assert sources["data"].claim_name == "data-web-1"
        await c.patch(StatefulSet, "web", {"spec": {"replicas": 1}})

        async def only(*wanted):
            return names(await c.list(PersistentVolumeClaim)) == list(wanted)

        await c.eventually(lambda: only("data-web-0"), "claims of removed pods are gone")
        await c.patch(StatefulSet, "web", {"spec": {"replicas": 2}})
        await settled(c, 2)
        assert await only("data-web-0", "data-web-1")
        await c.delete(StatefulSet, "web")
        await c.eventually(only, "claims went with the set")


async def test_claims_stay_unless_told_otherwise_and_come_back_when_lost(cluster):
    async with cluster() as c:
        await c.create(StatefulSet, with_claims())
        await settled(c)
        await c.patch(StatefulSet, "web", {"spec": {"replicas": 0}})
        await settled(c, 0)
        claims = await c.list(PersistentVolumeClaim)
        assert names(claims) == ["data-web-0", "data-web-1", "data-web-2"]
        assert all(not claim.metadata.owner_references for claim in claims)
        policy = {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"}}
        await c.patch(StatefulSet, "web", {"spec": {"replicas": 1, **policy}})
        sts = await settled(c, 1)

        async def owned():
            claim = await c.get(PersistentVolumeClaim, "data-web-0")
            return [r.uid for r in claim.metadata.owner_references] == [sts.metadata.uid]

        await c.eventually(owned, "the set owns the claim of its pod")


async def test_history_is_cut_and_a_change_of_scale_adds_none(cluster):
    async with cluster() as c:
        await c.create(StatefulSet, stateful_set(replicas=1, revisionHistoryLimit=1))
        await settled(c, 1)
        for image in ("two", "three", "four"):
            await c.patch(StatefulSet, "web", image_patch(image), type="strategic")
            await settled(c, 1)
        await c.patch(StatefulSet, "web", {"spec": {"replicas": 2}})
        await settled(c, 2)

        async def numbers():
            return sorted(r.revision for r in await c.list(ControllerRevision)) == [3, 4]

        await c.eventually(numbers, "the current and one old revision")


async def test_a_lagging_watch_neither_breaks_the_order_nor_makes_a_pod_twice(cluster):
    async with cluster(pod_lag_s=0.05) as c:
        lines = trace(c)
        await c.create(StatefulSet, stateful_set())
        for i in range(10):  # every poke is a pass over a stale cache
            await c.patch(StatefulSet, "web", {"metadata": {"annotations": {"poke": str(i)}}})
        await settled(c)
        await c.patch(StatefulSet, "web", image_patch("two"), type="strategic")
        await settled(c)
        updates = ["-web-2", "+web-2", "-web-1", "+web-1", "-web-0", "+web-0"]
        assert lines == ["+web-0", "+web-1", "+web-2", *updates]


async def test_kubectl_rolls_a_statefulset_out_back_and_anew(cluster, shared_server):
    async with cluster() as c:
        kubectl = kubectl_of(c, shared_server)
        await c.create(StatefulSet, stateful_set())
        status = ("rollout", "status", "sts/web", "--timeout=60s")
        assert "complete" in await kubectl(*status)
        await kubectl("set", "image", "sts/web", "c=two")
        assert "complete: 3 new pods have been updated" in await kubectl(*status)
        history = await kubectl("rollout", "history", "sts/web")
        assert [line.split()[0] for line in history.splitlines()[2:] if line] == ["1", "2"]
        assert "one" in await kubectl("rollout", "history", "sts/web", "--revision=1")
        await kubectl("rollout", "undo", "sts/web")
        await kubectl(*status)
        assert {p.spec.containers[0].image for p in c.living(app="web")} == {"one"}
        before = {p.metadata.uid for p in c.living(app="web")}
        await kubectl("rollout", "restart", "sts/web")
        await kubectl(*status)
        assert not before & {p.metadata.uid for p in c.living(app="web")}
        await kubectl("scale", "sts/web", "--replicas=5", "--timeout=60s")
        await settled(c, 5)
        shown = await kubectl("get", "sts", "web", "--no-headers")
        assert shown.split()[:2] == ["web", "5/5"]


async def test_pods_left_by_an_orphaning_delete_are_adopted_again(cluster, shared_server):
    async with cluster() as c:
        kubectl = kubectl_of(c, shared_server)
        await c.create(StatefulSet, stateful_set())
        revision = (await settled(c)).status.update_revision
        before = {p.metadata.uid for p in c.living(app="web")}
        await kubectl("delete", "sts", "web", "--cascade=orphan")

        def free():
            return all(p.metadata.controller() is None for p in c.living(app="web"))

        await c.eventually(free, "nobody owns the pods")
        assert {p.metadata.uid for p in c.living(app="web")} == before
        await c.create(StatefulSet, stateful_set())
        sts = await settled(c)
        assert {p.metadata.uid for p in c.living(app="web")} == before
        assert all(p.metadata.controller().uid == sts.metadata.uid for p in c.living(app="web"))
        (kept,) = await c.list(ControllerRevision)
        assert kept.metadata.name == sts.status.update_revision == revision
        assert kept.metadata.controller().uid == sts.metadata.uid


async def test_a_replication_controller_keeps_adopts_and_scales(cluster, shared_server):
    async with cluster() as c:
        kubectl = kubectl_of(c, shared_server)
        template = stateful_set("rc")["spec"]["template"]
        stray = {"metadata": {"name": "stray", "labels": {"app": "rc"}}, "spec": template["spec"]}
        await c.create(Pod, stray)
        await c.create(
            ReplicationController,
            {
                "metadata": {"name": "rc"},
                "spec": {"replicas": 3, "selector": {"app": "rc"}, "template": template},
            },
        )

        async def ready(count):
            rc = await c.get(ReplicationController, "rc")
            return rc.status.ready_replicas == rc.status.available_replicas == count

        await c.eventually(lambda: ready(3), "three pods")
        owners = {p.metadata.controller().kind for p in c.living(app="rc")}
        assert owners == {"ReplicationController"}
        assert "stray" in names(c.living(app="rc"))
        await kubectl("scale", "rc/rc", "--replicas=1")
        await c.eventually(lambda: len(c.living(app="rc")) == 1, "one pod")
        await c.eventually(lambda: ready(1), "the status says so")
        await kubectl("delete", "rc", "rc")

        async def gone():
            return await c.list(Pod) == []

        await c.eventually(gone, "pods went with it")
        sources = {e.reason for e in await c.list(Event)}
        assert {"SuccessfulCreate", "SuccessfulDelete"} <= sources
