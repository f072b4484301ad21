"""How many volumes of each driver are attached to each node, and how many may be.

A volume counts once for a node, however many pods there use it through however many claims. Which
volume a claim means changes while pods use it (it is bound, its class appears), so counts go by
claim, and move when the claim comes to mean something else.

Invariant: after any sequence of events the counts equal those made from the final pods, claims,
attachments and nodes at once.
"""

from collections import Counter
from collections.abc import Callable, Iterable

import numpy as np
import numpy.typing as npt

from motley.api import intree
from motley.api.intree import VolumeHandle
from motley.api.views.base import Key
from motley.api.views.storage import CSINode
from motley.scheduler.columns import Columns, Mask
from motley.scheduler.disks import add
from motley.scheduler.podinfo import PodInfo
from motley.scheduler.sparse import SparseColumn

Counts = npt.NDArray[np.int32]
_Columns = dict[str, SparseColumn[np.int32]]  # by driver


def claims_of(info: PodInfo) -> list[Key]:
    """The claims of a pod, those made for its ephemeral volumes included."""
    names = (
        v.persistent_volume_claim.claim_name
        if v.persistent_volume_claim is not None
        else f"{info.key.name}-{v.name}"
        for v in info.volumes
        if v.persistent_volume_claim is not None or v.ephemeral is not None
    )
    return [Key(info.key.namespace, name) for name in names]


def inline_handles(info: PodInfo) -> list[VolumeHandle]:
    """The disks a pod names without a claim, as their drivers know them."""
    found = (intree.handle_of(v, {}) for v in info.volumes if intree.plugin_of(v))
    return [handle for handle in found if handle is not None]


