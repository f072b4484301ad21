"""Backup and restore of an SQLite store: one file that is complete, checked and says what it is.

A backup is taken beside a running server, from one read transaction: it is the state of one
revision with its history, and commits go on meanwhile. It is an SQLite file itself, with a manifest
(what it holds, and a digest over every row) that is written last, under a name that appears only
when all of it is on the disk.

A restore first proves the backup whole, then puts it in place while it holds the store's lock. What
was there is moved aside, never overwritten. The restored store goes on at a revision far above any
that was given out after the backup, and knows no history: so no client can mistake a new change for
an old one, and every watch lists again.
"""

import contextlib
import hashlib
import os
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec import Struct

from motley.lib.clock import SYSTEM, Clock, rfc3339
from motley.store import sqlitelog
from motley.store.contract import Corrupt, Failed, Full, Revision, StoreError
from motley.store.sqlitelog import LogFile

BUSY_S = 30.0  # for a server that is just recovering its write-ahead log
BUMP = 1_000_000_000  # etcd's advice for restores too: a week at 1,500 writes per second
_SIDE_FILES = ("", "-wal", "-shm")


class Refused(StoreError):
    """Something is in the way that must not be lost; nothing was changed."""


class Manifest(Struct, frozen=True):
    """What a backup holds."""

    taken: str
    revision: Revision
    objects: int
    rows: int
    sha256: str
    """Over every row of the log in order."""


class Restored(Struct, frozen=True):
    """What a restore did."""

    manifest: Manifest
    revision: Revision
    """Where the store goes on."""
    aside: tuple[Path, ...]
    """The files of the store that was there before."""


def backup(source: Path, target: Path, *, clock: Clock = SYSTEM) -> Manifest:
    """Write a backup of the store in `source`, which may be in use, to a new file.

    Raises `Refused` when there is no store or the target exists, `Corrupt` when the store is
    damaged, `Full` when there is no space; then no target is left.
    """
    if not source.exists():
        raise Refused(f"there is no store at {source}")
    if target.exists():
        raise Refused(f"{target} exists already: a backup never overwrites a file")
    partial = target.with_name(target.name + ".partial")
    partial.unlink(missing_ok=True)
    try:
        # It holds every Secret: nobody else may read it, from the first byte on.
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with _failures(source), contextlib.closing(_open_readonly(source)) as db:
            sqlitelog.check(db, source)
            db.execute("VACUUM INTO ?", (str(partial),))
        with _failures(partial), contextlib.closing(_open(partial)) as db:
            manifest = _describe(db, partial, rfc3339(clock.now()))
            db.execute("CREATE TABLE manifest (document TEXT NOT NULL)")
            text = msgspec.json.encode(manifest).decode()
            db.execute("INSERT INTO manifest VALUES (?)", (text,))
        _sync(partial)
        os.link(partial, target)  # unlike a rename this fails when somebody was quicker
        _sync(target.parent)
    except FileExistsError:
        raise Refused(f"{target} exists already: a backup never overwrites a file") from None
    finally:
        partial.unlink(missing_ok=True)
    return manifest


def verify(path: Path) -> Manifest:
    """Read all of a backup; raises `Corrupt` unless it is whole and holds what it says."""
    if not path.exists():
        raise Refused(f"there is no backup at {path}")
    with _failures(path), contextlib.closing(_open_readonly(path)) as db:
        sqlitelog.check(db, path)
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema")]
        if "manifest" not in tables:
            raise Corrupt(f"{path} is not a backup made by `motley backup`")
        found = [text for (text,) in db.execute("SELECT document FROM manifest")]
        try:
            (text,) = found
            manifest = msgspec.json.decode(text, type=Manifest)
        except (ValueError, msgspec.DecodeError) as error:
            raise Corrupt(f"{path}: its manifest cannot be read: {error}") from error
        if _describe(db, path, manifest.taken) != manifest:
            raise Corrupt(f"{path} does not hold what its manifest says")
    return manifest


