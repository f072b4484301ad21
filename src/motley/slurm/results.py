"""What a job has printed and written, brought back to where its author finds it.

The files lie on the bridge's machine, in the folder the job names if that is opened, and, as far as
they are small, in a ConfigMap beside the job, so that whoever may read it needs nothing else. What
it prints is brought along while it runs, in another ConfigMap.
"""

import asyncio
import base64
import posixpath
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import asyncssh

from motley.api import status
from motley.api.views.core import ConfigMap
from motley.api.views.slurm import ResultFile, SlurmJob
from motley.client.rest import Client
from motley.slurm import localpaths, outputs, script, staging
from motley.slurm.localpaths import Root
from motley.slurm.resultkeys import key_of
from motley.slurm.ssh import Connection

LOG, RESULTS = "slurm-log", "slurm-results"  # ConfigMaps NAME-slurm-log and NAME-slurm-results
MOST_TOGETHER = 700 * 1024  # an object has 1.5 MiB at most, and base64 takes a third more
_OVERHEAD = 32  # of a key
_LISTED = 500
_CHUNK = 1 << 20
_MESSAGE = 2000  # of a condition, which has many names in it at times
_TAIL = 128 * 1024  # of each file, kept in the log
_TAILS = 300 * 1024  # of all; an object has 1 MiB, and what is no text becomes three times as long
_FILES = 16  # of an array, followed at once
_SHOWN = 2048  # in the job's own status
_START = "motley.io/start."  # annotation: how many bytes of a file are no longer in the log


def map_name(job: SlurmJob, what: str) -> str:
    """The ConfigMap's name."""
    return f"{job.metadata.name}-{what}"


def patterns(job: SlurmJob) -> list[str]:
    """What to bring back: what it has printed, and what it names."""
    printed = [name.replace("%a", "*") for name in script.streams(job)]
    return [*printed, *job.spec.outputs]


