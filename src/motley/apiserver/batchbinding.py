"""`POST /apis/motley.io/v1/bindings`: many schedulers' decisions in one request.

A burst of bindings costs a server mostly what surrounds each of them: a request, a wake-up, a wait
for the disk, a second request for the event that tells of it. Here they come as one list:

    {"kind": "BindingBatch", "apiVersion": "motley.io/v1", "items": [
      {"metadata": {"namespace": …, "name": …, "uid": …}, "target": {"name": NODE},
       "event": {"reason": "Scheduled", "message": …, "component": …}}, …]}

Each item is judged, admitted, written and audited as `pods/binding` would be (and its event, if it
has one, as `events` would be), and gets a `Status` of its own, in the order of the items. They
are written side by side, so that the store makes all of them durable at once.

Invariant: what is wrong with one item is told for that item and does not touch the others; an
item is answered with success only when its binding is durable.
"""

import asyncio
from typing import Any

import msgspec

from motley.api import codec, scheme, status
from motley.apiserver import answer, audit, body
from motley.apiserver.answer import Answer
from motley.apiserver.authn.user import User
from motley.apiserver.authz.decision import forbidden
from motley.apiserver.core import Core
from motley.apiserver.options import write_options
from motley.apiserver.request import Query, RequestInfo
from motley.apiserver.subresources import binding
from motley.apiserver.verbs.call import Call
from motley.lib import journal
from motley.store.contract import StoreError

log = journal.get(__name__)

Document = dict[str, Any]

KIND = "BindingBatch"
API_VERSION = "motley.io/v1"
MAX_ITEMS = 500  # a turn of the event loop that others wait for


class _Metadata(msgspec.Struct):
    namespace: str = ""
    name: str = ""
    uid: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _Target(msgspec.Struct):
    name: str = ""
    kind: str = ""


class _Note(msgspec.Struct):
    reason: str = ""
    message: str = ""
    component: str = ""
    name: str = ""


class _Item(msgspec.Struct):
    metadata: _Metadata
    target: _Target
    event: _Note | None = None


class _Batch(msgspec.Struct):
    items: list[_Item]
    kind: str = KIND
    api_version: str = msgspec.field(default=API_VERSION, name="apiVersion")


_decode = msgspec.json.Decoder(_Batch).decode


async def create(core: Core, call: Call) -> Answer:
    """200 with one `Status` per item."""
    items = await _read(call)
    options = write_options(call.info.query, "CreateOptions")
    rights = _Rights(core, call.user)
    bindings = [
        _Binding(core, rights, item, call.manager(options), is_dry=options.dry_run)
        for item in items
    ]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one.carry_out()) for one in bindings]
    shown = {"kind": KIND, "apiVersion": API_VERSION, "items": [task.result() for task in tasks]}
    return answer.of(shown)


async def _read(call: Call) -> list[_Item]:
    raw = await call.body()
    try:
        if call.content_type.partition(";")[0].strip() in ("", "application/json"):
            batch = _decode(raw)
        else:
            found = body.plain(call.content_type, raw, KIND, API_VERSION)
            batch = msgspec.convert(found, _Batch)
    except msgspec.MsgspecError as error:
        raise status.BadRequest(f"{KIND} cannot be handled: {error}") from None
    if (batch.kind or KIND, batch.api_version or API_VERSION) != (KIND, API_VERSION):
        raise status.BadRequest(f"the body is a {batch.api_version} {batch.kind}, not a {KIND}")
    if len(batch.items) > MAX_ITEMS:
        raise status.TooLarge(f"a {KIND} has at most {MAX_ITEMS} items")
    return batch.items


class _Rights:
    """What the caller may do, asked once per namespace."""

    def __init__(self, core: Core, user: User) -> None:
        self._authorizer = core.access.authorizer
        self._user = user
        self._known: set[tuple[str, str]] = set()

    async def check(self, info: RequestInfo) -> None:
        """Return when the user may; raise `Denied` when not."""
        where = (info.resource, info.namespace)
        if where in self._known:
            return
        # Who may without naming an object may with any name.
        if (await self._authorizer.allows(self._user, _unnamed(info))).allowed:
            self._known.add(where)
            return
        decision = await self._authorizer.allows(self._user, info)
        if not decision.allowed:
            raise forbidden(self._user, info, info.name, decision.reason)


