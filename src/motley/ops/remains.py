"""What a cluster leaves in the kernel when its processes are killed, and how it is taken away.

Mounts below the root directory, processes marked with it, cgroups of its pods, sockets of its
shims: each is found by what belongs to this cluster and to no other, so that removing is safe while
other clusters run on the same machine, and may be repeated at any time.
"""

import ctypes
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

from motley.lib import journal
from motley.ops import processes
from motley.ops.config import Config
from motley.ops.processes import Process

log = journal.get(__name__)

_CGROUPS = Path("/sys/fs/cgroup")
_SHIM_SOCKETS = Path("/run/containerd/s")
_SHARED = (_SHIM_SOCKETS, Path("/run/containerd/fifo"), Path("/run/containerd"))
_MNT_DETACH = 2
_SUPERVISOR = "supervisor"


def workloads(config: Config) -> list[Process]:
    """Containers' processes and the shims that hold them."""
    shims = [p for p, name in processes.of_cluster(config.root).items() if name != _SUPERVISOR]
    return [*shims, *processes.in_cgroup(config.cgroup_root)]


def kill(found: list[Process]) -> None:
    """End processes that nobody answers for any more."""
    for process in found:
        processes.send(process, signal.SIGKILL)
    for process in found:
        processes.wait(process, 5.0)


def mounts(root: Path, table: str | None = None) -> list[str]:
    """Mount points below a directory, deepest and youngest first."""
    text = Path("/proc/self/mountinfo").read_text() if table is None else table
    points = [_unescape(line.split()[4]) for line in text.splitlines()]
    real = root.resolve()  # as the kernel names it
    return [p for p in reversed(points) if p.startswith(f"{real}/")]


def _unescape(text: str) -> str:
    """The kernel writes blanks in paths as octal."""
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, char)
    return text


def unmount(root: Path) -> list[str]:
    """Take away every mount below a directory; those that were there."""
    libc = ctypes.CDLL(None, use_errno=True)
    found = mounts(root)
    for point in found:
        if libc.umount2(point.encode(), 0) != 0 and libc.umount2(point.encode(), _MNT_DETACH) != 0:
            log.warning("mount stays", path=point, error=os.strerror(ctypes.get_errno()))
    return found


def cgroups(name: str, root: Path = _CGROUPS) -> list[Path]:
    """The directories of a cgroup in every hierarchy, v1 or v2."""
    relative = name.lstrip("/")
    candidates = [
        root / relative,
        *(entry / relative for entry in root.iterdir() if entry.is_dir()),
    ]
    return [path for path in candidates if path.is_dir()]


def remove_cgroups(name: str, root: Path = _CGROUPS) -> None:
    """Remove a cgroup and what is below it; the kernel refuses while a process is inside."""
    for top in cgroups(name, root):
        for directory, _, _ in os.walk(top, topdown=False):
            _try(os.rmdir, Path(directory))


def _try(act: Callable[[Path], object], path: Path) -> None:
    try:
        act(path)
    except OSError as error:
        log.warning("cannot be removed", path=path, error=error.strerror)


def shim_sockets(directory: Path) -> set[Path]:
    """Sockets of an instance's shims, which lie in a directory all instances share.

    To be asked before anything is stopped: containerd forgets a dead shim but not its socket.
    """
    addresses = directory.glob("state/io.containerd.runtime.v2.task/*/*/address")
    sockets = {Path(a.read_text().strip().removeprefix("unix://")) for a in addresses}
    return {socket for socket in sockets if socket.parent == _SHIM_SOCKETS}


def remove_runtime_files(directory: Path, sockets: set[Path]) -> None:
    """Forget running containers: state that must not meet the next start, and shims' sockets."""
    for socket in sockets | shim_sockets(directory):
        socket.unlink(missing_ok=True)
    for name in ("state", "runc"):
        if not mounts(directory / name):
            shutil.rmtree(directory / name, ignore_errors=True)
    for name in ("containerd.sock", "containerd.sock.ttrpc"):
        (directory / name).unlink(missing_ok=True)
    for shared in _SHARED:  # containerd makes them; they go when nobody else uses them
        if shared.is_dir() and not any(shared.iterdir()):
            _try(os.rmdir, shared)
