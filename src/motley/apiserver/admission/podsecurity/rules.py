"""The rules of the Pod Security Standards, in the words kube-apiserver uses.

A rule returns None or a `Violation`: its short reason, and who does what. It looks only at the
pod; which rules apply at which level and version is in `checks`.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

Document = dict[str, Any]

_DEFAULT_CAPABILITIES = frozenset(
    {
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    }
)
_SYSCTLS: tuple[tuple[int, frozenset[str]], ...] = (
    (
        0,
        frozenset(
            {
                "kernel.shm_rmid_forced",
                "net.ipv4.ip_local_port_range",
                "net.ipv4.ip_unprivileged_port_start",
                "net.ipv4.ping_group_range",
                "net.ipv4.tcp_syncookies",
            }
        ),
    ),
    (27, frozenset({"net.ipv4.ip_local_reserved_ports"})),
    (
        29,
        frozenset(
            {
                "net.ipv4.tcp_fin_timeout",
                "net.ipv4.tcp_keepalive_intvl",
                "net.ipv4.tcp_keepalive_probes",
                "net.ipv4.tcp_keepalive_time",
            }
        ),
    ),
    (32, frozenset({"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"})),
    (37, frozenset({"net.ipv4.tcp_notsent_lowat", "net.ipv4.tcp_slow_start_after_idle"})),
)
_APPARMOR_ANNOTATION = "container.apparmor.security.beta.kubernetes.io/"


class Violation(NamedTuple):
    """A broken rule."""

    reason: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})" if self.detail else self.reason


class Pod(NamedTuple):
    """What a rule sees."""

    spec: Document
    annotations: dict[str, str]
    minor: int

    @property
    def context(self) -> Document:
        """The pod's own security context."""
        return self.spec.get("securityContext") or {}

    @property
    def is_windows(self) -> bool:
        """Such pods say so; Linux rules make no sense for them."""
        return (self.spec.get("os") or {}).get("name") == "windows" and self.minor >= 25

    @property
    def has_own_users(self) -> bool:
        """Whether root inside is nobody outside: some rules relax then."""
        return self.spec.get("hostUsers") is False and self.minor >= 35

    def containers(self) -> Iterator[tuple[str, Document, Document]]:
        """Name, security context and the whole of each container, init containers first."""
        for field in ("initContainers", "containers", "ephemeralContainers"):
            for container in self.spec.get(field) or ():
                name = str(container.get("name", ""))
                yield name, container.get("securityContext") or {}, container


def quoted(items: Iterable[str]) -> str:
    """`"a", "b"`."""
    return ", ".join(f'"{item}"' for item in items)


def plural(word: str, count: int) -> str:
    """`volume`, `volumes`."""
    return word if count == 1 else f"{word}s"


def containers_named(names: list[str]) -> str:
    """`containers "a", "b"`."""
    return f"{plural('container', len(names))} {quoted(names)}"


def host_namespaces(pod: Pod) -> Violation | None:
    """Sharing the node's network, processes or IPC."""
    shared = [f"{f}=true" for f in ("hostNetwork", "hostPID", "hostIPC") if pod.spec.get(f)]
    return Violation("host namespaces", ", ".join(shared)) if shared else None


def host_path_volumes(pod: Pod) -> Violation | None:
    """Mounting the node's files."""
    bad = [str(v.get("name")) for v in pod.spec.get("volumes") or () if v.get("hostPath")]
    detail = f"{plural('volume', len(bad))} {quoted(bad)}"
    return Violation("hostPath volumes", detail) if bad else None


def host_ports(pod: Pod) -> Violation | None:
    """Taking ports of the node."""
    bad: list[str] = []
    ports: set[str] = set()
    for name, _, container in pod.containers():
        used = {str(p["hostPort"]) for p in container.get("ports") or () if p.get("hostPort")}
        if used:
            bad.append(name)
            ports |= used
    if not bad:
        return None
    uses = "uses" if len(bad) == 1 else "use"
    listed = ", ".join(sorted(ports))
    return Violation(
        "hostPort", f"{containers_named(bad)} {uses} {plural('hostPort', len(ports))} {listed}"
    )


def host_probes(pod: Pod) -> Violation | None:
    """Probing other hosts from the node."""
    bad: set[str] = set()
    hosts: set[str] = set()
    for name, _, container in pod.containers():
        lifecycle = container.get("lifecycle") or {}
        handlers = [
            *(container.get(p) for p in ("livenessProbe", "readinessProbe", "startupProbe")),
            *(lifecycle.get(h) for h in ("postStart", "preStop")),
        ]
        for handler in handlers:
            for action in ("httpGet", "tcpSocket"):
                host = ((handler or {}).get(action) or {}).get("host")
                if host:
                    bad.add(name)
                    hosts.add(str(host))
    if not bad:
        return None
    uses = "uses" if len(bad) == 1 else "use"
    what = plural("probe or lifecycle host", len(hosts))
    return Violation(
        "probe or lifecycle host",
        f"{containers_named(sorted(bad))} {uses} {what} {quoted(sorted(hosts))}",
    )


def privileged(pod: Pod) -> Violation | None:
    """Running as if there were no container."""
    bad = [name for name, context, _ in pod.containers() if context.get("privileged")]
    detail = f"{containers_named(bad)} must not set securityContext.privileged=true"
    return Violation("privileged", detail) if bad else None


