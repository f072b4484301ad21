"""What garbage collection does with one object, given what became of its owners. Pure.

owner present                      → solid: a reason to live
owner gone (asked live)            → dangling: no reason
owner waits for its dependents     → waiting: no reason, and it should go before its owner
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from motley.api.views.base import Object, OwnerReference

FOREGROUND = "foregroundDeletion"
ORPHAN = "orphan"


class Fate(Enum):
    """What became of an owner."""

    SOLID = "solid"
    DANGLING = "dangling"
    WAITING = "waiting"


class Verdict(Enum):
    """What to do with the object."""

    KEEP = "keep"
    UNLINK = "unlink"  # drop the references that no longer count
    DELETE = "delete"


@dataclass(frozen=True)
class Decision:
    """The verdict, with the owners to unlink or the way to delete."""

    verdict: Verdict
    unlink: tuple[str, ...] = ()
    propagation: str = "Background"


class Owner(NamedTuple):
    """A reference and what became of it."""

    reference: OwnerReference
    fate: Fate


def is_deleting_dependents(obj: Object) -> bool:
    """Is the object in foreground deletion: first its dependents, then itself?"""
    return obj.metadata.deletion_timestamp is not None and FOREGROUND in obj.metadata.finalizers


def is_orphaning(obj: Object) -> bool:
    """Is the object being deleted with its dependents to be kept?"""
    return obj.metadata.deletion_timestamp is not None and ORPHAN in obj.metadata.finalizers


def judge(obj: Object, owners: Sequence[Owner], *, has_dependents: bool) -> Decision:
    """Keep, unlink or delete an object that has owners."""
    if not owners:
        return Decision(Verdict.KEEP)
    useless = tuple(o.reference.uid for o in owners if o.fate is not Fate.SOLID)
    if any(o.fate is Fate.SOLID for o in owners):
        return Decision(Verdict.UNLINK, useless) if useless else Decision(Verdict.KEEP)
    if any(o.fate is Fate.WAITING for o in owners) and has_dependents:
        return Decision(Verdict.DELETE, propagation="Foreground")
    if ORPHAN in obj.metadata.finalizers:
        return Decision(Verdict.DELETE, propagation="Orphan")
    if FOREGROUND in obj.metadata.finalizers:
        return Decision(Verdict.DELETE, propagation="Foreground")
    return Decision(Verdict.DELETE)


def is_in_circle(owners: Sequence[Owner], dependents: Sequence[Object]) -> bool:
    """Does the object stand between an owner and a dependent that both wait for it to go?

    May be said of an object in no circle; then its owner goes a little before it.
    """
    waits = any(o.fate is Fate.WAITING for o in owners)
    solid = any(o.fate is Fate.SOLID for o in owners)
    return waits and not solid and any(is_deleting_dependents(d) for d in dependents)


def unblocked(old: Object, new: Object) -> set[str]:
    """Uids of the owners that this object held up before and does not any more."""
    before = {r.uid for r in old.metadata.owner_references if r.block_owner_deletion}
    after = {r.uid for r in new.metadata.owner_references if r.block_owner_deletion}
    return before - after


def is_blocking(dependent: Object, owner: Object) -> bool:
    """Must this dependent be gone before its owner may go?"""
    return any(
        r.uid == owner.metadata.uid and r.block_owner_deletion
        for r in dependent.metadata.owner_references
    )


def without(references: Sequence[OwnerReference], uids: Sequence[str]) -> list[OwnerReference]:
    """The references that remain."""
    return [r for r in references if r.uid not in uids]