def restore(
    source: Path, target: Path, *, force: bool = False, bump: int = BUMP, clock: Clock = SYSTEM
) -> Restored:
    """Make a backup the store at `target`.

    Raises `Corrupt` when the backup is not whole, `Locked` when a server has the store open,
    `Refused` when there is a store and `force` does not say to move it aside.
    """
    manifest = verify(source)
    target.parent.mkdir(parents=True, exist_ok=True)
    held = sqlitelog.lock(target)
    try:
        if any(path.exists() for path in _files(target)) and not force:
            raise Refused(f"there is a store at {target}: with --force it is moved aside and kept")
        ready = target.with_name(target.name + ".restoring")
        for path in _files(ready):
            path.unlink(missing_ok=True)
        revision = _prepare(source, ready, Revision(manifest.revision + bump))
        stamp = rfc3339(clock.now()).replace(":", "").replace("-", "")
        aside = list(_move_aside(target, stamp))
        ready.rename(target)
        _sync(target.parent)
    finally:
        os.close(held)
    return Restored(manifest, revision, tuple(aside))


def _prepare(source: Path, ready: Path, revision: Revision) -> Revision:
    """A store made from a backup, on the disk, that goes on after `revision`."""
    try:
        shutil.copyfile(source, ready)
        ready.chmod(0o600)
        with _failures(ready), contextlib.closing(_open(ready)) as db:
            db.execute("DROP TABLE manifest")
        with contextlib.closing(LogFile(ready)) as file:
            file.forget_until(revision)
            reached = file.load().revision
        ready.with_name(ready.name + ".lock").unlink(missing_ok=True)
        _sync(ready)
    except OSError as error:
        raise Failed(f"cannot write {ready}: {error.strerror}") from error
    return reached


def _move_aside(target: Path, stamp: str) -> Iterator[Path]:
    """Rename the files of a store, all to one new name; the names they have now.

    The database goes first: should we be stopped in between, the server refuses the write-ahead
    log that is left alone and does not throw it away.
    """
    aside, number = target.with_name(f"{target.name}.before-{stamp}"), 1
    while any(path.exists() for path in _files(aside)):
        number += 1
        aside = target.with_name(f"{target.name}.before-{stamp}-{number}")
    for path, kept in zip(_files(target), _files(aside), strict=True):
        if path.exists():
            yield path.rename(kept)


def _files(store: Path) -> list[Path]:
    return [store.with_name(store.name + suffix) for suffix in _SIDE_FILES]


def _describe(db: sqlite3.Connection, path: Path, taken: str) -> Manifest:
    """Everything in the file, in numbers; its links are checked on the way."""
    loaded = sqlitelog.read_latest(db, path)
    digest, rows = hashlib.sha256(), 0
    for row in db.execute("SELECT id, previous, created, key, value FROM log ORDER BY id"):
        *numbers, key, value = row
        size = -1 if value is None else len(value)
        digest.update(f"{numbers} {len(key)} {size}\n{key}".encode() + (value or b""))
        rows += 1
    digest.update(f"{sorted(sqlitelog.read_marks(db).items())}".encode())
    return Manifest(taken, loaded.revision, len(loaded.latest), rows, digest.hexdigest())


def _open_readonly(path: Path) -> sqlite3.Connection:
    """For reading: whatever happens, the file is not changed."""
    url = f"file:{quote(str(path.absolute()))}?mode=ro"
    return sqlite3.connect(url, uri=True, isolation_level=None, timeout=BUSY_S)


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, timeout=BUSY_S)


@contextlib.contextmanager
def _failures(path: Path) -> Iterator[None]:
    """SQLite's errors as the contract's."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        name = getattr(error, "sqlite_errorname", "")
        if name == "SQLITE_FULL":
            raise Full(f"no space left for {path}") from error
        if name in ("SQLITE_CORRUPT", "SQLITE_NOTADB"):
            raise Corrupt(f"{path}: {error}") from error
        raise Failed(f"{path}: {error} ({name})") from error


def _sync(path: Path) -> None:
    """Wait until a file, or a directory's names, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
