"""Custom objects in another version than they are kept in, translated by their CRD's webhook.

Answers are made from stored bytes by functions that cannot wait. So whoever is about to show
objects lets them be translated first (`prime`): one ConversionReview for all that are not known
yet. Who wants one that somebody else has just asked for waits for that answer, so that a change
is one question, however many watch it. What came back is remembered with the definition it is for,
and goes with it when the CRD changes.

Invariant: a webhook changes an object's content, its labels and its annotations; who the object is,
and who owns its fields, stays as it was.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from random import Random
from typing import Any
from weakref import WeakKeyDictionary

from motley.api import codec, names, scheme, status
from motley.api.structural import pruning
from motley.api.structural.definition import Definition
from motley.apiserver import document
from motley.apiserver.admission.webhook.caller import CallFailed
from motley.apiserver.admission.webhook.configuration import Webhook
from motley.apiserver.crds import shown

Document = dict[str, Any]
Call = Callable[[Webhook, Document], Awaitable[Document]]

_TIMEOUT_S = 30  # kube-apiserver's for conversions
_ITS_OWN = ("labels", "annotations")


class Conversions:
    """Asks webhooks."""

    def __init__(self, call: Call, rng: Random) -> None:
        self._call = call
        self._rng = rng
        # By definition and stored bytes: what a webhook is being asked for.
        self._asked: WeakKeyDictionary[Definition, dict[bytes, asyncio.Future[None]]] = (
            WeakKeyDictionary()
        )

    async def prime(self, kind: scheme.Kind, values: Iterable[bytes]) -> None:
        """Translate stored objects that are about to be shown in a version. Raises ApiError."""
        if not is_asked(kind):
            return
        assert kind.definition is not None
        needed = {codec.unstamped(v): None for v in values if shown.is_foreign(kind, v)}
        asked = self._asked.setdefault(kind.definition, {})
        have: dict[bytes, bytes] = {}
        while True:
            known = shown.converted(kind)
            have |= {k: known[k] for k in needed if k in known}
            unknown = [k for k in needed if k not in have]
            theirs = {asked[k] for k in unknown if k in asked}
            if not theirs:
                break
            await asyncio.wait(theirs)
            for one in theirs:
                one.result()
        if unknown:
            have |= await self._ask(kind, asked, unknown)
        known = shown.converted(kind)
        if any(k not in known for k in needed):  # forgotten meanwhile, in favour of others
            shown.remember(kind, have)

    async def _ask(
        self,
        kind: scheme.Kind,
        asked: dict[bytes, "asyncio.Future[None]"],
        unknown: Sequence[bytes],
    ) -> dict[bytes, bytes]:
        """Have objects translated, for all who want them meanwhile."""
        answer = asyncio.get_running_loop().create_future()
        asked.update(dict.fromkeys(unknown, answer))
        try:
            made = await self._converted(kind, kind, [document.decode(k) for k in unknown])
        except status.ApiError as error:
            answer.set_exception(error)
            answer.exception()  # nobody need wait for it
            raise
        else:
            fresh = dict(zip(unknown, map(codec.encode_object, made), strict=True))
            shown.remember(kind, fresh)
            return fresh
        finally:
            for key in unknown:
                del asked[key]
            if not answer.done():  # who waited finds it known, or asks in turn
                answer.set_result(None)

    async def encode(self, kind: scheme.Kind, new: Document) -> bytes:
        """The bytes to store of an object that a client wrote in a version."""
        kept = kind.storage
        if not is_asked(kind) or kept.api_version == kind.api_version:
            return document.encode(kind, new)
        told = {**new, "kind": kind.kind, "apiVersion": kind.api_version}
        (made,) = await self._converted(kind, kept, [told])
        if kept.definition is not None:
            pruning.prune(kept.definition.root, made)
            kept.definition.default(made)
        return document.encode(kept, made)

    async def _converted(
        self, kind: scheme.Kind, wanted: scheme.Kind, objects: Sequence[Document]
    ) -> list[Document]:
        assert kind.definition is not None
        entry = {"clientConfig": kind.definition.converter, "timeoutSeconds": _TIMEOUT_S}
        uid = names.new_uid(self._rng)
        version = wanted.api_version
        review = {
            "kind": "ConversionReview",
            "apiVersion": "apiextensions.k8s.io/v1",
            "request": {"uid": uid, "desiredAPIVersion": version, "objects": list(objects)},
        }
        prefix = f"conversion webhook for {version}, Kind={kind.kind} failed: "
        try:
            found = await self._call(Webhook("", entry), review)
            return _read(found, uid, wanted, objects)
        except (CallFailed, _Unusable) as problem:
            raise status.ServiceUnavailable(f"{prefix}{problem}") from None


class _Unusable(Exception):
    """The answer is none."""


def is_asked(kind: scheme.Kind) -> bool:
    """Whether a webhook translates the kind's versions."""
    return kind.definition is not None and not kind.definition.convertible


def _read(
    found: Document, uid: str, wanted: scheme.Kind, objects: Sequence[Document]
) -> list[Document]:
    response = found.get("response")
    if not isinstance(response, dict):
        raise _Unusable("the webhook's answer has no response")
    if response.get("uid") != uid:
        raise _Unusable(f"expected response.uid {uid}, got {response.get('uid')}")
    result = response.get("result") or {}
    if result.get("status") != "Success":
        raise _Unusable(str(result.get("message") or "the webhook says no more than that"))
    made = response.get("convertedObjects") or []
    if len(made) != len(objects):
        raise _Unusable(f"expected {len(objects)} converted objects, got {len(made)}")
    return [_checked(one, before, wanted) for one, before in zip(made, objects, strict=True)]


def _checked(made: Any, before: Document, wanted: scheme.Kind) -> Document:
    """An object that came back, with the metadata it had."""
    if not isinstance(made, dict):
        raise _Unusable("a converted object is no object")
    said = made.get("apiVersion"), made.get("kind")
    if said != (wanted.api_version, wanted.kind):
        raise _Unusable(f"expected {wanted.api_version}, {wanted.kind}, got {said[0]}, {said[1]}")
    changed = made.get("metadata")
    if not isinstance(changed, dict):
        raise _Unusable("a converted object has no metadata")
    old = before["metadata"]
    for field in ("name", "namespace", "uid"):
        if changed.get(field) != old.get(field):
            raise _Unusable(f"metadata.{field} must not change")
    metadata = {k: v for k, v in old.items() if k not in _ITS_OWN}
    metadata |= {k: changed[k] for k in _ITS_OWN if changed.get(k)}
    return {**made, "metadata": metadata}
