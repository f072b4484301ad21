"""What can be done for a pod: the vocabulary in which `pods.plan` answers and workers act."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunSandbox:
    """Make the pod's namespaces and address."""

    attempt: int


@dataclass(frozen=True, slots=True)
class StartContainer:
    """Pull, create and start a container."""

    name: str
    attempt: int
    restart_delay_s: float  # to wait after this one's end before the next


@dataclass(frozen=True, slots=True)
class KillContainer:
    """End a running container within `grace_s`."""

    id: str
    name: str
    grace_s: float
    message: str


@dataclass(frozen=True, slots=True)
class RemoveContainer:
    """Forget a dead container."""

    id: str


@dataclass(frozen=True, slots=True)
class RemoveSandbox:
    """Forget a dead, empty sandbox."""

    id: str


@dataclass(frozen=True, slots=True)
class ReleasePod:
    """The pod has ended: give back address, volumes and cgroup; its containers stay for logs."""


@dataclass(frozen=True, slots=True)
class RemovePod:
    """Leave nothing of the pod on the node."""


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Tell the API server that the pod is gone."""


Action = (
    RunSandbox
    | StartContainer
    | KillContainer
    | RemoveContainer
    | RemoveSandbox
    | ReleasePod
    | RemovePod
    | DeletePod
)
