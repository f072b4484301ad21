"""Files to and from a job's folder, whole or not at all.

A file is written beside its place and moved there when its checksum is right, so that a broken
connection leaves a part, never half a file. The next attempt goes on from that part if it is the
beginning of the same file. What is there already, with the right checksum, is not sent again.
Large files are read in threads: a lease has to be renewed meanwhile.
Invariant: a name without `.part` always has the content it should have.
"""

import asyncio
import hashlib
import posixpath
import shlex
from collections.abc import Mapping, Sequence
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
_CHECKSUM_TIMEOUT_S = 600.0
_PRIVATE = asyncssh.SFTPAttrs(permissions=0o700)


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
) -> int:
    """Make a folder hold these files; how many had to be sent. Raises Unreachable.

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
    async with connection.sftp() as sftp:
        for name in missing:
            await _send(connection, sftp, directory, name, files[name])
    present = await _checksums(connection, directory, {n: wanted[n] for n in missing}, end=PART)
    for name in missing:
        if present.get(name) != wanted[name]:
            raise Unreachable("Damaged", f"{name} arrived damaged, it will be sent again")
    async with connection.sftp() as sftp:
        for name in missing:
            place = f"{directory}/{name}"
            await sftp.posix_rename(place + PART, place)
    return len(missing)


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
    found = {}
    for line in done.out.splitlines():
        digest, _, name = line.partition("  ")
        found[name.removesuffix(end) if end else name] = digest
    return found


async def _send(
    connection: Connection, sftp: asyncssh.SFTPClient, directory: str, name: str, source: Source
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
    async with sftp.open(place, "rb+" if offset else "wb") as remote:
        position = offset
        while position < size:
            chunk = _read(source, position, _CHUNK)
            await remote.write(chunk, position)
            position += len(chunk)
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


async def matching(connection: Connection, directory: str, patterns: Sequence[str]) -> list[str]:
    """Files of a folder that match one of the patterns, each once, in order."""
    inside = [pattern for pattern in patterns if script.is_inside(pattern)]
    found: dict[str, None] = {}
    async with connection.sftp() as sftp:
        for pattern in inside:
            try:
                paths = await sftp.glob(f"{directory}/{pattern}")
            except asyncssh.SFTPNoSuchFile:
                continue
            for path in sorted(str(p) for p in paths):
                name = posixpath.relpath(path, directory)
                if script.is_inside(name) and await sftp.isfile(path):
                    found[name] = None
    return list(found)


async def download(
    connection: Connection,
    directory: str,
    names: Sequence[str],
    target: Path,
    *,
    most_bytes: int,
) -> tuple[list[ResultFile], list[str]]:
    """Bring files back; what is here already and unchanged is not fetched again. Beside what came
    are the names of those that are too large and stay where they are."""
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
            await _fetch(connection, directory, name, place, sums[name])
        fetched.append(ResultFile(name=name, bytes=place.stat().st_size, sha256=sums[name]))
    return fetched, left


async def _fetch(
    connection: Connection, directory: str, name: str, place: Path, digest: str
) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(place.name + PART)
    remote_path = f"{directory}/{name}"
    async with connection.sftp() as sftp:
        size = await _size(sftp, remote_path)
        with part.open("ab") as local:
            if local.tell() > size:
                local.truncate(0)
            if local.tell():
                log.info("download resumed", file=name, offset=local.tell(), size=size)
            await _copy(sftp, remote_path, local)
    if await asyncio.to_thread(checksum, part) != digest:
        # The part was of another file, or this one has changed: from the beginning next time.
        part.unlink()
        raise Unreachable("Damaged", f"{name} came back damaged, it will be fetched again")
    part.replace(place)


async def _copy(sftp: asyncssh.SFTPClient, path: str, local: BinaryIO) -> None:
    async with sftp.open(path, "rb") as remote:
        position = local.seek(0, 2)
        while chunk := await remote.read(_CHUNK, position):
            local.write(cast("bytes", chunk))
            position += len(chunk)
