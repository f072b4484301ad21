"""What the runtime holds for a pod, as plain values.

The state machine (`pods`, `podstatus`) decides from these and from nothing else, so every decision
can be replayed from a text file. Labels and annotations on the runtime's objects are the agent's
only memory of a pod: what must survive the agent's death is written there.
"""

import enum
from dataclasses import dataclass, field
from typing import NamedTuple

from motley.api.views.container import ResourceRequirements

# Labels: Kubernetes' own names, so that any tool that knows a kubelet's containers knows ours.
POD_NAME = "io.kubernetes.pod.name"
POD_NAMESPACE = "io.kubernetes.pod.namespace"
POD_UID = "io.kubernetes.pod.uid"
CONTAINER_NAME = "io.kubernetes.container.name"
# Annotations
SPEC_HASH = "io.kubernetes.container.hash"
RESTART_COUNT = "io.kubernetes.container.restartCount"
GRACE_PERIOD = "io.kubernetes.pod.terminationGracePeriod"
MESSAGE_PATH = "io.kubernetes.container.terminationMessagePath"
MESSAGE_POLICY = "io.kubernetes.container.terminationMessagePolicy"
RESTART_DELAY = "motley.io/restart-delay-seconds"
RESOURCES = "motley.io/resources"


class State(enum.Enum):
    """A container's state in the runtime."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RuntimeContainer:
    """One container in the runtime, alive or dead. Times are seconds since the epoch, 0 unset."""

    id: str
    name: str
    attempt: int
    sandbox_id: str
    state: State
    created_at: float = 0.0
    started_at: float = 0.0
    finished_at: float = 0.0
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    image: str = ""
    image_ref: str = ""
    spec_hash: str = ""
    restart_delay_s: float = 0.0
    grace_s: int = 30
    log_path: str = ""
    message_path: str = ""
    message_policy: str = "File"
    resources: ResourceRequirements | None = None  # what it was made with

    @property
    def is_running(self) -> bool:
        """Does its process run?"""
        return self.state is State.RUNNING


@dataclass(frozen=True, slots=True)
class RuntimeSandbox:
    """One pod sandbox: the namespaces, the address, the pause process."""

    id: str
    uid: str
    namespace: str
    name: str
    attempt: int
    is_ready: bool
    created_at: float = 0.0
    ips: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RuntimePod:
    """Everything the runtime has for one pod uid, newest first."""

    uid: str
    namespace: str = ""
    name: str = ""
    sandboxes: tuple[RuntimeSandbox, ...] = ()
    containers: tuple[RuntimeContainer, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Is nothing left of it?"""
        return not self.sandboxes and not self.containers

    @property
    def sandbox(self) -> RuntimeSandbox | None:
        """The newest sandbox."""
        return self.sandboxes[0] if self.sandboxes else None

    def latest(self, name: str) -> RuntimeContainer | None:
        """The newest container of this name."""
        return next((c for c in self.containers if c.name == name), None)

    def previous(self, name: str) -> RuntimeContainer | None:
        """The one before the newest, whose end is `lastState`."""
        found = [c for c in self.containers if c.name == name]
        return found[1] if len(found) > 1 else None

    def running(self) -> list[RuntimeContainer]:
        """Containers whose process runs."""
        return [c for c in self.containers if c.is_running]


class Waiting(NamedTuple):
    """Why a container (or the sandbox) does not run, and when to try again."""

    reason: str
    message: str
    retry_at: float


class StartFailure(NamedTuple):
    """A container the runtime created and could not start."""

    message: str
    at: float


@dataclass(slots=True)
class Notes:
    """What a worker remembers between rounds that the runtime cannot tell.

    All of it may be lost: it is found out again at the cost of one more attempt.
    """

    waiting: dict[str, Waiting] = field(default_factory=dict)
    sandbox: Waiting | None = None
    sandbox_tries: int = 0  # a failed sandbox keeps its name: the next needs a higher attempt
    failed_starts: dict[str, StartFailure] = field(default_factory=dict)
    killing: dict[str, float] = field(default_factory=dict)  # container id -> deadline
    rejected: tuple[str, str] | None = None  # reason, message: the node refuses the pod
    end_grace_s: float | None = None  # where the node ends the pod: how long it has
    applied: dict[str, ResourceRequirements] = field(default_factory=dict)  # by container id
    must_restart: set[str] = field(default_factory=set)  # ids: a resize wants them made anew
    resize_pending: tuple[str, str] | None = None  # reason, message: not granted (yet)
    resize_error: str = ""  # why what was granted could not be applied
    is_released: bool = False  # a finished pod's sandbox, volumes and cgroup are given back


@dataclass(frozen=True, slots=True)
class Probes:
    """Latest verdicts by container id; absent means not probed."""

    started: frozenset[str] = frozenset()
    ready: frozenset[str] = frozenset()
    unhealthy: dict[str, str] = field(default_factory=dict)  # id -> what failed
