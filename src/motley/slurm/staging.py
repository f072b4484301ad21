"""Files to and from a job's folder, whole or not at all.

A file is written beside its place and moved there when its checksum is right, so that a broken
connection leaves a part, never half a file. The next attempt goes on from that part if it is the
beginning of the same file. What is there already, with the right checksum, is not sent again.
Large files are read in threads: a lease has to be renewed meanwhile.
Invariant: a name without `.part` always has the content it should have.
"""

import asyncio
import contextlib
import hashlib
import posixpath
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import asyncssh

from motley.api.views.slurm import ResultFile
from motley.lib import journal
from motley.slurm import script
from motley.slurm.ssh import Connection, Unreachable

log = journal.get(__name__)

Source = bytes | Path
PART = ".part"
_CHUNK = 128 * 1024  # four of OpenSSH's largest packets
_CHUNK_TIMEOUT_S = 120.0
_CHECKSUM_TIMEOUT_S = 600.0
_ESCAPED = re.compile(r"\\(.)")
_PRIVATE = asyncssh.SFTPAttrs(permissions=0o700)


class Unwanted(Exception):
    """Nobody waits for these files any more."""


def checksum(source: Source) -> str:
    """The SHA-256 of a file."""
    if isinstance(source, bytes):
        return hashlib.sha256(source).hexdigest()
    with source.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


async def upload(
    connection: Connection,
    directory: str,
    files: Mapping[str, Source],
    *,
    is_new: bool = False,
    is_wanted: Callable[[], bool] = lambda: True,
) -> int:
    """Make a folder hold these files; how many had to be sent. Raises Unreachable, and Unwanted.

    Of a folder that `is_new` nobody is asked what it holds, which saves a command.
    """
    wanted = await asyncio.to_thread(
        lambda: {name: checksum(source) for name, source in files.items()}
    )
    folders = {directory, f"{directory}/{script.MARKS}"}
    folders |= {posixpath.dirname(f"{directory}/{name}") for name in files}
    present: dict[str, str] = {}
    if is_new:
        async with connection.sftp() as sftp:
            for folder in sorted(folders):
                await sftp.makedirs(folder, _PRIVATE, exist_ok=True)
    else:
        present = await _checksums(connection, directory, wanted, folders=sorted(folders))
    missing = [name for name in wanted if present.get(name) != wanted[name]]
    if not missing:
        return 0
    async with connection.sftp(timeout_s=None) as sftp:
        for name in missing:
            await _send(connection, sftp, directory, name, files[name], is_wanted)
    present = await _checksums(connection, directory, {n: wanted[n] for n in missing}, end=PART)
    for name in missing:
        if present.get(name) != wanted[name]:
            raise Unreachable("Damaged", f"{name} arrived damaged, it will be sent again")
    async with connection.sftp() as sftp:
        for name in missing:
            await _move(sftp, f"{directory}/{name}")
    return len(missing)


async def _move(sftp: asyncssh.SFTPClient, place: str) -> None:
    """Put a whole file into its place."""
    try:
        await sftp.posix_rename(place + PART, place)
    except (asyncssh.SFTPOpUnsupported, asyncssh.SFTPPermissionDenied):
        # Plain SFTP renames only to where nothing is. Who looks meanwhile finds nothing, not half.
        with contextlib.suppress(asyncssh.SFTPNoSuchFile):
            await sftp.remove(place)
        await sftp.rename(place + PART, place)


async def _checksums(
    connection: Connection,
    directory: str,
    names: Mapping[str, str] | Sequence[str],
    *,
    folders: Sequence[str] = (),
    end: str = "",
) -> dict[str, str]:
    """SHA-256 of what is there, by name; folders are made on the way."""
    lines = [f"mkdir -p -m 700 -- {shlex.join(folders)}"] if folders else []
    lines.append(f"cd {shlex.quote(directory)} || exit 1")
    lines += [f"sha256sum -- {shlex.quote(name + end)} 2>/dev/null" for name in names]
    lines.append("exit 0")
    done = await connection.run("bash -s", stdin="\n".join(lines), timeout_s=_CHECKSUM_TIMEOUT_S)
    if done.code != 0:
        raise Unreachable("NoFolder", f"{directory}: {done.err.strip() or 'cannot be entered'}")
    return {name.removesuffix(end): digest for name, digest in parse_checksums(done.out).items()}


def parse_checksums(text: str) -> dict[str, str]:
    """What sha256sum prints, by name. Lines whose names hold odd characters begin with a `\\`."""
    found = {}
    for line in text.split("\n"):
        digest, _, name = line.partition("  ")
        if digest.startswith("\\"):
            digest = digest[1:]
            name = _ESCAPED.sub(lambda m: {"n": "\n", "r": "\r"}.get(m[1], m[1]), name)
        found[name] = digest
    found.pop("", None)
    return found


