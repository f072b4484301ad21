"""The server's side of zygote and workers: processes, their sockets, and their ends."""

from __future__ import annotations

import asyncio
import collections
import gc
import json
import os
import signal
import socket
from typing import Any

from . import frames, zygote

_END_NEWS_S = 0.5  # how long the news of a process's end may be behind the end of its socket


class LoadFailed(Exception):
    """The code could not be loaded; `error` says why."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error.get("message", ""))
        self.error = error


class Worker:
    """One process that runs calls, and the stream to it."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        pid: asyncio.Future[int],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self.pid = pid
        self.was_killed = False

    def send(self, head: dict[str, Any], body: bytes) -> None:
        """Give it a call."""
        self._writer.write(frames.pack(head, body))

    async def receive(self) -> tuple[dict[str, Any], bytes]:
        """Its next message. Raises Gone when the process has ended."""
        try:
            sizes = frames.sizes(await self._reader.readexactly(frames.SIZE))
            data = await self._reader.readexactly(sum(sizes))
        except (asyncio.IncompleteReadError, OSError):
            raise frames.Gone from None
        return json.loads(data[: sizes[0]]), data[sizes[0] :]

    def kill(self) -> None:
        """End it, and whatever it started."""
        self.was_killed = True
        if self.pid.done():
            _kill(self.pid.result())
        else:
            self.pid.add_done_callback(lambda pid: None if pid.cancelled() else _kill(pid.result()))

    def close(self) -> None:
        """Leave it."""
        self._writer.close()


class Zygote:
    """The fork server's process; makes workers."""

    def __init__(self, settings: dict[str, Any], directory: str) -> None:
        self._settings = settings
        self._directory = directory
        self._loaded: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._pids: collections.deque[asyncio.Future[int]] = collections.deque()
        self._ends: dict[int, int] = {}
        self._end_waits: dict[int, asyncio.Future[int]] = {}
        self._buffer = bytearray()
        self.pid = 0
        self.gone = asyncio.Event()

    async def load(self, timeout_s: float) -> bool:
        """Start it and wait for the code; is there a layer to keep? Raises LoadFailed."""
        ours, theirs = socket.socketpair()
        gc.freeze()  # so that collecting does not copy what both have
        self.pid = os.fork()
        if self.pid == 0:
            _become(theirs, self._settings, self._directory)
        theirs.close()
        ours.setblocking(False)
        self._control = ours
        asyncio.get_running_loop().add_reader(ours.fileno(), self._read)
        try:
            said = await asyncio.wait_for(asyncio.shield(self._loaded), timeout_s)
        except asyncio.TimeoutError:  # noqa: UP041 (not an alias before 3.11)
            self.kill()
            message = f"loading the code did not end within {timeout_s:.0f} s"
            raise LoadFailed({"type": "Timeout", "message": message}) from None
        if said["kind"] == "failed":
            self.kill()
            raise LoadFailed(said["error"])
        return bool(said["layer"])

    async def fork(self) -> Worker:
        """Another worker."""
        ours, theirs = socket.socketpair()
        pid: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._pids.append(pid)
        socket.send_fds(self._control, [b"f"], [theirs.fileno()])
        theirs.close()
        reader, writer = await asyncio.open_connection(sock=ours)
        return Worker(reader, writer, pid)

    async def ended(self, worker: Worker) -> int | None:
        """How a worker ended: its exit code, or the negative number of the signal."""
        try:
            pid = await asyncio.wait_for(asyncio.shield(worker.pid), _END_NEWS_S)
            if pid in self._ends:
                return self._ends.pop(pid)
            wait = self._end_waits[pid] = asyncio.get_running_loop().create_future()
            return await asyncio.wait_for(wait, _END_NEWS_S)
        except asyncio.TimeoutError:  # noqa: UP041 (not an alias before 3.11)
            return None

    def kill(self) -> None:
        """End it; workers end when their sockets do."""
        if self.pid:
            _kill(self.pid)

    def _read(self) -> None:
        try:
            data = self._control.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._control.fileno())
            self.gone.set()
            if not self._loaded.done():
                error = {"type": "Crashed", "message": "the process ended while it loaded the code"}
                self._loaded.set_result({"kind": "failed", "error": error})
            return
        self._buffer += data
        while len(self._buffer) >= frames.SIZE:
            head_size, body_size = frames.sizes(bytes(self._buffer[: frames.SIZE]))
            end = frames.SIZE + head_size + body_size
            if len(self._buffer) < end:
                return
            head = json.loads(self._buffer[frames.SIZE : frames.SIZE + head_size])
            del self._buffer[:end]
            self._take(head)

    def _take(self, head: dict[str, Any]) -> None:
        if head["kind"] == "forked":
            self._pids.popleft().set_result(head["pid"])
        elif head["kind"] == "ended":
            wait = self._end_waits.pop(head["pid"], None)
            if wait is not None and not wait.done():
                wait.set_result(head["code"])
            else:
                if len(self._ends) > 1000:
                    self._ends.clear()
                self._ends[head["pid"]] = head["code"]
        elif not self._loaded.done():
            self._loaded.set_result(head)


def _become(control: socket.socket, settings: dict[str, Any], directory: str) -> None:
    """The child's part: forget the server's loop and sockets, be the zygote, end."""
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        asyncio._set_running_loop(None)
        keep = control.fileno()
        os.closerange(3, keep)
        os.closerange(keep + 1, max(keep + 2, 1024))
        zygote.run(control, settings, directory)
    finally:
        os._exit(0)


def _kill(pid: int) -> None:
    for end in (os.killpg, os.kill):
        try:
            end(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
