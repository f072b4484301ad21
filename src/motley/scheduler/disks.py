"""Which disks and claims are in use where, for those that few may use at a time.

A disk that was not made for sharing can be mounted by one pod of a node, or by several that only
read it. A claim with the access mode ReadWriteOncePod is one pod's in the whole cluster.
Invariant: what is counted is exactly what the pods counted in the columns mount.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from motley.api.views.base import Key
from motley.api.views.volume import Volume
from motley.scheduler.columns import Columns, Mask
from motley.scheduler.podinfo import PodInfo
from motley.scheduler.sparse import SparseColumn


class Disk(NamedTuple):
    """What tells one disk from another."""

    kind: str
    name: tuple[str, ...]


class Mount(NamedTuple):
    """A disk as a pod wants it."""

    disk: Disk
    shared: bool  # others may have it too, if they say the same


def mounts(volumes: Iterable[Volume]) -> Iterator[Mount]:
    """The disks among a pod's volumes; an image that several monitors serve is there once each."""
    for volume in volumes:
        if (gce := volume.gce_persistent_disk) is not None:
            yield Mount(Disk("gce", (gce.get("pdName", ""),)), bool(gce.get("readOnly")))
        if (aws := volume.aws_elastic_block_store) is not None:
            yield Mount(Disk("aws", (aws.get("volumeID", ""),)), shared=False)
        if (iscsi := volume.iscsi) is not None:
            yield Mount(Disk("iscsi", (iscsi.get("iqn", ""),)), bool(iscsi.get("readOnly")))
        if (rbd := volume.rbd) is not None:
            image = (rbd.get("pool", "rbd"), rbd.get("image", ""))
            for monitor in dict.fromkeys(rbd.get("monitors") or ()):
                yield Mount(Disk("rbd", (monitor, *image)), bool(rbd.get("readOnly")))


def named_claims(info: PodInfo) -> list[Key]:
    """The claims a pod names; not those that are made for its ephemeral volumes."""
    return [
        Key(info.key.namespace, v.persistent_volume_claim.claim_name)
        for v in info.volumes
        if v.persistent_volume_claim is not None
    ]


class Disks:
    """The book. Told by the columns of pods that come and go."""

    def __init__(self, nodes: Columns) -> None:
        self._nodes = nodes
        self._used: dict[Mount, SparseColumn[np.int32]] = {}
        self._claims: Counter[Key] = Counter()
        nodes.follow(self)

    def conflicts(self, volumes: Iterable[Volume]) -> Mask:
        """True where some pod has one of these disks in a way that allows no other."""
        mask = np.zeros(self._nodes.size, np.bool_)
        for mount in mounts(volumes):
            held = [mount._replace(shared=False)]
            if not mount.shared:
                held.append(mount._replace(shared=True))
            for other in held:
                column = self._used.get(other)
                if column is not None:
                    mask[column.rows()] = True
        return mask

    def is_used(self, claim: Key) -> bool:
        """Does a pod on any node name the claim?"""
        return claim in self._claims

    def counted(self, info: PodInfo, row: int, sign: int) -> None:
        """See `columns.Follower`."""
        for key in named_claims(info):
            self._claims[key] += sign
            if not self._claims[key]:
                del self._claims[key]
        for mount in mounts(info.volumes):
            column = self._used.setdefault(mount, SparseColumn(np.int32))
            add(column, row, sign)
            if not column:
                del self._used[mount]

    def seated(self, node: str, row: int) -> None:
        """See `columns.Follower`."""

    def vacated(self, node: str, row: int) -> None:
        """See `columns.Follower`."""


def add(column: SparseColumn[np.int32], row: int, amount: int) -> int:
    """Change a count; the new one."""
    left = int(column.values.get(row, 0)) + amount
    if left:
        column.set(row, left)
    else:
        column.clear(row)
    return left
