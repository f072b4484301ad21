"""The zygote: a process that has imported what the components share, and forks them.

Starting Python and importing the client, HTTP and TLS takes half a second of CPU and thirty
megabytes, for each component the same. The zygote does it once and then waits for orders on a
socket; every component it forks begins with those pages, shared until somebody writes to them.

A forked component is like one that was started by its command: own session, own log, its
environment and command line where the kernel shows them (/proc/PID/environ and cmdline), and it is
the supervisor's to collect. The zygote itself never starts a thread or an event loop.

Invariant: a component never runs code older than the files on disk when it started. A zygote whose
files have changed says so and ends; the supervisor starts another.
"""

import ctypes
import gc
import importlib
import os
import runpy
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from motley.lib import clock

SOCKET_FD = 3
# What most components use. Only what may be forked: no threads, no event loops, no open files.
SHARED = (
    "asyncio",
    "click",
    "concurrent.futures.thread",
    "cryptography.x509",
    "multiprocessing.connection",
    "prometheus_client",
    "uvloop",
    "yaml",
    "motley.client.events",
    "motley.client.informer",
    "motley.client.kubeconfig",
    "motley.client.lease",
    "motley.client.rest",
    "motley.client.workqueue",
    "motley.api.views.core",
    "motley.api.views.pod",
    "motley.lib.health",
    "motley.lib.tasks",
)
ROOM_BYTES = 16 << 10  # for the longest command line, and as much for the environment
ROOM_VARIABLE = "MOTLEY_ROOM"
_PR_SET_NAME = 15
_LARGEST_MESSAGE = 64 << 10


class Order(msgspec.Struct, frozen=True):
    """A component to be forked: `python -P -m MODULE ARGUMENTS…` as its command line says."""

    command: tuple[str, ...]
    variables: dict[str, str]
    component: str
    log: str


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of an order; without an order, that the zygote is ready for one."""

    pid: int = 0
    stale: bool = False
    error: str = ""


def is_forkable(command: Sequence[str]) -> bool:
    """Whether a command is a Python module of this very installation."""
    return len(command) > 3 and tuple(command[:3]) == (sys.executable, "-P", "-m")


def preload(names: Sequence[str] = SHARED) -> None:
    """Import what components share, and take it all out of the garbage collector's sight."""
    gc.disable()  # a collection would write into pages that are to be shared
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("motley"):
                raise
            # An optional part, say uvloop: components do without it too.
    gc.collect()
    gc.freeze()


def stamps() -> dict[str, tuple[int, int]]:
    """The files this process has read its code from, each with its time and size."""
    files = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    return {file: _stamp(file) for file in files if file}


def _stamp(file: str) -> tuple[int, int]:
    try:
        found = os.stat(file)
    except OSError:
        return (0, 0)
    return (found.st_mtime_ns, found.st_size)


def is_stale(before: Mapping[str, tuple[int, int]], begun_ns: int) -> bool:
    """Whether one of the files is not what it was, or was written while we read."""
    return any(_stamp(f) != stamp or stamp[0] > begun_ns for f, stamp in before.items())


def serve(orders: socket.socket, begun_ns: int) -> Order | None:
    """Answer orders until the supervisor is gone.

    Returns in two ways: None here, and in every forked process the order it has to carry out.
    """
    read = stamps()
    orders.send(msgspec.json.encode(Answer()))
    while data := orders.recv(_LARGEST_MESSAGE):
        order = msgspec.json.decode(data, type=Order)
        if is_stale(read, begun_ns):
            orders.send(msgspec.json.encode(Answer(stale=True)))
            return None
        try:
            pid = _fork()
        except OSError as error:
            orders.send(msgspec.json.encode(Answer(error=str(error))))
            continue
        if pid == 0:
            orders.close()
            return order
        orders.send(msgspec.json.encode(Answer(pid=pid)))
    return None


def _fork() -> int:
    """A new process that is nobody's child here, so that it goes to the supervisor; 0 in it."""
    reading, writing = os.pipe()
    between = os.fork()
    if between == 0:
        try:
            pid = os.fork()
        except OSError:
            os._exit(1)
        if pid == 0:
            os.close(reading)
            os.close(writing)
            return 0
        os.write(writing, str(pid).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    os.waitpid(between, 0)
    if not told:
        raise OSError("the process between has ended")
    return int(told)


def become(order: Order) -> None:
    """Make a forked process the component: session, files, environment, names."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
    for source, target in ((null, 0), (out, 1), (out, 2)):
        os.dup2(source, target)
    os.close(null)
    os.close(out)
    os.environ.clear()
    os.environ.update(order.variables)
    show(order.command, order.variables)
    ctypes.CDLL(None).prctl(_PR_SET_NAME, f"motley-{order.component}".encode()[:15], 0, 0, 0)
    gc.enable()


def show(command: Sequence[str], variables: Mapping[str, str]) -> None:
    """Let the kernel show another command line and environment for this process.

    They lie in memory where the process was started with them, and may be written over as far as
    there is room. The environment Python and C read is another: it was copied when it was set.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    begin, end, environ_begin, environ_end = map(int, fields[45:49])
    pairs = (f"{name}={value}" for name, value in variables.items())
    for first, last, texts in ((begin, end, command), (environ_begin, environ_end, pairs)):
        data = b"".join(text.encode() + b"\0" for text in texts)
        if not 0 < len(data) <= last - first:
            raise OSError(f"no room for {len(data)} bytes of command line or environment")
        ctypes.memmove(first, data.ljust(last - first, b"\0"), last - first)


def fits(order: Order) -> bool:
    """Whether there is room for what `show` has to show."""
    texts = (order.command, [f"{k}={v}" for k, v in order.variables.items()])
    return all(sum(len(text.encode()) + 1 for text in part) <= ROOM_BYTES for part in texts)


def main() -> None:
    """Serve the supervisor at the other end of the socket; in a component, run it."""
    variables = {name: value for name, value in os.environ.items() if name != ROOM_VARIABLE}
    os.environ.clear()
    os.environ.update(variables)
    show((*sys.orig_argv[:4], sys.argv[1]), variables)
    begun_ns = int(clock.SYSTEM.now() * 1e9)
    preload()
    with socket.socket(fileno=SOCKET_FD) as orders:
        order = serve(orders, begun_ns)
    if order is not None:
        become(order)
        _, _, _, module, *arguments = order.command
        sys.argv = [module, *arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
