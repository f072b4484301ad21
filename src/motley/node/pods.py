"""The life of a pod on a node, as one pure function.

`plan` looks at what is wanted (the pod), what there is (the runtime), what the probes say and what
time it is, and answers what to do next and when to look again. It is level-based: it never asks
what happened, only what is. The worker performs the actions and calls again.

Invariants: containers start only in a ready sandbox; main containers only when every init
container is done; a container that ended is started again only if the restart policy says so, and
never before its back-off has passed; a pod that ended never starts again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from motley.api.views.pod import Container, Pod
from motley.lib.clock import parse_rfc3339
from motley.node.actions import (
    Action,
    DeletePod,
    KillContainer,
    ReleasePod,
    RemoveContainer,
    RemovePod,
    RemoveSandbox,
    RunSandbox,
    StartContainer,
)
from motley.node.containerconfig import spec_hash
from motley.node.model import Notes, Probes, RuntimeContainer, RuntimePod, State

# Kubernetes' crash back-off: at once, then 10 s doubling to 5 min; forgotten after a good run.
BACKOFF_FIRST_S = 10.0
BACKOFF_MAX_S = 300.0
BACKOFF_FORGET_S = 600.0
# Two dead containers per name would do; the newest and its predecessor are `state`, `lastState`.
KEPT_PER_NAME = 2


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, and when to look again without being woken."""

    actions: tuple[Action, ...] = ()
    wake_at: float | None = None
    failed: tuple[str, str] | None = None  # reason, message: the pod must end
    is_done: bool = False  # nothing of the pod is left and nobody waits for it

    @property
    def starts(self) -> bool:
        """Is something about to be started, so that the pod's state is about to change?"""
        return any(isinstance(a, RunSandbox | StartContainer) for a in self.actions)


def container(pod: Pod, name: str) -> Container | None:
    """One container of the spec, init and ephemeral containers too."""
    spec = pod.spec
    everyone = (*spec.init_containers, *spec.containers, *spec.ephemeral_containers)
    return next((c for c in everyone if c.name == name), None)


def looks_into(pod: Pod, name: str, observed: RuntimePod) -> str:
    """The id of the running container whose processes an ephemeral one is to see; or empty."""
    spec = container(pod, name)
    target = observed.latest(spec.target_container_name) if spec is not None else None
    return target.id if target is not None and target.is_running else ""


def is_sidecar(container: Container) -> bool:
    """An init container that keeps running beside the main containers."""
    return container.restart_policy == "Always"


def has_ended(container: RuntimeContainer, notes: Notes) -> bool:
    """Has it run its course? A start that failed counts."""
    return container.state in (State.EXITED, State.UNKNOWN) or container.id in notes.failed_starts


def exit_code(container: RuntimeContainer, notes: Notes) -> int:
    """With what it ended; 128 is what Kubernetes shows for a start that failed."""
    return 128 if container.id in notes.failed_starts else container.exit_code


def ended_at(container: RuntimeContainer, notes: Notes) -> float:
    """When it ended."""
    failure = notes.failed_starts.get(container.id)
    return failure.at if failure else container.finished_at or container.created_at


def restart_delay(container: RuntimeContainer, notes: Notes) -> float:
    """How long after this container's end the next one must wait."""
    ran_s = ended_at(container, notes) - (container.started_at or container.created_at)
    return 0.0 if ran_s >= BACKOFF_FORGET_S else container.restart_delay_s


def is_early(now: float, due: float, delay_s: float = BACKOFF_MAX_S) -> bool:
    """Is a wait of at most this long not over yet? What seems further off was reckoned before the
    clock was put back, and is over."""
    return now < due <= now + delay_s + 1.0  # a second: ends are noted by the runtime's clock


def next_delay(delay_s: float) -> float:
    """The back-off after the next crash."""
    return min(BACKOFF_MAX_S, 2 * delay_s) if delay_s else BACKOFF_FIRST_S


def may_restart(policy: str, code: int) -> bool:
    """Does the restart policy want it again?"""
    return policy == "Always" or (policy == "OnFailure" and code != 0)


def init_policy(pod: Pod) -> str:
    """Init containers that succeed are done, also under Always."""
    return "Never" if pod.spec.restart_policy == "Never" else "OnFailure"


def is_finished(pod: Pod, observed: RuntimePod, notes: Notes) -> bool:
    """Will no main container ever run again?"""
    if notes.rejected is not None or pod.is_terminal:
        return True
    if pod.spec.restart_policy == "Never":
        for init in pod.spec.init_containers:
            latest = observed.latest(init.name)
            if latest is None or is_sidecar(init) or not has_ended(latest, notes):
                continue
            if exit_code(latest, notes) != 0:
                return True
    for container in pod.spec.containers:
        latest = observed.latest(container.name)
        if latest is None or not has_ended(latest, notes):
            return False
        if may_restart(pod.spec.restart_policy, exit_code(latest, notes)):
            return False
    return bool(pod.spec.containers)


