"""What a request asks for, read from its method, path and query: Kubernetes' `RequestInfo`.

API paths are regular, so a parser of thirty lines says in one place what a router with a
thousand routes would: `/api/v1/…` and `/apis/GROUP/VERSION/…`, then optionally
`namespaces/NS`, then `RESOURCE[/NAME[/SUBRESOURCE…]]`.

Invariant: parsing never fails. A path outside the scheme is a non-resource request; whether
something is served there is decided later, after the caller is known.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import parse_qsl

from motley.api import status

_VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch"}
# What `namespaces/NS/…` may be followed by and still concern the namespace itself.
_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})


_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_INTEGER = re.compile(r"[+-]?[0-9]+")  # Python's int() takes spaces, underscores and more digits
_INTEGER_DIGITS = 200
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


class Query(dict[str, list[str]]):
    """The query's parameters; Kubernetes looks at the first value of each, save for dryRun."""

    @classmethod
    def parse(cls, raw: bytes) -> "Query":
        """Read `a=1&b=2`; a bare `watch` counts as present and empty."""
        query = cls()
        if raw:
            for key, value in parse_qsl(raw.decode("utf-8", "replace"), keep_blank_values=True):
                query.setdefault(key, []).append(value)
        return query

    def text(self, key: str, default: str = "") -> str:
        """The first value of a parameter."""
        values = self.get(key)
        return values[0] if values else default

    def flag(self, key: str) -> bool:
        """A boolean, as Kubernetes reads one: anything but `false` and `0` is true."""
        values = self.get(key)
        return values is not None and values[0].lower() not in ("false", "0")

    def integer(self, key: str) -> int | None:
        """A whole number, None when absent; 400 when it is no number."""
        text = self.text(key)
        if not text:
            return None
        problem = "invalid syntax"
        if _INTEGER.fullmatch(text):
            # The length first: Python takes long over, and refuses, numbers of many digits.
            if len(text) <= _INTEGER_DIGITS and _INT64_MIN <= int(text) <= _INT64_MAX:
                return int(text)
            problem = "value out of range"
        raise status.BadRequest(f'strconv.ParseInt: parsing "{text}": {problem}')


@dataclass(frozen=True, slots=True)
class RequestInfo:
    """Who-independent facts about a request."""

    method: str
    path: str
    verb: str
    query: Query
    is_resource: bool = False
    group: str = ""
    version: str = ""
    namespace: str = ""
    resource: str = ""
    name: str = ""
    subresource: str = ""
    rest: tuple[str, ...] = ()  # what follows the subresource: proxied paths


def parse(method: str, path: str, raw_query: bytes = b"") -> RequestInfo:
    """Read a request line."""
    query = Query.parse(raw_query)
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) >= 3:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 4:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return RequestInfo(method, path, method.lower(), query)
    watching = rest[0] == "watch" and len(rest) > 1  # the old spelling of ?watch=true
    if watching:
        rest = rest[1:]
    namespace, resource, name, tail = _split(rest)
    return RequestInfo(
        method=method,
        path=path,
        verb=_verb(method, name, query, watching),
        query=query,
        is_resource=True,
        group=group,
        version=version,
        namespace=namespace,
        resource=resource,
        name=name,
        subresource=tail[0] if tail else "",
        rest=tuple(tail[1:]),
    )


def _split(parts: Sequence[str]) -> tuple[str, str, str, Sequence[str]]:
    """Namespace, resource, name, and what follows."""
    if parts[0] == "namespaces" and len(parts) >= 2:
        if len(parts) == 2 or parts[2] in _NAMESPACE_SUBRESOURCES:
            return parts[1], "namespaces", parts[1], parts[2:]
        return parts[1], parts[2], parts[3] if len(parts) > 3 else "", parts[4:]
    return "", parts[0], parts[1] if len(parts) > 1 else "", parts[2:]


def _verb(method: str, name: str, query: Query, watching: bool) -> str:
    if method == "GET":
        if watching or (not name and query.flag("watch")):
            return "watch"
        return "get" if name else "list"
    if method == "DELETE":
        return "delete" if name else "deletecollection"
    return _VERBS.get(method, method.lower())


def is_broken(raw_path: bytes) -> bool:
    """Whether a path, as it came, has a percent sign that begins no escape."""
    return b"%" in raw_path and _BROKEN_ESCAPE.search(raw_path) is not None


def headers_of(raw: Sequence[tuple[bytes, bytes]]) -> Mapping[str, str]:
    """ASGI headers as text by lower-case name; repeated ones are joined as HTTP allows."""
    headers: dict[str, str] = {}
    for key, value in raw:
        name = key.decode("latin-1")
        text = value.decode("latin-1")
        headers[name] = f"{headers[name]}, {text}" if name in headers else text
    return headers
