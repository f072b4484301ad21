"""Startup, readiness and liveness probes.

`Tracker` is the pure part: verdicts in, state out by thresholds. `Prober` runs the checks of one
container while it lives. Until a startup probe has passed, the other two do not run.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from motley.api.views.pod import Container, Probe
from motley.lib import journal
from motley.lib.clock import Clock
from motley.node.checks import Target, Verdict
from motley.node.model import Probes, RuntimeContainer

log = journal.get(__name__)

KINDS = ("startup", "readiness", "liveness")


class ProbeCheck(Protocol):
    """Makes one check."""

    async def probe(self, probe: Probe, target: Target) -> Verdict:
        """Never raises for a failing container."""


@dataclass(slots=True)
class Tracker:
    """The state of one probe: it changes only after enough equal verdicts in a row."""

    probe: Probe
    is_good: bool
    successes: int = 0
    failures: int = 0

    def record(self, is_good: bool) -> bool:
        """Take a verdict; True when the state changed."""
        if is_good:
            self.successes, self.failures = self.successes + 1, 0
            flips = not self.is_good and self.successes >= self.probe.success_threshold
        else:
            self.successes, self.failures = 0, self.failures + 1
            flips = self.is_good and self.failures >= self.probe.failure_threshold
        if flips:
            self.is_good = not self.is_good
        return flips

    @property
    def has_failed(self) -> bool:
        """Enough failures in a row, also if it never was good."""
        return self.failures >= self.probe.failure_threshold


def first_check_at(probe: Probe, started_at: float, now: float) -> float:
    """When the first check is due: after the initial delay, counted from the container's start.

    Never later than that delay from now: a start in the future is a clock that was put back.
    """
    return max(now, min(started_at, now) + probe.initial_delay_seconds)


@dataclass(slots=True)
class _Watched:
    target: Target
    started_at: float
    is_started: bool
    is_ready: bool
    unhealthy: str = ""
    startup_done: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: list[asyncio.Task[None]] = field(default_factory=list)


class Prober:
    """Runs the probes of one pod's containers.

    `changed` is called when a verdict changes; `failing` with what a failed check saw.
    """

    def __init__(
        self,
        check: ProbeCheck,
        tasks: asyncio.TaskGroup,
        clock: Clock,
        changed: Callable[[], None],
        failing: Callable[[str, str, str], None],
    ) -> None:
        self._check = check
        self._tasks = tasks
        self._clock = clock
        self._changed = changed
        self._failing = failing
        self._watched: dict[str, _Watched] = {}

    def verdicts(self) -> Probes:
        """What the state machine is to know."""
        return Probes(
            started=frozenset(i for i, w in self._watched.items() if w.is_started),
            ready=frozenset(i for i, w in self._watched.items() if w.is_ready),
            unhealthy={i: w.unhealthy for i, w in self._watched.items() if w.unhealthy},
        )

    def follow(
        self,
        container: Container,
        running: RuntimeContainer,
        address: str,
        known: tuple[bool, bool] | None,
    ) -> None:
        """Probe a running container, going on from `known`: (started, ready) as last reported."""
        if running.id in self._watched:
            return
        probes = {
            "startup": container.startup_probe,
            "readiness": container.readiness_probe,
            "liveness": container.liveness_probe,
        }
        was_started, was_ready = known or (False, False)
        watched = _Watched(
            target=Target(running.id, container, address),
            started_at=running.started_at,
            is_started=was_started or container.startup_probe is None,
            is_ready=was_ready or container.readiness_probe is None,
        )
        if watched.is_started:
            watched.startup_done.set()
        self._watched[running.id] = watched
        for kind, probe in probes.items():
            if probe is not None and not (kind == "startup" and watched.is_started):
                task = self._tasks.create_task(self._run(kind, probe, watched))
                watched.tasks.append(task)

    def forget(self, container_id: str) -> None:
        """The container does not run any more."""
        if watched := self._watched.pop(container_id, None):
            for task in watched.tasks:
                task.cancel()

    def keep_only(self, running: set[str]) -> None:
        """Stop probing what does not run."""
        for container_id in [i for i in self._watched if i not in running]:
            self.forget(container_id)

    async def _run(self, kind: str, probe: Probe, watched: _Watched) -> None:
        tracker = Tracker(
            probe, is_good=kind == "liveness" or (kind == "readiness" and watched.is_ready)
        )
        if kind != "startup":
            await watched.startup_done.wait()
        due = first_check_at(probe, watched.started_at, self._clock.now())
        await self._clock.sleep(max(0.0, due - self._clock.now()))
        while True:
            began = self._clock.monotonic()
            verdict = await self._check.probe(probe, watched.target)
            if not verdict.is_good:
                self._failing(watched.target.container.name, kind, verdict.output)
            flipped = tracker.record(verdict.is_good)
            if self._apply(kind, tracker, watched, flipped):
                self._changed()
            if kind == "startup" and (watched.is_started or watched.unhealthy):
                return
            spent = self._clock.monotonic() - began
            await self._clock.sleep(max(0.0, probe.period_seconds - spent))

    def _apply(self, kind: str, tracker: Tracker, watched: _Watched, flipped: bool) -> bool:
        """Take over a probe's state; True when it matters to the pod."""
        if kind == "readiness":
            watched.is_ready = tracker.is_good
            return flipped
        if kind == "startup" and flipped and tracker.is_good:
            watched.is_started = True
            watched.startup_done.set()
            return True
        if tracker.has_failed and not watched.unhealthy:
            watched.unhealthy = kind
            return True
        return False
