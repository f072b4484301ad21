"""Quotas are recounted and protected claims released, by real controllers on a real server."""

import asyncio

from motley.api import status
from motley.api.views.core import ConfigMap
from motley.api.views.pod import Pod
from motley.api.views.storage import PersistentVolumeClaim
from motley.controllers.attributesprotection import VolumeAttributesClass
from motley.controllers.resourcequota import ResourceQuota


def pod(name, **spec):
    return {
        "metadata": {"name": name},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "c", "image": "i"}],
            **spec,
        },
    }


async def used(c):
    found = await c.client.document(ResourceQuota, "q", c.namespace)
    return (found.get("status") or {}).get("used") or {}


async def test_a_quota_is_counted_when_it_is_made_and_when_things_go(cluster):
    async with cluster(node_count=1) as c:
        await c.create(ConfigMap, {"metadata": {"name": "before"}})
        hard = {"pods": "2", "configmaps": "9"}
        await c.create(ResourceQuota, {"metadata": {"name": "q"}, "spec": {"hard": hard}})

        async def is_counted():
            # The cluster's certificate is in every namespace, too.
            return await used(c) == {"configmaps": "2", "pods": "0"}

        await c.eventually(is_counted, "the first count")

        async def try_one(number):
            try:
                await c.create(Pod, pod(f"p{number}"))
            except status.Forbidden:
                return False
            return True

        got_in = await asyncio.gather(*(try_one(number) for number in range(6)))
        assert sum(got_in) == 2
        await c.delete(Pod, f"p{got_in.index(True)}", grace_period_s=0)

        async def has_room():
            return (await used(c))["pods"] == "1"

        await c.eventually(has_room, "the deletion is counted")
        assert await try_one(9)


async def test_a_claim_goes_when_its_last_pod_has_gone(cluster):
    async with cluster(node_count=1) as c:
        resources = {"requests": {"storage": "1Gi"}}
        spec = {"accessModes": ["ReadWriteOnce"], "resources": resources}
        await c.create(PersistentVolumeClaim, {"metadata": {"name": "data"}, "spec": spec})
        source = {"persistentVolumeClaim": {"claimName": "data"}}
        await c.create(Pod, pod("user", volumes=[{"name": "v", **source}]))

        await c.delete(PersistentVolumeClaim, "data")
        assert (await c.get(PersistentVolumeClaim, "data")).metadata.deletion_timestamp

        await c.delete(Pod, "user", grace_period_s=0)

        async def is_gone():
            return not await c.exists(PersistentVolumeClaim, "data")

        await c.eventually(is_gone, "the claim is released")


async def test_a_class_of_attributes_goes_when_no_claim_names_it(cluster):
    async with cluster(node_count=1) as c:
        made = {
            "metadata": {"name": "fast"},
            "driverName": "csi.example.com",
            "parameters": {"iops": "100"},
        }
        await c.client.create(VolumeAttributesClass, made)
        spec = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "none",
            "volumeAttributesClassName": "fast",
        }
        await c.create(PersistentVolumeClaim, {"metadata": {"name": "data"}, "spec": spec})

        await c.client.delete(VolumeAttributesClass, "fast")
        found = await c.client.get(VolumeAttributesClass, "fast")
        assert found.metadata.deletion_timestamp

        await c.delete(PersistentVolumeClaim, "data")

        async def is_gone():
            try:
                await c.client.get(VolumeAttributesClass, "fast")
            except status.NotFound:
                return True
            return False

        await c.eventually(is_gone, "the class is released")
