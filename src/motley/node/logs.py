"""Container logs: CRI's file format, reading from the end, following through rotation.

A line of the file is `2026-11-15T12:00:00.123456789Z stdout F text`; `P` instead of `F` says that
the line goes on in the next one. A container's log is `<attempt>.log` with its rotated forerunners
`<attempt>.log.<time>`, oldest first.

Invariant: following never loses a line: a renamed file is read to its end before the new one.
"""

import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from motley.lib.clock import Clock, parse_rfc3339

_BLOCK = 64 * 1024
_POLL_S = 0.1


class Line(NamedTuple):
    """One entry of a CRI log."""

    time: bytes
    stream: str
    is_whole: bool
    text: bytes


def parse(raw: bytes) -> Line | None:
    """An entry, or None for what is none."""
    parts = raw.rstrip(b"\n").split(b" ", 3)
    if len(parts) < 4 or parts[1] not in (b"stdout", b"stderr"):
        return None
    return Line(parts[0], parts[1].decode(), parts[2].split(b":")[0] != b"P", parts[3])


@dataclass(frozen=True, slots=True)
class Options:
    """What part of a log is wanted, in the words of the API."""

    follow: bool = False
    tail_lines: int | None = None
    since: float | None = None
    timestamps: bool = False
    limit_bytes: int | None = None
    stream: str = "All"


def options_of(query: Mapping[str, str], now: float) -> Options:
    """What a request asks for. Raises ValueError."""

    def number(name: str) -> int | None:
        text = query.get(name)
        if text is None:
            return None
        value = int(text)
        if value < 0:
            raise ValueError(f"{name} must not be negative")
        return value

    def flag(name: str) -> bool:
        return query.get(name, "").lower() in ("1", "true")

    since: float | None = None
    if (seconds := number("sinceSeconds")) is not None:
        since = now - seconds
    elif "sinceTime" in query:
        since = parse_rfc3339(query["sinceTime"])
    return Options(
        follow=flag("follow"),
        tail_lines=number("tailLines"),
        since=since,
        timestamps=flag("timestamps"),
        limit_bytes=number("limitBytes"),
        stream=query.get("stream", "All"),
    )


def files(path: Path) -> list[Path]:
    """A log and its rotated forerunners, oldest first."""
    rotated = sorted(p for p in path.parent.glob(f"{path.name}.*") if p.is_file())
    return [*rotated, path] if path.exists() else rotated


def remove(root: Path, uid: str) -> None:
    """Delete all logs of a pod."""
    for directory in root.glob(f"*_{uid}"):
        shutil.rmtree(directory)


def tail(path: Path, lines: int) -> bytes:
    """The text of the last lines of a log, as it was written: perhaps without a last newline."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        _seek_tail(file, lines)
        found = [parse(raw) for raw in file]
    return b"".join(
        line.text + (b"\n" if line.is_whole else b"") for line in found if line is not None
    )


def _seek_tail(file: BinaryIO, lines: int) -> int:
    """Go to where the last `lines` whole lines begin; returns how many there are."""
    position = file.seek(0, 2)
    found = 0
    buffer = b""
    while position > 0:
        step = min(_BLOCK, position)
        position -= step
        file.seek(position)
        buffer = file.read(step) + buffer
        starts = _line_starts(buffer, position == 0)
        whole = [s for s in starts if _ends_whole(buffer, s)]
        if len(whole) > lines:
            # the first byte after the last entry that is not wanted any more
            skipped = whole[-lines - 1] if lines else whole[-1]
            end = buffer.index(b"\n", skipped) + 1 if b"\n" in buffer[skipped:] else len(buffer)
            file.seek(position + end)
            return lines
        found = len(whole)
    file.seek(0)
    return found


def _line_starts(buffer: bytes, is_begin: bool) -> list[int]:
    starts = [0] if is_begin and buffer else []
    at = buffer.find(b"\n")
    while 0 <= at < len(buffer) - 1:
        starts.append(at + 1)
        at = buffer.find(b"\n", at + 1)
    return starts


def _ends_whole(buffer: bytes, start: int) -> bool:
    line = parse(buffer[start : start + 80].partition(b"\n")[0] + b" ")
    return line is not None and line.is_whole


def _render(line: Line, options: Options, *, is_start: bool) -> bytes:
    text = line.text + (b"\n" if line.is_whole else b"")
    return line.time + b" " + text if options.timestamps and is_start else text


class _Filter:
    """Turns entries into the bytes asked for; remembers whether a line is open."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._is_open = {"stdout": False, "stderr": False}
        self._left = options.limit_bytes
        self.is_full = False

    def take(self, raw: bytes) -> bytes:
        line = parse(raw)
        if line is None:
            return b""
        options = self._options
        if options.stream != "All" and line.stream != options.stream.lower():
            return b""
        if options.since is not None and _before(line.time, options.since):
            return b""
        out = _render(line, options, is_start=not self._is_open[line.stream])
        self._is_open[line.stream] = not line.is_whole
        if self._left is not None:
            out = out[: self._left]
            self._left -= len(out)
            self.is_full = self._left <= 0
        return out