@dataclass
class Kept:
    """Where results are kept on this machine."""

    directory: Path
    roots: Sequence[Root] = ()
    most_bytes: int = 10 << 30

    def place(self, job: SlurmJob) -> Path:
        """A job's own folder."""
        meta = job.metadata
        return self.directory / "results" / meta.namespace / f"{meta.name}-{meta.uid[:8]}"

    async def fetch(
        self, connection: Connection, job: SlurmJob, is_wanted: Callable[[], bool]
    ) -> tuple[list[ResultFile], list[str], Path]:
        """Bring a finished job's files here: what came, what is too large, and where it is."""
        directory = job.status.directory
        names, untold = _told(await outputs.matching(connection, directory, patterns(job)))
        target = self.place(job)
        target.mkdir(parents=True, exist_ok=True)
        found, left = await staging.download(
            connection,
            directory,
            names,
            target,
            most_bytes=self.most_bytes,
            is_wanted=is_wanted,
        )
        left += untold
        wanted = job.spec.result_file_path
        asked = localpaths.resolve(wanted, self.roots) if wanted else None
        if asked is None:
            return found, left, target
        for file in found:
            await asyncio.to_thread(copy, target, file.name, asked, self.roots)
        return found, left, asked

    async def collect(
        self,
        connection: Connection,
        client: Client,
        job: SlurmJob,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> tuple[str, dict[str, Any]]:
        """Bring them here, and the small ones into a ConfigMap: words about it, and what the job's
        status says of them. Raises OSError when they cannot be written here, and Unwanted."""
        files, left, place = await self.fetch(connection, job, is_wanted)
        if small := packed(files, place):
            await write_map(client, job, RESULTS, {"binaryData": small})
        message = f"{len(files)} files, in {place}"
        if left:
            why = "too large or with names that cannot be shown"
            message += f"; still on the cluster, {why}: {', '.join(left)}"
        return message[:_MESSAGE], {"results": listed(files), "resultPath": str(place)}

    def forget(self, job: SlurmJob) -> None:
        """Remove a job's own folder; copies that it asked for stay."""
        shutil.rmtree(self.place(job), ignore_errors=True)


def _told(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names that objects and terminals can show, and the others, as far as they can be."""
    good = [name for name in names if name.isprintable()]
    bad = [name.encode(errors="surrogateescape") for name in names if not name.isprintable()]
    return good, [ascii(name.decode(errors="replace")) for name in bad]


def copy(kept: Path, name: str, asked: Path, roots: Sequence[Root]) -> None:
    """Put a result where the job asks for it, in an opened folder. Others write there too, so links
    in it are not followed out of it. Raises OSError."""
    target = asked / name
    if not localpaths.is_opened(target.parent, roots):
        raise PermissionError(f"{target.parent} leads out of the folders that are opened")
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + staging.PART)
    part.unlink(missing_ok=True)
    with (kept / name).open("rb") as source, part.open("xb") as sink:  # not through a link
        shutil.copyfileobj(source, sink, _CHUNK)
    part.replace(target)


def listed(files: Sequence[ResultFile]) -> list[dict[str, Any]]:
    """Files as a job's status names them: as many as an object may have."""
    return [{"name": f.name, "bytes": f.bytes, "sha256": f.sha256} for f in files[:_LISTED]]


def packed(files: Sequence[ResultFile], place: Path) -> dict[str, str]:
    """Files for a ConfigMap, smallest first, as many as it takes."""
    found: dict[str, str] = {}
    room = MOST_TOGETHER
    for file in sorted(files, key=lambda f: f.bytes):
        room -= file.bytes + _OVERHEAD + len(file.name)
        if room < 0:
            break
        found[key_of(file.name)] = base64.b64encode((place / file.name).read_bytes()).decode()
    return found


async def write_map(
    client: Client,
    job: SlurmJob,
    what: str,
    data: dict[str, Any],
    annotations: dict[str, str] | None = None,
) -> None:
    """Make the job's ConfigMap have this; it goes when the job goes."""
    meta = job.metadata
    owner = {
        "apiVersion": job.API_VERSION,
        "kind": job.KIND,
        "name": meta.name,
        "uid": meta.uid,
        "controller": True,
    }
    name = map_name(job, what)
    document = {
        "metadata": {
            "name": name,
            "namespace": meta.namespace,
            "labels": {"motley.io/slurm-job": meta.name} if len(meta.name) <= 63 else {},
            "annotations": annotations or {},
            "ownerReferences": [owner],
        },
        **data,
    }
    try:
        await client.patch(ConfigMap, name, meta.namespace, document)
    except status.NotFound:
        await client.create(ConfigMap, document)


@dataclass
class _Tail:
    start: int = 0
    data: bytes = b""

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def add(self, more: bytes) -> None:
        self.data += more
        if (over := len(self.data) - _TAIL) > 0:
            self.data, self.start = self.data[over:], self.start + over


@dataclass
class Log:
    """What one job has printed so far."""

    tails: dict[str, _Tail] = field(default_factory=dict)
    is_changed: bool = False

    async def read(self, connection: Connection, job: SlurmJob) -> None:
        """Read what came since the last time."""
        directory = job.status.directory
        names = list(script.streams(job))
        if job.spec.array:
            names = (await outputs.matching(connection, directory, patterns(job)[:2]))[:_FILES]
        async with connection.sftp() as sftp:
            for name in names:
                await self._more(sftp, posixpath.join(directory, name), name)

    async def _more(self, sftp: asyncssh.SFTPClient, path: str, name: str) -> None:
        tail = self.tails.setdefault(name, _Tail())
        try:
            found = await sftp.stat(path)
            size = int(found.size or 0)
            # Opening a pipe that the job has put there would keep all others from their files.
            if found.type != asyncssh.FILEXFER_TYPE_REGULAR or size <= tail.end:
                return
            if size - tail.end > _TAIL:
                tail.start, tail.data = size - _TAIL, b""
            async with sftp.open(path, "rb") as file:
                more = await file.read(size - tail.end, tail.end)
        except (asyncssh.SFTPNoSuchFile, asyncssh.SFTPPermissionDenied):
            return
        if more:
            tail.add(cast("bytes", more))
            self.is_changed = True

    async def write(self, client: Client, job: SlurmJob) -> None:
        """Put it where people read it, if there is something new."""
        if not self.is_changed:
            return
        each = min(_TAIL, _TAILS // max(1, len(self.tails)))
        shown = {key_of(name): (t.data[-each:], t.end) for name, t in self.tails.items()}
        texts = {key: data.decode(errors="replace") for key, (data, _) in shown.items()}
        starts = {_START + key: str(end - len(data)) for key, (data, end) in shown.items()}
        await write_map(client, job, LOG, {"data": texts}, starts)
        self.is_changed = False

    def shown(self, job: SlurmJob) -> dict[str, str]:
        """The last of it, for the job's status."""
        found = {}
        for name, fieldname in zip(script.streams(job), ("output", "error"), strict=True):
            tail = self.tails.get(name)
            if tail is not None and tail.data:
                found[fieldname] = tail.data[-_SHOWN:].decode(errors="replace")
        return found
