"""Starting a process that outlives whoever started it.

Its own session, its own log file opened for appending (so the file can be cut while it is written
to), a fixed environment: what a component does must not depend on the shell `motley up` ran in.
"""

import os
import resource
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from motley.ops import processes
from motley.ops.processes import Process

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Taken over from the caller: they say how to reach a registry, not what a component does.
_PASSED = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "TZ")
LOG_LIMIT_BYTES = 10 << 20


def motley(*arguments: str) -> tuple[str, ...]:
    """A `motley` command line that runs this very installation, whatever the PATH says."""
    return (sys.executable, "-P", "-m", "motley.cli.main", *arguments)


def environment(root: Path, component: str) -> dict[str, str]:
    """What a component sees; the two MOTLEY variables mark it, and its children, as ours."""
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    return {
        **passed,
        "PATH": _PATH,
        "HOME": os.environ.get("HOME", "/root"),
        "LANG": "C.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "MALLOC_ARENA_MAX": "2",  # few threads allocate: more arenas are only memory
        processes.ROOT_VARIABLE: str(root),
        processes.COMPONENT_VARIABLE: component,
    }


def launch(
    command: Sequence[str],
    *,
    root: Path,
    component: str,
    log: Path,
    more_variables: Mapping[str, str] | None = None,
    passed: Mapping[int, int] | None = None,
) -> Process:
    """Start a command in its own session; OSError when it cannot be run.

    `passed`: our open files that it shall have, each with the number it has there.
    """
    variables = {**environment(root, component), **(more_variables or {})}
    program = shutil.which(command[0], path=_PATH)
    if program is None:
        raise FileNotFoundError(f"{command[0]}: no such command")
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
    try:
        pid = os.posix_spawn(
            program,
            list(command),
            variables,
            file_actions=[
                (os.POSIX_SPAWN_DUP2, null, 0),
                (os.POSIX_SPAWN_DUP2, out, 1),
                (os.POSIX_SPAWN_DUP2, out, 2),
                *((os.POSIX_SPAWN_DUP2, ours, theirs) for ours, theirs in (passed or {}).items()),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=[signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGTERM],
        )
    finally:
        os.close(null)
        os.close(out)
    # A process that has ended already has no start any more; 0 never matches a living one.
    return processes.identify(pid) or Process(pid, 0)


def allow_many_files() -> None:
    """Raise the limit of open files as far as it goes; children inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def rotate(log: Path, limit_bytes: int = LOG_LIMIT_BYTES) -> bool:
    """Keep a log below a size: its content moves to `.1`, the file itself stays open and in use."""
    try:
        if log.stat().st_size <= limit_bytes:
            return False
    except FileNotFoundError:
        return False
    shutil.copyfile(log, log.with_name(f"{log.name}.1"))
    os.truncate(log, 0)
    return True
