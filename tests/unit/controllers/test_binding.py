"""Which volume a claim gets, and what is done about claims and volumes: tables."""

import pytest

from motley.api import storage
from motley.api.views.pod import Pod
from motley.api.views.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from motley.controllers import binding, localvolume


def claim(name="c", size="1Gi", annotations=None, phase="", uid="u", **spec):
    return PersistentVolumeClaim.of(
        {
            "metadata": {
                "name": name,
                "namespace": "ns",
                "uid": uid,
                "annotations": annotations or {},
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": size}},
                **spec,
            },
            "status": {"phase": phase},
        }
    )


def volume(name="v", size="1Gi", phase="Available", meta=None, **spec):
    return PersistentVolume.of(
        {
            "metadata": {"name": name, **(meta or {})},
            "spec": {"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], **spec},
            "status": {"phase": phase},
        }
    )


def ref(uid="u", name="c"):
    return {"namespace": "ns", "name": name, "uid": uid}


def around(*volumes, classes=(), pods=()):
    return binding.Surroundings(volumes, classes, pods)


def storage_class(
    name="k", mode="Immediate", default=False, created="2026-01-01T00:00:00Z", **more
):
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    metadata = {"name": name, "annotations": annotations, "creationTimestamp": created}
    body = {"metadata": metadata, "volumeBindingMode": mode, "provisioner": "p", **more}
    return StorageClass.of(body)


BOUND = {storage.BIND_COMPLETED: "yes"}


@pytest.mark.parametrize(
    ("volumes", "chosen"),
    [
        ([volume("b", "3Gi"), volume("a", "2Gi")], "a"),
        ([volume("small", "1Mi")], None),
        ([volume("exact", "1024Mi"), volume("more", "1025Mi")], "exact"),
        ([volume("taken", claimRef=ref("x", "other"))], None),
        ([volume("big", "9Gi", claimRef=ref("")), volume("fits")], "big"),
        ([volume("stranger", claimRef=ref("older"))], None),
        ([volume("released", phase="Released")], None),
        ([volume("new", phase="Pending")], None),
        ([volume("raw", volumeMode="Block")], None),
        ([volume("classy", storageClassName="k")], None),
        ([volume("shared", accessModes=["ReadOnlyMany"])], None),
        (
            [
                volume("both", "1Gi", accessModes=["ReadWriteOnce", "ReadOnlyMany"]),
                volume("one", "2Gi"),
            ],
            "one",  # the fewest modes that do, before the smallest
        ),
        ([volume("leaving", meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})], None),
    ],
)
def test_a_claim_gets_the_best_of_what_fits(volumes, chosen):
    found = storage.best_match(claim(), volumes, delayed=False)
    assert (found.metadata.name if found else None) == chosen


def test_a_selector_chooses_by_labels():
    wanted = claim(selector={"matchLabels": {"disk": "fast"}})
    fast = volume("fast", "5Gi", meta={"labels": {"disk": "fast"}})
    assert storage.best_match(wanted, [volume("slow"), fast], delayed=False) is fast


def test_a_delayed_claim_takes_only_what_was_set_aside_for_it():
    mine = volume("mine", claimRef=ref(""))
    assert storage.best_match(claim(), [volume()], delayed=True) is None
    assert storage.best_match(claim(), [volume(), mine], delayed=True) is mine


def test_the_newest_default_class_wins_and_of_equals_the_first_name():
    old = storage_class("a", default=True)
    new = storage_class("z", default=True, created="2026-02-01T00:00:00Z")
    same = storage_class("y", default=True, created="2026-02-01T00:00:00Z")
    assert storage.default_class([old, new, storage_class("n")]) is new
    assert storage.default_class([new, same, old]) is same
    assert storage.default_class([storage_class("n")]) is None


def note(step):
    return (step.note.reason if step.note else None) if hasattr(step, "note") else None


waiting = Pod.of({"metadata": {"name": "p", "namespace": "ns"}, "spec": {}})
placed = Pod.of({"metadata": {"name": "q", "namespace": "ns"}, "spec": {"nodeName": "n"}})


