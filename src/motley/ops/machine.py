"""The facts of this machine, for `doctor`: found by trying, where trying leaves nothing behind.

Devices and tables are made in a network namespace that lives as long as the command that made it;
a control group is removed at once. Nothing that runs is touched.
"""

import ctypes
import os
import platform
import resource
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

from motley.lib import clock
from motley.ops import containerd, emulation, etcdmembers, members, preflight
from motley.ops.authority import Authority
from motley.ops.cluster import Cluster
from motley.ops.config import Config
from motley.ops.doctor import Expiry, Facts, Port, Running
from motley.ops.failure import Failure
from motley.ops.overview import Overview, overview
from motley.ops.up import held_ports

_CGROUPS = Path("/sys/fs/cgroup")
_CAP_SYS_RESOURCE = 24
_TIME_ERROR = 5  # adjtimex: not synchronised
_MAX_ERROR_AT = 24  # of struct timex on 64-bit machines, in microseconds
_KINDS = {"bridge": "", "veth": "peer name mtdoc1", "vxlan": "id 7 dstport 4789"}
_DAY_S = 86400.0
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


async def gather(config: Config, *, is_made: bool, source: clock.Clock = clock.SYSTEM) -> Facts:
    """Look at the machine, and at the cluster under the configuration's root."""
    seen = await overview(config, source) if is_made else Overview(root=str(config.root))
    is_root = os.geteuid() == 0
    place = _existing(config.root)
    room = os.statvfs(place)
    memory = _memory()
    is_synchronised, error_s = _clock()
    directory = containerd.cni_directory()
    version, refusal = _containerd(config)
    return Facts(
        is_root=is_root,
        kernel=platform.release(),
        filesystems=frozenset(Path("/proc/filesystems").read_text().split()) | _loadable("overlay"),
        links={kind: _link(kind, words) for kind, words in _KINDS.items()} if is_root else {},
        nftables=_isolated("nft", "add", "table", "ip", "mtdoc") if is_root else "",
        has_br_netfilter=Path("/proc/sys/net/bridge/bridge-nf-call-iptables").exists()
        or bool(_loadable("br_netfilter")),
        cgroup_version=2 if (_CGROUPS / "cgroup.controllers").exists() else 1,
        controllers=_controllers(),
        cgroup_error=_try_cgroup() if is_root else "",
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        inotify_instances=_number("/proc/sys/fs/inotify/max_user_instances"),
        can_raise_limits=containerd.has_capability(
            Path("/proc/self/status").read_text(), _CAP_SYS_RESOURCE
        ),
        programs={
            program: package
            for program, package in (*preflight.PROGRAMS, *etcdmembers.programs(config))
            if shutil.which(program, path=_PATH) is None
        },
        containerd=version,
        containerd_config=refusal,
        cni_directory=directory,
        cni_plugins=frozenset(os.listdir(directory)) if directory else frozenset(),
        ports=_ports(config, held_ports(Cluster(config))),
        is_synchronised=is_synchronised,
        clock_error_s=error_s,
        disk_path=str(config.root),
        disk_free=room.f_bavail * room.f_frsize,
        inodes_free=room.f_favail if room.f_files else None,
        memory_total=memory.get("MemTotal", 0),
        memory_free=memory.get("MemAvailable", 0),
        certificates=_certificates(config, source) if is_made else (),
        is_made=is_made,
        is_supervised=not seen.unsupervised,
        components=tuple(
            Running(c.name, c.state, c.reason or c.last_end, c.log, tuple(c.last_lines))
            for c in seen.components
        ),
        emulated={
            one.node_name: (one.emulates, emulation.problem(one))
            for one in members.present(config)
            if one.emulates
        },
        api=_api(seen),
    )


def _api(seen: Overview) -> str:
    has_server = any(one.name == "apiserver" for one in seen.components)
    if not has_server:
        return ""
    if seen.cluster is None:
        return "the API server does not answer"
    if seen.cluster.nodes_ready < seen.cluster.nodes:
        return f"{seen.cluster.nodes_ready} of {seen.cluster.nodes} nodes are Ready"
    return ""


