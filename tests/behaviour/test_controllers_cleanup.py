"""Garbage collection, namespaces and service accounts with real controllers."""

import pytest

from motley.api import status
from motley.api.views.core import ConfigMap, Namespace, Secret, Service, ServiceAccount
from motley.api.views.pod import Pod
from motley.controllers.workload import Deployment, ReplicaSet


def deployment(name="web", replicas=2):
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{"name": "c", "image": "i"}],
                },
            },
        },
    }


async def running(c, count=2):
    async def ready():
        return sum(1 for p in c.living(app="web") if p.is_ready) == count

    await c.eventually(ready, f"{count} pods run")


async def nothing_left(c, *kinds):
    async def empty():
        return not [obj for cls in kinds for obj in await c.list(cls)]

    await c.eventually(empty, "everything is gone")


async def test_background_deletion_takes_the_whole_family(cluster):
    async with cluster() as c:
        await c.create(Deployment, deployment())
        await running(c)
        await c.delete(Deployment, "web", propagation="Background")
        assert not await c.exists(Deployment, "web")
        await nothing_left(c, ReplicaSet, Pod)


async def test_objects_that_own_each_other_do_not_wait_for_ever(cluster):
    async with cluster() as c:
        one = await c.create(ConfigMap, {"metadata": {"name": "one"}})

        def owner(of, name):
            meta = {"uid": of.metadata.uid, "name": name}
            return {"apiVersion": "v1", "kind": "ConfigMap", "blockOwnerDeletion": True, **meta}

        body = {"metadata": {"name": "two", "ownerReferences": [owner(one, "one")]}}
        two = await c.create(ConfigMap, body)
        await c.patch(ConfigMap, "one", {"metadata": {"ownerReferences": [owner(two, "two")]}})
        await c.delete(ConfigMap, "one", propagation="Foreground")

        async def gone():
            left = {m.metadata.name for m in await c.list(ConfigMap)}
            return not left & {"one", "two"}

        await c.eventually(gone, "the circle is broken")


async def test_foreground_deletion_keeps_the_owner_until_the_last_dependent_is_gone(cluster):
    async with cluster() as c:
        await c.create(Deployment, deployment())
        await running(c)
        early = []

        def look(change):
            if change.new is None and change.key.namespace == c.namespace:
                early.append(change.key)

        c.pods.add_handler(look)
        await c.delete(Deployment, "web", propagation="Foreground")
        waiting = await c.get(Deployment, "web")
        assert "foregroundDeletion" in waiting.metadata.finalizers

        async def gone():
            exists = await c.exists(Deployment, "web")
            if not exists:
                assert len(early) == 2
            return not exists

        await c.eventually(gone, "the deployment goes last")
        await nothing_left(c, Deployment, ReplicaSet, Pod)


async def test_orphaning_keeps_the_dependents(cluster):
    async with cluster() as c:
        await c.create(Deployment, deployment())
        await running(c)
        before = {p.metadata.uid for p in c.living(app="web")}
        await c.delete(Deployment, "web", propagation="Orphan")

        async def orphaned():
            if await c.exists(Deployment, "web"):
                return False
            return [rs for rs in await c.list(ReplicaSet) if not rs.metadata.owner_references]

        (rs,) = await c.eventually(orphaned, "the set has no owner")
        assert {p.metadata.uid for p in c.living(app="web")} == before
        await c.create(Deployment, deployment())  # the same again takes the old set back

        async def adopted():
            found = await c.get(ReplicaSet, rs.metadata.name)
            return found.metadata.controller() is not None

        await c.eventually(adopted, "adopted")
        assert {p.metadata.uid for p in c.living(app="web")} == before


async def test_a_dependent_of_an_owner_that_never_existed_is_deleted(cluster):
    async with cluster() as c:
        owner = await c.create(ConfigMap, {"metadata": {"name": "owner"}})
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner"}
        made = [
            ("fine", owner.metadata.uid),
            ("wrong-uid", "00000000-0000-0000-0000-000000000000"),
        ]
        for name, uid in made:
            references = [{**reference, "uid": uid}]
            await c.create(ConfigMap, {"metadata": {"name": name, "ownerReferences": references}})

        async def collected():
            return not await c.exists(ConfigMap, "wrong-uid")

        await c.eventually(collected, "the one with the wrong uid goes")
        assert await c.exists(ConfigMap, "fine")


