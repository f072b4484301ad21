"""Motley's own containerd: its configuration, made for the machine at hand.

The instance shares nothing with a containerd that the machine may already run: own root, own
state, own socket, all below Motley's root directory, pods' network namespaces included. What a
machine lacks (a capability, AppArmor) is found out here, so that the file says what works and
nobody edits it by hand.
"""

import re
import subprocess
from pathlib import Path

import msgspec

from motley.ops import images

_CAP_SYS_RESOURCE = 24
_CNI_DIRECTORIES = ("/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni")
# Snapshotters we never use take start-up time; `opt` would make a directory outside our root.
_DISABLED = (
    "io.containerd.internal.v1.opt",
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.zfs",
)


class Machine(msgspec.Struct, frozen=True):
    """What a configuration depends on."""

    version: tuple[int, int] = (1, 6)
    may_lower_oom_score: bool = True  # CAP_SYS_RESOURCE
    has_apparmor: bool = False
    cni_bin_dir: str = _CNI_DIRECTORIES[0]


class Layout(msgspec.Struct, frozen=True):
    """Where an instance keeps its files."""

    directory: Path
    cni_conf_dir: Path

    @property
    def config(self) -> Path:
        """The configuration file."""
        return self.directory / "config.toml"

    @property
    def root(self) -> Path:
        """Images and snapshots: kept over restarts."""
        return self.directory / "root"

    @property
    def state(self) -> Path:
        """Running containers: gone when they are."""
        return self.directory / "state"

    @property
    def runc(self) -> Path:
        """What runc remembers of running containers."""
        return self.directory / "runc"

    @property
    def registries(self) -> Path:
        """How registries are reached, by whoever runs the machine: HOST/hosts.toml."""
        return self.directory / "certs.d"

    @property
    def socket(self) -> Path:
        """Where CRI and containerd's own API answer."""
        return self.directory / "containerd.sock"


def detect() -> Machine:
    """Look at this machine."""
    return Machine(
        version=parse_version(_output("containerd", "--version")),
        may_lower_oom_score=has_capability(
            Path("/proc/self/status").read_text(), _CAP_SYS_RESOURCE
        ),
        has_apparmor=_apparmor(),
        cni_bin_dir=cni_directory() or _CNI_DIRECTORIES[0],
    )


def cni_directory() -> str | None:
    """Where this machine keeps CNI plugins; None when it has none."""
    return next((d for d in _CNI_DIRECTORIES if Path(d, "bridge").exists()), None)


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout


def _apparmor() -> bool:
    enabled = Path("/sys/module/apparmor/parameters/enabled")
    return enabled.exists() and enabled.read_text().strip() == "Y"


def parse_version(text: str) -> tuple[int, int]:
    """Major and minor of `containerd --version`; (1, 6) when it says nothing readable."""
    found = re.search(r"\bv?(\d+)\.(\d+)\.\d+", text)
    return (int(found[1]), int(found[2])) if found else (1, 6)


def has_capability(status: str, number: int) -> bool:
    """Whether a process may use a capability, by its /proc/PID/status."""
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", status, re.MULTILINE)
    return bool(found and int(found[1], 16) >> number & 1)


def render(machine: Machine, layout: Layout) -> str:
    """The configuration file: version 2 up to containerd 1.7, version 3 from 2.0 on."""
    current = machine.version >= (2, 0)
    lines = [
        "# Made by `motley up`; changes are overwritten.",
        f"version = {3 if current else 2}",
        f"root = {_text(layout.root)}",
        f"state = {_text(layout.state)}",
        "oom_score = 0",
        f"disabled_plugins = [{', '.join(_text(name) for name in _DISABLED)}]",
        "[grpc]",
        f"  address = {_text(layout.socket)}",
        *(_cri_2(machine, layout) if current else _cri_1(machine, layout)),
    ]
    return "\n".join(lines) + "\n"


def _text(value: object) -> str:
    return msgspec.json.encode(str(value)).decode()  # TOML's basic strings are JSON's


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _runtime(machine: Machine) -> list[str]:
    return [
        # Without the capability a negative score cannot be written and every sandbox would fail.
        f"restrict_oom_score_adj = {_flag(not machine.may_lower_oom_score)}",
        f"disable_apparmor = {_flag(not machine.has_apparmor)}",
        # Namespaces of pods lie below our own directory, so that `motley down` knows its own.
        "netns_mounts_under_state_dir = true",
        # As newer releases do by default: low ports and ping for containers without root.
        "enable_unprivileged_ports = true",
        "enable_unprivileged_icmp = true",
    ]


def _cri_1(machine: Machine, layout: Layout) -> list[str]:
    table = 'plugins."io.containerd.grpc.v1.cri"'
    return [
        f"[{table}]",
        f"  sandbox_image = {_text(images.PAUSE.reference)}",
        *(f"  {line}" for line in _runtime(machine)),
        f"  [{table}.cni]",
        f"    bin_dir = {_text(machine.cni_bin_dir)}",
        f"    conf_dir = {_text(layout.cni_conf_dir)}",
        f"  [{table}.registry]",
        f"    config_path = {_text(layout.registries)}",
        f"  [{table}.containerd.runtimes.runc]",
        '    runtime_type = "io.containerd.runc.v2"',
        f"    [{table}.containerd.runtimes.runc.options]",
        f"      Root = {_text(layout.runc)}",
    ]


def _cri_2(machine: Machine, layout: Layout) -> list[str]:
    table = "plugins.'io.containerd.cri.v1.runtime'"
    many = machine.version >= (2, 1)
    binaries = _text(machine.cni_bin_dir)
    return [
        "[plugins.'io.containerd.cri.v1.images'.pinned_images]",
        f"  sandbox = {_text(images.PAUSE.reference)}",
        "[plugins.'io.containerd.cri.v1.images'.registry]",
        f"  config_path = {_text(layout.registries)}",
        f"[{table}]",
        *(f"  {line}" for line in _runtime(machine)),
        f"  [{table}.cni]",
        f"    bin_dirs = [{binaries}]" if many else f"    bin_dir = {binaries}",
        f"    conf_dir = {_text(layout.cni_conf_dir)}",
        f"  [{table}.containerd.runtimes.runc]",
        "    runtime_type = 'io.containerd.runc.v2'",
        f"    [{table}.containerd.runtimes.runc.options]",
        f"      Root = {_text(layout.runc)}",
    ]


def prepare(layout: Layout) -> bool:
    """Write the configuration; True when it changed and a running instance must be restarted."""
    for directory in (layout.directory, layout.root, layout.state, layout.cni_conf_dir):
        directory.mkdir(parents=True, exist_ok=True, mode=0o711)
    text = render(detect(), layout)
    if layout.config.exists() and layout.config.read_text() == text:
        return False
    layout.config.write_text(text)
    return True
