"""A container of a pod as CRI's ContainerConfig. Pure.

Everything a restarted agent must know about a container is in its labels and annotations.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from motley.api.views.pod import Container, Pod
from motley.node import sandboxconfig
from motley.node.cri import cri_pb2 as cri
from motley.node.environment import ConfigError
from motley.node.model import (
    CONTAINER_NAME,
    GRACE_PERIOD,
    MESSAGE_PATH,
    MESSAGE_POLICY,
    POD_NAME,
    POD_NAMESPACE,
    POD_UID,
    RESOURCES,
    RESTART_COUNT,
    RESTART_DELAY,
    SPEC_HASH,
)
from motley.node.resources import CPU_PERIOD_US, LinuxLimits


@dataclass(frozen=True, slots=True)
class Mount:
    """A path of the node in a container."""

    container_path: str
    host_path: str
    read_only: bool = False
    propagation: str = ""


def spec_hash(container: Container) -> str:
    """Changes when the container must be made anew: only the image may change in a running pod."""
    return hashlib.sha256(msgspec.json.encode([container.name, container.image])).hexdigest()[:16]


def build(
    pod: Pod,
    container: Container,
    *,
    attempt: int,
    restart_delay_s: float,
    image_ref: str,
    command: Sequence[str],
    args: Sequence[str],
    variables: Mapping[str, str],
    mounts: Sequence[Mount],
    limits: LinuxLimits,
    message_file: str,
    cpus: str = "",
) -> Any:
    """One container, ready for CreateContainer. `message_file` is the node's termination log."""
    meta = pod.metadata
    return cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name=container.name, attempt=attempt),
        image=cri.ImageSpec(image=image_ref),
        command=command,
        args=args,
        working_dir=container.working_dir,
        envs=[cri.KeyValue(key=k, value=v.encode()) for k, v in variables.items()],
        mounts=[_mount(m) for m in mounts],
        labels={
            POD_NAME: meta.name,
            POD_NAMESPACE: meta.namespace,
            POD_UID: meta.uid,
            CONTAINER_NAME: container.name,
        },
        annotations={
            SPEC_HASH: spec_hash(container),
            RESTART_COUNT: str(attempt),
            RESTART_DELAY: f"{restart_delay_s:g}",
            GRACE_PERIOD: str(pod.spec.termination_grace_period_seconds),
            MESSAGE_PATH: message_file,
            MESSAGE_POLICY: container.termination_message_policy,
            RESOURCES: msgspec.json.encode(container.resources).decode(),
        },
        log_path=f"{container.name}/{attempt}.log",
        stdin=container.stdin,
        stdin_once=container.stdin_once,
        tty=container.tty,
        linux=cri.LinuxContainerConfig(
            resources=linux_resources(limits, cpus=cpus),
            security_context=_security(pod, container),
        ),
    )


def linux_resources(limits: LinuxLimits, *, cpus: str = "", is_update: bool = False) -> Any:
    """A container's cgroup values; in an update a limit that is gone must be said, too."""
    none = -1 if is_update else 0
    return cri.LinuxContainerResources(
        cpu_shares=limits.cpu_shares,
        cpu_quota=limits.cpu_quota_us or none,
        cpu_period=CPU_PERIOD_US if limits.cpu_quota_us or is_update else 0,
        memory_limit_in_bytes=limits.memory_bytes or none,
        oom_score_adj=0 if is_update else limits.oom_score_adj,
        cpuset_cpus=cpus,
    )


def look_into(config: Any, target_id: str) -> None:
    """Let a container see the processes of another, which it is to look at."""
    options = config.linux.security_context.namespace_options
    options.pid, options.target_id = cri.TARGET, target_id


def cpuset(cpus: str) -> Any:
    """An update of nothing but the CPUs a container may use."""
    return cri.LinuxContainerResources(cpuset_cpus=cpus)


def _mount(mount: Mount) -> Any:
    propagations = {
        "HostToContainer": cri.PROPAGATION_HOST_TO_CONTAINER,
        "Bidirectional": cri.PROPAGATION_BIDIRECTIONAL,
    }
    return cri.Mount(
        container_path=mount.container_path,
        host_path=mount.host_path,
        readonly=mount.read_only,
        propagation=propagations.get(mount.propagation, cri.PROPAGATION_PRIVATE),
    )


# What a container must not see of the kernel, as containerd and the kubelet hide it.
_MASKED = (
    "/proc/asound",
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
)
_READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


def _security(pod: Pod, container: Container) -> Any:
    own, of_pod = container.security_context, pod.spec.security_context
    privileged = own is not None and own.privileged
    security = cri.LinuxContainerSecurityContext(
        namespace_options=sandboxconfig.namespaces(pod), privileged=privileged
    )
    user = _user(pod, container)
    group = _first(own.run_as_group if own else None, of_pod.run_as_group if of_pod else None)
    if user is not None:
        security.run_as_user.value = user
    if group is not None:
        security.run_as_group.value = group
    if of_pod is not None:
        security.supplemental_groups.extend(of_pod.supplemental_groups)
        if of_pod.fs_group is not None:
            security.supplemental_groups.append(of_pod.fs_group)
    profile = (own.seccomp_profile if own else None) or (of_pod.seccomp_profile if of_pod else None)
    security.seccomp.CopyFrom(sandboxconfig.seccomp(profile, privileged=privileged))
    if not privileged:
        security.masked_paths.extend(_MASKED)
        security.readonly_paths.extend(_READ_ONLY)
    if own is not None:
        security.readonly_rootfs = own.read_only_root_filesystem
        security.no_new_privs = own.allow_privilege_escalation is False
        if own.capabilities is not None:
            security.capabilities.add_capabilities.extend(own.capabilities.add)
            security.capabilities.drop_capabilities.extend(own.capabilities.drop)
    return security


def _user(pod: Pod, container: Container) -> int | None:
    own, of_pod = container.security_context, pod.spec.security_context
    return _first(own.run_as_user if own else None, of_pod.run_as_user if of_pod else None)


def _first(*values: int | None) -> int | None:
    return next((v for v in values if v is not None), None)


def check_non_root(pod: Pod, container: Container, image_uid: int | None, username: str) -> None:
    """`runAsNonRoot`: refuse a container that would run as root, or as nobody knows whom."""
    own, of_pod = container.security_context, pod.spec.security_context
    wanted = own.run_as_non_root if own is not None else None
    if wanted is None and of_pod is not None:
        wanted = of_pod.run_as_non_root
    if not wanted:
        return
    user = _user(pod, container)
    if user is None and username:
        raise ConfigError(
            f"container has runAsNonRoot and image has non-numeric user ({username}), "
            "cannot verify user is non-root"
        )
    if (user if user is not None else image_uid or 0) == 0:
        raise ConfigError("container has runAsNonRoot and image will run as root")