def capabilities_baseline(pod: Pod) -> Violation | None:
    """Adding capabilities that containers do not have by themselves."""
    return added(pod, _DEFAULT_CAPABILITIES, "non-default capabilities")


def added(pod: Pod, allowed: frozenset[str], reason: str) -> Violation | None:
    """Capabilities beyond those allowed."""
    bad: list[str] = []
    added: set[str] = set()
    for name, context, _ in pod.containers():
        extra = set((context.get("capabilities") or {}).get("add") or ()) - allowed
        if extra:
            bad.append(name)
            added |= extra
    detail = (
        f"{containers_named(bad)} must not include {quoted(sorted(added))} "
        "in securityContext.capabilities.add"
    )
    return Violation(reason, detail) if bad else None


def proc_mount(pod: Pod) -> Violation | None:
    """Seeing the unmasked /proc."""
    bad: list[str] = []
    types: set[str] = set()
    for name, context, _ in pod.containers():
        kind = context.get("procMount")
        if kind not in (None, "Default"):
            bad.append(name)
            types.add(str(kind))
    detail = (
        f"{containers_named(bad)} must not set securityContext.procMount to {quoted(sorted(types))}"
    )
    return Violation("procMount", detail) if bad else None


def proc_mount_baseline(pod: Pod) -> Violation | None:
    """The same, unless root inside is nobody outside."""
    return None if pod.has_own_users else proc_mount(pod)


def se_linux_options(pod: Pod) -> Violation | None:
    """Choosing another SELinux identity."""
    allowed = {"", "container_t", "container_init_t", "container_kvm_t"}
    if pod.minor >= 31:
        allowed.add("container_engine_t")
    types: set[str] = set()
    sets: set[str] = set()

    def is_bad(context: Document) -> bool:
        options = context.get("seLinuxOptions")
        if options is None:
            return False
        wrong = {f for f in ("user", "role") if options.get(f)}
        sets.update(wrong)
        kind = str(options.get("type") or "")
        if kind not in allowed:
            types.add(kind)
        return bool(wrong) or kind not in allowed

    setters = ["pod"] if is_bad(pod.context) else []
    bad = [name for name, context, _ in pod.containers() if is_bad(context)]
    if bad:
        setters.append(containers_named(bad))
    if not setters:
        return None
    data = []
    if types:
        data.append(f"{plural('type', len(types))} {quoted(sorted(types))}")
    data += [f"{field} may not be set" for field in ("user", "role") if field in sets]
    detail = f"{' and '.join(setters)} set forbidden securityContext.seLinuxOptions: "
    return Violation("seLinuxOptions", detail + "; ".join(data))


def profile(pod: Pod, field: str) -> tuple[list[str], set[str], list[str]]:
    """Who sets a profile to something forbidden, to what, and who sets none."""
    allowed = ("RuntimeDefault", "Localhost")
    whole = pod.context.get(field)
    values: set[str] = set()
    setters: list[str] = []
    if whole is not None and whole.get("type") not in allowed:
        setters.append("pod")
        values.add(str(whole.get("type", "")))
    explicit: list[str] = []
    implicit: list[str] = []
    for name, context, _ in pod.containers():
        own = context.get(field)
        if own is None:
            if whole is None or whole.get("type") not in allowed:
                implicit.append(name)
        elif own.get("type") not in allowed:
            explicit.append(name)
            values.add(str(own.get("type", "")))
    if explicit:
        setters.append(containers_named(explicit))
    return setters, values, implicit


def app_armor(pod: Pod) -> Violation | None:
    """Turning AppArmor off."""
    setters, values, _ = profile(pod, "appArmorProfile")
    annotations = sorted(
        f'{key}="{value}"'
        for key, value in pod.annotations.items()
        if key.startswith(_APPARMOR_ANNOTATION)
        and value not in ("", "runtime/default")
        and not value.startswith("localhost/")
    )
    listed = [*sorted(values), *annotations]
    if annotations:
        setters.append(plural("annotation", len(annotations)))
    detail = f"{' and '.join(setters)} must not set AppArmor profile type to {quoted(listed)}"
    reason = plural("forbidden AppArmor profile", len(listed))
    return Violation(reason, detail) if setters else None


def seccomp_baseline(pod: Pod) -> Violation | None:
    """Turning seccomp off."""
    setters, values, _ = profile(pod, "seccompProfile")
    detail = (
        f"{' and '.join(setters)} must not set securityContext.seccompProfile.type to "
        f"{quoted(sorted(values))}"
    )
    return Violation("seccompProfile", detail) if setters else None


def sysctls(pod: Pod) -> Violation | None:
    """Kernel settings that are not known to be safe."""
    allowed = {name for minor, names in _SYSCTLS if minor <= pod.minor for name in names}
    listed = [str(s.get("name")) for s in pod.context.get("sysctls") or ()]
    bad = [name for name in listed if name not in allowed]
    return Violation("forbidden sysctls", ", ".join(bad)) if bad else None


def windows_host_process(pod: Pod) -> Violation | None:
    """Windows' way to run without a container."""

    def is_host(context: Document) -> bool:
        return bool((context.get("windowsOptions") or {}).get("hostProcess"))

    setters = ["pod"] if is_host(pod.context) else []
    bad = [name for name, context, _ in pod.containers() if is_host(context)]
    if bad:
        setters.append(containers_named(bad))
    detail = f"{' and '.join(setters)} must not set securityContext.windowsOptions.hostProcess=true"
    return Violation("hostProcess", detail) if setters else None