@pytest.mark.parametrize(
    ("wanted", "surroundings", "kind", "reason"),
    [
        (claim(), around(volume()), binding.Bind, None),
        (claim(storageClassName=""), around(), binding.Pending, "FailedBinding"),
        (
            claim(),
            around(classes=[storage_class(default=True)]),
            binding.AssignClass,
            None,
        ),
        (
            claim(storageClassName=""),
            around(classes=[storage_class(default=True)]),
            binding.Pending,
            "FailedBinding",
        ),
        (
            claim(storageClassName="k"),
            around(classes=[storage_class()]),
            binding.Provision,
            "ExternalProvisioning",
        ),
        (claim(storageClassName="k"), around(), binding.Pending, "ProvisioningFailed"),
        (
            claim(storageClassName="k"),
            around(classes=[storage_class(provisioner="kubernetes.io/no-provisioner")]),
            binding.Pending,
            "ProvisioningFailed",
        ),
        (
            claim(storageClassName="k"),
            around(classes=[storage_class(mode="WaitForFirstConsumer")]),
            binding.Pending,
            "WaitForFirstConsumer",
        ),
        (
            claim(storageClassName="k"),
            around(classes=[storage_class(mode="WaitForFirstConsumer")], pods=[waiting, placed]),
            binding.Pending,
            "WaitForPodScheduled",
        ),
        (
            claim(storageClassName="k", annotations={storage.SELECTED_NODE: "n"}),
            around(classes=[storage_class(mode="WaitForFirstConsumer")]),
            binding.Provision,
            "ExternalProvisioning",
        ),
        (claim(volumeName="v"), around(), binding.Pending, None),
        (claim(volumeName="v"), around(volume()), binding.Bind, None),
        (claim(volumeName="v"), around(volume(size="1Mi")), binding.Pending, "VolumeMismatch"),
        (claim(volumeName="v"), around(volume(claimRef=ref())), binding.Bind, None),
        (
            claim(volumeName="v"),
            around(volume(claimRef=ref("x", "other"))),
            binding.Pending,
            "FailedBinding",
        ),
        (claim(annotations=BOUND), around(volume()), binding.Lost, "ClaimLost"),
        (claim(annotations=BOUND, volumeName="v"), around(), binding.Lost, "ClaimLost"),
        (claim(annotations=BOUND, volumeName="v"), around(volume()), binding.Bind, None),
        (
            claim(annotations=BOUND, volumeName="v"),
            around(volume(claimRef=ref("x"))),
            binding.Lost,
            "ClaimMisbound",
        ),
    ],
)
def test_the_next_step_of_a_claim(wanted, surroundings, kind, reason):
    step = binding.claim_step(wanted, surroundings)
    assert isinstance(step, kind)
    assert note(step) == reason


MADE = {"annotations": {storage.PROVISIONED_BY: "p"}}


@pytest.mark.parametrize(
    ("found", "by", "step"),
    [
        (volume(), None, binding.SetPhase("Available")),
        (volume(claimRef=ref("")), claim(), binding.SetPhase("Available")),
        (volume(claimRef=ref()), claim(volumeName="v"), binding.SetPhase("Bound")),
        (volume(claimRef=ref()), claim(), binding.WakeClaim()),
        (volume(claimRef=ref()), claim(volumeName="w"), binding.Unbind()),
        (volume(claimRef=ref()), None, binding.Reclaim()),
        (volume(claimRef=ref()), claim(uid="newer"), binding.Reclaim()),
        (
            volume(claimRef=ref(), meta=MADE, persistentVolumeReclaimPolicy="Delete"),
            claim(volumeName="w"),
            binding.Reclaim(),
        ),
        (
            volume(claimRef=ref(), csi={"driver": "d"}, persistentVolumeReclaimPolicy="Delete"),
            None,
            binding.Reclaim(),
        ),
    ],
)
def test_the_next_step_of_a_volume(found, by, step):
    assert binding.volume_step(found, by) == step


def test_modes_that_can_never_meet_are_told_to_both():
    step = binding.volume_step(volume(claimRef=ref(), volumeMode="Block"), claim())
    assert isinstance(step, binding.Mismatch)


@pytest.mark.parametrize(
    ("policy", "reason"), [("Delete", "VolumeFailedDelete"), ("Recycle", "VolumeFailedRecycle")]
)
def test_policies_nobody_can_carry_out_fail(policy, reason):
    found = volume(claimRef=ref(), persistentVolumeReclaimPolicy=policy)
    assert binding.reclaim(found).failed.reason == reason


@pytest.mark.parametrize(
    "path", ["/", "/etc", "/srv/../etc/v_x", "/srv/volumes/other_ns_c", "", "/v_ns_c"]
)
def test_a_directory_the_provisioner_did_not_name_is_never_removed(path):
    with pytest.raises(localvolume.Unsuitable):
        localvolume.helper(volume(hostPath={"path": path}))


def test_the_helper_removes_the_volumes_directory_and_sees_only_its_parent():
    pod = localvolume.helper(volume(hostPath={"path": "/srv/volumes/v_ns_c"}))
    [container] = pod["spec"]["containers"]
    assert container["command"] == ["rm", "-rf", "--", "/volumes/v_ns_c"]
    assert pod["spec"]["volumes"][0]["hostPath"]["path"] == "/srv/volumes"
