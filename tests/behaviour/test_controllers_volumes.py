"""Claims find their volumes, volumes their claims, on virtual time with the real scheduler."""

from world import Behaviour, simulate

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.pod import Pod
from motley.api.views.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from motley.api.views.workloads import StatefulSet
from motley.controllers import localvolume

SELECTED_NODE = "volume.kubernetes.io/selected-node"


def claim(name="data", size="1Gi", storage_class=None, **spec):
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    if storage_class is not None:
        wanted["storageClassName"] = storage_class
    return {"metadata": {"name": name}, "spec": {**wanted, **spec}}


def volume(name, size="1Gi", storage_class="", **spec):
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "hostPath": {"path": f"/srv/{name}"},
            "persistentVolumeReclaimPolicy": "Retain",
            **spec,
        },
    }


def local_path(name="local-path", **changed):
    return {
        "metadata": {"name": name},
        "provisioner": localvolume.PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
        "parameters": {"path": "/srv/volumes"},
        **changed,
    }


def using(name, *claims, **spec):
    return {
        "metadata": {"name": name},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "demo",
                    "volumeMounts": [{"name": c, "mountPath": f"/{c}"} for c in claims],
                }
            ],
            "volumes": [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims],
            **spec,
        },
    }


async def phase(world, cls, name, wanted, within_s=60):
    async def reached():
        try:
            return (await world.get(cls, name)).status.phase == wanted
        except status.NotFound:
            return False

    await world.until(reached, f"{name} is {wanted}", within_s=within_s)
    return await world.get(cls, name)


async def gone(world, cls, name, within_s=60):
    async def missing():
        return not await world.exists(cls, name)

    await world.until(missing, f"{name} is gone", within_s=within_s)


async def reasons(world, kind):
    """The reasons of the events on objects of a kind."""
    await world.sleep(2)  # events are written in the background
    found = [await world.client.raw("GET", "/api/v1/events")]
    return {e["reason"] for e in found[0]["items"] if e["involvedObject"]["kind"] == kind}


@simulate(nodes=1)
async def test_a_claim_gets_the_smallest_volume_that_fits(world):
    for name, size in (("large", "10Gi"), ("right", "2Gi"), ("small", "500Mi")):
        await world.create(PersistentVolume, volume(name, size))
    await world.create(PersistentVolumeClaim, claim(storage_class=""))
    bound = await phase(world, PersistentVolumeClaim, "data", "Bound")
    assert bound.spec.volume_name == "right"
    assert bound.status.capacity == {"storage": "2Gi"}
    assert bound.metadata.annotations["pv.kubernetes.io/bound-by-controller"] == "yes"
    taken = await phase(world, PersistentVolume, "right", "Bound")
    assert taken.spec.claim_ref.uid == bound.metadata.uid
    await phase(world, PersistentVolume, "large", "Available")


@simulate(nodes=1)
async def test_a_claim_waits_for_a_volume_and_takes_it_when_it_comes(world):
    await world.create(PersistentVolumeClaim, claim(storage_class=""))
    await phase(world, PersistentVolumeClaim, "data", "Pending")
    assert "FailedBinding" in await reasons(world, "PersistentVolumeClaim")
    await world.create(PersistentVolume, volume("late"))
    assert (await phase(world, PersistentVolumeClaim, "data", "Bound")).spec.volume_name == "late"


@simulate(nodes=1)
async def test_two_claims_never_share_a_volume(world):
    for number in range(10):
        await world.create(PersistentVolume, volume(f"v{number}"))
    for number in range(12):
        await world.create(PersistentVolumeClaim, claim(f"c{number}", storage_class=""))
    await world.sleep(30)
    claims = await world.list(PersistentVolumeClaim)
    names = [c.spec.volume_name for c in claims if c.status.phase == "Bound"]
    assert len(names) == len(set(names)) == 10
    assert sum(c.status.phase == "Pending" for c in claims) == 2


@simulate(nodes=1)
async def test_reservations_hold_from_either_side(world):
    ref = {"namespace": "default", "name": "mine"}
    await world.create(PersistentVolume, volume("kept", "5Gi", claimRef=ref))
    await world.create(PersistentVolumeClaim, claim("other", storage_class=""))
    await phase(world, PersistentVolumeClaim, "other", "Pending")
    await world.create(PersistentVolumeClaim, claim("mine", storage_class=""))
    mine = await phase(world, PersistentVolumeClaim, "mine", "Bound")
    assert mine.spec.volume_name == "kept"
    await world.delete(PersistentVolumeClaim, "other")
    await world.create(PersistentVolumeClaim, claim("named", storage_class="", volumeName="later"))
    await phase(world, PersistentVolumeClaim, "named", "Pending")
    await world.create(PersistentVolume, volume("later"))
    await phase(world, PersistentVolumeClaim, "named", "Bound")
    later = await phase(world, PersistentVolume, "later", "Bound")
    assert "pv.kubernetes.io/bound-by-controller" in later.metadata.annotations