async def test_one_living_owner_is_enough_and_the_dead_one_is_unlinked(cluster):
    async with cluster() as c:
        references = []
        for name in ("one", "two"):
            owner = await c.create(ConfigMap, {"metadata": {"name": name}})
            uid = owner.metadata.uid
            references.append({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid})
        await c.create(ConfigMap, {"metadata": {"name": "both", "ownerReferences": references}})
        await c.delete(ConfigMap, "one")

        async def unlinked():
            both = await c.get(ConfigMap, "both")
            return [r.name for r in both.metadata.owner_references] == ["two"]

        await c.eventually(unlinked, "unlinked")
        await c.delete(ConfigMap, "two")

        async def collected():
            return not await c.exists(ConfigMap, "both")

        await c.eventually(collected, "collected")


async def test_a_deleted_namespace_is_emptied_and_goes(cluster):
    async with cluster() as c:
        await c.create(Deployment, deployment())
        await c.create(ConfigMap, {"metadata": {"name": "m"}})
        await c.create(Secret, {"metadata": {"name": "s"}})
        await c.create(
            Service,
            {
                "metadata": {"name": "web"},
                "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]},
            },
        )
        await running(c)
        await c.client.delete(Namespace, c.namespace)

        async def gone():
            try:
                namespace = await c.client.get(Namespace, c.namespace)
            except status.NotFound:
                return True
            assert namespace.status.phase == "Terminating"
            return False

        await c.eventually(gone, "the namespace is gone")
        await nothing_left(c, Deployment, ReplicaSet, Pod, ConfigMap, Secret, Service)


async def test_a_namespace_waits_for_finalizers_and_says_so(cluster):
    async with cluster() as c:
        held = {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}
        await c.create(ConfigMap, held)
        await c.client.delete(Namespace, c.namespace)

        async def said():
            namespace = await c.client.get(Namespace, c.namespace)
            return [
                x
                for x in namespace.status.conditions
                if x.type == "NamespaceFinalizersRemaining" and x.status == "True"
            ]

        (told,) = await c.eventually(said, "the condition")
        assert "example.com/hold in 1 resource instances" in told.message
        with pytest.raises(status.Forbidden):
            await c.create(ConfigMap, {"metadata": {"name": "late"}})
        await c.patch(ConfigMap, "held", {"metadata": {"finalizers": None}})

        async def gone():
            try:
                await c.client.get(Namespace, c.namespace)
            except status.NotFound:
                return True
            return False

        await c.eventually(gone, "the namespace is gone")


async def test_a_namespace_lets_pods_go_before_anything_they_rely_on(cluster):
    async with cluster() as c:
        container = {"name": "c", "image": "i"}
        held = {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}
        await c.create(Pod, {**held, "spec": {"containers": [container]}})
        await c.create(ConfigMap, {"metadata": {"name": "relied-on"}})
        await c.client.delete(Namespace, c.namespace)

        async def said():
            namespace = await c.client.get(Namespace, c.namespace)
            return [
                x.message
                for x in namespace.status.conditions
                if x.type == "NamespaceContentRemaining" and x.status == "True"
            ]

        (told,) = await c.eventually(said, "the condition")
        assert "pods. has 1 resource instances" in told
        assert await c.exists(ConfigMap, "relied-on")

        await c.patch(Pod, "held", {"metadata": {"finalizers": None}})
        await nothing_left(c, Pod, ConfigMap)


async def test_every_namespace_has_its_account_and_gets_it_back(cluster):
    async with cluster() as c:

        async def made():
            return await c.exists(ServiceAccount, "default") and await c.exists(
                ConfigMap, "kube-root-ca.crt"
            )

        await c.eventually(made, "account and certificate")
        await c.delete(ServiceAccount, "default")
        await c.patch(ConfigMap, "kube-root-ca.crt", {"data": {"ca.crt": "forged"}})

        async def restored():
            published = await c.get(ConfigMap, "kube-root-ca.crt")
            return published.data["ca.crt"] != "forged" and await made()

        await c.eventually(restored, "restored")
