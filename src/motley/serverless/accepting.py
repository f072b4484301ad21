"""Accepting a call for good: an Invocation is written before anybody is given its id.

A key that the caller gives makes repeating safe: the same key again names the same Invocation.
"""

import asyncio
import hashlib
from random import Random
from typing import Any

import msgspec

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.serverless import Function, Invocation
from motley.client.informer import Change, Informer
from motley.client.rest import Client
from motley.serverless import objects, records

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


class Acceptance:
    """Makes Invocations and waits for their end."""

    def __init__(self, client: Client, invocations: Informer[Invocation], rng: Random) -> None:
        self._client = client
        self._invocations = invocations
        self._rng = rng
        self._waits: dict[Key, list[asyncio.Future[Invocation]]] = {}

    def attach(self) -> None:
        """Hear of invocations that end."""
        self._invocations.add_handler(self._changed)

    def _changed(self, change: Change[Invocation]) -> None:
        waits = self._waits.get(change.key)
        if waits and change.new is not None and change.new.is_finished:
            for future in waits:
                if not future.done():
                    future.set_result(change.new)

    def new_name(self, base: str) -> str:
        """A name that nobody can guess: whoever has it may be asked for their rights still."""
        return f"{base[:40].rstrip('-.')}-{''.join(self._rng.choices(_ALPHABET, k=12))}"

    async def accept(
        self,
        namespace: str,
        base: str,
        spec: dict[str, Any],
        *,
        labels: dict[str, str] | None = None,
        running: dict[str, Any] | None = None,
        name: str = "",
    ) -> Invocation:
        """Written when this returns. `running`: the record of a step that is under way already.

        Raises ApiError; for a key that was used before the Invocation of then comes back.
        """
        key = spec.get("idempotencyKey")
        if key:
            name = f"{base[:40].rstrip('-.')}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        meta: dict[str, Any] = {"name": name or self.new_name(base), "namespace": namespace}
        if labels:
            meta["labels"] = labels
        body: dict[str, Any] = {"metadata": meta, "spec": spec}
        if running is not None:
            # A new object has no status, and writing one afterwards would be too late: the
            # executor may have seen the object by then, and begun the call a second time.
            meta["annotations"] = {records.RUNNING_STEP: msgspec.json.encode(running).decode()}
        try:
            return await self._client.create(Invocation, body)
        except status.AlreadyExists:
            if not key:
                raise
            return await self._client.get(Invocation, meta["name"], namespace)

    async def ended(self, key: Key, timeout_s: float) -> Invocation | None:
        """The invocation at its end; None: it is not there yet."""
        future: asyncio.Future[Invocation] = asyncio.get_running_loop().create_future()
        self._waits.setdefault(key, []).append(future)
        try:
            known = self._invocations.get(key)
            if known is not None and known.is_finished:
                return known
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError:
            return None
        finally:
            waits = self._waits[key]
            waits.remove(future)
            if not waits:
                del self._waits[key]

    async def read(self, key: Key) -> Invocation:
        """As it is in the store. Raises NotFound."""
        return await self._client.get(Invocation, key.name, key.namespace)

    async def cancel(self, key: Key) -> Invocation:
        """Ask for its end; whoever drives it does the rest."""
        return await self._client.patch(
            Invocation, key.name, key.namespace, {"spec": {"cancel": True}}
        )


def labels(function: Function) -> dict[str, str]:
    """By which the invocations of a function are found."""
    return {objects.FUNCTION: objects.label(function.metadata.name)}