def _before(time: bytes, since: float) -> bool:
    try:
        return parse_rfc3339(time.decode()) < since
    except ValueError:
        return False


def _begin(path: Path, options: Options) -> Iterator[BinaryIO]:
    """Open the files that hold the wanted part, each at its first wanted byte."""
    chosen = files(path)
    if options.tail_lines is None:
        for file in chosen:
            yield file.open("rb")
        return
    wanted = options.tail_lines
    opened: list[BinaryIO] = []
    for file in reversed(chosen):
        handle = file.open("rb")
        wanted -= _seek_tail(handle, wanted)
        opened.insert(0, handle)
        if wanted <= 0:
            break
    yield from opened


async def read(
    path: Path, options: Options, clock: Clock, is_over: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """The wanted bytes of a log, in pieces; with `follow` until `is_over` and all is read."""
    wanted = _Filter(options)
    current: BinaryIO | None = None
    try:
        for handle in _begin(path, options):
            if current is not None:
                current.close()
            current = handle
            for piece in _pieces(handle, wanted):
                yield piece
                if wanted.is_full:
                    return
        while options.follow:
            # Asked before reading: what came until then is not missed.
            was_over = is_over()
            progressed = False
            if current is None and path.exists():
                current = path.open("rb")
            if current is not None:
                was_replaced = _was_replaced(current, path)
                for piece in _pieces(current, wanted):
                    progressed = True
                    yield piece
                    if wanted.is_full:
                        return
                if was_replaced and not progressed:
                    current = _next(current, path)
                    continue
            if was_over and not progressed:
                return
            if not progressed:
                await clock.sleep(_POLL_S)
    finally:
        if current is not None:
            current.close()


def _pieces(handle: BinaryIO, wanted: _Filter) -> Iterator[bytes]:
    """Whole entries from here to the end of the file, some at a time."""
    batch: list[bytes] = []
    size = 0
    while True:
        at = handle.tell()
        raw = handle.readline()
        if not raw.endswith(b"\n"):
            handle.seek(at)  # still being written
            break
        out = wanted.take(raw)
        if out:
            batch.append(out)
            size += len(out)
        if size >= _BLOCK or wanted.is_full:
            yield b"".join(batch)
            batch, size = [], 0
            if wanted.is_full:
                return
    if batch:
        yield b"".join(batch)


def _next(handle: BinaryIO, path: Path) -> BinaryIO | None:
    """The file that came after this one, which may have been rotated itself by now."""
    mine = os.fstat(handle.fileno()).st_ino
    handle.close()
    opened: list[BinaryIO] = []
    for file in files(path):
        with contextlib.suppress(FileNotFoundError):  # removed or renamed since it was listed
            opened.append(file.open("rb"))
    inodes = [os.fstat(one.fileno()).st_ino for one in opened]
    after = inodes.index(mine) + 1 if mine in inodes else 0  # it was removed: all are newer
    chosen = opened[after] if after < len(opened) else None
    for one in opened:
        if one is not chosen:
            one.close()
    return chosen


def _was_replaced(handle: BinaryIO, path: Path) -> bool:
    try:
        now = path.stat()
    except FileNotFoundError:
        return False
    mine = os.fstat(handle.fileno())
    return (mine.st_dev, mine.st_ino) != (now.st_dev, now.st_ino)
