"""Is this machine well for a cluster, and the cluster on it? Findings from facts; pure.

Each check looks at one fact and says one line: `ok`, `warn` (a cluster runs, but something will
hurt) or `fail` (it does not), and for the last two how to put it right. What the facts are is
`machine`'s to find out; here nothing is read, so every verdict can be tested.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import msgspec

Level = Literal["ok", "warn", "fail"]

_NEEDED_CONTROLLERS = ("cpu", "memory", "pids")
_USEFUL_CONTROLLERS = ("cpuset", "hugetlb", "io")
_CNI_PLUGINS = ("bridge", "host-local", "loopback")
_CONTAINERD_MINIMUM = (1, 6)
_FILES_WANTED = 20_000  # a hundred pods: a shim, its pipes and a log each, and watches upon them
_INSTANCES_WANTED = 512  # inotify; one and more per container that follows its log
_DISK_NEEDED, _DISK_WANTED = 512 << 20, 4 << 30
_INODES_WANTED = 100_000
_MEMORY_NEEDED, _MEMORY_WANTED = 512 << 20, 1 << 30
_SOON_DAYS = 30


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of the doctor's."""

    check: str
    level: Level
    text: str
    fix: str = ""


class Port(msgspec.Struct, frozen=True):
    """A port the cluster needs here; `holder` has it, unless it is free or ours."""

    number: int
    component: str
    holder: str = ""


class Expiry(msgspec.Struct, frozen=True):
    """A certificate and the days it has left."""

    name: str
    days: float


class Running(msgspec.Struct, frozen=True):
    """A component of a cluster that is meant to run."""

    name: str
    state: str
    reason: str = ""
    log: str = ""
    lines: tuple[str, ...] = ()  # the end of its log, when it keeps failing


class Facts(msgspec.Struct, frozen=True):
    """What is known of a machine; the defaults are a healthy one's."""

    is_root: bool = True
    kernel: str = "6.1.0"
    filesystems: frozenset[str] = frozenset({"overlay"})
    # Kind of device → why one cannot be made; empty: it can.
    links: dict[str, str] = msgspec.field(
        default_factory=lambda: dict.fromkeys(("bridge", "veth", "vxlan"), "")
    )
    nftables: str = ""  # what nft says when it does not work
    has_br_netfilter: bool = True
    cgroup_version: int = 2
    controllers: frozenset[str] = frozenset({"cpu", "memory", "pids", "cpuset", "io", "hugetlb"})
    cgroup_error: str = ""  # why no group can be made
    open_files: int = 1 << 20
    inotify_instances: int = 8192
    can_raise_limits: bool = True  # CAP_SYS_RESOURCE
    programs: dict[str, str] = {}  # those that are missing, with their packages
    containerd: tuple[int, int] | None = (1, 7)
    containerd_config: str = ""  # what containerd has against the cluster's configuration
    cni_directory: str | None = "/usr/lib/cni"
    cni_plugins: frozenset[str] = frozenset(_CNI_PLUGINS)
    ports: tuple[Port, ...] = ()
    is_synchronised: bool | None = True  # None: the kernel does not say
    clock_error_s: float = 0.0
    disk_path: str = "/var/lib/motley"
    disk_free: int = 100 << 30
    inodes_free: int | None = 1 << 20  # None: the file system makes them as it needs them
    memory_total: int = 8 << 30
    memory_free: int = 4 << 30
    certificates: tuple[Expiry, ...] = ()
    is_made: bool = False  # is there a cluster under the root directory?
    is_supervised: bool = False
    components: tuple[Running, ...] = ()
    emulated: dict[str, tuple[str, str]] = {}  # node → what it emulates, and why it does not
    api: str = ""  # what is wrong with the API server; empty: nothing, or it is not here


def examine(facts: Facts) -> list[Finding]:
    """Every finding, in the order in which one would look."""
    return [finding for check in _CHECKS for finding in check(facts)]


def worst(findings: Sequence[Finding]) -> Level:
    """The verdict on the whole."""
    order: tuple[Level, ...] = ("ok", "warn", "fail")
    return max((finding.level for finding in findings), key=order.index, default="ok")


def _is(good: bool, check: str, text: str, else_text: str, fix: str, level: Level) -> Finding:
    return Finding(check, "ok", text) if good else Finding(check, level, else_text, fix)


