"""NodeVolumeLimits: a machine takes only so many volumes of a driver.

Drivers say in CSINode objects how many. What counts is distinct volumes: those of the pods on the
node, those attached to it whose pods are gone, and those that will be made for claims that wait.
"""

from dataclasses import dataclass

import numpy as np

from motley.api.intree import VolumeHandle
from motley.api.views.base import Key
from motley.api.views.storage import CSINode
from motley.scheduler import attached, contract, events
from motley.scheduler.contract import SKIP, Columns, Mask, PodInfo, Verdict
from motley.scheduler.feed import Feed
from motley.scheduler.volumes import Volumes


@dataclass(frozen=True, slots=True)
class _State:
    wanted: frozenset[VolumeHandle]
    required: tuple[str, ...]  # drivers that must be there
    missing: str = ""  # why no node will do


class NodeVolumeLimits:
    """Keep nodes that can have the pod's volumes attached as well."""

    name = "NodeVolumeLimits"
    reason = "node(s) exceed max volume count"
    wakes_on = (
        events.NodeAdded,
        events.PodDeleted,
        events.ClaimChanged,
        events.CSINodeChanged,
        events.CSIDriverChanged,
        events.VolumeDetached,
    )
    scope = "node"
    Args = contract.NoArgs

    def __init__(self, args: contract.NoArgs, handle: contract.Handle) -> None:
        self._book: Volumes = handle.volumes
        self._attached = handle.volumes.attached(handle.nodes)

    def follow(self, feed: Feed) -> None:
        """Claims and volumes, what nodes can have, and what they have."""
        self._book.follow(feed)
        self._book.follow_nodes(feed)
        self._book.follow_drivers(feed)
        self._book.follow_attachments(feed)

    def pre_filter(self, pod: PodInfo, nodes: Columns) -> Verdict | None:
        """Nothing to check for pods without claims and disks."""
        if not pod.volumes:
            return SKIP
        claims = attached.claims_of(pod)
        inline = attached.inline_handles(pod)
        if not claims and not inline:
            return SKIP
        pod.state[self.name] = self._look(claims, inline)
        return None

    def _look(self, claims: list[Key], inline: list[VolumeHandle]) -> _State:
        wanted = set(inline)
        for key in claims:
            if key not in self._book.claims:
                what = f'looking up PVC {key}: persistentvolumeclaim "{key.name}" not found'
                return _State(frozenset(), (), what)
            handle = self._book.meaning(key)
            if handle is not None:
                wanted.add(handle)
        drivers = sorted({handle.driver for handle in wanted})
        required = tuple(driver for driver in drivers if self._must_be_there(driver))
        return _State(frozenset(wanted), required)

    def _must_be_there(self, driver: str) -> bool:
        known = self._book.drivers.get(Key("", driver))
        return known is not None and known.spec.prevent_pod_scheduling_if_missing

    def filter(self, pod: PodInfo, nodes: Columns) -> Mask:
        """True where the volumes can be attached."""
        state: _State = pod.state[self.name]
        if state.missing:
            return np.zeros(nodes.size, np.bool_)
        mask = ~self._attached.over_limit(state.wanted)
        for driver in state.required:
            mask &= self._attached.has_driver(driver)
        return mask

    def hopeless(self, pod: PodInfo, nodes: Columns, rejected: Mask) -> Mask:
        """Everywhere, while a claim is missing."""
        state: _State = pod.state[self.name]
        return rejected if state.missing else np.zeros(nodes.size, np.bool_)

    def explain(self, pod: PodInfo, nodes: Columns, rejected: Mask) -> dict[str, int]:
        """A missing claim, a missing driver, or too many volumes."""
        state: _State = pod.state[self.name]
        left = rejected.copy()
        counts: dict[str, int] = {}
        for driver in state.required:
            without = left & ~self._attached.has_driver(driver)
            counts[f"{driver} CSI driver is not installed on the node"] = int(without.sum())
            left &= ~without
        counts[state.missing or self.reason] = int(left.sum())
        return {reason: count for reason, count in counts.items() if count}

    def may_help(self, pod: PodInfo, event: events.ClusterEvent) -> bool:
        """A volume less, a higher limit, a claim of its own."""
        match event:
            case events.PodDeleted(other, _):
                return bool(attached.claims_of(other) or attached.inline_handles(other))
            case events.ClaimChanged(claim, old):
                return old is None and claim.key in attached.claims_of(pod)
            case events.CSINodeChanged(new, CSINode() as old):
                return _allows_more(new, old)
            case events.VolumeDetached(attachment):
                drivers = {handle.driver for handle in attached.inline_handles(pod)}
                return bool(attached.claims_of(pod)) or attachment.spec.attacher in drivers
            case _:
                return True


def _allows_more(new: CSINode, old: CSINode) -> bool:
    before = {driver.name: driver.allocatable.count or 0 for driver in old.spec.drivers}
    return any(
        driver.name not in before or (driver.allocatable.count or 0) > before[driver.name]
        for driver in new.spec.drivers
    )


_: contract.Made[contract.FilterPlugin] = NodeVolumeLimits
