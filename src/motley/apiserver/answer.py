"""What a handler gives back: a whole answer, or a stream that ends when it ends.

Handlers know nothing of ASGI; the app turns these into messages. A long list is joined from its
objects' bytes a block at a time, while it is sent.
"""

import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from motley.api import codec, status

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
YAML = "application/yaml"
_NOSNIFF = {"x-content-type-options": "nosniff"}

# 128 KiB: where kube-apiserver, too, begins to compress.
GZIP_FROM_BYTES = 128 * 1024
_GZIP = 16 + zlib.MAX_WBITS


class Blocks(Protocol):
    """A long body, made while it is sent."""

    length: int

    def __iter__(self) -> Iterator[bytes]: ...


@dataclass(slots=True)
class Answer:
    """A complete response."""

    body: bytes
    code: int = 200
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    blocks: Blocks | None = None
    """A long body, instead of `body`."""

    @property
    def length(self) -> int:
        """Of the whole body, in bytes."""
        return len(self.body) if self.blocks is None else self.blocks.length


Push = Callable[[bytes], bool]
"""Writes a piece of a stream at once; False when it would have to wait, and nothing is written."""


@dataclass(slots=True)
class Stream:
    """A response sent while it is made: a watch, or a followed log."""

    chunks: AsyncIterator[bytes]
    code: int = 200
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    warnings: Sequence[str] = ()
    close: Callable[[], None] = lambda: None
    """Lets go of what the stream holds; called once, also when it was never read."""
    shortcut: Callable[[Push], None] | None = None
    """Takes a way to send a piece without waking the task that waits for the next of `chunks`."""


_warned: ContextVar[list[str]] = ContextVar("warned")


def begin_warnings() -> list[str]:
    """What the request now handled is warned about; filled by `warn`."""
    texts: list[str] = []
    _warned.set(texts)
    return texts


def warn(texts: Iterable[str]) -> None:
    """Say something beside the answer, also when the request is refused in the end."""
    _warned.get([]).extend(texts)


def of(document: Any, code: int = 200, warnings: Sequence[str] = ()) -> Answer:
    """A JSON document."""
    return Answer(codec.encode(document), code, JSON, {}, warnings)


def text(body: str, code: int = 200) -> Answer:
    """Plain text."""
    return Answer(body.encode(), code, TEXT, _NOSNIFF)


def page_not_found() -> Answer:
    """What Kubernetes says to a path nothing is mounted on."""
    return text("404 page not found\n", 404)


def of_error(error: status.ApiError, media_type: str = JSON) -> Answer:
    """The `Status` an error stands for, with Retry-After where it has one."""
    headers: dict[str, str] = {}
    if error.retry_after_s is not None:
        headers["retry-after"] = str(error.retry_after_s)
    if error.is_from_filter:
        headers |= _NOSNIFF
    shown = status.to_status(error)
    if media_type == YAML:
        return Answer(codec.encode_yaml(shown).encode(), error.code, YAML, headers)
    return Answer(codec.encode(shown), error.code, JSON, headers)


def unknown_resource() -> status.NotFound:
    """The path has the API's form, but no such resource is served."""
    return status.NotFound("the server could not find the requested resource", details={})


def method_not_allowed() -> status.MethodNotAllowed:
    """The resource exists and does not have this verb."""
    return status.MethodNotAllowed(
        "the server does not allow this method on the requested resource", details={}
    )


def is_for_people(pretty: str, user_agent: str) -> bool:
    """Whether JSON is to be indented: `?pretty=` says so, else whether a person is looking."""
    if pretty:
        return pretty in ("1", "t", "T", "true", "TRUE", "True")
    return user_agent.startswith(("curl", "Wget", "Mozilla/5.0"))


def whole(answer: Answer) -> Answer:
    """The answer with its body in one piece."""
    return replace(answer, body=b"".join(answer.blocks), blocks=None) if answer.blocks else answer


def indented(answer: Answer) -> Answer:
    """A JSON answer with line breaks; others stay as they are."""
    answer = whole(answer)
    if not answer.content_type.startswith(JSON) or not answer.body:
        return answer
    return replace(answer, body=codec.indented(answer.body))


def is_compressible(answer: Answer, accept_encoding: str) -> bool:
    """Whether the answer is large, the client takes gzip, and it is not compressed already."""
    return (
        answer.length >= GZIP_FROM_BYTES
        and "gzip" in accept_encoding
        and "content-encoding" not in answer.headers
    )


def compressed(answer: Answer) -> Answer:
    """The answer, gzipped; level 1 as Kubernetes. Takes long enough to deserve a thread."""
    headers = {**answer.headers, "content-encoding": "gzip", "vary": "Accept-Encoding"}
    stream = zlib.compressobj(1, wbits=_GZIP)
    parts = answer.blocks or (answer.body,)
    body = b"".join([*map(stream.compress, parts), stream.flush()])
    return Answer(body, answer.code, answer.content_type, headers, answer.warnings)
