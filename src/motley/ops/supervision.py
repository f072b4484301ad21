"""What the supervisor decides: when a component starts, counts as running, and is started again.

The rules are values and functions; `supervisor` performs what they say. A component starts once
everything it needs runs. One that ends is started again after a wait that doubles, until it has
stayed up for a while. One that stops answering altogether is killed and so starts again; one that
answers "not ready" is left alone, because a restart would not help what it waits for.

Components of another version are replaced one by one, in order: the next goes when the one before
is ready, so an upgrade that cannot work stops at the first and leaves the others as they were.

Invariant: a dependency that goes away never stops what depends on it.
"""

import hashlib
from collections.abc import Mapping, Sequence
from enum import Enum
from random import Random

import msgspec

from motley.lib.backoff import Backoff
from motley.ops.processes import Process

STABLE_S = 30.0  # up for this long: the next crash starts from the shortest wait again
SILENT_S = 60.0  # answering nothing for this long: hung
START_S = 90.0  # not ready for this long after the start, and silent: hung
BASE_S = 0.2
CAP_S = 30.0


class Phase(Enum):
    """Where a component is in its life."""

    WAITING = "waiting"  # for something it needs
    STARTING = "starting"  # its process runs, it is not ready yet
    RUNNING = "running"
    UNREADY = "unready"  # was ready, answers that it is not
    BACKOFF = "backoff"  # ended, and will be started again
    STOPPING = "stopping"
    STOPPED = "stopped"


ALIVE = frozenset({Phase.STARTING, Phase.RUNNING, Phase.UNREADY, Phase.STOPPING})


class Outcome(Enum):
    """What a readiness question brought."""

    READY = "ready"
    NOT_READY = "not ready"  # it answered, and said no
    SILENT = "silent"  # no answer at all


class Spec(msgspec.Struct, frozen=True, omit_defaults=True):
    """A component as `motley up` asks for it. `probe`: http://…, https://… or unix:/path."""

    name: str
    command: tuple[str, ...]
    probe: str = ""
    after: tuple[str, ...] = ()
    grace_s: float = 10.0
    # Counts up when the component must be replaced though its command is the same.
    generation: int = 0
    version: str = ""  # of the program, where the command does not show it

    def fingerprint(self) -> str:
        """Equal for two specs that ask for the same process."""
        data = msgspec.json.encode([self.command, self.generation, self.version])
        return hashlib.sha256(data).hexdigest()[:16]


class Unit(msgspec.Struct):
    """A component and where it is; `fingerprint` is that of the spec its process was started by."""

    spec: Spec
    backoff: Backoff
    phase: Phase = Phase.WAITING
    process: Process | None = None
    fingerprint: str = ""
    restarts: int = 0
    changed_at: float = 0.0  # when the phase was entered
    start_at: float = 0.0  # not before this
    answered_at: float = 0.0  # last answer of any kind
    kill_at: float = 0.0
    reason: str = ""
    last_end: str = ""  # how its last process ended that should not have
    is_wanted: bool = True

    @property
    def failures(self) -> int:
        """How often in a row it ended before it had stood for a while."""
        return self.backoff.attempt

    def enter(self, phase: Phase, now: float, reason: str = "") -> None:
        """Change the phase."""
        if phase is not self.phase:
            self.phase, self.changed_at = phase, now
        self.reason = reason


def unit(spec: Spec, rng: Random, now: float) -> Unit:
    """A component that has not been started."""
    return Unit(spec=spec, backoff=Backoff(base_s=BASE_S, cap_s=CAP_S, rng=rng), changed_at=now)


class Action(msgspec.Struct, frozen=True):
    """Something to be done to a component's process: start, terminate or kill it."""

    verb: str
    name: str


def decide(units: Mapping[str, Unit], now: float, *, stopping: bool = False) -> list[Action]:
    """What to do now; phases that depend on nothing but time are brought up to date."""
    actions = []
    for one in units.values():
        verb = _verb(one, units, now, stopping)
        if verb:
            actions.append(Action(verb, one.spec.name))
    return actions


def _verb(one: Unit, units: Mapping[str, Unit], now: float, stopping: bool) -> str:
    if one.phase is Phase.STOPPING:
        return "kill" if now >= one.kill_at else ""
    unwanted = stopping or not one.is_wanted
    if one.phase in ALIVE:
        if unwanted:
            return "" if _is_needed(one, units) else "terminate"
        if one.fingerprint != one.spec.fingerprint():
            return "terminate" if _is_turn(one, units) else ""
        return "kill" if _is_hung(one, now) else ""
    if unwanted:
        one.enter(Phase.STOPPED, now)
        return ""
    if now < one.start_at:
        return ""
    missing = [name for name in one.spec.after if not _is_ready(units.get(name))]
    if missing:
        one.enter(Phase.WAITING, now, f"waits for {', '.join(missing)}")
        return ""
    return "start"


