"""The supervisor's side of the zygote: start it, order components from it, do without it.

Whatever is wrong with the zygote (killed, silent, of older files), the answer is the same: the
component is started by its command, as if there were none, and another zygote is started for the
next one. Orders are answered in milliseconds, so the supervisor waits for them in place.
"""

import asyncio
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from motley.lib import clock, journal
from motley.ops import processes, spawning, zygote
from motley.ops.processes import Process

log = journal.get(__name__)

READY_S = 15.0  # imports on a busy machine; after that components start without it
_ANSWER_S = 5.0
_END_S = 2.0
NAME = "supervisor"  # the mark of the zygote's environment: it is a part of it


class NotYet(Exception):
    """The zygote is still importing: ask again when it wakes you."""


class Preloaded:
    """Components forked from a zygote, else started by their command."""

    def __init__(
        self, root: Path, log_file: Path, wake: Callable[[], None], source: clock.Clock
    ) -> None:
        """`wake` is called when the zygote becomes ready."""
        self._root = root
        self._log_file = log_file
        self._wake = wake
        self._clock = source
        self._process: Process | None = None
        self._socket: socket.socket | None = None
        self._is_ready = False
        self._ready_by = 0.0

    @property
    def process(self) -> Process | None:
        """The zygote, where there is one."""
        return self._process

    def launch(self, command: Sequence[str], *, component: str, log_file: Path) -> Process:
        """Start a component. OSError when it cannot be; NotYet while the zygote gets ready."""
        order = zygote.Order(
            tuple(command),
            spawning.environment(self._root, component),
            component,
            str(log_file),
        )
        if zygote.is_forkable(command) and zygote.fits(order):
            self._expect()
            process = self._order(order)
            if process is not None:
                return process
        return spawning.launch(command, root=self._root, component=component, log=log_file)

    def prepare(self, commands: Sequence[Sequence[str]]) -> None:
        """Start the zygote early when one of these commands can use it."""
        if self._socket is None and any(zygote.is_forkable(command) for command in commands):
            self._start()

    def _expect(self) -> None:
        """Have a zygote that is ready; NotYet while there is hope that it will be."""
        if self._socket is None:
            self._start()
        if not self._is_ready and self._clock.monotonic() < self._ready_by:
            raise NotYet

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = (sys.executable, "-P", "-m", "motley.ops.zygote", str(self._root))
        with theirs:
            self._process = spawning.launch(
                (*command, "-" * zygote.ROOM_BYTES),
                root=self._root,
                component=NAME,
                log=self._log_file,
                more_variables={zygote.ROOM_VARIABLE: "-" * zygote.ROOM_BYTES},
                passed={theirs.fileno(): zygote.SOCKET_FD},
            )
        ours.settimeout(_ANSWER_S)
        self._socket, self._is_ready = ours, False
        self._ready_by = self._clock.monotonic() + READY_S
        asyncio.get_running_loop().add_reader(ours.fileno(), self._hear)
        log.info("zygote started", pid=self._process.pid)

    def _hear(self) -> None:
        """Its first words say that it is ready; anything else that it has ended."""
        if self._socket is None or self._is_ready or self._receive() is None:
            self._drop("it has ended")
        else:
            self._is_ready = True
        self._wake()

    def _receive(self) -> zygote.Answer | None:
        assert self._socket is not None
        try:
            data = self._socket.recv(1 << 16)
            return msgspec.json.decode(data, type=zygote.Answer) if data else None
        except (OSError, msgspec.MsgspecError):
            return None

    def _order(self, order: zygote.Order) -> Process | None:
        """Have a component forked; None when it must be started otherwise."""
        if not self._is_ready or self._socket is None:
            self._drop("it does not get ready")
            return None
        answer = None
        try:
            self._socket.send(msgspec.json.encode(order))
            answer = self._receive()
        except OSError as error:
            log.warning("zygote takes no orders", error=error)
        if answer is not None and answer.pid:
            log.info("component forked", name=order.component, pid=answer.pid)
            return processes.identify(answer.pid) or Process(answer.pid, 0)
        if answer is not None and answer.error:
            log.warning("zygote cannot fork", error=answer.error)
            return None
        self._drop("its files have changed" if answer is not None else "it does not answer")
        # It may have forked and not have told: that process has our marks.
        for process in processes.of_cluster(self._root):
            if processes.command_of(process.pid) == order.command:
                return process
        return None

    def _drop(self, reason: str) -> None:
        """Have no zygote any more; what it forked does not notice."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
        if self._process is not None:
            processes.send(self._process, signal.SIGKILL)
            log.info("zygote given up", pid=self._process.pid, reason=reason)
        self._socket, self._process, self._is_ready = None, None, False

    def close(self) -> None:
        """End the zygote; it has nothing to lose."""
        if self._socket is None or self._process is None:
            return
        process = self._process
        asyncio.get_running_loop().remove_reader(self._socket.fileno())
        self._socket.close()
        self._socket, self._process, self._is_ready = None, None, False
        if not processes.wait(process, _END_S):
            processes.send(process, signal.SIGKILL)
            processes.wait(process, _END_S)