class Attached:
    """The book. `meaning`: the volume a claim means, None if no driver attaches it."""

    def __init__(self, nodes: Columns, meaning: Callable[[Key], VolumeHandle | None]) -> None:
        self._nodes = nodes
        self._meaning = meaning
        self._meant: dict[Key, VolumeHandle | None] = {}  # of claims in use
        self._claim_rows: dict[Key, Counter[int]] = {}
        self._uses: dict[VolumeHandle, SparseColumn[np.int32]] = {}
        self._volumes: _Columns = {}  # distinct volumes that pods use
        self._lingering: _Columns = {}  # attached without a pod that uses them
        self._attachments: dict[str, Counter[VolumeHandle]] = {}  # by node
        self._csi_nodes: dict[str, CSINode] = {}
        self._limits: _Columns = {}  # plus one: 0 is no limit
        self._installed: _Columns = {}
        self._migrated: _Columns = {}  # by built-in plugin
        nodes.follow(self)

    # -- what plugins ask -------------------------------------------------------------------

    def over_limit(self, handles: Iterable[VolumeHandle]) -> Mask:
        """True where these volumes would be more than the node can have."""
        wanted: dict[str, set[VolumeHandle]] = {}
        for handle in handles:
            wanted.setdefault(handle.driver, set()).add(handle)
        mask = np.zeros(self._nodes.size, np.bool_)
        for driver, volumes in wanted.items():
            limit = self._column(self._limits, driver)
            if limit is None:
                continue
            new = np.full(self._nodes.size, len(volumes), np.int32)
            for handle in volumes:
                column = self._uses.get(handle)
                if column is not None:
                    new[column.rows()] -= 1
            total = new.copy()
            # As Kubernetes counts: an attachment that no pod uses any more counts even if it is
            # of a volume that the pod wants.
            for known in (self._volumes, self._lingering):
                count = self._column(known, driver)
                if count is not None:
                    total += count
            mask |= (limit > 0) & (new > 0) & (total > limit - 1)
        return mask

    def has_driver(self, driver: str) -> Mask:
        """Where the driver is installed."""
        return self._where(self._installed, driver)

    def is_migrated(self, plugin: str) -> Mask:
        """Where a driver does the work of a built-in plugin."""
        return self._where(self._migrated, plugin)

    def _where(self, columns: _Columns, name: str) -> Mask:
        column = self._column(columns, name)
        return np.zeros(self._nodes.size, np.bool_) if column is None else column > 0

    def _column(self, columns: _Columns, name: str) -> Counts | None:
        column = columns.get(name)
        return None if column is None else column.dense(self._nodes.size)

    # -- pods -------------------------------------------------------------------------------

    def counted(self, info: PodInfo, row: int, sign: int) -> None:
        """See `columns.Follower`."""
        for key in claims_of(info):
            rows = self._claim_rows.get(key)
            if rows is None:
                rows = self._claim_rows[key] = Counter()
                self._meant[key] = self._meaning(key)
            rows[row] += sign
            handle = self._meant[key]
            if handle is not None:
                self._use(handle, row, sign)
            if not rows[row]:
                del rows[row]
            if not rows:
                del self._claim_rows[key], self._meant[key]
        for handle in inline_handles(info):
            self._use(handle, row, sign)

    def claim_changed(self, key: Key) -> None:
        """The claim may mean another volume now."""
        rows = self._claim_rows.get(key)
        if rows is None:
            return
        before, after = self._meant[key], self._meaning(key)
        if before == after:
            return
        self._meant[key] = after
        for row, count in rows.items():
            if before is not None:
                self._use(before, row, -count)
            if after is not None:
                self._use(after, row, count)

    def all_changed(self) -> None:
        """Any claim in use may mean another volume now: a class came or went."""
        for key in list(self._claim_rows):
            self.claim_changed(key)

    def _use(self, handle: VolumeHandle, row: int, amount: int) -> None:
        column = self._uses.setdefault(handle, SparseColumn(np.int32))
        was = bool(column.values.get(row))
        now = bool(add(column, row, amount))
        if not column:
            del self._uses[handle]
        if was != now:
            _bump(self._volumes, handle.driver, row, 1 if now else -1)
            if handle in self._attachments.get(self._nodes.names[row], ()):
                _bump(self._lingering, handle.driver, row, -1 if now else 1)

    # -- attachments, and what nodes can have -----------------------------------------------

    def attach(self, node: str, handle: VolumeHandle, sign: int) -> None:
        """A volume is attached to a node (+1), or no longer (-1)."""
        there = self._attachments.setdefault(node, Counter())
        was = handle in there
        there[handle] += sign
        if not there[handle]:
            del there[handle]
        row = self._nodes.rows.get(node)
        used = self._uses.get(handle)
        if was != (handle in there) and row is not None and not (used and row in used.values):
            _bump(self._lingering, handle.driver, row, sign)
        if not there:
            del self._attachments[node]

    def set_csi_node(self, name: str, new: CSINode | None) -> None:
        """A node's drivers are known, or known otherwise."""
        row = self._nodes.rows.get(name)
        if row is not None:
            self._write(row, self._csi_nodes.get(name), present=False)
        if new is None:
            self._csi_nodes.pop(name, None)
            return
        self._csi_nodes[name] = new
        if row is not None:
            self._write(row, new, present=True)

    def seated(self, node: str, row: int) -> None:
        """See `columns.Follower`."""
        self._write(row, self._csi_nodes.get(node), present=True)
        for handle in self._attachments.get(node, ()):
            _bump(self._lingering, handle.driver, row, 1)

    def vacated(self, node: str, row: int) -> None:
        """See `columns.Follower`."""
        self._write(row, self._csi_nodes.get(node), present=False)
        for handle in self._attachments.get(node, ()):
            _bump(self._lingering, handle.driver, row, -1)

    def _write(self, row: int, known: CSINode | None, *, present: bool) -> None:
        """Write what is known of a node into its row, or take it out again."""
        if known is None:
            return
        for driver in known.spec.drivers:
            limit = driver.allocatable.count
            self._set(self._installed, driver.name, row, 1 if present else None)
            if limit is not None:
                self._set(self._limits, driver.name, row, limit + 1 if present else None)
        for plugin in known.metadata.annotations.get(intree.MIGRATED, "").split(","):
            self._set(self._migrated, plugin, row, 1 if present else None)

    @staticmethod
    def _set(columns: _Columns, name: str, row: int, value: int | None) -> None:
        column = columns.setdefault(name, SparseColumn(np.int32))
        if value is None:
            column.clear(row)
            if not column:
                del columns[name]
        else:
            column.set(row, value)


def _bump(columns: _Columns, driver: str, row: int, amount: int) -> None:
    column = columns.setdefault(driver, SparseColumn(np.int32))
    add(column, row, amount)
    if not column:
        del columns[driver]
