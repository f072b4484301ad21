"""One request on one resource, as every verb gets it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from motley.api import codec, scheme
from motley.apiserver import body, negotiate, protobuf, tables, versions
from motley.apiserver.answer import Answer
from motley.apiserver.authn import User
from motley.apiserver.crds.shown import value as shown_value
from motley.apiserver.options import MANAGER_MAX_BYTES, WriteOptions
from motley.apiserver.request import RequestInfo
from motley.apiserver.writer import Written


@dataclass(slots=True)
class Call:
    """Everything known about the request."""

    info: RequestInfo
    kind: scheme.Kind
    user: User
    headers: Mapping[str, str]
    body: Callable[[], Awaitable[bytes]]
    wanted: negotiate.Wanted = field(default_factory=negotiate.Wanted)

    @property
    def namespace(self) -> str:
        """The namespace of the objects in question; empty for cluster-wide kinds."""
        return self.info.namespace if self.kind.namespaced else ""

    @property
    def content_type(self) -> str:
        """The Content-Type header."""
        return self.headers.get("content-type", "")

    async def document(self, expected: str, api_version: str) -> dict[str, Any]:
        """The body of a subresource that is no kind of its own: Binding, Eviction, Scale."""
        found = body.plain(self.content_type, await self.body(), expected, api_version)
        body.conform_as(expected, api_version, found)
        return found

    async def options_body(self) -> dict[str, Any] | None:
        """A delete's options; None when the request has no body."""
        raw = await self.body()
        if not raw.strip():
            return None
        return body.plain(self.content_type, raw, "DeleteOptions", "v1")

    def manager(self, options: WriteOptions) -> str:
        """Who becomes the owner of what this request changes."""
        return options.field_manager or _manager_of(self.headers.get("user-agent", ""))

    def answer(self, value: bytes, code: int = 200, warnings: list[str] | None = None) -> Answer:
        """One object, from its stored bytes, in the form the client wants."""
        kind = versions.tabled(self.kind) if self.wanted.transform else self.kind
        value = shown_value(kind, value)
        if not self.wanted.transform and self.wanted.media_type == negotiate.JSON:
            return Answer(value, code, warnings=warnings or ())
        include = self.info.query.text("includeObject")
        shown = tables.transformed(kind, codec.decode(value), self.wanted, include)
        return in_media_type(shown, self.wanted.media_type, code, warnings)

    def answer_written(self, written: Written, warnings: list[str], code: int = 200) -> Answer:
        """The outcome of a write."""
        return self.answer(written.value, code, [*warnings, *written.warnings])


@lru_cache(maxsize=1024)
def _manager_of(user_agent: str) -> str:
    """A client that names no manager goes by its program: `kubectl/v1.32 (linux)` is `kubectl`."""
    found = ""
    for char in user_agent.partition("/")[0]:
        if not char.isprintable():
            continue
        if len((found + char).encode()) > MANAGER_MAX_BYTES:
            break
        found += char
    return found


def in_media_type(
    shown: Any, media_type: str, code: int = 200, warnings: list[str] | None = None
) -> Answer:
    """A document as JSON, YAML or protobuf; 406 when it has no protobuf form."""
    if media_type == negotiate.PROTOBUF:
        raw = protobuf.encode(shown)
        if raw is None:
            raise negotiate.not_acceptable()
        return Answer(raw, code, negotiate.PROTOBUF, {}, warnings or ())
    if media_type == negotiate.YAML:
        text = codec.encode_yaml(shown)
        return Answer(text.encode(), code, negotiate.YAML, {}, warnings or ())
    return Answer(codec.encode(shown), code, warnings=warnings or ())
