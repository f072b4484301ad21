"""Paths of the machine that submits, as seen from the bridge's: pure.

A job names files by the paths its author knows, of Windows for one. The bridge touches only folders
its administrator has opened, each perhaps under another name: `D:\\work=/srv/work`. Everything else
is the business of `motley slurm submit`, which runs where the files are.
Invariant: nobody reaches a file of the bridge's machine that is not within an opened folder.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ntpath import basename
from pathlib import Path, PurePosixPath, PureWindowsPath


@dataclass(frozen=True)
class Root:
    """An opened folder, and what authors of jobs call it."""

    called: str
    path: Path

    @classmethod
    def parse(cls, text: str) -> "Root":
        """`FOLDER` or `NAME=FOLDER`."""
        called, equals, path = text.rpartition("=")
        return cls(called if equals else path, Path(path).absolute())


def name_of(path: str) -> str:
    """The last part of a path as either system writes it."""
    return basename(path.rstrip("/\\"))


def resolve(path: str, roots: Iterable[Root]) -> Path | None:
    """Where a path is here; None when no opened folder holds it."""
    for root in roots:
        rest = _within(path, root.called)
        if rest is None or ".." in rest:
            continue
        found = root.path.joinpath(*rest).resolve()
        if found.is_relative_to(root.path.resolve()):  # links do not lead out of it
            return found
    return None


def _within(path: str, called: str) -> Sequence[str] | None:
    for flavour in (PurePosixPath, PureWindowsPath):
        try:
            return flavour(path).relative_to(flavour(called)).parts
        except ValueError:
            continue
    return None


def is_opened(path: Path, roots: Iterable[Root]) -> bool:
    """Is it, with all links followed, within an opened folder?"""
    return any(path.resolve().is_relative_to(root.path.resolve()) for root in roots)


def files_of(path: Path, roots: Sequence[Root] | None = None) -> dict[str, Path]:
    """A file by its name, or the files of a folder by their paths within it; without those to which
    links lead that are not within `roots`, if there are such."""
    if not path.is_dir():
        return {path.name: path}
    found = sorted(p for p in path.rglob("*") if p.is_file())
    found = [p for p in found if roots is None or is_opened(p, roots)]
    return {str(p.relative_to(path)): p for p in found if ".git" not in p.parts}
