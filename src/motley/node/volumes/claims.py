"""What a pod's claims are on this node: claim → volume → directory.

Asked for when the pod starts, by single reads: a node may read the claims of its own pods and the
volumes those are bound to, and no others. Whether claim and volume belong together is checked
here again, because a directory given to the wrong pod is somebody else's data.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from motley.api import nodeselector, status, storage
from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.api.views.storage import PersistentVolume, PersistentVolumeClaim
from motley.api.views.volume import HostPathVolumeSource, Volume
from motley.client.rest import Client


class ClaimError(Exception):
    """A claim cannot be mounted, or not yet; retried."""


@dataclass(frozen=True)
class Claimed:
    """The directory a claim has on this node."""

    source: HostPathVolumeSource
    is_own: bool  # made for this one claim: open to all users, and given to the pod's group


async def resolve(client: Client, pod: Pod, node: str) -> dict[str, Claimed]:
    """The directories of a pod's claims, by volume name. Raises ClaimError, ApiError."""
    found = {}
    names = storage.claims_of(pod)
    for volume in pod.spec.volumes:
        if volume.name not in names:
            continue
        try:
            found[volume.name] = await _resolve(client, pod, volume, names[volume.name], node)
        except ClaimError as error:
            raise ClaimError(f'volume "{volume.name}": {error}') from None
    return found


async def _resolve(client: Client, pod: Pod, used: Volume, name: str, node: str) -> Claimed:
    try:
        claim = await client.get(PersistentVolumeClaim, name, pod.metadata.namespace)
    except status.NotFound:
        raise ClaimError(f'persistentvolumeclaim "{name}" not found') from None
    if why := storage.foreign(pod, used, claim):
        raise ClaimError(why)
    if claim.metadata.deletion_timestamp is not None:
        raise ClaimError(f'persistentvolumeclaim "{name}" is being deleted')
    if claim.status.phase != "Bound" or not claim.spec.volume_name:
        raise ClaimError(f'persistentvolumeclaim "{name}" is not bound')
    try:
        volume = await client.get(PersistentVolume, claim.spec.volume_name)
    except status.NotFound:
        raise ClaimError(f'persistentvolume "{claim.spec.volume_name}" not found') from None
    ref = volume.spec.claim_ref
    if ref is None or ref.uid != claim.metadata.uid:
        other = volume.metadata.name
        raise ClaimError(f'persistentvolume "{other}" is not bound to claim "{name}"')
    affinity = volume.spec.node_affinity
    if affinity is not None and affinity.required is not None:
        here = await client.get(Node, node)
        if not nodeselector.matches_any(affinity.required.node_selector_terms, here):
            raise ClaimError(
                "MountVolume.NodeAffinity check failed: the volume is not on this node"
            )
    return directory(volume)


def directory(volume: PersistentVolume) -> Claimed:
    """Where a volume is. Raises ClaimError."""
    spec, annotations = volume.spec, volume.metadata.annotations
    if spec.volume_mode != "Filesystem":
        raise ClaimError(f"volume mode {spec.volume_mode} is not supported by this node")
    if spec.host_path is not None:
        is_ours = annotations.get(storage.PROVISIONED_BY) == storage.LOCAL_PATH
        return Claimed(spec.host_path, is_own=is_ours)
    if spec.local is not None:
        return Claimed(HostPathVolumeSource(path=spec.local.path, type="Directory"), is_own=True)
    name = volume.metadata.name
    raise ClaimError(f'persistentvolume "{name}" is of a kind this node does not support')


NONE: Mapping[str, Claimed] = {}
