"""What a call may know of itself: `def run(arg, context)`."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import http.client
    import urllib.parse


class CallFailed(Exception):
    """Another function could not be called, or failed."""


class Context:
    """One call: its id, headers, deadline; and a way to call other functions of the namespace."""

    def __init__(self, head: dict[str, Any], body: bytes, settings: dict[str, Any]) -> None:
        self.call_id: str = head["id"]
        self.headers: dict[str, str] = head.get("headers", {})
        self.method: str = head.get("method", "POST")
        self.path: str = head.get("path", "/")
        self.body = body
        self.function: str = settings.get("function", "")
        self.namespace: str = settings.get("namespace", "")
        self.deadline = time.monotonic() + float(head.get("deadline_s", 60.0))
        self._router = settings.get("router", "")
        self._ca = settings.get("routerCA", "")
        self._token: str = head.get("token", "")

    @property
    def remaining_s(self) -> float:
        """Seconds until this call is ended."""
        return max(0.0, self.deadline - time.monotonic())

    def call(self, function: str, arg: Any = "") -> Any:
        """Call another function of the same namespace and wait for its result."""
        import http.client  # most calls call nobody
        import urllib.parse

        if not self._router or not self._token:
            raise CallFailed("this call did not come through a router that could be called back")
        url = urllib.parse.urlsplit(self._router)
        kind, data = _encoded(arg)
        connection = _connect(url, self._ca, self.remaining_s)
        try:
            path = f"{url.path}/functions/{self.namespace}/{urllib.parse.quote(function)}"
            headers = {"Content-Type": kind, "Authorization": f"Motley {self._token}"}
            connection.request("POST", path, data, headers)
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise CallFailed(f"{function}: {error}") from error
        finally:
            connection.close()
        if answer.status != 200:
            raise CallFailed(f"{function}: {answer.status} {body.decode(errors='replace')}")
        return _decoded(answer.headers.get("Content-Type", ""), body)


def _connect(
    url: urllib.parse.SplitResult, ca: str, timeout_s: float
) -> http.client.HTTPConnection:
    import http.client
    import ssl

    host, port = url.hostname or "", url.port
    if url.scheme == "https":
        trust = ssl.create_default_context(cadata=ca or None)
        return http.client.HTTPSConnection(host, port, timeout=timeout_s, context=trust)
    return http.client.HTTPConnection(host, port, timeout=timeout_s)


def _encoded(arg: Any) -> tuple[str, bytes]:
    if isinstance(arg, str):
        return "text/plain; charset=utf-8", arg.encode()
    if isinstance(arg, bytes):
        return "application/octet-stream", arg
    return "application/json", json.dumps(arg).encode()


def _decoded(kind: str, body: bytes) -> Any:
    if kind.startswith("application/json"):
        return json.loads(body)
    return body if kind.startswith("application/octet-stream") else body.decode()
