"""nginx as a process: tested before it reads, reloaded without a dropped connection, found again.

nginx does not depend on whoever started it: when the gateway ends, nginx goes on with what it has,
and the next gateway takes it over. It is known by where it works (its directory is its current
one), which also finds workers whose master was killed: they would hold the ports for ever.

Invariant: nginx is never given a configuration that `nginx -t` did not accept.
"""

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

from motley.lib import clock as clocks
from motley.lib import journal
from motley.network.paths.nginxconf import Listening

log = journal.get(__name__)

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_TEST_S = 30.0
_ANSWER_S = 2.0
_POLL_S = 0.02
_TAKES_S = 15.0


class NginxError(Exception):
    """nginx is not there, or does not do what it is told; what it said."""


def program() -> str | None:
    """Where nginx is."""
    return shutil.which("nginx", path=_PATH)


def running(directory: Path) -> list[int]:
    """The nginx processes of a directory, master and workers."""
    wanted = str(directory.resolve())
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if _is_ours(pid, wanted)]


def _is_ours(pid: int, directory: str) -> bool:
    try:
        return (
            Path(f"/proc/{pid}/comm").read_text() == "nginx\n"
            and os.readlink(f"/proc/{pid}/cwd") == directory
            and not _is_zombie(pid)
        )
    except OSError:  # it may end while it is looked at
        return False


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def _is_zombie(pid: int) -> bool:
    return _stat(pid)[0] in "ZX"


def master(directory: Path) -> int | None:
    """The master: the one whose parent is not an nginx of the same directory."""
    everyone = running(directory)
    for pid in everyone:
        with contextlib.suppress(OSError):
            title = Path(f"/proc/{pid}/cmdline").read_bytes()
            if int(_stat(pid)[1]) not in everyone and b"worker" not in title.split(b"\0")[0]:
                return pid
    return None


def send(pids: Sequence[int], number: signal.Signals) -> None:
    """Signal processes; those that are gone have what they were to get."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


async def stop(
    directory: Path, *, grace_s: float = 3.0, clock: clocks.Clock = clocks.SYSTEM
) -> bool:
    """End every nginx of a directory, answers under way first; was there one?"""
    found = running(directory)
    if not found:
        return False
    for number, wait_s in ((signal.SIGQUIT, grace_s), (signal.SIGTERM, 1.0), (signal.SIGKILL, 5.0)):
        # The master passes the first on; workers without one are told themselves.
        leader = master(directory)
        is_kind = number is signal.SIGQUIT and leader is not None
        send([leader] if is_kind and leader is not None else running(directory), number)
        deadline = clock.monotonic() + wait_s
        while running(directory) and clock.monotonic() < deadline:
            await clock.sleep(_POLL_S)
        if not running(directory):
            return True
    log.warning("nginx does not end", pids=running(directory))
    return True


class Nginx:
    """One instance, with its configuration in one directory."""

    def __init__(self, at: Listening, *, clock: clocks.Clock = clocks.SYSTEM) -> None:
        self._at = at
        self._clock = clock
        self._child: asyncio.subprocess.Process | None = None
        self._master: int | None = None

    @property
    def is_running(self) -> bool:
        """Is there a master?"""
        where = str(self._at.directory.resolve())
        if self._master is None or not _is_ours(self._master, where):
            self._master = master(self._at.directory)
        return self._master is not None

    async def check(self, text: str) -> str:
        """What nginx has against a configuration; empty when nothing."""
        self._prepare()
        draft = self._at.directory / "nginx.conf.draft"
        _write(draft, text)
        binary = program()
        if binary is None:
            raise NginxError("nginx is not installed: apt-get install nginx")
        try:
            async with asyncio.timeout(_TEST_S):
                child = await asyncio.create_subprocess_exec(
                    *(binary, "-t", "-q", "-c", str(draft)),
                    cwd=self._at.directory,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.DEVNULL,
                    stderr=asyncio.subprocess.PIPE,
                )
                _, said = await child.communicate()
        except TimeoutError:
            raise NginxError("nginx -t does not end") from None
        lines = said.decode(errors="replace").strip().splitlines()
        return "" if child.returncode == 0 else (lines or ["nginx -t failed"])[0]

    async def apply(self, text: str, generation: str) -> None:
        """Run with a configuration that `check` found good; returns when it answers requests."""
        self._prepare()
        _write(self._at.config, text)
        if self.is_running:
            if await self.generation() == generation:
                return
            send([self._master] if self._master is not None else [], signal.SIGHUP)
        else:
            await self._start()
        deadline = self._clock.monotonic() + _TAKES_S
        while await self.generation() != generation:
            if self._clock.monotonic() > deadline:
                raise NginxError("nginx does not take its configuration; its words are in the log")
            if not self.is_running:
                raise NginxError("nginx has ended; its words are in the log")
            await self._clock.sleep(_POLL_S)

    async def generation(self) -> str:
        """The configuration that nginx answers with now; empty when it does not answer."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                reader, writer = await asyncio.open_unix_connection(str(self._at.control))
                try:
                    writer.write(b"GET / HTTP/1.0\r\n\r\n")
                    return (await reader.read()).decode().rpartition("\r\n\r\n")[2].strip()
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return ""

    async def stop(self) -> None:
        """End it."""
        await stop(self._at.directory, clock=self._clock)
        await self._collect()

    async def _start(self) -> None:
        await stop(self._at.directory, clock=self._clock)  # workers that a killed master left
        await self._collect()
        self._at.control.unlink(missing_ok=True)
        binary = program()
        if binary is None:
            raise NginxError("nginx is not installed: apt-get install nginx")
        # Its own session: what ends us does not end it.
        self._child = await asyncio.create_subprocess_exec(
            *(binary, "-c", str(self._at.config)),
            cwd=self._at.directory,
            stdin=asyncio.subprocess.DEVNULL,
            start_new_session=True,
        )
        log.info("nginx started", pid=self._child.pid)

    async def _collect(self) -> None:
        """Let an ended child not stay as a zombie."""
        if self._child is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._child.wait()
            self._child = None

    def _prepare(self) -> None:
        self._at.directory.mkdir(parents=True, exist_ok=True, mode=0o755)
        (self._at.directory / "tmp").mkdir(exist_ok=True, mode=0o755)


def _write(path: Path, text: str) -> None:
    draft = path.with_name(f".{path.name}.partial")
    draft.write_text(text)
    draft.replace(path)
