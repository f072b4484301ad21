"""The audit log on disk: one JSON line per event, written by a thread of its own.

    request ─► bounded buffer ─► thread: encode, write, flush, a batch at a time ─► file or stdout

The buffer never makes a request wait. When it is full, because the disk cannot follow, events are
dropped, which the metric `apiserver_audit_dropped_total` counts and the server's log says: losing
lines of the record was judged better than a cluster that stands still with its disk.

A file that would grow over its size is renamed with the time in its name, as kube-apiserver does,
and the oldest of these are deleted by number and age.

Invariant: a line is never split over two files, and nobody but the owner reads any of them.
"""

import os
import queue
import re
import sys
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from prometheus_client import Counter

from motley.lib import journal
from motley.lib.clock import SYSTEM, Clock

log = journal.get(__name__)

BUFFER = 10_000  # events; kube-apiserver's --audit-log-batch-buffer-size
BATCH = 400  # its --audit-log-batch-max-size
MEGABYTE = 1024 * 1024
EVENTS = Counter("apiserver_audit_event", "Events written to the audit log.")
DROPPED = Counter("apiserver_audit_dropped", "Events dropped because the disk was too slow.")

Document = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """The `--audit-log-*` options; 0 means no limit."""

    path: str
    max_size_mb: int = 100
    max_backups: int = 0
    max_age_days: int = 0


class AuditFile:
    """Where lines go; a file with its rotated predecessors, or standard output."""

    def __init__(self, options: Options, clock: Clock = SYSTEM) -> None:
        """Open for appending. Raises OSError."""
        self._options = options
        self._clock = clock
        self._path = Path(options.path)
        self._size = 0
        self._file: BinaryIO | None = None
        if options.path != "-":
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._open()

    def write(self, lines: list[bytes]) -> None:
        """Append whole lines, to a new file when this one is full."""
        limit = self._options.max_size_mb * MEGABYTE
        if self._file is None:
            sys.stdout.buffer.write(b"".join(lines))
            sys.stdout.buffer.flush()
            return
        pending: list[bytes] = []
        for line in lines:
            if limit and self._size and self._size + len(line) > limit:
                self._put(pending)
                pending = []
                self._rotate()
            pending.append(line)
            self._size += len(line)
        self._put(pending)

    def _put(self, lines: list[bytes]) -> None:
        assert self._file is not None
        self._file.write(b"".join(lines))
        self._file.flush()

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        self._file = os.fdopen(os.open(self._path, flags, 0o600), "ab")
        self._size = self._path.stat().st_size

    def _rotate(self) -> None:
        assert self._file is not None
        self._file.close()
        moment = datetime.fromtimestamp(self._clock.now(), UTC)
        stamp = f"{moment:%Y-%m-%dT%H-%M-%S}.{moment.microsecond // 1000:03}"
        kept = self._path.with_name(f"{self._path.stem}-{stamp}{self._path.suffix}")
        number = 1
        while kept.exists():
            name = f"{self._path.stem}-{stamp}.{number}{self._path.suffix}"
            kept, number = self._path.with_name(name), number + 1
        self._path.rename(kept)
        self._open()
        for old in self._surplus():
            old.unlink(missing_ok=True)

    def _surplus(self) -> list[Path]:
        """Rotated files that are too many or too old."""
        pattern = re.compile(
            re.escape(self._path.stem) + r"-\d{4}-[-0-9T.]+" + re.escape(self._path.suffix)
        )
        siblings = self._path.parent.iterdir()
        rotated = sorted(p for p in siblings if pattern.fullmatch(p.name))
        backups, days = self._options.max_backups, self._options.max_age_days
        surplus = rotated[:-backups] if backups else []
        oldest = self._clock.now() - days * 86_400
        if days:
            surplus += [p for p in rotated if p not in surplus and p.stat().st_mtime < oldest]
        return surplus


class AuditLog:
    """Takes events from the event loop and writes them in the background."""

    def __init__(self, options: Options, clock: Clock = SYSTEM, *, buffer: int = BUFFER) -> None:
        """Open the log. Raises OSError."""
        self._file = AuditFile(options, clock)
        self._queue: queue.Queue[Document | None] = queue.Queue(buffer)
        self._is_dropping = False
        # A daemon: a process that dies without closing the log must not hang on it.
        self._thread = threading.Thread(target=self._serve, name="audit-log", daemon=True)
        self._thread.start()

    def write(self, event: Document) -> None:
        """Take an event; never waits. The event is not to be changed afterwards."""
        try:
            self._queue.put_nowait(event)
        except queue.Full:
            DROPPED.inc()
            if not self._is_dropping:
                self._is_dropping = True
                log.error("audit events are dropped: the disk is too slow")
        else:
            self._is_dropping = False

    def close(self) -> None:
        """Write what is in the buffer, then let go of the file."""
        self._queue.put(None)
        self._thread.join()
        self._file.close()

    def _serve(self) -> None:
        encode = msgspec.json.encode
        is_open = True
        while is_open:
            taken = [self._queue.get()]
            while len(taken) < BATCH and not self._queue.empty():
                taken.append(self._queue.get())
            is_open = None not in taken
            events = [event for event in taken if event is not None]
            try:
                self._file.write([encode(event) + b"\n" for event in events])
            except OSError as error:
                DROPPED.inc(len(events))
                log.error("audit events lost", count=len(events), exc_info=error)
            else:
                EVENTS.inc(len(events))
