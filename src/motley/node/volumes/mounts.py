"""mount(2) and umount2(2): tmpfs for memory volumes, bind mounts for subPaths.

Everything the agent mounts is below one directory, so that undoing is finding what is mounted
there, also after a crash.
"""

import ctypes
import os
from pathlib import Path

_MS_BIND = 4096
_MS_NOSUID = 2
_MS_NODEV = 4
_MNT_DETACH = 2
_UMOUNT_NOFOLLOW = 8

_libc = ctypes.CDLL(None, use_errno=True)


def _mount(source: str, target: Path, kind: str, flags: int, data: str) -> None:
    result = _libc.mount(
        source.encode(),
        os.fsencode(target),
        kind.encode(),
        ctypes.c_ulong(flags),
        data.encode(),
    )
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"mount {kind or 'bind'}: {os.strerror(code)}", str(target))


def tmpfs(target: Path, size_bytes: int = 0, mode: int = 0o777) -> None:
    """Mount a tmpfs, unless one is there."""
    target.mkdir(parents=True, exist_ok=True)
    if not os.path.ismount(target):
        options = f"mode={mode:o}" + (f",size={size_bytes}" if size_bytes else "")
        _mount("tmpfs", target, "tmpfs", _MS_NOSUID | _MS_NODEV, options)


def bind(descriptor: int, target: Path, *, is_directory: bool) -> None:
    """Bind what an open descriptor refers to, however its path may change meanwhile."""
    if is_directory:
        target.mkdir(parents=True, exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
    _mount(f"/proc/self/fd/{descriptor}", target, "", _MS_BIND, "")


def unmount(target: Path) -> None:
    """Take one mount away, lazily if it is in use."""
    if _libc.umount2(os.fsencode(target), _MNT_DETACH | _UMOUNT_NOFOLLOW) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"umount: {os.strerror(code)}", str(target))


def below(directory: Path, mountinfo: str | None = None) -> list[Path]:
    """Mount points at or under a directory, deepest first."""
    text = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
    found = []
    for line in text.splitlines():
        point = Path(line.split()[4].encode().decode("unicode_escape"))
        if point == directory or directory in point.parents:
            found.append(point)
    # Later mounts hide earlier ones at the same place, so the order is undone from the end.
    return sorted(reversed(found), key=lambda p: len(p.parts), reverse=True)


def undo(directory: Path) -> None:
    """Unmount everything at or under a directory."""
    for point in below(directory):
        unmount(point)
