"""The server of an instance: a generic pod becomes a function's, and then takes its calls.

`POST /specialise` brings the code, once. From then on every other POST is a call: the body is the
argument. A call has an id; the same id again is the same call, not another one, so a router that
lost its connection can ask again and nothing runs twice.
Invariant: an answer with `X-Motley-Started: no` means that no line of the function ran.
"""

from __future__ import annotations

import asyncio
import collections
import hashlib
import hmac
import json
import os
import signal
import sys
import time
from collections.abc import Iterable
from typing import Any

from . import frames, layer
from .http import Connection, Request
from .workers import LoadFailed, Worker, Zygote

_PORT = 8080
_MOST_BODY = 48 << 20  # code and layer of a specialisation are larger than any call
_MOST_KEPT = 1 << 20  # answers above this are not kept for those who ask again
_KEPT = 512
_KEPT_BYTES = 32 << 20
_LINGER_S = 30.0  # a v1 instance whose caller went away without removing it
_NOT_STARTED = {"X-Motley-Started": "no"}


class Call:
    """One call, under way or done; `answer` is what those get who ask for it again."""

    def __init__(self, id_: str) -> None:
        self.id = id_
        self.worker: Worker | None = None
        self.was_cancelled = False
        self.done = asyncio.Event()
        self.answer: tuple[int, str, bytes, dict[str, str]] | None = None


