"""The log in an SQLite file: all SQL is here, and nothing else is.

One table, appended to only: each row is one change of one key and names the revision it replaces.
That link makes an index by key needless. The latest state is what a scan leaves, the state before
an event is one lookup away, and compaction follows the links backwards.

Everything here blocks and belongs to one thread with one connection. A lock file keeps other stores
away; SQLite's own locks are left to it (they cost nothing that can be measured beside an fsync), so
a backup can read a consistent state from another process meanwhile.

Invariants: a row is never changed, only removed by compaction; above the compacted revision no row
is missing; below it, exactly the rows that were current at that revision stay once `sweep` is done.
"""

import contextlib
import fcntl
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from motley.lib import journal
from motley.store import format as formats
from motley.store import sealing
from motley.store.contract import (
    MAX_OPS,
    Compacted,
    Corrupt,
    Event,
    Failed,
    Full,
    Locked,
    Record,
    Revision,
    Stamp,
)

log = journal.get(__name__)

APPLICATION_ID = 0x4D6F746C  # "Motl": tells our file from any other SQLite file
PER_REVISION = 1000  # row id = revision * this + place in the transaction: readable and ordered
assert MAX_OPS < PER_REVISION
PAGE_BYTES = 8192  # two Pods of usual size: at 4,096 one fills a page and wastes a fifth of it
COLUMNS = 5
ROWS = 4096  # per statement: SQLite takes at most 32,766 parameters

_SCHEMA = f"""
CREATE TABLE log (
  id INTEGER PRIMARY KEY,      -- revision * {PER_REVISION} + place in the transaction
  previous INTEGER NOT NULL,   -- revision that this change replaces, 0 when the key was absent
  created INTEGER NOT NULL,    -- revision that created the key
  key TEXT NOT NULL,
  value BLOB                   -- NULL: deleted
);
CREATE TABLE mark (name TEXT PRIMARY KEY, revision INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO mark VALUES ('compacted', 0), ('swept', 0);
-- A mark 'readable_from' is the oldest format that a program must know (see `format`).
"""

# Every row with the row it replaces, when there is one. The + keeps SQLite from indexing the
# whole log by key for the occasion: the range of row ids already leads to a handful of rows.
_EVENTS = f"""
SELECT new.id / {PER_REVISION}, new.key, new.value, new.created,
       old.value, old.id / {PER_REVISION}, old.created
FROM log AS new LEFT JOIN log AS old
  ON new.previous > 0 AND +old.key = +new.key
  AND old.id BETWEEN new.previous * {PER_REVISION} AND new.previous * {PER_REVISION} + {MAX_OPS}
WHERE new.id BETWEEN ? AND ? ORDER BY new.id
"""

_SWEEP_REPLACED = f"""
DELETE FROM log WHERE id IN (
  SELECT old.id FROM log AS new CROSS JOIN log AS old  -- CROSS: in this order
    ON +old.key = +new.key
    AND old.id BETWEEN new.previous * {PER_REVISION} AND new.previous * {PER_REVISION} + {MAX_OPS}
  WHERE new.previous > 0 AND new.id BETWEEN ? AND ?)
"""
_SWEEP_DELETED = "DELETE FROM log WHERE id BETWEEN ? AND ? AND value IS NULL"


class Loaded(NamedTuple):
    """What a file held when it was opened."""

    latest: dict[str, Record]
    revision: Revision
    compacted: Revision


def _ids(after: Revision, upto: Revision) -> tuple[int, int]:
    """First and last row id of the revisions after one, up to another."""
    return (after + 1) * PER_REVISION, upto * PER_REVISION + PER_REVISION - 1


@contextlib.contextmanager
def _failures(doing: str, path: Path) -> Iterator[None]:
    """SQLite's errors as the contract's."""
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "SQLITE_ERROR")
        if name == "SQLITE_FULL":
            raise Full(
                f"make room on the disk of {path}, or for its quota; writes go on by themselves"
            ) from error
        raise Failed(f"{doing}: {error} ({name})") from error


