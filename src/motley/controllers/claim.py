"""Adoption and release: who owns the objects a selector matches.

An object that matches and has no controller is adopted; one that we control and no longer matches
is released; one that another controls is left alone, whatever its labels say.
Invariant: an object never has two controllers (every change of ownerReferences is conditional on
the version it was decided on).
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

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


def plan(
    owner: Object,
    selector: Selector,
    candidates: Iterable[T],
    belongs: Callable[[T], bool] = lambda _: True,
) -> Claims[T]:
    """Sort the candidates; pure. `belongs` says more about membership than labels do."""
    claims: Claims[T] = Claims([], [], [])
    for obj in candidates:
        matches = selector.matches(obj.metadata.labels) and belongs(obj)
        if is_controlled_by(obj, owner):
            (claims.keep if matches else claims.release).append(obj)
        elif obj.metadata.controller() is None and matches and _adoptable(owner, obj):
            claims.adopt.append(obj)
    return claims


def _adoptable(owner: Object, obj: Object) -> bool:
    return not owner.metadata.deletion_timestamp and not obj.metadata.deletion_timestamp


def orphan_namespace(obj: Object) -> tuple[str, ...]:
    """Index: find objects that nobody controls, by their namespace."""
    return () if obj.metadata.controller() else (obj.metadata.namespace,)


async def perform(
    client: Client,
    owner: Object,
    claims: Claims[T],
    *,
    may_adopt: Callable[[], Awaitable[bool]],
    finalizer: str = "",
) -> list[T]:
    """Carry out the plan and return what is owned now; what is adopted gets the finalizer, what
    is released loses it."""
    owned = list(claims.keep)
    for obj in claims.release:
        if obj.metadata.deletion_timestamp is None:
            await _release(client, owner, obj, finalizer)
    # The cache may show an owner that is already gone; adopting for it would orphan the object
    # into the garbage collector's hands.
    if claims.adopt and await may_adopt():
        for obj in claims.adopt:
            adopted = await _adopt(client, owner, obj, finalizer)
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


async def _adopt(client: Client, owner: Object, obj: T, finalizer: str) -> T | None:
    references = reference_documents(obj.metadata.owner_references)
    finalizers = [f for f in obj.metadata.finalizers if f != finalizer]
    return await _write_references(
        client,
        obj,
        [*references, controller_reference(owner)],
        [*finalizers, finalizer] if finalizer else finalizers,
    )


async def _release(client: Client, owner: Object, obj: Object, finalizer: str) -> None:
    kept = [r for r in obj.metadata.owner_references if r.uid != owner.metadata.uid]
    finalizers = [f for f in obj.metadata.finalizers if f != finalizer]
    await _write_references(client, obj, reference_documents(kept), finalizers)
    log.info("released", owner=owner.key, object=obj.key)


async def _write_references(
    client: Client, obj: T, references: list[dict[str, object]], finalizers: list[str]
) -> T | None:
    meta = obj.metadata
    change: dict[str, Any] = {
        "uid": meta.uid,
        "resourceVersion": meta.resource_version,
        "ownerReferences": references or None,
    }
    if finalizers != meta.finalizers:
        change["finalizers"] = finalizers or None
    body = {"metadata": change}
    try:
        return await client.patch(type(obj), meta.name, meta.namespace, body)
    except status.NotFound:
        return None
