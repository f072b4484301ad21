"""The volumes of one pod on disk.

    <root>/pods/<uid>/volumes/<kind>/<name>       what containers mount
    <root>/pods/<uid>/subpaths/<volume>/<container>/<index>
    <root>/pods/<uid>/containers/<name>/<attempt>.message
    <root>/pods/<uid>/etc-hosts

Invariant: everything of a pod is below its directory, so `remove` needs to know nothing else; and
removing never follows a link or a mount out of it.
"""

import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from motley.api import quantity
from motley.api.views.pod import Container, HostPathVolumeSource, Pod, Volume
from motley.lib.clock import SYSTEM, Clock
from motley.node import environment
from motley.node.containerconfig import Mount
from motley.node.environment import ConfigError, Lookup
from motley.node.volumes import atomic, claims, mounts, payload
from motley.node.volumes.claims import Claimed


class VolumeError(Exception):
    """A volume cannot be given; retried."""


class PodVolumes:
    """Makes, refreshes and removes the directories of pods. Blocking: call it in a thread."""

    def __init__(self, root: Path, *, clock: Clock = SYSTEM) -> None:
        # Mounts are found by their real path: a link above would hide them from `remove`.
        self._root = root.resolve() / "pods"
        self._clock = clock

    def directory(self, uid: str) -> Path:
        """Where a pod's files are."""
        return self._root / uid

    def pods(self) -> set[str]:
        """Uids that have a directory."""
        return {d.name for d in self._root.iterdir()} if self._root.is_dir() else set()

    def setup(
        self,
        pod: Pod,
        lookup: Lookup,
        facts: Mapping[str, str],
        allocatable: Mapping[str, int],
        claimed: Mapping[str, Claimed] = claims.NONE,
    ) -> None:
        """Make every volume there is to be; safe to repeat. Raises VolumeError.

        `claimed`: where the claims among them are, by volume name.
        """
        for volume in pod.spec.volumes:
            try:
                if volume.name in claimed:
                    self._setup_claim(pod, volume, claimed[volume.name])
                else:
                    self._setup(pod, volume, lookup, facts, allocatable)
            except ConfigError as error:
                raise VolumeError(f'volume "{volume.name}": {error}') from error
            except OSError as error:
                raise VolumeError(f'volume "{volume.name}": {error}') from error

    def refresh(
        self,
        pod: Pod,
        lookup: Lookup,
        facts: Mapping[str, str],
        allocatable: Mapping[str, int],
    ) -> bool:
        """Bring files of ConfigMaps, Secrets and fields up to date; True when any changed."""
        changed = False
        for volume in pod.spec.volumes:
            path = self._path(pod.metadata.uid, volume)
            if not path.is_dir():
                continue
            try:
                files = payload.of(volume, pod, lookup, facts, allocatable)
            except ConfigError:
                continue  # the object is gone for now: running containers keep what they have
            if files is not None:
                changed |= atomic.write(path, files, clock=self._clock, gid=_gid(pod))
        return changed

    def _setup(
        self,
        pod: Pod,
        volume: Volume,
        lookup: Lookup,
        facts: Mapping[str, str],
        allocatable: Mapping[str, int],
    ) -> None:
        path = self._path(pod.metadata.uid, volume)
        if volume.host_path is not None:
            _check_host_path(volume.host_path)
            return
        if volume.empty_dir is not None:
            if path.is_dir():
                return
            limit = volume.empty_dir.size_limit
            size = quantity.to_int(limit) if limit is not None else 0
            if volume.empty_dir.medium == "Memory":
                mounts.tmpfs(path, size)
            else:
                path.mkdir(parents=True)
            path.chmod(0o777)
            _own(path, _gid(pod))
            return
        files = payload.of(volume, pod, lookup, facts, allocatable)
        if files is None:
            raise VolumeError(f'volume "{volume.name}" is of a kind this node does not support')
        if volume.secret is not None or volume.projected is not None:
            mounts.tmpfs(path, mode=0o755)  # a secret never reaches the disk
        atomic.write(path, files, clock=self._clock, gid=_gid(pod))

    def _setup_claim(self, pod: Pod, volume: Volume, claimed: Claimed) -> None:
        """Bind the claim's directory below the pod's own, where every later agent finds it."""
        target = self._path(pod.metadata.uid, volume)
        if mounts.below(target):
            return
        source = Path(claimed.source.path)
        is_new = not source.exists()
        _check_host_path(claimed.source)
        if claimed.is_own:
            if is_new:
                source.chmod(0o777)
            _own_all(source, _gid(pod))
        descriptor = os.open(source, os.O_PATH)
        try:
            mounts.bind(descriptor, target, is_directory=source.is_dir())
        finally:
            os.close(descriptor)

    def _path(self, uid: str, volume: Volume) -> Path:
        if volume.host_path is not None:
            return Path(volume.host_path.path)
        kinds = {
            "empty-dir": volume.empty_dir,
            "configmap": volume.config_map,
            "secret": volume.secret,
            "downward-api": volume.downward_api,
            "projected": volume.projected,
            "claim": volume.persistent_volume_claim or volume.ephemeral,
        }
        kind = next((k for k, v in kinds.items() if v is not None), "unknown")
        return self.directory(uid) / "volumes" / kind / volume.name

    def mounts(self, pod: Pod, container: Container, variables: Mapping[str, str]) -> list[Mount]:
        """What a container mounts of them. Raises ConfigError or VolumeError."""
        volumes = {v.name: v for v in pod.spec.volumes}
        found = []
        for index, wanted in enumerate(container.volume_mounts):
            volume = volumes.get(wanted.name)
            if volume is None:
                raise ConfigError(f'volumeMount "{wanted.name}" names no volume of the pod')
            path = self._path(pod.metadata.uid, volume)
            sub_path = wanted.sub_path or environment.expand(wanted.sub_path_expr, variables)
            if sub_path:
                where = Path(volume.name) / container.name / str(index)
                path = self._sub_path(pod, path, sub_path, where)
            claim = volume.persistent_volume_claim
            own = (volume.empty_dir, volume.host_path, claim, volume.ephemeral)
            is_files = all(source is None for source in own)
            is_read_only = is_files or (claim is not None and claim.read_only)
            found.append(
                Mount(
                    container_path=wanted.mount_path,
                    host_path=str(path),
                    read_only=wanted.read_only or is_read_only,
                    propagation=wanted.mount_propagation,
                )
            )
        return found

    def _sub_path(self, pod: Pod, volume: Path, sub_path: str, where: Path) -> Path:
        """Bind a path inside a volume, sure that no link leads out of it.

        The path is resolved first and then walked without following links: whoever swaps a
        directory for a link in between gets an error, not the node's files.
        """
        if Path(sub_path).is_absolute() or ".." in Path(sub_path).parts:
            raise ConfigError(f"subPath must stay inside the volume: {sub_path!r}")
        target = self.directory(pod.metadata.uid) / "subpaths" / where
        base = volume.resolve()
        wanted = base / sub_path
        if not wanted.exists():
            wanted.mkdir(parents=True, mode=0o750)
            wanted.chmod(0o777 if _gid(pod) is None else 0o775)
            _own(wanted, _gid(pod))
        resolved = wanted.resolve()
        if resolved != base and base not in resolved.parents:
            raise ConfigError(f"subPath leads out of the volume: {sub_path!r}")
        for point in mounts.below(target):
            mounts.unmount(point)
        descriptor = os.open(base, os.O_PATH | os.O_DIRECTORY)
        try:
            for part in resolved.relative_to(base).parts:
                inner = os.open(part, os.O_PATH | os.O_NOFOLLOW, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = inner
            info = os.fstat(descriptor)
            if stat.S_ISLNK(info.st_mode):
                raise ConfigError(f"subPath changed while it was resolved: {sub_path!r}")
            mounts.bind(descriptor, target, is_directory=stat.S_ISDIR(info.st_mode))
        finally:
            os.close(descriptor)
        return target

    def message_file(self, uid: str, container: str, attempt: int) -> Path:
        """A fresh file for a container's termination message."""
        path = self.directory(uid) / "containers" / container / f"{attempt}.message"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
        path.chmod(0o666)
        return path

    def hosts_file(self, uid: str, text: str) -> Path:
        """The pod's /etc/hosts."""
        path = self.directory(uid) / "etc-hosts"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)  # in place: containers have this very file mounted
            path.chmod(0o644)
        return path

    def release(self, uid: str) -> None:
        """Give back volumes of a pod that has ended; termination messages stay."""
        self._clear(self.directory(uid) / "subpaths")
        self._clear(self.directory(uid) / "volumes")

    def remove(self, uid: str) -> None:
        """Leave nothing of the pod."""
        self._clear(self.directory(uid))

    def _clear(self, path: Path) -> None:
        mounts.undo(path)
        if path.exists():
            shutil.rmtree(path)