def _rights(facts: Facts) -> Iterator[Finding]:
    yield _is(
        facts.is_root,
        "root",
        "run by root",
        "not run by root: a cluster needs it, and some checks are left out",
        "run the same command with sudo",
        "fail",
    )


def _kernel(facts: Facts) -> Iterator[Finding]:
    yield _is(
        "overlay" in facts.filesystems,
        "overlay",
        f"kernel {facts.kernel} has overlay file systems",
        f"kernel {facts.kernel} has no overlay file system",
        "modprobe overlay",
        "fail",
    )
    for kind, error in facts.links.items():
        # Without vxlan one network of machines still works, by routes.
        level: Level = "warn" if kind == "vxlan" else "fail"
        text = f"{kind} devices cannot be made: {error}"
        yield _is(not error, kind, f"{kind} devices can be made", text, f"modprobe {kind}", level)
    yield _is(
        not facts.nftables,
        "nftables",
        "nftables works",
        f"nftables does not work: {facts.nftables}",
        "apt-get install nftables; modprobe nf_tables nft_chain_nat nft_masq",
        "fail",
    )
    yield _is(
        facts.has_br_netfilter,
        "br_netfilter",
        "bridged packets pass the firewall",
        "br_netfilter is missing: pods cannot reach pods of their own node through a Service",
        "modprobe br_netfilter, and a line br_netfilter in /etc/modules-load.d/motley.conf",
        "warn",
    )


def _cgroups(facts: Facts) -> Iterator[Finding]:
    lacking = [name for name in _NEEDED_CONTROLLERS if name not in facts.controllers]
    version = f"cgroup v{facts.cgroup_version}"
    yield _is(
        not lacking,
        "cgroups",
        f"{version} with {', '.join(sorted(facts.controllers & set(_NEEDED_CONTROLLERS)))}",
        f"{version} without {', '.join(lacking)}",
        "mount cgroup v2 at /sys/fs/cgroup, or start the kernel with cgroup_enable=memory",
        "fail",
    )
    missing = [name for name in _USEFUL_CONTROLLERS if name not in facts.controllers]
    if "cpuset" in missing:
        yield Finding(
            "cpuset",
            "warn",
            "no cpuset controller: no exclusive cores for pods",
            "start the kernel with the cpuset controller enabled",
        )
    yield _is(
        not facts.cgroup_error,
        "cgroup writable",
        "groups can be made",
        f"no group can be made: {facts.cgroup_error}",
        "mount /sys/fs/cgroup read-write; in a container: run it privileged",
        "fail",
    )


def _limits(facts: Facts) -> Iterator[Finding]:
    yield _is(
        facts.open_files >= _FILES_WANTED,
        "open files",
        f"{facts.open_files} open files allowed",
        f"only {facts.open_files} open files allowed; a full node wants {_FILES_WANTED}",
        "raise the hard limit: ulimit -Hn, LimitNOFILE= or /etc/security/limits.conf",
        "warn",
    )
    yield _is(
        facts.inotify_instances >= _INSTANCES_WANTED,
        "inotify",
        f"{facts.inotify_instances} inotify instances allowed",
        f"only {facts.inotify_instances} inotify instances allowed",
        f"sysctl -w fs.inotify.max_user_instances={_INSTANCES_WANTED * 2}",
        "warn",
    )
    yield _is(
        facts.can_raise_limits,
        "capabilities",
        "limits of containers can be raised",
        "CAP_SYS_RESOURCE is missing: pods cannot be kept from the OOM killer",
        "give the machine's container CAP_SYS_RESOURCE; a cluster runs without it, too",
        "warn",
    )


def _programs(facts: Facts) -> Iterator[Finding]:
    for program, package in facts.programs.items():
        yield Finding("programs", "fail", f"{program} is missing", f"apt-get install {package}")
    if not facts.programs:
        yield Finding("programs", "ok", "every program is there")
    if facts.containerd is not None:
        shown = ".".join(map(str, facts.containerd))
        yield _is(
            facts.containerd >= _CONTAINERD_MINIMUM,
            "containerd",
            f"containerd {shown}",
            f"containerd {shown} is too old",
            f"install {'.'.join(map(str, _CONTAINERD_MINIMUM))} or newer",
            "fail",
        )
        if facts.containerd_config:
            yield Finding(
                "containerd config",
                "fail",
                f"containerd refuses its configuration: {facts.containerd_config}",
                "motley up writes it anew",
            )
    lacking = [name for name in _CNI_PLUGINS if name not in facts.cni_plugins]
    yield _is(
        facts.cni_directory is not None and not lacking,
        "CNI plugins",
        f"CNI plugins in {facts.cni_directory}",
        f"CNI plugins are missing: {', '.join(lacking)}",
        "apt-get install containernetworking-plugins",
        "fail",
    )


