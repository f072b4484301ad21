"""One worker: a process that runs one call after the other, until somebody ends it.

It was forked from the zygote, so the code is loaded already. Whatever a call does to this process
(crash, exit, loop for ever, eat memory) is this call's own misfortune: the server sees the
connection break or the deadline pass, ends the process and has another one forked.
"""

from __future__ import annotations

import asyncio
import inspect
import io
import json
import os
import socket
import sys
import traceback
from collections.abc import Callable
from typing import Any

from . import frames
from .context import Context

_SHOWN_LINES = 20


class Prefixed(io.TextIOBase):
    """Standard output of a call: every line begins with the call's id, and is written whole."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._rest = ""
        self.call_id = "-"

    def writable(self) -> bool:
        """Yes."""
        return True

    def fileno(self) -> int:
        """The descriptor itself, for those who hand it to other programs."""
        return self._fd

    def write(self, text: str) -> int:
        """Keep the beginning of a line until its end comes."""
        *lines, self._rest = (self._rest + text).split("\n")
        if lines:
            self._put(lines)
        return len(text)

    def flush(self) -> None:
        """Write also what is not a whole line."""
        if self._rest:
            self._put([self._rest])
            self._rest = ""

    def _put(self, lines: list[str]) -> None:
        data = "".join(f"[{self.call_id}] {line}\n" for line in lines).encode(errors="replace")
        while data:
            data = data[os.write(self._fd, data) :]


class Handler:
    """The user's `run` and `check`, called as they want to be."""

    def __init__(self, run: Callable[..., Any], check: Callable[..., Any] | None) -> None:
        self._run = run
        self._check = check
        self._arguments = _arguments(run)

    def call(self, arg: Any, context: Context) -> Any:
        """What `run` returns, awaited if it is to be."""
        given = (arg, context)[: self._arguments]
        return _settled(self._run(*given))

    def check(self, result: Any) -> bool | None:
        """What `check` says of it, or None where there is no such function."""
        return None if self._check is None else bool(_settled(self._check(result)))


def serve(sock: socket.socket, handler: Handler, settings: dict[str, Any]) -> None:
    """Run calls until the other side is gone."""
    out, err = Prefixed(1), Prefixed(2)
    sys.stdout, sys.stderr = out, err
    while True:
        try:
            head, body = frames.receive(sock)
        except (frames.Gone, OSError):
            return
        out.call_id = err.call_id = head["id"]
        try:
            _one(sock, handler, settings, head, body)
        except SystemExit as end:
            _fail(sock, "SystemExit", f"the function called sys.exit({end.code!r})")
        except BaseException as error:
            _report(sock, error)
        out.flush()
        err.flush()


def _one(
    sock: socket.socket,
    handler: Handler,
    settings: dict[str, Any],
    head: dict[str, Any],
    body: bytes,
) -> None:
    context = Context(head, body, settings)
    result = handler.call(decode(head.get("type", ""), body), context)
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        _stream(sock, result)
        return
    kind, data = encode(result)
    check = handler.check(result)
    sock.sendall(frames.pack({"kind": "result", "type": kind, "check": check}, data))


def _stream(sock: socket.socket, result: Any) -> None:
    """Send what a generator yields as it comes; there is nothing for `check` to look at."""
    first = True
    if inspect.isgenerator(result):
        for item in result:
            _chunk(sock, item, first)
            first = False
    else:
        loop = asyncio.new_event_loop()
        try:
            while True:
                try:
                    item = loop.run_until_complete(result.__anext__())
                except StopAsyncIteration:
                    break
                _chunk(sock, item, first)
                first = False
        finally:
            loop.close()
    if first:
        _chunk(sock, "", first)
    sock.sendall(frames.pack({"kind": "end"}))


def _chunk(sock: socket.socket, item: Any, first: bool) -> None:
    kind, data = encode(item)
    head = {"kind": "chunk", **({"type": kind} if first else {})}
    sock.sendall(frames.pack(head, data))


def _settled(value: Any) -> Any:
    return asyncio.run(_await(value)) if inspect.isawaitable(value) else value


async def _await(value: Any) -> Any:
    return await value


def _arguments(run: Callable[..., Any]) -> int:
    """How many of (arg, context) the function takes."""
    try:
        parameters = inspect.signature(run).parameters.values()
    except (TypeError, ValueError):  # written in C
        return 1
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return 2
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return min(2, sum(p.kind in places for p in parameters))


def decode(kind: str, body: bytes) -> Any:
    """The argument: JSON as what it says, bytes as they are, everything else as text."""
    plain = kind.partition(";")[0].strip().lower()
    if plain in ("application/json", "text/json") or plain.endswith("+json"):
        return json.loads(body) if body else None
    if plain == "application/octet-stream":
        return body
    return body.decode("utf-8", "replace")


def encode(result: Any) -> tuple[str, bytes]:
    """A result as content type and bytes; raises TypeError for what JSON cannot say."""
    if isinstance(result, str):
        return "text/plain; charset=utf-8", result.encode()
    if isinstance(result, (bytes, bytearray, memoryview)):
        return "application/octet-stream", bytes(result)
    return "application/json", json.dumps(result).encode()


def describe(error: BaseException) -> dict[str, Any]:
    """An error as the caller sees it: type, message, and the lines of the user's code."""
    shown: dict[str, Any] = {"type": type(error).__name__, "message": str(error)}
    if isinstance(error, SyntaxError):
        shown["message"] = error.msg
        shown["file"] = os.path.basename(error.filename or "")
        shown["line"] = error.lineno
        shown["text"] = (error.text or "").strip()
        return shown
    frames_ = traceback.extract_tb(error.__traceback__)
    own = [
        f for f in frames_ if "motley_runtime" not in f.filename and "importlib" not in f.filename
    ]
    own = [f for f in own if os.path.dirname(__file__) != os.path.dirname(f.filename)]
    if own:
        shown["file"] = os.path.basename(own[-1].filename)
        shown["line"] = own[-1].lineno
        shown["text"] = own[-1].line or ""
        lines = [f"{os.path.basename(f.filename)}:{f.lineno} in {f.name}" for f in own]
        shown["trace"] = lines[-_SHOWN_LINES:]
    return shown


def _report(sock: socket.socket, error: BaseException) -> None:
    traceback.print_exception(type(error), error, error.__traceback__)
    sock.sendall(frames.pack({"kind": "error", "error": describe(error)}))


def _fail(sock: socket.socket, kind: str, message: str) -> None:
    sock.sendall(frames.pack({"kind": "error", "error": {"type": kind, "message": message}}))