def _gid(pod: Pod) -> int | None:
    context = pod.spec.security_context
    return context.fs_group if context is not None else None


def _own(path: Path, gid: int | None) -> None:
    if gid is not None:
        os.chown(path, -1, gid)
        path.chmod(0o2775)


def _own_all(path: Path, gid: int | None) -> None:
    """Give a directory and what is in it to a group, once: a root that has it has been done."""
    if gid is None or path.stat().st_gid == gid:
        return
    for directory, _, files in os.walk(path):
        for name in files:
            os.chown(Path(directory) / name, -1, gid, follow_symlinks=False)
        if directory != str(path):
            os.chown(directory, -1, gid)
    _own(path, gid)  # last: it says that all is done


def _check_host_path(source: HostPathVolumeSource) -> None:
    path = Path(source.path)
    if source.type == "DirectoryOrCreate":
        path.mkdir(parents=True, exist_ok=True, mode=0o755)
    elif source.type == "FileOrCreate" and not path.exists():
        path.touch(0o644)
    checks = {
        "Directory": path.is_dir,
        "DirectoryOrCreate": path.is_dir,
        "File": path.is_file,
        "FileOrCreate": path.is_file,
        "Socket": path.is_socket,
        "CharDevice": path.is_char_device,
        "BlockDevice": path.is_block_device,
    }
    if source.type in checks and not checks[source.type]():
        raise VolumeError(f"hostPath type check failed: {source.path} is not a {source.type}")