def _ports(facts: Facts) -> Iterator[Finding]:
    taken = [port for port in facts.ports if port.holder]
    for port in taken:
        yield Finding(
            "ports",
            "fail",
            f"port {port.number} ({port.component}) is taken by {port.holder}",
            "stop that program, or choose others: motley up --port N --port-base N",
        )
    if facts.ports and not taken:
        yield Finding("ports", "ok", f"{len(facts.ports)} ports are free, or ours")


def _clock(facts: Facts) -> Iterator[Finding]:
    if facts.is_synchronised is None:
        yield Finding("clock", "warn", "the kernel does not say whether its clock is right", "date")
        return
    yield _is(
        facts.is_synchronised,
        "clock",
        f"the clock is synchronised (error below {facts.clock_error_s:.3g} s)",
        "the clock is not synchronised: certificates and leases depend on it",
        "apt-get install chrony, or: timedatectl set-ntp true",
        "warn",
    )


def _room(facts: Facts) -> Iterator[Finding]:
    free = f"{facts.disk_free / (1 << 30):.1f} GiB free for {facts.disk_path}"
    level: Level = "fail" if facts.disk_free < _DISK_NEEDED else "warn"
    fix = "make room for images, or choose another --root"
    yield _is(facts.disk_free >= _DISK_WANTED, "disk", free, f"only {free}", fix, level)
    if facts.inodes_free is not None:
        text = f"{facts.inodes_free} inodes free for {facts.disk_path}"
        good = facts.inodes_free >= _INODES_WANTED
        yield _is(good, "inodes", text, f"only {text}", "delete many small files", "warn")
    text = f"{facts.memory_free >> 20} of {facts.memory_total >> 20} MiB of memory are free"
    level = "fail" if facts.memory_free < _MEMORY_NEEDED else "warn"
    good = facts.memory_free >= _MEMORY_WANTED
    yield _is(good, "memory", text, f"only {text}", "a control plane takes 350 MiB", level)


def _certificates(facts: Facts) -> Iterator[Finding]:
    bad = [one for one in facts.certificates if one.days < _SOON_DAYS]
    for one in bad:
        text = f"ends in {one.days:.0f} days" if one.days > 0 else "has expired"
        level: Level = "warn" if one.days > 0 else "fail"
        yield Finding("certificates", level, f"{one.name} {text}", f"motley certs renew {one.name}")
    if facts.certificates and not bad:
        first = min(one.days for one in facts.certificates)
        text = f"{len(facts.certificates)} certificates, the first ends in {first:.0f} days"
        yield Finding("certificates", "ok", text)


def _components(facts: Facts) -> Iterator[Finding]:
    if not facts.is_made:
        yield Finding("cluster", "ok", "no cluster was made here yet: motley up")
        return
    if not facts.components:
        yield Finding("cluster", "ok", "the cluster is down: motley up")
        return
    yield _is(
        facts.is_supervised,
        "supervisor",
        "the supervisor runs",
        "the supervisor does not run: nothing is restarted",
        "motley up",
        "fail",
    )
    for one in facts.components:
        text = f"{one.name} is {one.state}"
        reason = f": {one.reason}" if one.reason else ""
        fix = f"motley logs {one.name}" + (f" (in {one.log})" if one.log else "")
        if one.lines:
            text, reason = f"{one.name} keeps failing", reason or ": it ends again and again"
        good = one.state == "running" and not one.lines
        said = "".join(f"\n      {line}" for line in one.lines)
        yield _is(good, one.name, f"{one.name} runs", text + reason + said, fix, "fail")
    for name, (arch, problem) in facts.emulated.items():
        text, otherwise = f"{name} runs {arch} programs", f"{name} does not run {arch}: {problem}"
        yield _is(not problem, "emulation", text, otherwise, "motley up", "fail")
    if facts.api:
        yield Finding("API server", "fail", facts.api, "motley logs apiserver")


_CHECKS: tuple[Callable[[Facts], Iterator[Finding]], ...] = (
    _rights,
    _kernel,
    _cgroups,
    _limits,
    _programs,
    _ports,
    _clock,
    _room,
    _certificates,
    _components,
)