@simulate(nodes=1)
async def test_a_named_volume_that_does_not_suit_is_refused_with_a_reason(world):
    await world.create(PersistentVolume, volume("tiny", "1Mi"))
    await world.create(PersistentVolumeClaim, claim(storage_class="", volumeName="tiny"))
    await phase(world, PersistentVolumeClaim, "data", "Pending")
    assert "VolumeMismatch" in await reasons(world, "PersistentVolumeClaim")
    await phase(world, PersistentVolume, "tiny", "Available")


@simulate(nodes=1)
async def test_a_retained_volume_is_released_and_given_to_nobody(world):
    await world.create(PersistentVolume, volume("kept"))
    await world.create(PersistentVolumeClaim, claim(storage_class=""))
    await phase(world, PersistentVolumeClaim, "data", "Bound")
    await world.delete(PersistentVolumeClaim, "data")
    await phase(world, PersistentVolume, "kept", "Released")
    await world.create(PersistentVolumeClaim, claim(storage_class=""))
    await world.sleep(30)
    await phase(world, PersistentVolumeClaim, "data", "Pending")
    # Whoever takes the reference off makes the volume available again.
    await world.patch(PersistentVolume, "kept", {"spec": {"claimRef": None}})
    await phase(world, PersistentVolumeClaim, "data", "Bound")


@simulate(nodes=1)
async def test_volumes_nobody_can_delete_or_recycle_fail(world):
    for policy in ("Delete", "Recycle"):
        name = policy.lower()
        spec = {"persistentVolumeReclaimPolicy": policy}
        await world.create(PersistentVolume, volume(name, **spec))
        await world.create(PersistentVolumeClaim, claim(name, storage_class="", volumeName=name))
        await phase(world, PersistentVolumeClaim, name, "Bound")
        await world.delete(PersistentVolumeClaim, name)
        await phase(world, PersistentVolume, name, "Failed")
    found = await reasons(world, "PersistentVolume")
    assert {"VolumeFailedDelete", "VolumeFailedRecycle"} <= found


@simulate(nodes=1)
async def test_a_claim_whose_volume_is_removed_is_lost_for_good(world):
    await world.create(PersistentVolume, volume("v"))
    await world.create(PersistentVolumeClaim, claim(storage_class=""))
    await phase(world, PersistentVolumeClaim, "data", "Bound")
    await world.delete(PersistentVolume, "v")
    await world.sleep(5)
    assert (await world.get(PersistentVolume, "v")).metadata.deletion_timestamp  # protected
    await world.patch(PersistentVolume, "v", {"metadata": {"finalizers": None}})
    await phase(world, PersistentVolumeClaim, "data", "Lost")
    await world.create(PersistentVolume, volume("another"))
    await world.sleep(30)
    assert (await world.get(PersistentVolumeClaim, "data")).status.phase == "Lost"


@simulate(nodes=1)
async def test_a_default_class_is_assigned_to_claims_that_came_before_it(world):
    await world.create(PersistentVolumeClaim, claim())
    await world.create(PersistentVolumeClaim, claim("none", storage_class=""))
    await phase(world, PersistentVolumeClaim, "data", "Pending")
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    body = local_path()
    body["metadata"]["annotations"] = annotations
    await world.create(StorageClass, body)

    async def assigned():
        return (await world.get(PersistentVolumeClaim, "data")).spec.storage_class_name

    assert await world.until(assigned, within_s=30) == "local-path"
    assert (await world.get(PersistentVolumeClaim, "none")).spec.storage_class_name == ""


@simulate(nodes=3)
async def test_a_local_path_claim_is_made_where_its_pod_runs_and_removed_with_it(world):
    world.kubelets.script = lambda pod: Behaviour(
        run_s=2 if pod.metadata.name.startswith("local-path-delete-") else None
    )
    await world.create(StorageClass, local_path())
    await world.create(PersistentVolumeClaim, claim(storage_class="local-path"))
    await world.sleep(20)
    await phase(world, PersistentVolumeClaim, "data", "Pending")
    assert "WaitForFirstConsumer" in await reasons(world, "PersistentVolumeClaim")
    await world.create(Pod, using("user", "data"))
    await phase(world, Pod, "user", "Running")
    pod = await world.get(Pod, "user")
    bound = await phase(world, PersistentVolumeClaim, "data", "Bound")
    assert bound.metadata.annotations[SELECTED_NODE] == pod.spec.node_name
    made = await world.get(PersistentVolume, bound.spec.volume_name)
    assert made.spec.host_path.path == f"/srv/volumes/{made.metadata.name}_default_data"
    [term] = made.spec.node_affinity.required.node_selector_terms
    assert term.match_expressions[0].values == [pod.spec.node_name]
    await world.delete(Pod, "user")
    await gone(world, Pod, "user")
    # A second pod must come to where the files are.
    await world.create(Pod, using("second", "data"))
    await phase(world, Pod, "second", "Running")
    assert (await world.get(Pod, "second")).spec.node_name == pod.spec.node_name
    await world.delete(Pod, "second")
    await gone(world, Pod, "second")
    await world.delete(PersistentVolumeClaim, "data")
    await gone(world, PersistentVolume, made.metadata.name)
    asked = [
        a.asked for a in world.wire.log if a.asked.path == "/api/v1/namespaces/kube-system/pods"
    ]
    assert sum(a.method == "POST" for a in asked) == 1
    world.namespace = "kube-system"
    await world.until(lambda: not world.pods(), "the helper is gone")


