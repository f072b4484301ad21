"""Adoption and release: who owns the objects a selector matches.

An object that matches and has no controller is adopted; one that we control and no longer matches
is released; one that another controls is left alone, whatever its labels say.
Invariant: an object never has two controllers (every change of ownerReferences is conditional on
the version it was decided on).
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from motley.api import status
from motley.api.selectors import Selector
from motley.api.views.base import Object
from motley.client.rest import Client
from motley.controllers.workload import (
    controller_reference,
    is_controlled_by,
    reference_documents,
)
from motley.lib import journal

log = journal.get(__name__)

T = TypeVar("T", bound=Object)


@dataclass(frozen=True)
class Claims(Generic[T]):
    """What to do with each candidate."""

    keep: list[T]
    adopt: list[T]
    release: list[T]


def plan(owner: Object, selector: Selector, candidates: Iterable[T]) -> Claims[T]:
    """Sort the candidates; pure."""
    claims: Claims[T] = Claims([], [], [])
    for obj in candidates:
        matches = selector.matches(obj.metadata.labels)
        if is_controlled_by(obj, owner):
            (claims.keep if matches else claims.release).append(obj)
        elif obj.metadata.controller() is None and matches and _adoptable(owner, obj):
            claims.adopt.append(obj)
    return claims


def _adoptable(owner: Object, obj: Object) -> bool:
    return not owner.metadata.deletion_timestamp and not obj.metadata.deletion_timestamp


async def perform(
    client: Client,
    owner: Object,
    claims: Claims[T],
    *,
    may_adopt: Callable[[], Awaitable[bool]],
) -> list[T]:
    """Carry out the plan and return what is owned now."""
    owned = list(claims.keep)
    for obj in claims.release:
        if obj.metadata.deletion_timestamp is None:
            await _release(client, owner, obj)
    # The cache may show an owner that is already gone; adopting for it would orphan the object
    # into the garbage collector's hands.
    if claims.adopt and await may_adopt():
        for obj in claims.adopt:
            adopted = await _adopt(client, owner, obj)
            if adopted is not None:
                owned.append(adopted)
    return owned


async def is_alive(client: Client, owner: Object) -> bool:
    """Is the owner, asked live, the same object and not being deleted?"""
    try:
        live = await client.get(type(owner), owner.metadata.name, owner.metadata.namespace)
    except status.NotFound:
        return False
    return live.metadata.uid == owner.metadata.uid and not live.metadata.deletion_timestamp


async def _adopt(client: Client, owner: Object, obj: T) -> T | None:
    references = reference_documents(obj.metadata.owner_references)
    return await _write_references(client, obj, [*references, controller_reference(owner)])


async def _release(client: Client, owner: Object, obj: Object) -> None:
    kept = [r for r in obj.metadata.owner_references if r.uid != owner.metadata.uid]
    await _write_references(client, obj, reference_documents(kept))
    log.info("released", owner=owner.key, object=obj.key)


async def _write_references(
    client: Client, obj: T, references: list[dict[str, object]]
) -> T | None:
    meta = obj.metadata
    body = {
        "metadata": {
            "uid": meta.uid,
            "resourceVersion": meta.resource_version,
            "ownerReferences": references or None,
        }
    }
    try:
        return await client.patch(type(obj), meta.name, meta.namespace, body)
    except status.NotFound:
        return None