def _is_ready(one: Unit | None) -> bool:
    return one is None or one.phase in (Phase.RUNNING, Phase.UNREADY)


def _is_needed(one: Unit, units: Mapping[str, Unit]) -> bool:
    """Whether something that needs this one is still there: ends come in reverse order."""
    return any(
        one.spec.name in other.spec.after and other.phase in ALIVE for other in units.values()
    )


def _is_turn(one: Unit, units: Mapping[str, Unit]) -> bool:
    """Whether all that come before it are what they should be; one that is not ready itself has
    nothing to wait for."""
    if not _is_ready(one):
        return True
    for other in units.values():
        if other is one:
            break
        if other.is_wanted and not (
            _is_ready(other) and other.fingerprint == other.spec.fingerprint()
        ):
            return False
    return True


def _is_hung(one: Unit, now: float) -> bool:
    if not one.spec.probe:
        return False
    limit = START_S if one.phase is Phase.STARTING else SILENT_S
    return now - max(one.answered_at, one.changed_at) > limit


def started(one: Unit, process: Process, now: float) -> None:
    """Its process runs."""
    one.process, one.fingerprint = process, one.spec.fingerprint()
    one.answered_at = now
    one.enter(Phase.STARTING if one.spec.probe else Phase.RUNNING, now)


def adopted(one: Unit, process: Process, fingerprint: str, restarts: int, now: float) -> None:
    """Its process runs since before this supervisor did."""
    one.process, one.fingerprint, one.restarts = process, fingerprint, restarts
    one.answered_at = now
    one.enter(Phase.STARTING if one.spec.probe else Phase.RUNNING, now, "adopted")


def terminated(one: Unit, now: float) -> None:
    """It was asked to end."""
    one.enter(Phase.STOPPING, now)
    one.kill_at = now + one.spec.grace_s


def exited(one: Unit, reason: str, now: float, *, stopping: bool = False) -> None:
    """Its process has ended; decides when the next one may start."""
    asked = one.phase is Phase.STOPPING
    stood = now - one.changed_at if one.phase in (Phase.RUNNING, Phase.UNREADY) else 0.0
    one.process = None
    if stopping or not one.is_wanted:
        one.enter(Phase.STOPPED, now, reason)
        return
    if asked:  # replaced: at once, and it is no crash
        one.start_at = now
        one.enter(Phase.WAITING, now)
        return
    if stood > STABLE_S:
        one.backoff.reset()
    one.restarts += 1
    one.last_end = reason
    one.start_at = now + one.backoff.next()
    one.enter(Phase.BACKOFF, now, reason)


def probed(one: Unit, outcome: Outcome, now: float) -> None:
    """It was asked whether it is ready."""
    if one.phase not in (Phase.STARTING, Phase.RUNNING, Phase.UNREADY):
        return
    if outcome is not Outcome.SILENT:
        one.answered_at = now
    if outcome is Outcome.READY:
        one.enter(Phase.RUNNING, now)
    elif one.phase is not Phase.STARTING and (
        outcome is Outcome.NOT_READY or now - one.answered_at > SILENT_S / 6
    ):
        one.enter(Phase.UNREADY, now, outcome.value)


def next_probe_s(one: Unit) -> float:
    """How soon to ask again: often while someone waits for it, seldom when all is well."""
    return 2.0 if one.phase is Phase.RUNNING else 0.1


def merge(
    units: Mapping[str, Unit], specs: Sequence[Spec], rng: Random, now: float = 0.0
) -> dict[str, Unit]:
    """Components after a new list was given: known ones keep their process, others go or come."""
    merged: dict[str, Unit] = {}
    for spec in specs:
        one = units.get(spec.name) or unit(spec, rng, now)
        one.spec, one.is_wanted = spec, True
        if one.phase is Phase.STOPPED:
            one.phase = Phase.WAITING
        one.backoff.reset()  # whoever gives a new list waits for it: try at once
        one.start_at = 0.0
        merged[spec.name] = one
    for name, one in units.items():
        if name not in merged and one.phase in ALIVE:
            one.is_wanted = False
            merged[name] = one
    return merged
