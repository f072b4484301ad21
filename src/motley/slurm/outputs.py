"""Which files of a job's folder match its patterns.

The folder is read over SFTP and matched here: names are whatever the job has made, and whatever the
cluster's server says they are. `**` stands for any folders, `*` for anything but a `/`.
Invariant: no name that is found leads out of the folder, or into the bridge's own.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

import asyncssh

from motley.slurm import script
from motley.slurm.ssh import Connection

_TIMEOUT_S = 600.0
_DEEPEST = 32  # folders within folders
_MAGIC = frozenset("*?[")


async def matching(connection: Connection, directory: str, patterns: Sequence[str]) -> list[str]:
    """Files of a folder that match one of the patterns, each once, in order."""
    found: dict[str, None] = {}
    async with connection.sftp(timeout_s=_TIMEOUT_S) as sftp:
        folder = _Folder(sftp, directory)
        for pattern in patterns:
            if script.is_inside(pattern):
                parts = PurePosixPath(pattern).parts
                found |= dict.fromkeys(await folder.matching("", parts))
    return [name for name in found if script.is_inside(name)]


class _Folder:
    """A folder, of which every part is listed once."""

    def __init__(self, sftp: asyncssh.SFTPClient, directory: str) -> None:
        self._sftp = sftp
        self._directory = directory
        self._listed: dict[str, dict[str, int]] = {}

    async def matching(self, within: str, parts: Sequence[str]) -> list[str]:
        """Names of files below `within` (empty, or it ends in `/`) that match these parts."""
        part, rest = parts[0], parts[1:]
        if part == "**":
            found = await self.matching(within, rest or ("*",))
            if within.count("/") < _DEEPEST:
                for name in await self._names(within, is_folder=True):
                    found += await self.matching(f"{within}{name}/", parts)
            return found
        is_exact = _MAGIC.isdisjoint(part)
        if rest:
            names = [part] if is_exact else await self._names(within, is_folder=True)
            found = []
            for name in names:
                if is_exact or fnmatchcase(name, part):
                    found += await self.matching(f"{within}{name}/", rest)
            return found
        names = [part] if is_exact else await self._names(within, is_folder=False)
        wanted = [within + name for name in names if is_exact or fnmatchcase(name, part)]
        return [name for name in wanted if await self._sftp.isfile(f"{self._directory}/{name}")]

    async def _names(self, within: str, *, is_folder: bool) -> list[str]:
        if within not in self._listed:
            self._listed[within] = await self._read(within)
        kind = asyncssh.FILEXFER_TYPE_DIRECTORY
        return sorted(n for n, t in self._listed[within].items() if (t == kind) is is_folder)

    async def _read(self, within: str) -> dict[str, int]:
        found = {}
        try:
            async for entry in self._sftp.scandir(f"{self._directory}/{within}"):
                name = str(entry.filename)
                if "/" not in name and name not in (".", ".."):
                    found[name] = entry.attrs.type
        except (asyncssh.SFTPNoSuchFile, asyncssh.SFTPPermissionDenied):
            return {}
        return found
