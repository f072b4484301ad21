"""What a pod on Slurm has printed, as `kubectl logs` asks for it.

Slurm writes what a pod prints, errors included, into one file of the job's folder, and what it has
to say itself into another. Both are read where they are, a piece at a time, over the cluster's one
SFTP session. Their lines carry no times: the batch script notes every second when the first of them
was last written to and how long it was then, and a line is as old as the first note that covers it.
Invariant: following loses nothing: after a broken connection it goes on where it was.
"""

import bisect
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, cast

import asyncssh

from motley.lib.clock import Clock, rfc3339_micro
from motley.node.logs import Options
from motley.slurm.ssh import Connection, Unreachable

_BLOCK = 128 * 1024  # four of OpenSSH's largest packets
_NOTES = 1 << 20  # at once; it takes days to write as much
_LONGEST = 1 << 20  # of a line, before it is shown as if it had ended
_POLL_S = 0.5


class File(Protocol):
    """A file that grows."""

    async def stat(self) -> tuple[int, float]:
        """Its size, and when it was last written to; nothing of one that is not there (yet)."""

    async def read(self, offset: int, size: int) -> bytes:
        """A piece of it; nothing beyond its end."""


class Remote(NamedTuple):
    """A file on the cluster, over the connection there is at the time. Raises Unreachable."""

    connection: Callable[[], Connection]
    path: str

    async def stat(self) -> tuple[int, float]:
        """See File."""
        async with self.connection().sftp() as sftp:
            try:
                found = await sftp.stat(self.path)
            except asyncssh.SFTPNoSuchFile:
                return 0, 0.0
        if found.type != asyncssh.FILEXFER_TYPE_REGULAR:  # a pipe would never answer
            return 0, 0.0
        return int(found.size or 0), float(found.mtime or 0)

    async def read(self, offset: int, size: int) -> bytes:
        """See File."""
        async with self.connection().sftp() as sftp:
            try:
                async with sftp.open(self.path, "rb") as file:
                    return cast("bytes", await file.read(size, offset))
            except asyncssh.SFTPNoSuchFile:
                return b""


class Kept(NamedTuple):
    """A copy on this machine, of a file that was last written to at `ended`."""

    path: Path
    ended: float

    async def stat(self) -> tuple[int, float]:
        """See File."""
        return (self.path.stat().st_size, self.ended) if self.path.is_file() else (0, 0.0)

    async def read(self, offset: int, size: int) -> bytes:
        """See File."""
        with self.path.open("rb") as file:
            file.seek(offset)
            return file.read(size)


class Printed(NamedTuple):
    """One of a pod's files, and the notes of when it grew."""

    stream: str
    file: File
    notes: File | None = None


class Times:
    """When which part of a file came: pairs of a size and a time, both growing."""

    def __init__(self) -> None:
        self._sizes: list[int] = []
        self._times: list[float] = []

    def add(self, size: int, time: float) -> None:
        """By this time the file had this size; what says nothing new is left out."""
        if not self._sizes or size > self._sizes[-1]:
            self._sizes.append(size)
            self._times.append(max(time, self._times[-1] if self._times else 0.0))

    def parse(self, text: str) -> None:
        """Take the notes of the batch script: lines of a time and a size."""
        for line in text.splitlines():
            time, _, size = line.partition(" ")
            if size.isdigit() and time.replace(".", "", 1).isdigit():
                self.add(int(size), float(time))

    def before(self, time: float) -> int:
        """How long it was when all of it was older than this."""
        at = bisect.bisect_left(self._times, time)
        return self._sizes[at - 1] if at else 0

    def of(self, end: int) -> float:
        """When what ends here had come."""
        at = bisect.bisect_left(self._sizes, end)
        return self._times[min(at, len(self._times) - 1)] if self._times else 0.0