class Instance:
    """One pod's calls."""

    def __init__(self, token_hash: str, directory: str) -> None:
        self._token_hash = token_hash
        self._directory = directory
        self._settings: dict[str, Any] = {}
        self._zygote: Zygote | None = None
        self._has_layer = False
        self._idle: list[Worker] = []
        self._busy = 0
        self._calls: collections.OrderedDict[str, Call] = collections.OrderedDict()
        self._kept_bytes = 0
        self._is_used = False
        self.state = "generic"
        self.is_draining = False
        self.connections: set[Connection] = set()

    async def handle(self, request: Request, to: Connection) -> None:
        """Answer one request, whatever it is."""
        try:
            await self._handle(request, to)
        except Exception as error:  # a defect here must not look like a hanging function
            sys.stderr.write(f"[runtime] {request.method} {request.path}: {error!r}\n")
            sys.stderr.flush()
            to.send_error(500, {"type": "RuntimeFailure", "message": repr(error)})

    async def _handle(self, request: Request, to: Connection) -> None:
        path = request.path.partition("?")[0]
        if request.method == "GET" and path == "/healthz":
            to.send(200, "text/plain", b"ok")
        elif not self._may(request, path):
            error = {"type": "Unauthorized", "message": "calls come through the router"}
            to.send_error(401, error, _NOT_STARTED)
        elif request.method == "GET" and path == "/status":
            to.send_json(200, self._status())
        elif request.method == "GET" and path == "/layer":
            place = os.path.join(self._directory, "layer")
            loop = asyncio.get_running_loop()
            to.send(200, "application/gzip", await loop.run_in_executor(None, layer.pack, place))
        elif request.method == "POST" and path == "/specialise":
            await self._specialise(request, to)
        elif request.method == "DELETE" and path.startswith("/calls/"):
            self._cancel(path[len("/calls/") :], to)
        elif request.method == "POST":
            await self._call(request, to)
        else:
            to.send_error(404, {"type": "NotFound", "message": "functions are called with POST"})

    def _may(self, request: Request, path: str) -> bool:
        if not self._token_hash:
            return True
        is_own = path in ("/specialise", "/status", "/layer") or path.startswith("/calls/")
        if self._settings.get("public") and not is_own:
            return True
        token = request.headers.get("x-motley-instance-token", "")
        return hmac.compare_digest(hashlib.sha256(token.encode()).hexdigest(), self._token_hash)

    def _status(self) -> dict[str, Any]:
        return {
            "state": self.state,
            "revision": self._settings.get("revision", ""),
            "function": self._settings.get("function", ""),
            "busy": self._busy,
            "layer": self._has_layer,
        }

    async def _specialise(self, request: Request, to: Connection) -> None:
        settings = json.loads(request.body)
        if self.state != "generic":
            same = self._settings.get("revision") == settings.get("revision")
            if same and self.state == "ready":
                to.send_json(200, self._status())
                return
            message = f"this instance is {self.state} as {self._settings.get('revision')}"
            to.send_error(409, {"type": "Conflict", "message": message})
            return
        self.state, self._settings = "loading", settings
        began = time.monotonic()
        zygote = Zygote(settings, self._directory)
        try:
            self._has_layer = await zygote.load(float(settings.get("loadTimeout_s", 30.0)))
        except LoadFailed as failed:
            self.state = "failed"
            to.send_error(422, failed.error)
            return
        self._zygote = zygote
        self._idle.append(await zygote.fork())
        self.state = "ready"
        took_ms = (time.monotonic() - began) * 1000
        to.send_json(200, {**self._status(), "tookMs": round(took_ms, 1)})

    def _cancel(self, id_: str, to: Connection) -> None:
        call = self._calls.get(id_)
        if call is None or call.done.is_set():
            to.send_error(404, {"type": "NotFound", "message": f"no call {id_} is under way"})
            return
        call.was_cancelled = True
        if call.worker is not None:
            call.worker.kill()
        to.send_json(202, {"cancelled": id_})

    async def _call(self, request: Request, to: Connection) -> None:
        id_ = request.headers.get("x-motley-call-id") or os.urandom(16).hex()
        known = self._calls.get(id_)
        if known is not None:
            await self._again(known, to)
            return
        refusal = self._refusal()
        if refusal:
            to.send_error(503, {"type": refusal[0], "message": refusal[1]}, _NOT_STARTED)
            return
        call = self._calls[id_] = Call(id_)
        self._busy += 1
        self._is_used = True
        try:
            await self._run(call, request, to)
        finally:
            self._busy -= 1
            call.done.set()
            self._forget()
            if self._settings.get("single"):
                asyncio.get_running_loop().call_later(_LINGER_S, os._exit, 0)

    async def _again(self, call: Call, to: Connection) -> None:
        await call.done.wait()
        if call.answer is None:
            message = f"call {call.id} is done, and its result was too large to keep"
            to.send_error(409, {"type": "ResultGone", "message": message})
        else:
            code, kind, body, headers = call.answer
            to.send(code, kind, body, headers)

    def _refusal(self) -> tuple[str, str] | None:
        """Why a new call cannot begin here."""
        if self.state != "ready" or self._zygote is None:
            return "NotReady", f"this instance is {self.state}"
        if self._zygote.gone.is_set():
            asyncio.get_running_loop().call_later(0.1, os._exit, 70)
            return "NotReady", "the fork server ended; this instance goes too"
        if self.is_draining:
            return "Draining", "this instance ends"
        if self._settings.get("single") and self._is_used:
            return "Used", "this instance was for one call"
        if self._busy >= int(self._settings.get("concurrency", 1)):
            return "Busy", f"this instance has {self._busy} calls"
        return None

    def _forget(self) -> None:
        """Keep the latest answers only."""
        self._kept_bytes = sum(len(c.answer[2]) for c in self._calls.values() if c.answer)
        while len(self._calls) > _KEPT or self._kept_bytes > _KEPT_BYTES:
            oldest = next((c for c in self._calls.values() if c.done.is_set()), None)
            if oldest is None:
                return
            del self._calls[oldest.id]
            self._kept_bytes -= len(oldest.answer[2]) if oldest.answer else 0

    async def _run(self, call: Call, request: Request, to: Connection) -> None:
        assert self._zygote is not None
        worker = self._idle.pop() if self._idle else await self._zygote.fork()
        call.worker = worker
        limit_s = min(
            float(request.headers.get("x-motley-timeout") or 1e9),
            float(self._settings.get("timeout_s", 60.0)),
        )
        headers = {k: v for k, v in request.headers.items() if k not in _OWN}
        head = {
            "id": call.id,
            "type": request.headers.get("content-type", ""),
            "headers": headers,
            "method": request.method,
            "path": request.path,
            "deadline_s": limit_s,
            "token": request.headers.get("x-motley-call-token", ""),
        }
        began = time.monotonic()
        worker.send(head, request.body)
        alarm = asyncio.get_running_loop().call_later(limit_s, worker.kill)
        try:
            is_alive = await self._relay(call, worker, to, began, limit_s)
        finally:
            alarm.cancel()
        if is_alive and not worker.was_killed:
            self._idle.append(worker)
        else:
            worker.kill()
            worker.close()

    async def _relay(
        self, call: Call, worker: Worker, to: Connection, began: float, limit_s: float
    ) -> bool:
        """Pass the worker's answer on; is the worker fit for another call?"""
        parts: list[bytes] = []
        kind = ""
        while True:
            try:
                head, body = await worker.receive()
            except frames.Gone:
                error, code = await self._end(call, worker, limit_s)
                if kind:
                    to.abort()
                else:
                    self._finish(call, to, code, {"error": error}, began)
                return False
            if head["kind"] == "chunk":
                if not kind:
                    kind = head["type"]
                    to.begin(kind, {"X-Motley-Call-Id": call.id})
                if sum(map(len, parts)) <= _MOST_KEPT:
                    parts.append(body)
                await to.chunk(body)
            elif head["kind"] == "end":
                to.end()
                if sum(map(len, parts)) <= _MOST_KEPT:
                    call.answer = (200, kind, b"".join(parts), {"X-Motley-Call-Id": call.id})
                return True
            elif head["kind"] == "error" and kind:
                to.abort()
                return True
            elif head["kind"] == "error":
                self._finish(call, to, 500, {"error": head["error"]}, began)
                return True
            else:
                self._send(call, to, 200, head["type"], body, _headers(call, began, head["check"]))
                return True

    async def _end(self, call: Call, worker: Worker, limit_s: float) -> tuple[dict[str, Any], int]:
        """What to say of a worker that ended in the middle of a call."""
        if call.was_cancelled:
            return {"type": "Cancelled", "message": "the call was cancelled"}, 500
        if worker.was_killed:
            return {"type": "Timeout", "message": f"the call took longer than {limit_s:g} s"}, 504
        assert self._zygote is not None
        code = await self._zygote.ended(worker)
        how = "ended"
        if code is not None and code < 0:
            hint = " (out of memory?)" if code == -signal.SIGKILL else ""
            how = f"was ended by {signal.Signals(-code).name}{hint}"
        elif code is not None:
            how = f"ended with exit code {code}"
        return {"type": "Crashed", "message": f"the process of the call {how}"}, 500

    def _finish(
        self, call: Call, to: Connection, code: int, value: dict[str, Any], began: float
    ) -> None:
        body = json.dumps(value).encode()
        self._send(call, to, code, "application/json", body, _headers(call, began, None))

    def _send(
        self, call: Call, to: Connection, code: int, kind: str, body: bytes, headers: dict[str, str]
    ) -> None:
        if len(body) <= _MOST_KEPT:
            call.answer = (code, kind, body, headers)
        to.send(code, kind, body, headers)

    @property
    def busy(self) -> int:
        """Calls under way."""
        return self._busy


