"""The Kubernetes API as one user of the dashboard sees it: read only, with the user's own rights.

The dashboard's own pod may do nothing. Every question is asked with the credentials of whoever
looks at the page, so what is shown is what RBAC lets that user see.

Invariant: nothing but GET is ever sent.
"""

import contextlib
import http.client
import json
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from motley import __version__

Document = dict[str, Any]

_TIMEOUT_S = 15.0
_MOST_BYTES = 16 << 20
_PART = 500  # of a list: as much as kubectl asks for at once
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


class ApiError(Exception):
    """The API server's answer was no; 0: there was none."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(frozen=True)
class Endpoint:
    """Where the API server is, and what it is trusted by (with a client certificate, by wish)."""

    url: str
    tls: ssl.SSLContext | None = None

    def connect(self) -> http.client.HTTPConnection:
        """A new connection, not opened yet."""
        parts = urlsplit(self.url)
        host = parts.hostname or "localhost"
        if parts.scheme == "http":
            return http.client.HTTPConnection(host, parts.port, timeout=_TIMEOUT_S)
        context = self.tls or ssl.create_default_context()
        return http.client.HTTPSConnection(host, parts.port, timeout=_TIMEOUT_S, context=context)

    @property
    def prefix(self) -> str:
        """What stands before every path."""
        return urlsplit(self.url).path.rstrip("/")


def path(*parts: str) -> str:
    """A path of these parts, each quoted."""
    return "".join(f"/{quote(part, safe='')}" for part in parts if part)


class Api:
    """Asks one API server as one user, over a connection that is kept."""

    def __init__(self, endpoint: Endpoint, authorization: str = "") -> None:
        self._endpoint = endpoint
        self._authorization = authorization
        self._connection: http.client.HTTPConnection | None = None
        self.notes: list[str] = []
        """What could not be seen, in words for the user; in order, each once."""

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def get(self, where: str, accept: str = "application/json", **query: str | int) -> Document:
        """A document. Raises ApiError."""
        body = self._ask(where, accept, query)
        try:
            document = json.loads(body)
        except ValueError:
            raise ApiError(502, "the API server's answer is no JSON") from None
        if not isinstance(document, dict):
            raise ApiError(502, "the API server's answer is no object")
        return document

    def text(self, where: str, **query: str | int) -> str:
        """A text, such as a log. Raises ApiError."""
        return self._ask(where, "*/*", query).decode(errors="replace")

    def find(self, where: str, accept: str = "application/json", **query: str | int) -> Document:
        """A document; empty where there is none, or where this user may not see it, which is noted.

        Raises ApiError when nobody is logged in, or nobody answers.
        """
        try:
            return self.get(where, accept, **query)
        except ApiError as error:
            if error.code in (0, 401):
                raise
            if error.code not in (404, 406) and error.message not in self.notes:
                self.notes.append(error.message)
            return {}

    def items(self, where: str, most: int, **query: str) -> Iterator[Document]:
        """The items of a list, read a part at a time: what was looked at need not be kept.

        As `find`, it notes what may not be seen; also when there are more than so many.
        """
        after, left = "", most
        while left > 0:
            part = self.find(where, limit=min(_PART, left), continue_=after, **query)
            listed = part.get("items") or []
            yield from listed
            left -= len(listed)
            after = (part.get("metadata") or {}).get("continue") or ""
            if not after:
                return
        self.notes.append(f"Only the first {most} of {where} were looked at.")

    def _ask(self, where: str, accept: str, query: dict[str, str | int]) -> bytes:
        given = {key.rstrip("_"): value for key, value in query.items() if value != ""}
        target = self._endpoint.prefix + where + (f"?{urlencode(given)}" if given else "")
        headers = {"Accept": accept, "User-Agent": f"motley-dashboard/{__version__}"}
        if self._authorization:
            headers["Authorization"] = self._authorization
        fresh = self._connection is None
        try:
            answer = self._send(target, headers)
        except (http.client.HTTPException, OSError) as error:
            self.close()
            if fresh:
                raise ApiError(0, f"the API server cannot be reached: {error}") from None
            try:  # a kept connection may have been closed meanwhile; asking again does no harm
                answer = self._send(target, headers)
            except (http.client.HTTPException, OSError) as again:
                self.close()
                raise ApiError(0, f"the API server cannot be reached: {again}") from None
        code, body = answer
        if code != 200:
            raise ApiError(code, _message(code, body))
        return body

    def _send(self, target: str, headers: dict[str, str]) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = self._endpoint.connect()
        self._connection.request("GET", target, headers=headers)
        response = self._connection.getresponse()
        body = response.read(_MOST_BYTES + 1)
        if len(body) > _MOST_BYTES:
            self.close()
            return 507, b"the answer is too large to be shown: choose a namespace"
        return response.status, body


def _message(code: int, body: bytes) -> str:
    with contextlib.suppress(ValueError, AttributeError):
        found = json.loads(body).get("message")
        if isinstance(found, str) and found:
            return found
    return body[:300].decode(errors="replace").strip() or f"the API server answered {code}"