class LogFile:
    """An open log."""

    def __init__(
        self, path: Path, *, quota_bytes: int = 0, seal: sealing.Seal = sealing.PLAIN
    ) -> None:
        """Open or create. Raises `Locked`, or `Corrupt` before anything in the file is changed."""
        self._path = path
        self._seal = seal
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = lock(path)
        try:
            self._db = self._open(quota_bytes)
        except BaseException:
            os.close(self._lock)
            raise
        marks = read_marks(self._db)
        self.compacted, self._swept = marks["compacted"], marks["swept"]

    def load(self) -> Loaded:
        """The latest state: the whole log is read once, and its links are checked on the way."""
        return opened(read_latest(self._db, self._path), self._seal)

    def append(self, events: Sequence[Event]) -> None:
        """Write these events durably, all or none.

        They go in as one statement, which is one transaction: stepping SQLite gives the
        interpreter lock away, and a busy event loop is slow to hand it back.
        """
        values: list[int | str | bytes | None] = []
        place, at, seal = 0, Revision(0), self._seal
        for event in events:
            place = place + 1 if event.revision == at else 0
            at = event.revision
            previous = event.previous.revision if event.previous else 0
            key, value = event.key, event.value
            if value is not None and seal is not sealing.PLAIN:
                value = seal.seal(key, value, key.encode())
            values += (at * PER_REVISION + place, previous, event.created, key, value)
        with _failures("cannot write", self._path):
            if len(events) <= ROWS:
                self._insert(values)
                return
            with self._transaction():
                for begin in range(0, len(values), ROWS * COLUMNS):
                    self._insert(values[begin : begin + ROWS * COLUMNS])

    def read(self, after: Revision, upto: Revision, stamp: Stamp) -> list[Event]:
        """The events after a revision up to another; raises `Compacted`, or `Unreadable` when one
        of them was sealed with a key that is gone."""
        if after < self.compacted:
            raise Compacted(self.compacted)
        events = []
        with _failures("cannot read", self._path):
            rows = self._db.execute(_EVENTS, _ids(after, upto)).fetchall()
        for at, key, kept, created, old_kept, *old in rows:
            value, before = self._opened(key, kept), self._opened(key, old_kept)
            previous = Record(key, before, *old) if before is not None else None
            shown = value if value is not None else stamp(before or b"", at)
            events.append(Event(at, key, value, previous, shown, created))
        return events

    def compact(self, revision: Revision) -> None:
        """Declare everything before `revision` forgotten; `sweep` then removes it."""
        if revision > self.compacted:
            with _failures("cannot compact", self._path):
                self._db.execute(
                    "UPDATE mark SET revision = ? WHERE name = 'compacted'", (revision,)
                )
            self.compacted = revision

    def sweep(self, revisions: int) -> bool:
        """Remove forgotten rows of the next few revisions. Returns whether more is left."""
        if self._swept >= self.compacted:
            return False
        upto = Revision(min(self.compacted, self._swept + revisions))
        ids = _ids(self._swept, upto)
        with _failures("cannot compact", self._path), self._transaction():
            self._db.execute(_SWEEP_REPLACED, ids)
            self._db.execute(_SWEEP_DELETED, ids)
            self._db.execute("UPDATE mark SET revision = ? WHERE name = 'swept'", (upto,))
        self._swept = upto
        return upto < self.compacted

    def forget_until(self, revision: Revision) -> None:
        """Go on after `revision`, as if all that led to the latest state lay before it."""
        self.compact(max(self.compacted, self.load().revision))
        while self.sweep(PER_REVISION):
            pass
        if revision > self.compacted:
            with _failures("cannot compact", self._path):
                self._db.execute(
                    "UPDATE mark SET revision = ? WHERE name IN ('compacted', 'swept')", (revision,)
                )
            self.compacted = self._swept = revision

    def close(self) -> None:
        """Fold the write-ahead log into the file and let go of both."""
        try:
            self._db.close()
        finally:
            os.close(self._lock)

    def _opened(self, key: str, kept: bytes | None) -> bytes | None:
        return None if kept is None else self._seal.open(key, kept, key.encode())

    def _insert(self, values: list[int | str | bytes | None]) -> None:
        rows = ",".join(["(?,?,?,?,?)"] * (len(values) // COLUMNS))
        # By name: a newer format may have columns that we do not know.
        self._db.execute(
            f"INSERT INTO log (id, previous, created, key, value) VALUES {rows}", values
        )

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:  # SQLite ends some failed transactions by itself
                self._db.execute("ROLLBACK")
            raise

    def _open(self, quota_bytes: int) -> sqlite3.Connection:
        # An empty database makes SQLite throw its write-ahead log away, data and all.
        wal = self._path.with_name(self._path.name + "-wal")
        size = self._path.stat().st_size if self._path.exists() else 0
        if size == 0 and wal.exists() and wal.stat().st_size:
            raise Corrupt(f"{self._path} is empty, but its write-ahead log is not")
        db = sqlite3.connect(
            self._path,
            isolation_level=None,  # we say BEGIN where we mean it
            cached_statements=512,  # one per number of rows in a group, up to its usual size
            check_same_thread=False,  # opened in one thread, then given to the writer
        )
        try:
            db.execute(f"PRAGMA page_size = {PAGE_BYTES}")  # of a new file; others keep theirs
            check(db, self._path)
            _configure(db, quota_bytes)
        except sqlite3.DatabaseError as error:
            db.close()
            if getattr(error, "sqlite_errorname", "") == "SQLITE_FULL":
                raise Full(f"cannot open {self._path}: no space left") from error
            raise Corrupt(f"{self._path}: {error}") from error
        except BaseException:
            db.close()
            raise
        return db


def check(db: sqlite3.Connection, path: Path) -> None:
    """Refuse what is damaged or not ours; reads only, and an empty file is new."""
    (tables,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if not tables:
        return
    (application,) = db.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID:
        raise Corrupt(f"{path} is an SQLite file, but not a Motley store")
    formats.check(read_format(db), str(path))
    damage = [text for (text,) in db.execute("PRAGMA quick_check(3)")]
    if damage != ["ok"]:
        raise Corrupt(f"{path}: {'; '.join(damage)}")


def read_format(db: sqlite3.Connection) -> formats.Format:
    """What the file says of its format; one that says no more is readable by its own only."""
    (version,) = db.execute("PRAGMA user_version").fetchone()
    has_marks = db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'mark'").fetchone()
    found = read_marks(db).get("readable_from") if has_marks else None
    return formats.Format(version, version if found is None else found)


def read_marks(db: sqlite3.Connection) -> dict[str, Revision]:
    """How far the log is `compacted`, and how far that was carried out: `swept`."""
    return dict(db.execute("SELECT name, revision FROM mark"))


def read_latest(db: sqlite3.Connection, path: Path) -> Loaded:
    """The latest state in an open file; raises `Corrupt` when a link of the log is missing."""
    latest: dict[str, Record] = {}
    compacted = read_marks(db)["compacted"]
    revision = compacted  # rows of the newest revision may be gone after a sweep
    rows = db.execute(
        f"SELECT id / {PER_REVISION}, previous, created, key, value FROM log ORDER BY id"
    )
    try:
        for at, previous, created, key, value in rows:
            before = latest.get(key)
            if before is None:
                linked = previous == 0 or previous <= compacted
            else:
                linked = before.revision == previous
            if not linked or (value is None and previous == 0):
                raise Corrupt(f"{path}: the history of {key} breaks at revision {at}")
            if value is None:
                latest.pop(key, None)
            else:
                latest[key] = Record(key, value, at, created)
            revision = max(revision, at)
    except sqlite3.DatabaseError as error:
        raise Corrupt(f"{path}: {error}") from error
    return Loaded(latest, revision, compacted)


def opened(loaded: Loaded, seal: sealing.Seal) -> Loaded:
    """The latest state with its seals taken off; raises `Unreadable`."""
    if seal is sealing.PLAIN:
        return loaded
    latest = {
        key: Record(key, seal.open(key, kept.value, key.encode()), kept.revision, kept.created)
        for key, kept in loaded.latest.items()
    }
    return loaded._replace(latest=latest)


def _configure(db: sqlite3.Connection, quota_bytes: int) -> None:
    """Durability settings, and the tables of a new file."""
    (mode,) = db.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise Failed(f"this file system cannot hold a write-ahead log (journal mode {mode})")
    db.execute("PRAGMA synchronous = FULL")
    if quota_bytes:
        (page_bytes,) = db.execute("PRAGMA page_size").fetchone()
        db.execute(f"PRAGMA max_page_count = {max(1, quota_bytes // page_bytes)}")
    (tables,) = db.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if not tables:
        # One transaction, the header fields included: a file is either new or complete.
        db.executescript(
            f"BEGIN; PRAGMA application_id = {APPLICATION_ID};"
            f"PRAGMA user_version = {formats.CURRENT}; {_SCHEMA} COMMIT;"
        )


def lock(path: Path) -> int:
    """Take the lock file, or say who has it. The kernel lets go when the process ends."""
    name = path.with_name(path.name + ".lock")
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    except BlockingIOError as error:
        owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        os.close(descriptor)
        raise Locked(f"{path} is in use by process {owner or 'unknown'}") from error
    except OSError:  # a full disk: the lock itself is held, only the note about it is missing
        log.warning("cannot note the owner in the lock file", path=name)
    return descriptor