async def _send(
    connection: Connection,
    sftp: asyncssh.SFTPClient,
    directory: str,
    name: str,
    source: Source,
    is_wanted: Callable[[], bool],
) -> None:
    place = f"{directory}/{name}{PART}"
    size = len(source) if isinstance(source, bytes) else source.stat().st_size
    begun = await _size(sftp, place)
    offset = 0
    if 0 < begun <= size:
        there = (await _checksums(connection, directory, [name], end=PART)).get(name)
        ours = await asyncio.to_thread(_checksum_of_start, source, begun)
        offset = begun if there == ours else 0
        if offset:
            log.info("upload resumed", file=name, offset=offset, size=size)
    try:
        async with sftp.open(place, "rb+" if offset else "wb") as remote:
            position = offset
            while position < size:
                if not is_wanted():
                    raise Unwanted
                chunk = _read(source, position, _CHUNK)
                async with asyncio.timeout(_CHUNK_TIMEOUT_S):
                    await remote.write(chunk, position)
                position += len(chunk)
    except asyncssh.SFTPFailure as error:  # all that most servers say of such things
        words = f"{place}: {error.reason or 'failure'}; is the disk full, or a quota used up?"
        raise Unreachable("FileRefused", words) from error
    mode = 0o755 if isinstance(source, Path) and source.stat().st_mode & 0o100 else 0o644
    await sftp.chmod(place, mode)


async def _size(sftp: asyncssh.SFTPClient, place: str) -> int:
    try:
        return int((await sftp.stat(place)).size or 0)
    except asyncssh.SFTPNoSuchFile:
        return -1


def _read(source: Source, position: int, size: int) -> bytes:
    if isinstance(source, bytes):
        return source[position : position + size]
    with source.open("rb") as file:
        file.seek(position)
        return file.read(size)


def _checksum_of_start(source: Source, size: int) -> str:
    digest = hashlib.sha256()
    for position in range(0, size, _CHUNK):
        digest.update(_read(source, position, min(_CHUNK, size - position)))
    return digest.hexdigest()


async def download(
    connection: Connection,
    directory: str,
    names: Sequence[str],
    target: Path,
    *,
    most_bytes: int,
    is_wanted: Callable[[], bool] = lambda: True,
) -> tuple[list[ResultFile], list[str]]:
    """Bring files back; what is here already and unchanged is not fetched again. Beside what came
    are the names of those that are too large and stay where they are. Raises Unwanted."""
    sums = await _checksums(connection, directory, names) if names else {}
    fetched, left = [], []
    for name in names:
        if name not in sums:
            continue  # gone since it was listed
        async with connection.sftp() as sftp:
            size = await _size(sftp, f"{directory}/{name}")
        if size > most_bytes:
            left.append(name)
            continue
        place = target / name
        is_here = place.is_file()
        if not is_here or await asyncio.to_thread(checksum, place) != sums[name]:
            await _fetch(connection, directory, name, place, sums[name], is_wanted)
        fetched.append(ResultFile(name=name, bytes=place.stat().st_size, sha256=sums[name]))
    return fetched, left


async def _fetch(
    connection: Connection,
    directory: str,
    name: str,
    place: Path,
    digest: str,
    is_wanted: Callable[[], bool],
) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(place.name + PART)
    remote_path = f"{directory}/{name}"
    async with connection.sftp(timeout_s=None) as sftp:
        size = await _size(sftp, remote_path)
        with part.open("ab") as local:
            if local.tell() > size:
                local.truncate(0)
            if local.tell():
                log.info("download resumed", file=name, offset=local.tell(), size=size)
            await _copy(sftp, remote_path, local, is_wanted)
    if await asyncio.to_thread(checksum, part) != digest:
        # The part was of another file, or this one has changed: from the beginning next time.
        part.unlink()
        raise Unreachable("Damaged", f"{name} came back damaged, it will be fetched again")
    part.replace(place)


async def _copy(
    sftp: asyncssh.SFTPClient, path: str, local: BinaryIO, is_wanted: Callable[[], bool]
) -> None:
    async with sftp.open(path, "rb") as remote:
        position = local.seek(0, 2)
        while is_wanted():
            async with asyncio.timeout(_CHUNK_TIMEOUT_S):
                chunk = await remote.read(_CHUNK, position)
            if not chunk:
                return
            local.write(cast("bytes", chunk))
            position += len(chunk)
    raise Unwanted
