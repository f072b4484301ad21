"""Names in the machine's own hosts file, for those who asked for it.

The machine's resolver is not ours; a hosts file is the one place that every program on it reads.
Only the lines between two marks are ours; the rest stays as it is, byte for byte.
"""

import os
from collections.abc import Mapping
from pathlib import Path


def _marks(mark: str) -> tuple[str, str]:
    return f"# begin {mark}", f"# end {mark}"


def mark_of(directory: Path) -> str:
    """What tells one gateway's lines from another's."""
    return f"motley {directory}"


def forget(path: Path, directory: Path) -> bool:
    """Take a gateway's names out of the file; was there any?"""
    return path.exists() and write(path, {}, mark_of(directory))


def edited(text: str, hosts: Mapping[str, str], mark: str) -> str:
    """The file with these names and no others between the marks; pure."""
    begin, end = _marks(mark)
    kept, is_ours = [], False
    for line in text.splitlines(keepends=True):
        if line.rstrip("\n") == begin:
            is_ours = True
        elif is_ours and line.rstrip("\n") == end:
            is_ours = False
        elif not is_ours:
            kept.append(line)
    before = "".join(kept)
    named = {host: address for host, address in hosts.items() if not host.startswith("*")}
    if not named:
        return before
    if before and not before.endswith("\n"):
        before += "\n"
    lines = [f"{address}\t{host}" for host, address in sorted(named.items())]
    return before + "\n".join([begin, *lines, end]) + "\n"


def write(path: Path, hosts: Mapping[str, str], mark: str) -> bool:
    """Bring the file up to date; did it change?

    Where it cannot be replaced (a container's hosts file is a mount) it is written over.
    """
    try:
        before = path.read_text()
    except FileNotFoundError:
        before = ""
    after = edited(before, hosts, mark)
    if after == before:
        return False
    draft = path.with_name(f".{path.name}.motley")
    try:
        draft.write_text(after)
        if path.exists():
            draft.chmod(path.stat().st_mode)
        os.replace(draft, path)
    except OSError:
        draft.unlink(missing_ok=True)
        path.write_text(after)
    return True
