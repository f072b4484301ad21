"""The fork server: loads the code once, then forks a worker whenever one is wanted.

Forking a process that has everything imported takes a millisecond or two, so a worker that had to
be killed is replaced in no time, and calls of one instance share the memory of what they import.
It speaks with the server over one socket; a new worker's own socket travels over it.
"""

from __future__ import annotations

import base64
import importlib
import os
import resource
import select
import signal
import socket
import sys
from typing import Any

from . import frames, layer, worker

_OOM_FIRST = "1000"  # where memory ends the kernel takes a worker, not the server


def run(control: socket.socket, settings: dict[str, Any], directory: str) -> None:
    """Load, say how it went, fork on demand. Does not return before the server is gone."""
    try:
        handler, has_layer = _load(settings, directory)
    except BaseException as error:
        shown = worker.describe(error)
        if isinstance(error, layer.Failed):
            shown["type"] = "SetupFailed"
        elif isinstance(error, SystemExit):
            shown["message"] = f"the code called sys.exit({error.code!r}) while it was loaded"
        control.sendall(frames.pack({"kind": "failed", "error": shown}))
        return
    control.sendall(frames.pack({"kind": "loaded", "layer": has_layer}))
    _serve(control, handler, settings)


def _load(settings: dict[str, Any], directory: str) -> tuple[worker.Handler, bool]:
    code = os.path.join(directory, "code")
    place = os.path.join(directory, "layer")
    os.makedirs(code, exist_ok=True)
    if settings.get("archive"):
        layer.unpack(base64.b64decode(settings["archive"]), code)
    for name, text in (settings.get("files") or {}).items():
        _write(code, name, text.encode())
    if settings.get("code") is not None:
        _write(code, "main.py", settings["code"].encode())
    os.environ.update(settings.get("env") or {})
    made = layer.make(settings, place, code, float(settings.get("setupTimeout_s", 300.0)))
    os.environ["MOTLEY_LAYER"] = place
    os.chdir(code)
    sys.path[:0] = [code, os.path.join(place, "site")]
    sys.dont_write_bytecode = True
    module_name, _, name = settings.get("handler", "run").rpartition(".")
    module = importlib.import_module(module_name or "main")
    run_ = getattr(module, name, None)
    if not callable(run_):
        raise layer.Failed(f"the code has no function {name}(arg)")
    check = getattr(module, "check", None)
    return worker.Handler(run_, check if callable(check) else None), made


def _write(directory: str, name: str, data: bytes) -> None:
    path = os.path.realpath(os.path.join(directory, name))
    if not path.startswith(os.path.realpath(directory) + os.sep):
        raise layer.Failed(f"the file name {name!r} leads outside")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def _serve(control: socket.socket, handler: worker.Handler, settings: dict[str, Any]) -> None:
    woken, wake = socket.socketpair()
    woken.setblocking(False)
    wake.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    while True:
        readable, _, _ = select.select([control, woken], [], [])
        if woken in readable:
            woken.recv(4096)
            _reap(control)
        if control in readable and not _fork(control, handler, settings, (woken, wake)):
            return


def _fork(
    control: socket.socket,
    handler: worker.Handler,
    settings: dict[str, Any],
    own: tuple[socket.socket, ...],
) -> bool:
    """Take one order: a worker on the socket that comes with it. False: the server is gone."""
    data, descriptors, _, _ = socket.recv_fds(control, 1, 1)
    if not data or not descriptors:
        return False
    pid = os.fork()
    if pid:
        os.close(descriptors[0])
        control.sendall(frames.pack({"kind": "forked", "pid": pid}))
        return True
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for sock in (control, *own):
        sock.close()
    _limit(int(settings.get("memoryBytes") or 0))
    try:
        worker.serve(socket.socket(fileno=descriptors[0]), handler, settings)
    finally:
        os._exit(0)


def _limit(memory_bytes: int) -> None:
    """A call that wants more than there is gets a MemoryError, before the kernel kills somebody."""
    if memory_bytes:
        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write(_OOM_FIRST)
    except OSError as error:
        sys.stderr.write(f"oom_score_adj stays as it is: {error}\n")


def _reap(control: socket.socket) -> None:
    while True:
        try:
            pid, state = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        code = -os.WTERMSIG(state) if os.WIFSIGNALED(state) else os.WEXITSTATUS(state)
        control.sendall(frames.pack({"kind": "ended", "pid": pid, "code": code}))
