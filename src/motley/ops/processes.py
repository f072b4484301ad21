"""Processes by identity, not by name.

A process id is used again after its process has ended, so a pid alone is never trusted: it counts
only together with the time the kernel says the process started. Every process Motley starts also
carries its cluster's root directory in its environment, which its children inherit; that finds
what no file remembers any more.

Invariant: no signal is sent to a process that is not the one meant.
"""

import os
import select
import signal
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

ROOT_VARIABLE = "MOTLEY_ROOT"
COMPONENT_VARIABLE = "MOTLEY_COMPONENT"
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Process(msgspec.Struct, frozen=True):
    """A process that cannot be mistaken for another one: pid and start in clock ticks."""

    pid: int
    started: int

    @property
    def is_alive(self) -> bool:
        """Does it still run? A zombie, which only waits to be collected, does not."""
        return start_of(self.pid) == self.started


def start_of(pid: int) -> int | None:
    """When the kernel started a process, in ticks since boot; None when it does not run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the command's name may hold anything, even ")"
    return None if fields[0] in "ZX" else int(fields[19])


def identify(pid: int) -> Process | None:
    """The process that has this pid now."""
    started = start_of(pid)
    return None if started is None else Process(pid, started)


def rss_bytes(pid: int) -> int:
    """Memory a process holds; 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def netns(pid: int) -> int | None:
    """The network namespace a process is in; None when it is gone."""
    try:
        return os.stat(f"/proc/{pid}/ns/net").st_ino
    except OSError:
        return None


def send(process: Process, number: signal.Signals) -> bool:
    """Signal exactly this process; False when it is gone."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        # The descriptor pins the pid: if it is ours now, it is ours when the signal arrives.
        if not process.is_alive:
            return False
        signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def wait(process: Process, timeout_s: float) -> bool:
    """Wait until a process has ended; False when it still runs after the time."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return True
    try:
        if not process.is_alive:
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(timeout_s * 1000))
    finally:
        os.close(descriptor)


def stop(processes: Iterable[Process], grace_s: float) -> None:
    """Ask processes to end, all at once, and kill those that do not within the time."""
    asked = [process for process in processes if send(process, signal.SIGTERM)]
    for process in asked:
        if not wait(process, grace_s):
            send(process, signal.SIGKILL)
            wait(process, 5.0)


def environment(pid: int) -> dict[str, str]:
    """What a process was started with; empty when it is gone or not ours to read."""
    try:
        raw = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (entry.partition("=") for entry in raw.decode(errors="replace").split("\0") if entry)
    return {name: value for name, _, value in pairs}


def command_of(pid: int) -> tuple[str, ...]:
    """A process's command line; empty when it is gone."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(raw.decode(errors="replace").rstrip("\0").split("\0"))


def pids() -> Iterator[int]:
    """Every process of the machine."""
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def of_cluster(root: Path) -> dict[Process, str]:
    """Processes started for a cluster, each with its component's name; the caller is left out."""
    found = {}
    for pid in pids():
        variables = environment(pid) if pid != os.getpid() else {}
        if variables.get(ROOT_VARIABLE) == str(root) and COMPONENT_VARIABLE in variables:
            process = identify(pid)
            if process is not None:
                found[process] = variables[COMPONENT_VARIABLE]
    return found


def in_cgroup(name: str) -> list[Process]:
    """Processes in a cgroup, or below it, in any hierarchy."""
    found = []
    for pid in pids():
        lines: list[str] = []
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        paths = (line.split(":", 2)[2] for line in lines)
        if any(path == name or path.startswith(f"{name}/") for path in paths):
            process = identify(pid)
            if process is not None:
                found.append(process)
    return found
