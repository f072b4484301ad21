"""What is to be done about a claim or a volume? Pure; the state machine of Kubernetes' binder.

    claim:   Pending ──► Bound ──► Lost          volume:  Available ──► Bound ──► Released ──► …
             (waits, or is provisioned)                   (… deleted, Failed, or kept)

Invariant: a claim that was bound once is never bound to another volume, and a volume is never
given to a second claim, not even of the same name.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from motley.api import storage
from motley.api.views.pod import Pod
from motley.api.views.storage import PersistentVolume, PersistentVolumeClaim, StorageClass


@dataclass(frozen=True)
class Note:
    """An event to leave on the object."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


@dataclass(frozen=True)
class Bind:
    """Make claim and volume each other's, or finish that."""

    volume: PersistentVolume


@dataclass(frozen=True)
class Pending:
    """Nothing yet; say why, where there is something to say."""

    note: Note | None = None


@dataclass(frozen=True)
class Lost:
    """The claim's volume is gone or someone else's; this is final."""

    note: Note


@dataclass(frozen=True)
class AssignClass:
    """Give a claim that named no class the default one."""

    name: str


@dataclass(frozen=True)
class Provision:
    """Have the class's provisioner make a volume."""

    provisioner: str
    note: Note


ClaimStep = Bind | Pending | Lost | AssignClass | Provision


@dataclass(frozen=True)
class Surroundings:
    """What a claim is judged against."""

    volumes: Sequence[PersistentVolume]
    classes: Sequence[StorageClass]
    pods: Sequence[Pod]  # that use the claim

    def volume(self, name: str) -> PersistentVolume | None:
        """A volume by name."""
        return next((v for v in self.volumes if v.metadata.name == name), None)

    def storage_class(self, claim: PersistentVolumeClaim) -> StorageClass | None:
        """The class a claim asks for, if it exists."""
        name = storage.claim_class(claim)
        return next((c for c in self.classes if name and c.metadata.name == name), None)


def claim_step(claim: PersistentVolumeClaim, around: Surroundings) -> ClaimStep:
    """The next step for a claim."""
    if storage.BIND_COMPLETED in claim.metadata.annotations:
        return _bound_claim(claim, around)
    if claim.spec.volume_name:
        return _named_volume(claim, around.volume(claim.spec.volume_name))
    storage_class = around.storage_class(claim)
    delayed = (
        storage_class is not None
        and storage_class.volume_binding_mode == storage.WAIT_FOR_FIRST_CONSUMER
    )
    found = storage.best_match(claim, around.volumes, delayed=delayed)
    if found is not None:
        return Bind(found)
    if not storage.has_class(claim):
        default = storage.default_class(around.classes)
        if default is not None:
            return AssignClass(default.metadata.name)
    if delayed and storage.SELECTED_NODE not in claim.metadata.annotations:
        return Pending(_waits(around.pods))
    if storage.claim_class(claim):
        return _provision(claim, storage_class)
    message = "no persistent volumes available for this claim and no storage class is set"
    return Pending(Note("Normal", "FailedBinding", message))


def _bound_claim(claim: PersistentVolumeClaim, around: Surroundings) -> ClaimStep:
    if not claim.spec.volume_name:
        message = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!"
        return Lost(Note("Warning", "ClaimLost", message))
    volume = around.volume(claim.spec.volume_name)
    if volume is None:
        message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!"
        return Lost(Note("Warning", "ClaimLost", message))
    ref = volume.spec.claim_ref
    if ref is None or ref.uid == claim.metadata.uid:
        return Bind(volume)
    message = "Two claims are bound to the same volume, this one is bound incorrectly"
    return Lost(Note("Warning", "ClaimMisbound", message))


def _named_volume(claim: PersistentVolumeClaim, volume: PersistentVolume | None) -> ClaimStep:
    if volume is None:
        return Pending()
    name = volume.metadata.name
    if volume.spec.claim_ref is None:
        why = storage.mismatch(claim, volume)
        if why:
            message = f'Cannot bind to requested volume "{name}": {why}'
            return Pending(Note("Warning", "VolumeMismatch", message))
        return Bind(volume)
    if storage.is_for(volume, claim):
        return Bind(volume)
    message = f'volume "{name}" already bound to a different claim.'
    return Pending(Note("Warning", "FailedBinding", message))


