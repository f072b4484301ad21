"""From the runtime's answers to the plain values the agent works with."""

from typing import Any

import msgspec

from motley.api.views.container import ResourceRequirements
from motley.node.cri import cri_pb2 as cri
from motley.node.cri.values import ContainerUsage, Image
from motley.node.model import (
    CONTAINER_NAME,
    GRACE_PERIOD,
    MESSAGE_PATH,
    MESSAGE_POLICY,
    POD_UID,
    RESOURCES,
    RESTART_DELAY,
    SPEC_HASH,
    RuntimeContainer,
    RuntimeSandbox,
    State,
)

_STATES = {
    cri.CONTAINER_CREATED: State.CREATED,
    cri.CONTAINER_RUNNING: State.RUNNING,
    cri.CONTAINER_EXITED: State.EXITED,
    cri.CONTAINER_UNKNOWN: State.UNKNOWN,
}


def age(container: RuntimeContainer) -> tuple[int, float]:
    """Sorts containers of one name by when they were made."""
    return (container.attempt, container.created_at)


def addresses(network: Any) -> tuple[str, ...]:
    """All addresses of a sandbox."""
    return tuple(a for a in (network.ip, *(p.ip for p in network.additional_ips)) if a)


def sandbox(item: Any, ips: tuple[str, ...] = ()) -> RuntimeSandbox:
    """From a list's `PodSandbox` or from a `PodSandboxStatus`."""
    return RuntimeSandbox(
        id=item.id,
        uid=item.labels.get(POD_UID, item.metadata.uid),
        namespace=item.metadata.namespace,
        name=item.metadata.name,
        attempt=item.metadata.attempt,
        is_ready=item.state == cri.SANDBOX_READY,
        created_at=item.created_at / 1e9,
        ips=ips,
    )


def _number(text: str, default: float) -> float:
    try:
        return float(text)
    except ValueError:
        return default


def _resources(text: str) -> ResourceRequirements | None:
    try:
        return msgspec.json.decode(text, type=ResourceRequirements) if text else None
    except msgspec.DecodeError:
        return None


def container(item: Any, sandbox_id: str) -> RuntimeContainer:
    """From a list's `Container` or from a `ContainerStatus`, which has more."""
    notes = item.annotations
    status = item if isinstance(item, cri.ContainerStatus) else None
    return RuntimeContainer(
        id=item.id,
        name=item.labels.get(CONTAINER_NAME, item.metadata.name),
        attempt=item.metadata.attempt,
        sandbox_id=sandbox_id,
        state=_STATES.get(item.state, State.UNKNOWN),
        created_at=item.created_at / 1e9,
        started_at=status.started_at / 1e9 if status else 0.0,
        finished_at=status.finished_at / 1e9 if status else 0.0,
        exit_code=status.exit_code if status else 0,
        reason=status.reason if status else "",
        message=status.message if status else "",
        log_path=status.log_path if status else "",
        image=item.image.image,
        image_ref=item.image_ref,
        spec_hash=notes.get(SPEC_HASH, ""),
        restart_delay_s=_number(notes.get(RESTART_DELAY, ""), 0.0),
        grace_s=int(_number(notes.get(GRACE_PERIOD, ""), 30)),
        message_path=notes.get(MESSAGE_PATH, ""),
        message_policy=notes.get(MESSAGE_POLICY, "File"),
        resources=_resources(notes.get(RESOURCES, "")),
    )


def image(item: Any) -> Image:
    """From an `Image`."""
    return Image(
        id=item.id,
        tags=tuple(item.repo_tags),
        digests=tuple(item.repo_digests),
        size_bytes=item.size,
        uid=item.uid.value if item.HasField("uid") else None,
        username=item.username,
        is_pinned=item.pinned,
    )


def usage(item: Any) -> ContainerUsage | None:
    """From `ContainerStats`; None for a container of which nothing was measured."""
    if not item.HasField("cpu") or not item.HasField("memory"):
        return None
    return ContainerUsage(
        container_id=item.attributes.id,
        at=item.cpu.timestamp / 1e9,
        cpu_s=item.cpu.usage_core_nano_seconds.value / 1e9,
        working_set_bytes=item.memory.working_set_bytes.value,
        written_bytes=item.writable_layer.used_bytes.value,
        written_inodes=item.writable_layer.inodes_used.value,
    )
