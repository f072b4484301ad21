"""`POST /apis/motley.io/v1/batches`: several writes in one request.

For whoever writes many small things that nobody waits for one by one: events, conditions, the ends
of victims. Each item says what its own request would have said:

    {"kind": "RequestBatch", "apiVersion": "motley.io/v1", "items": [
      {"method": "PATCH", "path": "/api/v1/namespaces/default/pods/a/status",
       "contentType": "application/strategic-merge-patch+json", "body": {…}}, …]}

A deletion of a pod may say why, with a `condition` that its status gets first (see `disruption`).

Each is authorised, handled and audited as that request would be. They run side by side: their order
is nobody's promise, and the store makes them durable together. The answer has one entry per item,
in their order: its code and, briefly, the object's metadata, or the `Status` of its failure.

Invariant: what is wrong with one item is told for that item and does not touch the others.
"""

import asyncio
from typing import Any

import msgspec

from motley.api import codec, status
from motley.apiserver import answer, audit, disruption, request
from motley.apiserver.answer import Answer
from motley.apiserver.core import Core
from motley.apiserver.verbs.call import Call
from motley.lib import journal
from motley.store.contract import StoreError

log = journal.get(__name__)

Document = dict[str, Any]

KIND = "RequestBatch"
API_VERSION = "motley.io/v1"
MAX_ITEMS = 500  # a turn of the event loop that others wait for
_VERBS = frozenset({"create", "patch", "delete"})
_SUBRESOURCES = frozenset({"", "status", "resize", "binding", "eviction"})


class _Item(msgspec.Struct):
    method: str
    path: str
    body: msgspec.Raw = msgspec.Raw(b"")
    content_type: str = msgspec.field(default="application/json", name="contentType")
    condition: disruption.Condition | None = None


class _Batch(msgspec.Struct):
    items: list[_Item]


class _Metadata(msgspec.Struct, omit_defaults=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _Object(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


_decode = msgspec.json.Decoder(_Batch).decode
_brief = msgspec.json.Decoder(_Object).decode


async def create(core: Core, call: Call) -> Answer:
    """200 with one entry per item."""
    try:
        items = _decode(await call.body()).items
    except msgspec.MsgspecError as error:
        raise status.BadRequest(f"{KIND} cannot be handled: {error}") from None
    if len(items) > MAX_ITEMS:
        raise status.TooLarge(f"a {KIND} has at most {MAX_ITEMS} items")
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_carry_out(core, call, item)) for item in items]
    shown = {"kind": KIND, "apiVersion": API_VERSION, "items": [task.result() for task in tasks]}
    return answer.of(shown)


async def _carry_out(core: Core, call: Call, item: _Item) -> Document:
    path, _, query = item.path.partition("?")
    info = request.parse(item.method, path, query.encode())
    body = bytes(item.body)
    try:
        done = await _handle(core, call, info, item, body)
        code, raw = done.code, answer.whole(done).body
        entry = {"code": code, "metadata": _brief(raw).metadata}
    except status.ApiError as error:
        shown = status.to_status(error)
        code, raw, entry = error.code, codec.encode(shown), {"code": error.code, "status": shown}
    except StoreError as error:
        log.error("store failed a request", path=path, exc_info=error)
        unavailable = status.ServiceUnavailable(f"store: {error}", retry_after_s=1)
        shown = status.to_status(unavailable)
        code, raw, entry = 503, codec.encode(shown), {"code": 503, "status": shown}
    if audit.is_audited():
        audit.part(info, body, code, raw)
    return entry


async def _handle(
    core: Core, call: Call, info: request.RequestInfo, item: _Item, body: bytes
) -> Answer:
    # These two import all handlers, this one among them.
    from motley.apiserver import app, dispatch

    if info.verb not in _VERBS or info.subresource not in _SUBRESOURCES or not info.is_resource:
        raise status.BadRequest(f"{item.method} {item.path}: not in a {KIND}")
    kind = app.find(info)
    if kind is call.kind or not kind.is_stored:
        raise status.BadRequest(f"{item.method} {item.path}: not in a {KIND}")
    await core.access.authorizer.authorize(call.user, info)

    async def read() -> bytes:
        return body

    headers = {**call.headers, "content-type": item.content_type}
    own = Call(info, kind, call.user, headers, read)
    if item.condition is not None:
        await disruption.announce(core, own, item.condition)
    done = await dispatch.handler(kind, info)(core, own)
    if not isinstance(done, Answer):
        raise status.BadRequest(f"{item.method} {item.path}: not in a {KIND}")
    return done