_OWN = frozenset({"x-motley-instance-token", "x-motley-call-token", "x-motley-timeout"})


def _headers(call: Call, began: float, check: bool | None) -> dict[str, str]:
    took_ms = (time.monotonic() - began) * 1000
    found = {"X-Motley-Call-Id": call.id, "X-Motley-Run-Ms": f"{took_ms:.3f}"}
    if check is not None:
        found["X-Motley-Check"] = "true" if check else "false"
    return found


async def serve(host: str, port: int, token_hash: str, directory: str) -> None:
    """Serve until told to end; calls under way are finished first."""
    loop = asyncio.get_running_loop()
    instance = Instance(token_hash, directory)
    stop = asyncio.Event()

    def drain() -> None:
        instance.is_draining = True
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, drain)
    loop.add_signal_handler(signal.SIGCHLD, _reap)
    server = await loop.create_server(
        lambda: Connection(instance.handle, _MOST_BODY, instance.connections), host, port
    )
    sys.stdout.write(f"[runtime] listening on {port}\n")
    sys.stdout.flush()
    await stop.wait()
    server.close()
    while instance.busy:
        ticked = loop.create_future()
        loop.call_later(0.02, ticked.set_result, None)
        await ticked
    # An answer just written has to leave before the process does.
    flushed = loop.create_future()
    loop.call_later(0.02, flushed.set_result, None)
    await flushed


def _reap() -> None:
    """As the pod's first process: whoever lost their parent ends here."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return


def main(arguments: Iterable[str] = ()) -> None:
    """Settings come from the environment; see `serve`."""
    given = list(arguments) or sys.argv[1:]
    port = int(given[0]) if given else int(os.environ.get("MOTLEY_PORT", _PORT))
    directory = os.environ.get("MOTLEY_DIRECTORY", "/tmp/function")
    token_hash = os.environ.pop("MOTLEY_TOKEN_SHA256", "")
    asyncio.run(serve(os.environ.get("MOTLEY_HOST", "0.0.0.0"), port, token_hash, directory))
    os._exit(0)
