"""Can a cluster run here? Asked before anything is started, answered with what to do.

Each check is a sentence about the machine; a machine that fails some gets all of them at once, not
one per attempt.
"""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec

from motley.ops import containerd, processes
from motley.ops.config import Config, is_local
from motley.ops.failure import Failure

_CONTROLLERS = ("cpu", "memory", "pids")
_CGROUPS = Path("/sys/fs/cgroup")
# What a cluster runs, and the Debian package it is in.
PROGRAMS = (
    ("containerd", "containerd"),
    ("ctr", "containerd"),
    ("runc", "runc"),
    ("nft", "nftables"),
    ("conntrack", "conntrack"),
    ("nginx", "nginx"),
)
_SOCKET_PATH_LIMIT = 107  # sun_path of a unix socket address
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Problem(msgspec.Struct, frozen=True):
    """Something in the way, and what removes it."""

    text: str
    advice: str


def require_root() -> None:
    """Containers, namespaces and firewall rules are root's."""
    if os.geteuid() != 0:
        raise Failure("a cluster needs root", "Run the same command with sudo.")


def check(config: Config, ours: set[int]) -> None:
    """Raise a Failure that lists everything in the way; `ours` are ports we already hold."""
    problems = [*_programs(), *_kernel(), *_paths(config), *_ports(config, ours)]
    if problems:
        listed = "\n".join(f"- {p.text}: {p.advice}" for p in problems)
        raise Failure("this machine cannot run a cluster yet", listed)


def _programs() -> Iterator[Problem]:
    for command, package in PROGRAMS:
        if shutil.which(command, path=_PATH) is None:
            yield Problem(f"{command} is missing", f"apt-get install {package}")
    if containerd.cni_directory() is None:
        yield Problem("CNI plugins are missing", "apt-get install containernetworking-plugins")


def controllers(root: Path = _CGROUPS) -> set[str]:
    """Resource controllers the kernel offers, cgroup v1 or v2."""
    unified = root / "cgroup.controllers"
    if unified.exists():
        return set(unified.read_text().split())
    return {name for name in _CONTROLLERS if (root / name).is_dir()}


def _kernel() -> Iterator[Problem]:
    lacking = [name for name in _CONTROLLERS if name not in controllers()]
    if lacking:
        yield Problem(
            f"cgroup controllers {', '.join(lacking)} are not mounted",
            "mount cgroup v2 at /sys/fs/cgroup, or start the kernel with them enabled",
        )
    if "overlay" not in Path("/proc/filesystems").read_text().split() and not _modprobe("overlay"):
        yield Problem("the kernel has no overlay file system", "modprobe overlay")
    if not is_local("127.0.0.1"):
        yield Problem("the loopback interface is down", "ip link set lo up")
    if shutil.which("nft", path=_PATH):
        done = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, timeout=20)
        if done.returncode != 0:
            said = (done.stderr.strip().splitlines() or ["nft failed"])[-1]
            yield Problem("nftables does not work", said)


def _modprobe(module: str) -> bool:
    program = shutil.which("modprobe", path=_PATH)
    if program is None:
        return False
    return subprocess.run([program, module], capture_output=True, timeout=20).returncode == 0


def _paths(config: Config) -> Iterator[Problem]:
    longest = str(config.root / "containerd" / "containerd.sock.ttrpc")
    if len(longest) > _SOCKET_PATH_LIMIT:
        yield Problem(f"{config.root} is too long a path for sockets", "choose a shorter --root")
    free = shutil.disk_usage(_existing(config.root)).free
    if free < 512 << 20:
        yield Problem(f"{config.root} has {free >> 20} MiB free", "make room for images")


def _existing(path: Path) -> Path:
    return path if path.exists() else _existing(path.parent)


def _ports(config: Config, ours: set[int]) -> Iterator[Problem]:
    for port, component in config.ports.items():
        if port not in ours and not is_free(port):
            holder = listener(port)
            option = "--port" if component.startswith("apiserver") else "--port-base"
            yield Problem(
                f"port {port} ({component}) is taken{f' by {holder}' if holder else ''}",
                f"stop that program, or choose another port with {option}",
            )


def is_free(port: int) -> bool:
    """Whether a TCP port can be listened on, on every address."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True


def listener(port: int) -> str:
    """Who listens on a TCP port here, as `name (pid N)`; empty when nobody is found."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        path = Path(f"/proc/self/net/{table}")
        for line in path.read_text().splitlines()[1:] if path.exists() else []:
            fields = line.split()
            if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{fields[9]}]")
    for pid in processes.pids():
        try:
            for number in os.listdir(f"/proc/{pid}/fd"):
                if os.readlink(f"/proc/{pid}/fd/{number}") in inodes:
                    return f"{Path(f'/proc/{pid}/comm').read_text().strip()} (pid {pid})"
        except OSError:
            continue
    return ""