class _Binding:
    """One item."""

    def __init__(
        self, core: Core, rights: _Rights, item: _Item, manager: str, *, is_dry: bool
    ) -> None:
        self._core = core
        self._rights = rights
        self._item = item
        self._manager = manager
        self._is_dry = is_dry
        meta = item.metadata
        self._info = _info(meta.namespace, "pods", meta.name, "binding")

    async def carry_out(self) -> Document:
        """Bind; the `Status` to answer with."""
        document = self._document()
        try:
            await self._bind(document)
            shown, code = binding.SUCCESS, 201
        except status.ApiError as error:
            shown, code = status.to_status(error), error.code
        except StoreError as error:
            log.error("store failed a binding", pod=self._info.name, exc_info=error)
            unavailable = status.ServiceUnavailable(f"store: {error}", retry_after_s=1)
            shown, code = status.to_status(unavailable), unavailable.code
        if audit.is_audited():
            audit.part(self._info, codec.encode(document), code, codec.encode(shown))
        if code == 201 and self._item.event is not None and not self._is_dry:
            await self._record(self._item.event)
        return shown

    async def _bind(self, document: Document) -> None:
        meta = self._item.metadata
        if not meta.namespace or not meta.name:
            raise status.BadRequest("metadata.namespace and metadata.name say which pod is meant")
        await self._rights.check(self._info)
        await binding.bind(self._core, meta.namespace, meta.name, document, dry_run=self._is_dry)

    def _document(self) -> Document:
        meta = self._item.metadata
        metadata: Document = {"name": meta.name, "namespace": meta.namespace}
        if meta.uid:
            metadata["uid"] = meta.uid
        if meta.labels:
            metadata["labels"] = meta.labels
        if meta.annotations:
            metadata["annotations"] = meta.annotations
        target = {"kind": self._item.target.kind or "Node", "name": self._item.target.name}
        return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}

    async def _record(self, note: _Note) -> None:
        """Write the event; the binding stands, whatever comes of it."""
        meta = self._item.metadata
        info = _info(meta.namespace, "events", "")
        document = _event(note, meta, self._core.writer.timestamp(), self._core.rng.randbytes(8))
        code = 201
        try:
            await self._rights.check(info)
            await self._core.writer.create(
                _events(), meta.namespace, document, manager=self._manager
            )
        except status.ApiError as error:
            code = error.code
            log.debug("event not written", pod=meta.name, error=error.message)
        except StoreError as error:
            code = 503
            log.warning("store failed an event", pod=meta.name, error=str(error))
        if audit.is_audited():
            audit.part(info, codec.encode(document), code, b"")


def _event(note: _Note, meta: _Metadata, now: str, drawn: bytes) -> Document:
    reference = {"kind": "Pod", "apiVersion": "v1", "name": meta.name, "namespace": meta.namespace}
    if meta.uid:
        reference["uid"] = meta.uid
    return {
        "kind": "Event",
        "apiVersion": "v1",
        "metadata": {
            "name": note.name or f"{meta.name}.{drawn.hex()}",
            "namespace": meta.namespace,
        },
        "involvedObject": reference,
        "type": "Normal",
        "reason": note.reason,
        "message": note.message,
        "source": {"component": note.component},
        "reportingComponent": note.component,
        "reportingInstance": "",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def _events() -> scheme.Kind:
    events = scheme.resource("", "v1", "events")
    assert events is not None
    return events


def _info(namespace: str, resource: str, name: str, subresource: str = "") -> RequestInfo:
    """The request that would have been made for one item alone."""
    parts = ["/api/v1/namespaces", namespace, resource, name, subresource]
    return RequestInfo(
        method="POST",
        path="/".join(part for part in parts if part),
        verb="create",
        query=Query(),
        is_resource=True,
        version="v1",
        namespace=namespace,
        resource=resource,
        name=name,
        subresource=subresource,
    )


def _unnamed(info: RequestInfo) -> RequestInfo:
    return _info(info.namespace, info.resource, "", info.subresource) if info.name else info