def deadline(pod: Pod) -> float | None:
    """When `activeDeadlineSeconds` ends the pod."""
    if pod.spec.active_deadline_seconds is None or not pod.status.start_time:
        return None
    return parse_rfc3339(pod.status.start_time) + pod.spec.active_deadline_seconds


def plan(
    pod: Pod | None,
    observed: RuntimePod,
    notes: Notes,
    probes: Probes,
    now: float,
    *,
    orphan_grace_s: float | None = None,
) -> Plan:
    """The next step.

    `pod` is None when the API no longer knows it; its containers then have `orphan_grace_s`, or
    what they were started with.
    """
    if pod is None:
        return _end(None, observed, notes, now, grace_s=orphan_grace_s)
    if pod.metadata.deletion_timestamp is not None:
        grace = pod.metadata.deletion_grace_period_seconds
        return _end(pod, observed, notes, now, grace_s=grace)
    over = deadline(pod)
    if over is not None and now >= over and notes.rejected is None and not pod.is_terminal:
        message = "Pod was active on the node longer than the specified deadline"
        return Plan(failed=("DeadlineExceeded", message), wake_at=now)
    if is_finished(pod, observed, notes):
        return _finish(pod, observed, notes, now)
    result = _advance(pod, observed, notes, probes, now)
    if over is None:
        return result
    wake = over if result.wake_at is None else min(over, result.wake_at)
    return Plan(result.actions, wake)


def _kills(
    running: Iterable[RuntimeContainer], notes: Notes, now: float, grace_s: float, message: str
) -> list[Action]:
    """Kill these, unless they are being killed at least as soon already."""
    return [
        KillContainer(c.id, c.name, grace_s, message)
        for c in running
        if notes.killing.get(c.id, float("inf")) > now + grace_s + 0.5
    ]


def _shutdown(
    pod: Pod | None, observed: RuntimePod, notes: Notes, now: float, grace_s: float | None
) -> list[Action] | None:
    """Kills that are still due: main containers first, then sidecars, last one first.

    None when nothing runs any more; an empty list when all that is left is to wait.
    """
    running = observed.running()
    if not running:
        return None
    sidecars = [c.name for c in pod.spec.init_containers if is_sidecar(c)] if pod else []
    mains = [c for c in running if c.name not in sidecars]
    if mains:
        turn = mains
    else:
        last = max(sidecars.index(c.name) for c in running)
        turn = [c for c in running if c.name == sidecars[last]]
    actions: list[Action] = []
    for container in turn:
        grace = container.grace_s if grace_s is None else grace_s
        actions += _kills([container], notes, now, grace, "Stopping container " + container.name)
    return actions


def _end(
    pod: Pod | None, observed: RuntimePod, notes: Notes, now: float, grace_s: float | None
) -> Plan:
    kills = _shutdown(pod, observed, notes, now, grace_s)
    if kills is not None:
        return Plan(tuple(kills))
    if not observed.is_empty or not notes.is_released:
        return Plan((RemovePod(),))
    if pod is None:
        return Plan(is_done=True)
    return Plan((DeletePod(),))


def _finish(pod: Pod, observed: RuntimePod, notes: Notes, now: float) -> Plan:
    grace = float(pod.spec.termination_grace_period_seconds)
    if notes.end_grace_s is not None:
        grace = min(grace, notes.end_grace_s)
    kills = _shutdown(pod, observed, notes, now, grace)
    if kills is not None:
        return Plan(tuple(kills))
    return Plan() if notes.is_released else Plan((ReleasePod(),))


def _advance(pod: Pod, observed: RuntimePod, notes: Notes, probes: Probes, now: float) -> Plan:
    sandbox = observed.sandbox
    if sandbox is None or not sandbox.is_ready:
        running = observed.running()
        if running:  # their network is gone with the sandbox
            message = "Pod sandbox changed, it will be killed and re-created."
            return Plan(tuple(_kills(running, notes, now, 2.0, message)))
        if notes.sandbox is not None and is_early(now, notes.sandbox.retry_at):
            return Plan(wake_at=notes.sandbox.retry_at)
        after = sandbox.attempt + 1 if sandbox is not None else 0
        return Plan((RunSandbox(max(after, notes.sandbox_tries)),))
    steps = _Steps(pod, observed, notes, probes, now, sandbox.id)
    steps.run_ephemeral()
    if steps.run_init():
        for container in pod.spec.containers:
            steps.consider(container, pod.spec.restart_policy)
    steps.prune()
    return Plan(tuple(steps.actions), steps.wake_at)


