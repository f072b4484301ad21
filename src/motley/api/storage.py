"""Which volume does a claim get? Pure; the rules of Kubernetes.

Both sides of a binding name each other: `claim.spec.volumeName` and `volume.spec.claimRef`. Either
may be written first, by a user, the binding controller, a provisioner or the scheduler; so a
volume that names a claim is that claim's alone, whatever else would fit.
"""

from collections.abc import Callable, Iterable
from fractions import Fraction

from motley.api import quantity
from motley.api.selectors import Selector
from motley.api.views.pod import Pod
from motley.api.views.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from motley.api.views.volume import Volume

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
PROVISIONER = "volume.kubernetes.io/storage-provisioner"
BETA_PROVISIONER = "volume.beta.kubernetes.io/storage-provisioner"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
BETA_CLASS = "volume.beta.kubernetes.io/storage-class"
# A class whose volumes are made by hand.
NO_PROVISIONER = "kubernetes.io/no-provisioner"
# The provisioner that comes with Motley: directories of a node.
LOCAL_PATH = "motley.io/local-path"
WAIT_FOR_FIRST_CONSUMER = "WaitForFirstConsumer"
_DEFAULT = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


def claims_of(pod: Pod) -> dict[str, str]:
    """The claims a pod uses: their names, by the name of the volume."""
    claims = {}
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            claims[volume.name] = volume.persistent_volume_claim.claim_name
        elif volume.ephemeral is not None:
            claims[volume.name] = f"{pod.metadata.name}-{volume.name}"
    return claims


def foreign(pod: Pod, volume: Volume, claim: PersistentVolumeClaim) -> str:
    """Why a claim of the right name is not an ephemeral volume's own; empty: it is."""
    owner = claim.metadata.controller()
    if volume.ephemeral is None or (owner is not None and owner.uid == pod.metadata.uid):
        return ""
    return f"PVC {claim.key} was not created for pod {pod.key} (pod is not owner)"


def claim_class(claim: PersistentVolumeClaim) -> str:
    """The name of the class a claim asks for; empty: none."""
    annotated = claim.metadata.annotations.get(BETA_CLASS)
    return annotated if annotated is not None else claim.spec.storage_class_name or ""


def has_class(claim: PersistentVolumeClaim) -> bool:
    """Was a class asked for, be it the empty one?"""
    return claim.spec.storage_class_name is not None or BETA_CLASS in claim.metadata.annotations


def volume_class(volume: PersistentVolume) -> str:
    """The name of the class a volume is of."""
    return volume.metadata.annotations.get(BETA_CLASS, volume.spec.storage_class_name)


def requested(claim: PersistentVolumeClaim) -> Fraction:
    """How many bytes a claim asks for."""
    return quantity.parse(claim.spec.resources.requests.get("storage", 0))


def capacity(volume: PersistentVolume) -> Fraction:
    """How many bytes a volume has."""
    return quantity.parse(volume.spec.capacity.get("storage", 0))


def is_fully_bound(claim: PersistentVolumeClaim) -> bool:
    """Can a pod use the claim?"""
    return bool(claim.spec.volume_name) and BIND_COMPLETED in claim.metadata.annotations


def is_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Does the volume name this claim? Without a uid it names whoever has the name."""
    ref = volume.spec.claim_ref
    if ref is None or (ref.namespace, ref.name) != claim.key:
        return False
    return ref.uid in ("", claim.metadata.uid)


def default_class(classes: Iterable[StorageClass]) -> StorageClass | None:
    """The class of claims that name none: the newest default, of two equally new the first."""
    marked = [c for c in classes if any(c.metadata.annotations.get(a) == "true" for a in _DEFAULT)]
    marked.sort(key=lambda c: c.metadata.name)
    marked.sort(key=lambda c: c.metadata.creation_timestamp or "", reverse=True)
    return marked[0] if marked else None


def mismatch(claim: PersistentVolumeClaim, volume: PersistentVolume) -> str:
    """Why a volume that the claim names cannot be its; empty: it can."""
    if volume.metadata.deletion_timestamp is not None:
        return f'the volume is marked for deletion "{volume.metadata.name}"'
    if capacity(volume) < requested(claim):
        return "requested PV is too small"
    if volume_class(volume) != claim_class(claim):
        return "storageClassName does not match"
    if _attributes(claim) != _attributes(volume):
        return "volumeAttributesClassName does not match"
    if claim.spec.volume_mode != volume.spec.volume_mode:
        return "incompatible volumeMode"
    if not set(claim.spec.access_modes) <= set(volume.spec.access_modes):
        return "incompatible accessMode"
    return ""


def candidates(
    claim: PersistentVolumeClaim, volumes: Iterable[PersistentVolume]
) -> list[PersistentVolume]:
    """Free volumes that would do, the fewest modes first, then the smallest, then by name."""
    selector = Selector.of(claim.spec.selector) if claim.spec.selector is not None else None
    found = [
        volume
        for volume in volumes
        if volume.spec.claim_ref is None
        and volume.status.phase == "Available"
        and not mismatch(claim, volume)
        and (selector is None or selector.matches(volume.metadata.labels))
    ]
    return sorted(
        found, key=lambda v: (len(set(v.spec.access_modes)), capacity(v), v.metadata.name)
    )


def best_match(
    claim: PersistentVolumeClaim,
    volumes: Iterable[PersistentVolume],
    *,
    delayed: bool,
    reachable: Callable[[PersistentVolume], bool] = lambda _: True,
) -> PersistentVolume | None:
    """The volume for a claim that names none.

    One that names the claim comes first, even where binding is delayed: somebody has decided. A
    delayed claim gets no other; that is for the scheduler to say.
    """
    volumes = list(volumes)
    reserved = sorted(
        (v for v in volumes if is_for(v, claim) and _can_hold(claim, v)),
        key=lambda v: v.metadata.name,
    )
    if reserved:
        return reserved[0] if reachable(reserved[0]) else None
    if delayed:
        return None
    return next((v for v in candidates(claim, volumes) if reachable(v)), None)


def _can_hold(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    """What even a volume that was set aside for the claim must fulfil."""
    return (
        capacity(volume) >= requested(claim)
        and claim.spec.volume_mode == volume.spec.volume_mode
        and _attributes(claim) == _attributes(volume)
        and volume.metadata.deletion_timestamp is None
        and set(claim.spec.access_modes) <= set(volume.spec.access_modes)
    )


def _attributes(found: PersistentVolumeClaim | PersistentVolume) -> str:
    return found.spec.volume_attributes_class_name or ""
