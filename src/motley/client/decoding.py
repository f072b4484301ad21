"""Bytes of the API straight into typed views.

The fast path is one pass of msgspec. Servers written in Go send `null` for an empty list or
map of a required field, which no view allows; only then is the document read as plain JSON,
its nulls dropped (absent and null mean the same in the Kubernetes API) and converted.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Generic, TypeVar

import msgspec

from motley.api.views.base import Object, View
from motley.lib import journal

log = journal.get(__name__)

T = TypeVar("T", bound=Object)
S = TypeVar("S")

_INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class ListMeta(View):
    """Where in history a list was taken, and where it goes on."""

    resource_version: str = ""
    continue_token: str = msgspec.field(default="", name="continue")
    remaining_item_count: int | None = None


class Listing(msgspec.Struct, Generic[T], kw_only=True):
    """A list of objects at one revision."""

    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[T] = []

    @property
    def resource_version(self) -> str:
        """The revision to watch from."""
        return self.metadata.resource_version


class WatchEvent(msgspec.Struct, Generic[T], kw_only=True):
    """One line of a watch: ADDED, MODIFIED, DELETED or BOOKMARK."""

    type: str
    object: T

    @property
    def resource_version(self) -> str:
        """The revision this event brings the watcher to."""
        return self.object.metadata.resource_version

    @property
    def ends_initial_events(self) -> bool:
        """Is this the bookmark after the last object of a streamed list?"""
        mark = self.object.metadata.annotations.get(_INITIAL_EVENTS_END)
        return self.type == "BOOKMARK" and mark == "true"


class Frame(msgspec.Struct):
    """A watch line whose object is not yet decoded, for events that are not about a `T`."""

    type: str = ""
    object: Any = None


@lru_cache(maxsize=512)
def decoder(cls: Any) -> Callable[[bytes], Any]:
    """A function from bytes to `cls`, tolerant of nulls; made once per type."""
    fast = msgspec.json.Decoder(cls)

    def decode(data: bytes) -> Any:
        try:
            return fast.decode(data)
        except msgspec.ValidationError:
            return msgspec.convert(without_nulls(msgspec.json.decode(data)), cls)

    return decode


def listing(cls: type[T], data: bytes) -> Listing[T]:
    """A list of `cls`. An object that is not one is left out and reported, not fatal: one strange
    object must not blind a component to all others."""
    try:
        decoded: Listing[T] = decoder(Listing[cls])(data)  # type: ignore[valid-type]
    except msgspec.ValidationError:
        document = without_nulls(msgspec.json.decode(data))
        metadata = msgspec.convert(document.get("metadata", {}), ListMeta)
        return Listing(metadata=metadata, items=list(_readable(cls, document.get("items", ()))))
    return decoded


def _readable(cls: type[T], items: Iterable[Any]) -> Iterable[T]:
    for item in items:
        try:
            yield cls.of(item)
        except msgspec.ValidationError as error:
            _report(cls, item, error)


def watch_event(cls: type[T], data: bytes) -> WatchEvent[T]:
    """One line of a watch; type ERROR has an empty object, see `Frame`. An object that is not a
    `cls` is reported and becomes a BOOKMARK, so that the watch goes on after it."""
    try:
        decoded: WatchEvent[T] = decoder(WatchEvent[cls])(data)  # type: ignore[valid-type]
    except msgspec.ValidationError as error:
        frame = msgspec.json.decode(data, type=Frame)
        if frame.type == "ERROR":
            return WatchEvent(type="ERROR", object=cls())
        _report(cls, frame.object, error)
        meta = frame.object.get("metadata") or {}
        mark = {"metadata": {"resourceVersion": meta.get("resourceVersion", "")}}
        return WatchEvent(type="BOOKMARK", object=cls.of(mark))
    return decoded


def _report(cls: type[Object], item: Any, error: Exception) -> None:
    meta = item.get("metadata") if isinstance(item, dict) else None
    named = meta if isinstance(meta, dict) else {}
    log.error(
        "object not understood",
        kind=cls.KIND,
        namespace=named.get("namespace", ""),
        name=named.get("name", ""),
        reason=str(error),
    )


def without_nulls(value: Any) -> Any:
    """The same JSON value with every null member of an object left out."""
    if isinstance(value, dict):
        return {k: without_nulls(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [without_nulls(v) for v in value]
    return value
