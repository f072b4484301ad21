"""Files that change all at once.

    key.txt  -> ..data/key.txt
    ..data   -> ..2026_11_15_12_00_00.123456
    ..2026_11_15_12_00_00.123456/key.txt

A reader that opens `..data/` sees one version whole: the swap is a single rename of the link.
The layout is Kubernetes', so programs that watch `..data` keep working.
"""

import os
import shutil
from pathlib import Path

from motley.lib.clock import Clock, rfc3339_micro
from motley.node.volumes.payload import File, Payload

_DATA = "..data"
_NEXT = "..data_tmp"


def write(directory: Path, payload: Payload, *, clock: Clock, gid: int | None = None) -> bool:
    """Make `directory` show exactly these files; False when it did already."""
    directory.mkdir(parents=True, exist_ok=True)
    current = _current(directory)
    if current is not None and _same(current, payload):
        return False
    stamp = rfc3339_micro(clock.now()).rstrip("Z").replace("-", "_").replace(":", "_")
    fresh = directory / f"..{stamp.replace('T', '_')}"
    fresh.mkdir(mode=0o755)
    for name, file in payload.items():
        path = fresh / name
        path.parent.mkdir(parents=True, exist_ok=True)
        _create(path, file, gid)
    _link(directory / _NEXT, fresh.name)
    os.replace(directory / _NEXT, directory / _DATA)
    _publish(directory, payload)
    for old in directory.iterdir():
        if old.name.startswith("..") and old.is_dir() and not old.is_symlink() and old != fresh:
            shutil.rmtree(old)
    return True


def _create(path: Path, file: File, gid: int | None) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as out:
        out.write(file.content)
        mode = file.mode
        os.fchown(out.fileno(), -1 if file.uid is None else file.uid, -1 if gid is None else gid)
        if gid is not None:
            mode |= 0o440  # the pod's group may read what the pod may
        os.fchmod(out.fileno(), mode)


def _link(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def _publish(directory: Path, payload: Payload) -> None:
    """One link per top-level name; links of names that are gone go too."""
    names = {Path(name).parts[0] for name in payload}
    for name in names:
        path = directory / name
        if not path.is_symlink():
            path.symlink_to(f"{_DATA}/{name}")
    for path in directory.iterdir():
        if path.is_symlink() and not path.name.startswith("..") and path.name not in names:
            path.unlink()


def _current(directory: Path) -> Path | None:
    link = directory / _DATA
    return link.resolve() if link.is_symlink() and link.exists() else None


def _same(version: Path, payload: Payload) -> bool:
    files = {str(p.relative_to(version)): p for p in version.rglob("*") if p.is_file()}
    return files.keys() == payload.keys() and all(
        path.read_bytes() == payload[name].content for name, path in files.items()
    )