class _Reader:
    """One file, from where it was left to where it ends now."""

    def __init__(self, printed: Printed, options: Options) -> None:
        self._file = printed.file
        self._notes = printed.notes
        self._options = options
        self._offset = 0
        self._open = b""  # a line that has not ended yet
        self._times = Times()
        self._notes_read = 0
        self._until: int | None = None  # what is written later was not asked for

    async def begin(self) -> None:
        """Settle what is asked for: all there will be, or all there is now."""
        size, _ = await self._file.stat()
        self._until = None if self._options.follow else size

    async def skip_to_tail(self, lines: int) -> int:
        """Leave out all but the last lines; how many there are."""
        size, _ = await self._file.stat()
        position, found, cut = size, 0, b""
        while position > 0:
            step = min(_BLOCK, position)
            position -= step
            cut = await self._file.read(position, step)
            ends = cut.count(b"\n")
            if position + step == size and not cut.endswith(b"\n"):
                ends += 1  # the last line has no end yet
            if found + ends > lines:
                break
            found += ends
        else:
            return found
        # The line before the first that is wanted ends in this piece.
        skipped = found + ends - lines
        at = -1
        for _ in range(skipped):
            at = cut.find(b"\n", at + 1)
            if at < 0:
                at = len(cut) - 1
        self._offset = position + at + 1
        return lines

    async def skip_older(self, since: float) -> None:
        """Leave out what was there before, up to the line that was not."""
        await self._note(*await self._file.stat())
        end = self._times.before(since)
        begin = max(0, end - _BLOCK)
        piece = await self._file.read(begin, end - begin)
        self._offset = begin + piece.rfind(b"\n") + 1

    async def more(self) -> bytes | None:
        """What came since, as far as it is wanted; None when nothing came."""
        size, written = await self._file.stat()
        end = size if self._until is None else min(size, self._until)
        if end <= self._offset:
            return None
        data = await self._file.read(self._offset, min(_BLOCK, end - self._offset))
        if not data:
            return None
        if not self._is_timed:
            self._offset += len(data)
            return data
        await self._note(size, written)
        self._offset += len(data)
        return self._render(data)

    @property
    def _is_timed(self) -> bool:
        return self._options.timestamps or self._options.since is not None

    async def _note(self, size: int, written: float) -> None:
        if self._notes is not None:
            known, _ = await self._notes.stat()
            size = min(max(0, known - self._notes_read), _NOTES)
            text = await self._notes.read(self._notes_read, size)
            whole = text[: text.rfind(b"\n") + 1]
            self._times.parse(whole.decode(errors="replace"))
            self._notes_read += len(whole)
        self._times.add(size, written)

    def _render(self, data: bytes) -> bytes:
        *lines, rest = (self._open + data).split(b"\n")
        end = self._offset - len(self._open) - len(data)
        out = []
        for line in lines:
            end += len(line) + 1
            out.append(self._line(line + b"\n", end))
        if len(rest) > _LONGEST:
            out.append(self._line(rest + b"\n", end + len(rest)))
            rest = b""
        self._open = rest
        return b"".join(out)

    def _line(self, line: bytes, end: int) -> bytes:
        time, since = self._times.of(end), self._options.since
        if since is not None and time < since:
            return b""
        return rfc3339_micro(time).encode() + b" " + line if self._options.timestamps else line

    def rest(self) -> bytes:
        """A last line that has no end."""
        line, self._open = self._open, b""
        return self._line(line, self._offset) if line else b""


async def read(
    printed: Sequence[Printed], options: Options, clock: Clock, is_over: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """The wanted bytes, in pieces; with `follow` until `is_over` and all is read. Raises
    Unreachable, but while following only before the first piece, which is empty: from then on the
    files are known to be there."""
    wanted = [one for one in printed if options.stream in ("All", one.stream)]
    readers = [_Reader(one, options) for one in wanted]
    for reader in readers:
        await reader.begin()
    if options.tail_lines is not None:
        left = options.tail_lines
        for reader in reversed(readers):
            left -= await reader.skip_to_tail(left)
    elif options.since is not None:
        for reader in readers:
            await reader.skip_older(options.since)
    yield b""
    room = options.limit_bytes
    async for piece in _pieces(readers, options, clock, is_over):
        if room is not None:
            piece, room = piece[:room], room - len(piece)
        if piece:
            yield piece
        if room is not None and room <= 0:
            return


async def _pieces(
    readers: Sequence[_Reader], options: Options, clock: Clock, is_over: Callable[[], bool]
) -> AsyncIterator[bytes]:
    while True:
        # Asked before reading: what came until then is not missed.
        was_over = not options.follow or is_over()
        try:
            for reader in readers:
                while (piece := await reader.more()) is not None:
                    yield piece
        except Unreachable:
            if not options.follow:
                raise
            was_over = False
        if was_over:
            break
        await clock.sleep(_POLL_S)
    for reader in readers:
        yield reader.rest()