@simulate(nodes=2)
async def test_a_volume_whose_files_cannot_be_removed_fails_and_is_tried_again(world):
    works = False
    world.kubelets.script = lambda pod: Behaviour(
        run_s=2 if pod.metadata.name.startswith("local-path-delete-") else None,
        exit_code=0 if works else 1,
    )
    await world.create(StorageClass, local_path())
    await world.create(PersistentVolumeClaim, claim(storage_class="local-path"))
    await world.create(Pod, using("user", "data"))
    bound = await phase(world, PersistentVolumeClaim, "data", "Bound")
    await world.delete(Pod, "user")
    await world.delete(PersistentVolumeClaim, "data")
    await phase(world, PersistentVolume, bound.spec.volume_name, "Failed")
    works = True
    await gone(world, PersistentVolume, bound.spec.volume_name, within_s=300)


@simulate(nodes=2)
async def test_a_claim_grows_where_its_class_allows_it(world):
    await world.create(StorageClass, local_path(allowVolumeExpansion=True))
    await world.create(PersistentVolumeClaim, claim(storage_class="local-path"))
    await world.create(Pod, using("user", "data"))
    bound = await phase(world, PersistentVolumeClaim, "data", "Bound")
    change = {"spec": {"resources": {"requests": {"storage": "3Gi"}}}}
    await world.patch(PersistentVolumeClaim, "data", change)

    async def grown():
        found = await world.get(PersistentVolumeClaim, "data")
        return found.status.capacity == {"storage": "3Gi"}

    await world.until(grown, within_s=30)
    made = await world.get(PersistentVolume, bound.spec.volume_name)
    assert made.spec.capacity == {"storage": "3Gi"}


@simulate(nodes=3)
async def test_the_scheduler_binds_waiting_claims_to_volumes_a_node_can_reach(world):
    await world.create(
        StorageClass,
        local_path("by-hand", provisioner="kubernetes.io/no-provisioner", parameters={}),
    )
    for node in ("node-1", "node-2"):
        expression = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        terms = [{"matchExpressions": [expression]}]
        affinity = {"required": {"nodeSelectorTerms": terms}}
        size = "1Gi" if node == "node-2" else "2Gi"
        for number in range(2):
            body = volume(f"{node}-{number}", size, "by-hand", nodeAffinity=affinity)
            await world.create(PersistentVolume, body)
    for name in ("a", "b"):
        await world.create(PersistentVolumeClaim, claim(name, storage_class="by-hand"))
    await world.create(
        Pod, using("user", "a", "b", nodeSelector={"kubernetes.io/hostname": "node-2"})
    )
    await phase(world, Pod, "user", "Running")
    names = {(await world.get(PersistentVolumeClaim, n)).spec.volume_name for n in ("a", "b")}
    assert names == {"node-2-0", "node-2-1"}
    for name in ("c", "d", "e"):
        await world.create(PersistentVolumeClaim, claim(name, storage_class="by-hand"))
    await world.create(Pod, using("full", "c", "d", "e"))
    await world.sleep(30)
    waiting = await world.get(Pod, "full")
    assert waiting.spec.node_name == ""
    [said] = [c.message for c in waiting.status.conditions if c.type == "PodScheduled"]
    assert said.startswith(
        "0/3 nodes are available: 3 node(s) didn't find available persistent volumes to bind"
    )


@simulate(nodes=2)
async def test_pods_wait_for_claims_that_are_missing_or_not_bound(world):
    await world.create(Pod, using("user", "data"))
    await world.sleep(5)

    async def why():
        pod = await world.get(Pod, "user")
        return [c.message for c in pod.status.conditions if c.type == "PodScheduled"]

    [said] = await why()
    assert 'persistentvolumeclaim "data" not found' in said
    await world.create(PersistentVolumeClaim, claim(storage_class=""))
    await world.sleep(5)
    [said] = await why()
    assert "pod has unbound immediate PersistentVolumeClaims" in said
    await world.create(PersistentVolume, volume("v"))
    await phase(world, Pod, "user", "Running")


