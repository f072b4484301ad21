"""VolumeRestrictions: what one pod has mounted, another cannot always have too.

A disk of a cloud or storage network is for one pod of a node, or for several that only read it. A
claim that one pod may use (ReadWriteOncePod) is that pod's in the whole cluster.
"""

import numpy as np

from motley.scheduler import contract, events
from motley.scheduler.contract import SKIP, Columns, Mask, PodInfo, Reject, Verdict
from motley.scheduler.disks import mounts, named_claims
from motley.scheduler.feed import Feed
from motley.scheduler.volumes import Volumes

_ONE_POD = "ReadWriteOncePod"
_IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already "
    "in-use by another pod"
)


class VolumeRestrictions:
    """Keep nodes where no pod has the pod's disks, and none anywhere its exclusive claims."""

    name = "VolumeRestrictions"
    reason = "node(s) had no available disk"
    wakes_on = (events.NodeAdded, events.PodDeleted, events.ClaimChanged)
    Args = contract.NoArgs

    def __init__(self, args: contract.NoArgs, handle: contract.Handle) -> None:
        self._book: Volumes = handle.volumes
        self._disks = handle.volumes.disks(handle.nodes)

    def follow(self, feed: Feed) -> None:
        """Claims, whose access modes count."""
        self._book.follow(feed)

    def pre_filter(self, pod: PodInfo, nodes: Columns) -> Reject | Verdict | None:
        """Nothing to check without disks and without exclusive claims that somebody has."""
        if not pod.volumes:
            return SKIP
        in_use = False
        for key in named_claims(pod):
            claim = self._book.claims.get(key)
            if claim is None:
                return Reject(f'persistentvolumeclaim "{key.name}" not found')
            if _ONE_POD in claim.spec.access_modes:
                in_use |= self._disks.is_used(key)
        if not in_use and next(mounts(pod.volumes), None) is None:
            return SKIP
        pod.state[self.name] = in_use
        return None

    def filter(self, pod: PodInfo, nodes: Columns) -> Mask:
        """True where the pod can have what it mounts."""
        if pod.state[self.name]:
            return np.zeros(nodes.size, np.bool_)
        return ~self._disks.conflicts(pod.volumes)

    def explain(self, pod: PodInfo, nodes: Columns, rejected: Mask) -> dict[str, int]:
        """Disks first."""
        held = int(np.count_nonzero(rejected & self._disks.conflicts(pod.volumes)))
        counts = {self.reason: held, _IN_USE: int(np.count_nonzero(rejected)) - held}
        return {reason: count for reason, count in counts.items() if count}

    def may_help(self, pod: PodInfo, event: events.ClusterEvent) -> bool:
        """A pod that had none of these disks and claims frees none of them."""
        match event:
            case events.PodDeleted(other, _):
                mine = {mount.disk for mount in mounts(pod.volumes)}
                return any(mount.disk in mine for mount in mounts(other.volumes)) or not set(
                    named_claims(pod)
                ).isdisjoint(named_claims(other))
            case events.ClaimChanged(claim, old):
                return old is None and claim.key in named_claims(pod)
            case _:
                return True


_: contract.Made[contract.FilterPlugin] = VolumeRestrictions
