"""One request on one resource, as every verb gets it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from motley.api import codec, scheme
from motley.apiserver import body, negotiate, tables
from motley.apiserver.answer import Answer
from motley.apiserver.authn import User
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
        return body.plain(self.content_type, await self.body(), expected, api_version)

    async def options_body(self) -> dict[str, Any] | None:
        """A delete's options; None when the request has no body."""
        raw = await self.body()
        if not raw.strip():
            return None
        return body.plain(self.content_type, raw, "DeleteOptions", "v1")

    def answer(self, value: bytes, code: int = 200, warnings: list[str] | None = None) -> Answer:
        """One object, from its stored bytes, in the form the client wants."""
        if not self.wanted.transform and self.wanted.media_type == negotiate.JSON:
            return Answer(value, code, warnings=warnings or ())
        shown: Any = codec.decode(value)
        if self.wanted.transform == "Table":
            include = self.info.query.text("includeObject")
            shown = tables.of_object(self.kind, shown, include, self.wanted.version)
        elif self.wanted.transform.startswith("PartialObjectMetadata"):
            shown = tables.partial(shown, self.wanted.version)
        return in_media_type(shown, self.wanted.media_type, code, warnings)

    def answer_written(self, written: Written, warnings: list[str], code: int = 200) -> Answer:
        """The outcome of a write."""
        return self.answer(written.value, code, [*warnings, *written.warnings])


def in_media_type(
    shown: Any, media_type: str, code: int = 200, warnings: list[str] | None = None
) -> Answer:
    """A document as JSON or YAML."""
    if media_type == negotiate.YAML:
        text: str = yaml.dump(shown, Dumper=yaml.CSafeDumper, allow_unicode=True)
        return Answer(text.encode(), code, negotiate.YAML, {}, warnings or ())
    return Answer(codec.encode(shown), code, warnings=warnings or ())