@dataclass(slots=True)
class _Steps:
    """Collects what the containers of a ready sandbox need."""

    pod: Pod
    observed: RuntimePod
    notes: Notes
    probes: Probes
    now: float
    sandbox_id: str
    actions: list[Action] = field(default_factory=list)
    wake_at: float | None = None

    def _later(self, at: float) -> None:
        self.wake_at = at if self.wake_at is None else min(self.wake_at, at)

    def run_ephemeral(self) -> None:
        """Somebody looks into the pod: such a container runs once, whatever becomes of it."""
        for container in self.pod.spec.ephemeral_containers:
            if self.observed.latest(container.name) is None:
                self._start(container, 0, 0.0)

    def run_init(self) -> bool:
        """Bring the init containers forward; True when the main ones may run."""
        mains = {c.name for c in self.pod.spec.containers}
        has_begun = any(
            c.name in mains and c.sandbox_id == self.sandbox_id for c in self.observed.containers
        )
        for init in self.pod.spec.init_containers:
            latest = self.observed.latest(init.name)
            is_here = latest is not None and latest.sandbox_id == self.sandbox_id
            if is_sidecar(init):
                self.consider(init, "Always")
                if not has_begun and not self._is_started(init, latest):
                    return False
                continue
            if has_begun or (
                is_here
                and latest is not None
                and has_ended(latest, self.notes)
                and exit_code(latest, self.notes) == 0
            ):
                continue
            if is_here or latest is None or latest.is_running:
                self.consider(init, init_policy(self.pod))
            else:  # done in an earlier sandbox is not done in this one
                self._start(init, latest.attempt + 1, latest.restart_delay_s)
            return False
        return True

    def _is_started(self, container: Container, latest: RuntimeContainer | None) -> bool:
        if latest is None or not latest.is_running:
            return False
        return container.startup_probe is None or latest.id in self.probes.started

    def consider(self, container: Container, policy: str) -> None:
        """What one container needs: nothing, a start, or an end."""
        latest = self.observed.latest(container.name)
        if latest is None:
            self._start(container, 0, 0.0)
        elif latest.is_running:
            self._check(container, latest)
        elif has_ended(latest, self.notes):
            if not may_restart(policy, exit_code(latest, self.notes)):
                return
            delay = restart_delay(latest, self.notes)
            ready_at = ended_at(latest, self.notes) + delay
            if is_early(self.now, ready_at, delay):
                self._later(ready_at)
            else:
                self._start(container, latest.attempt + 1, next_delay(delay))
        else:  # created and never started: the agent died in between
            self.actions.append(RemoveContainer(latest.id))
            self._start(container, latest.attempt, latest.restart_delay_s)

    def _start(self, container: Container, attempt: int, delay_s: float) -> None:
        waiting = self.notes.waiting.get(container.name)
        if waiting is not None and is_early(self.now, waiting.retry_at):
            self._later(waiting.retry_at)
        else:
            self.actions.append(StartContainer(container.name, attempt, delay_s))

    def _check(self, container: Container, latest: RuntimeContainer) -> None:
        grace = float(self.pod.spec.termination_grace_period_seconds)
        message = ""
        if latest.id in self.probes.unhealthy:
            kind = self.probes.unhealthy[latest.id]
            probe = container.startup_probe if kind == "startup" else container.liveness_probe
            if probe is not None and probe.termination_grace_period_seconds is not None:
                grace = float(probe.termination_grace_period_seconds)
            message = f"Container {container.name} failed {kind} probe, will be restarted"
        elif latest.id in self.notes.must_restart:
            message = f"Container {container.name} resize requires restart"
        elif latest.spec_hash and latest.spec_hash != spec_hash(container):
            message = f"Container {container.name} definition changed, will be restarted"
        if message:
            self.actions += _kills([latest], self.notes, self.now, grace, message)

    def prune(self) -> None:
        """Forget dead containers nobody can ask about, and sandboxes left empty."""
        gone: set[str] = set()
        for name in {c.name for c in self.observed.containers}:
            dead: Sequence[RuntimeContainer] = [
                c for c in self.observed.containers if c.name == name
            ][KEPT_PER_NAME:]
            gone.update(c.id for c in dead if not c.is_running)
        self.actions += [RemoveContainer(c.id) for c in self.observed.containers if c.id in gone]
        used = {c.sandbox_id for c in self.observed.containers if c.id not in gone}
        self.actions += [
            RemoveSandbox(s.id) for s in self.observed.sandboxes[1:] if s.id not in used
        ]