def _waits(pods: Iterable[Pod]) -> Note:
    names = sorted(p.metadata.name for p in pods if not p.spec.node_name and not p.is_terminal)
    if not names:
        message = "waiting for first consumer to be created before binding"
        return Note("Normal", "WaitForFirstConsumer", message)
    what = f"pod {names[0]}" if len(names) == 1 else f"pods {','.join(names)}"
    return Note("Normal", "WaitForPodScheduled", f"waiting for {what} to be scheduled")


def _provision(claim: PersistentVolumeClaim, storage_class: StorageClass | None) -> ClaimStep:
    if storage_class is None:
        message = f'storageclass.storage.k8s.io "{storage.claim_class(claim)}" not found'
        return Pending(Note("Warning", "ProvisioningFailed", message))
    provisioner = storage_class.provisioner
    if provisioner == storage.NO_PROVISIONER:
        message = f"no volume plugin matched name: {provisioner}"
        return Pending(Note("Warning", "ProvisioningFailed", message))
    message = (
        f"Waiting for a volume to be created either by the external provisioner '{provisioner}' "
        "or manually by the system administrator. If volume creation is delayed, please verify "
        "that the provisioner is running and correctly registered."
    )
    return Provision(provisioner, Note("Normal", "ExternalProvisioning", message))


@dataclass(frozen=True)
class SetPhase:
    """Say what the volume is."""

    phase: str


@dataclass(frozen=True)
class WakeClaim:
    """The claim does not know of its volume yet: its own turn settles that."""


@dataclass(frozen=True)
class Mismatch:
    """Volume and claim name each other but can never be bound."""

    on_volume: Note
    on_claim: Note


@dataclass(frozen=True)
class Unbind:
    """Take a binding back that another won; a user's own reservation stays, without its uid."""


@dataclass(frozen=True)
class Reclaim:
    """The claim is gone: the volume is Released, and its policy says what becomes of it."""

    failed: Note | None = None


VolumeStep = SetPhase | WakeClaim | Mismatch | Unbind | Reclaim


def volume_step(volume: PersistentVolume, claim: PersistentVolumeClaim | None) -> VolumeStep:
    """The next step for a volume; `claim` is the one it names, surely None when that is gone."""
    ref = volume.spec.claim_ref
    if ref is None or not ref.uid:
        return SetPhase("Available")
    name = volume.metadata.name
    if claim is None or claim.metadata.uid != ref.uid:
        return reclaim(volume)
    if not claim.spec.volume_name:
        if claim.spec.volume_mode == volume.spec.volume_mode:
            return WakeClaim()
        what = "due to incompatible volumeMode."
        on_volume = (
            "Cannot bind PersistentVolume to requested PersistentVolumeClaim "
            f'"{claim.metadata.name}" {what}'
        )
        on_claim = (
            f'Cannot bind PersistentVolume "{name}" to requested PersistentVolumeClaim {what}'
        )
        return Mismatch(
            Note("Warning", "VolumeMismatch", on_volume),
            Note("Warning", "VolumeMismatch", on_claim),
        )
    if claim.spec.volume_name == name:
        return SetPhase("Bound")
    was_made = storage.PROVISIONED_BY in volume.metadata.annotations
    if was_made and volume.spec.persistent_volume_reclaim_policy == "Delete":
        return reclaim(volume)  # made for this claim, which found another
    return Unbind()


def reclaim(volume: PersistentVolume) -> Reclaim:
    """What its policy makes of a released volume.

    Whoever provisioned a volume deletes it; one that nobody did, and one that was to be emptied
    for the next claim (a policy Kubernetes has given up), is for people to look at.
    """
    policy = volume.spec.persistent_volume_reclaim_policy
    if policy == "Recycle":
        message = "No recycler plugin found for the volume!"
        return Reclaim(Note("Warning", "VolumeFailedRecycle", message))
    is_driven = volume.spec.csi is not None or storage.PROVISIONED_BY in volume.metadata.annotations
    if policy == "Delete" and not is_driven:
        name = volume.metadata.name
        message = f'error getting deleter volume plugin for volume "{name}": '
        return Reclaim(Note("Warning", "VolumeFailedDelete", message + "no volume plugin matched"))
    return Reclaim()
