"""Which kernel parameters a pod may set. Pure.

Safe are those that the kernel keeps apart for each pod and that cannot hurt others; all others the
node's operator allows by name, or by a beginning that ends with `*`.
"""

from collections.abc import Sequence

from motley.api.views.pod import Pod

# The kubelet's own list.
SAFE = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_notsent_lowat",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_slow_start_after_idle",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.tcp_wmem",
    }
)
# What the kernel keeps apart by IPC and network namespaces; nothing else can be given to one pod.
_NAMESPACED = ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.", "net.")
FORBIDDEN = "SysctlForbidden"


def normal(name: str) -> str:
    """With dots: `net/ipv4/x` is the same parameter."""
    dot, slash = name.find("."), name.find("/")
    if slash >= 0 and (dot < 0 or slash < dot):
        return name.translate(str.maketrans("./", "/."))
    return name


def check_allowed(patterns: Sequence[str]) -> None:
    """Raises ValueError for what no operator can allow."""
    for pattern in patterns:
        bare = normal(pattern).removesuffix("*")
        if not bare.startswith(_NAMESPACED):
            raise ValueError(f"{pattern!r}: the kernel does not keep it apart for each pod")


def refusal(pod: Pod, allowed: Sequence[str] = ()) -> str:
    """Why the pod may not run here; empty when it may."""
    spec, context = pod.spec, pod.spec.security_context
    for sysctl in context.sysctls if context is not None else ():
        name = normal(sysctl.name)
        if spec.host_network and name.startswith("net."):
            return f'forbidden sysctl: "{name}" not allowed with host net enabled'
        if spec.host_ipc and not name.startswith("net."):
            return f'forbidden sysctl: "{name}" not allowed with host ipc enabled'
        if name not in SAFE and not any(_matches(name, normal(p)) for p in allowed):
            return f'forbidden sysctl: "{name}" not allowlisted'
    return ""


def _matches(name: str, pattern: str) -> bool:
    if pattern.endswith("*"):
        return name.startswith(pattern[:-1])
    return name == pattern