@simulate(nodes=3)
async def test_a_claim_whose_chosen_node_is_removed_is_placed_anew(world):
    await world.create(StorageClass, local_path())
    body = claim(storage_class="local-path")
    body["metadata"]["annotations"] = {SELECTED_NODE: "never-was"}
    await world.create(PersistentVolumeClaim, body)
    await world.create(Pod, using("user", "data"))
    await phase(world, Pod, "user", "Running")
    bound = await phase(world, PersistentVolumeClaim, "data", "Bound")
    assert (
        bound.metadata.annotations[SELECTED_NODE] == (await world.get(Pod, "user")).spec.node_name
    )


@simulate(nodes=2)
async def test_binding_survives_the_death_of_the_controllers_at_any_moment(world):
    for number in range(20):
        await world.create(PersistentVolume, volume(f"v{number}"))
    for number in range(20):
        await world.create(PersistentVolumeClaim, claim(f"c{number}", storage_class=""))
        if number % 4 == 3:
            await world.kill_manager()
            world.start_manager()
            await world.sleep(0.05)
    await world.sleep(60)
    claims = await world.list(PersistentVolumeClaim)
    assert all(c.status.phase == "Bound" for c in claims)
    assert len({c.spec.volume_name for c in claims}) == 20
    for found in await world.list(PersistentVolume):
        assert found.status.phase == "Bound"
        ref = found.spec.claim_ref
        [mine] = [c for c in claims if c.key == Key(ref.namespace, ref.name)]
        assert mine.spec.volume_name == found.metadata.name


@simulate(nodes=2)
async def test_an_ephemeral_volume_comes_and_goes_with_its_pod(world):
    world.kubelets.script = lambda pod: Behaviour(
        run_s=2 if pod.metadata.name.startswith("local-path-delete-") else None
    )
    await world.create(StorageClass, local_path())
    template = claim(storage_class="local-path")
    body = using("user")
    body["spec"]["volumes"] = [
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": template["spec"]}}}
    ]
    await world.create(Pod, body)
    await phase(world, Pod, "user", "Running")
    bound = await phase(world, PersistentVolumeClaim, "user-scratch", "Bound")
    assert bound.metadata.controller().kind == "Pod"
    await world.delete(Pod, "user")
    await gone(world, PersistentVolumeClaim, "user-scratch")
    await gone(world, PersistentVolume, bound.spec.volume_name)


@simulate(nodes=2)
async def test_an_ephemeral_volume_never_uses_a_claim_it_did_not_make(world):
    await world.create(PersistentVolume, volume("v"))
    await world.create(PersistentVolumeClaim, claim("user-scratch", storage_class=""))
    await phase(world, PersistentVolumeClaim, "user-scratch", "Bound")
    body = using("user")
    spec = claim(storage_class="")["spec"]
    body["spec"]["volumes"] = [
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}
    ]
    await world.create(Pod, body)
    await world.sleep(20)
    pod = await world.get(Pod, "user")
    [said] = [c.message for c in pod.status.conditions if c.type == "PodScheduled"]
    assert "was not created for pod default/user" in said
    assert "FailedBinding" in await reasons(world, "Pod")


@simulate(nodes=3, latency_s=0.02)
async def test_a_stateful_set_gets_its_volumes_whenever_the_controllers_die(world):
    await world.create(StorageClass, local_path())
    template = claim(storage_class="local-path")
    pod = using("unused", "data")["spec"]
    body = {
        "metadata": {"name": "db"},
        "spec": {
            "serviceName": "db",
            "replicas": 6,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": "db"}},
            "template": {
                "metadata": {"labels": {"app": "db"}},
                "spec": {"containers": pod["containers"]},
            },
            "volumeClaimTemplates": [template],
        },
    }
    await world.create(StatefulSet, body)
    for _ in range(8):
        await world.sleep(world.rng.uniform(0.05, 1.5))
        await world.kill_manager()
        world.start_manager()
    await world.until(
        lambda: sum(p.is_ready for p in world.living(app="db")) == 6, "six pods", within_s=300
    )
    claims = {c.metadata.name: c for c in await world.list(PersistentVolumeClaim)}
    volumes = {v.metadata.name: v for v in await world.list(PersistentVolume)}
    assert sorted(claims) == [f"data-db-{n}" for n in range(6)]
    assert {c.spec.volume_name for c in claims.values()} == set(volumes)
    for found in world.living(app="db"):
        mine = claims[f"data-{found.metadata.name}"]
        made = volumes[mine.spec.volume_name]
        assert made.spec.claim_ref.uid == mine.metadata.uid
        assert localvolume.node_of(made) == found.spec.node_name