def _existing(path: Path) -> Path:
    return path if path.exists() else _existing(path.parent)


def _number(path: str) -> int:
    return int(Path(path).read_text())


def _loadable(module: str) -> frozenset[str]:
    """The module's name, where the kernel could load it; nothing is loaded."""
    program = shutil.which("modprobe", path=_PATH)
    if program is None:
        return frozenset()
    done = subprocess.run([program, "--dry-run", module], capture_output=True, timeout=20)
    return frozenset({module}) if done.returncode == 0 else frozenset()


def _isolated(*command: str) -> str:
    """Run a command in a network namespace of its own; what it says when it fails."""
    try:
        words = ["unshare", "--net", *command]
        done = subprocess.run(words, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    return (done.stderr.strip().splitlines() or [f"{command[0]} failed"])[0]


def _link(kind: str, words: str) -> str:
    return _isolated("ip", "link", "add", "mtdoc0", "type", kind, *words.split())


def _controllers() -> frozenset[str]:
    unified = _CGROUPS / "cgroup.controllers"
    if unified.exists():
        return frozenset(unified.read_text().split())
    return frozenset(path.name for path in _CGROUPS.iterdir() if path.is_dir())


def _try_cgroup() -> str:
    parents = [_CGROUPS, *(_CGROUPS / name for name in ("memory", "cpu", "pids"))]
    for parent in parents if not (_CGROUPS / "cgroup.controllers").exists() else parents[:1]:
        if parent == _CGROUPS and len(parents) > 1 and not (parent / "cgroup.procs").exists():
            continue  # v1: the top is no group itself
        trial = parent / f"motley-doctor-{os.getpid()}"
        try:
            trial.mkdir()
            trial.rmdir()
        except OSError as error:
            return f"{parent}: {error.strerror}"
    return ""


def _containerd(config: Config) -> tuple[tuple[int, int] | None, str]:
    if shutil.which("containerd", path=_PATH) is None:
        return None, ""
    done = subprocess.run(["containerd", "--version"], capture_output=True, text=True, timeout=20)
    file = config.root / "containerd" / "config.toml"
    refusal = ""
    if file.exists():
        words = ["containerd", "--config", str(file), "config", "dump"]
        said = subprocess.run(words, capture_output=True, text=True, timeout=20)
        if said.returncode != 0:
            refusal = (said.stderr.strip().splitlines() or ["it does not say why"])[-1]
    return containerd.parse_version(done.stdout), refusal


def _ports(config: Config, ours: set[int]) -> tuple[Port, ...]:
    return tuple(
        Port(
            number,
            name,
            ""
            if number in ours or preflight.is_free(number)
            else preflight.listener(number) or "another program",
        )
        for number, name in sorted(config.ports.items())
    )


def _clock() -> tuple[bool | None, float]:
    """What the kernel says of its clock, and by how much it may be wrong."""
    timex = ctypes.create_string_buffer(256)
    state = ctypes.CDLL(None).adjtimex(timex)
    if state < 0:
        return None, 0.0
    error_us = ctypes.c_long.from_buffer(timex, _MAX_ERROR_AT).value
    return state != _TIME_ERROR, error_us / 1e6


def _memory() -> dict[str, int]:
    lines = Path("/proc/meminfo").read_text().splitlines()
    parts = (line.replace(":", "").split() for line in lines)
    return {words[0]: int(words[1]) << 10 for words in parts if len(words) > 1}


def _certificates(config: Config, source: clock.Clock) -> tuple[Expiry, ...]:
    with suppress(Failure):  # a machine that has joined has no authority
        now = source.now()
        found = Authority(config.root).listed()
        return tuple(Expiry(one.name, one.residual_s(now) / _DAY_S) for one in found)
    return ()
