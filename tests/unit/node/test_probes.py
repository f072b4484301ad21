"""Thresholds and timing of probes."""

import asyncio

import pytest

from motley.api.views.pod import Container, Probe
from motley.node.checks import CheckError, Verdict, resolve_port
from motley.node.model import RuntimeContainer, State
from motley.node.probes import Prober, Tracker, first_check_at


def probe(**fields):
    return Probe(**fields)


def test_a_state_changes_only_after_enough_equal_verdicts():
    tracker = Tracker(probe(success_threshold=2, failure_threshold=3), is_good=False)
    verdicts = [True, False, True, True, False, False, True, False, False, False]
    states = []
    for verdict in verdicts:
        tracker.record(verdict)
        states.append(tracker.is_good)
    assert states == [False, False, False, True, True, True, True, True, True, False]


def test_a_probe_that_never_was_good_can_fail():
    tracker = Tracker(probe(failure_threshold=2), is_good=False)
    assert not tracker.record(False)
    assert not tracker.has_failed
    tracker.record(False)
    assert tracker.has_failed


def test_the_first_check_waits_for_the_initial_delay_from_the_start():
    assert first_check_at(probe(initial_delay_seconds=10), started_at=100, now=101) == 110
    assert first_check_at(probe(initial_delay_seconds=10), started_at=100, now=200) == 200


def test_the_first_check_does_not_wait_for_a_clock_that_was_put_back():
    assert first_check_at(probe(initial_delay_seconds=10), started_at=3700, now=100) == 110


def test_named_ports_are_looked_up():
    container = Container(name="c", ports=[])
    assert resolve_port(80, container) == 80
    assert resolve_port("80", container) == 80
    with pytest.raises(CheckError, match='no port named "web"'):
        resolve_port("web", container)


class Clock:
    """Time that passes only when somebody sleeps."""

    def __init__(self):
        self.time = 1000.0

    def now(self):
        return self.time

    def monotonic(self):
        return self.time

    async def sleep(self, seconds):
        self.time += seconds
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, None)
        await future


class Script:
    """Checks that answer as written, then hang."""

    def __init__(self, clock, *verdicts):
        self.clock = clock
        self.verdicts = list(verdicts)
        self.times = []

    async def probe(self, probe, target):
        self.times.append(self.clock.now())
        if not self.verdicts:
            await asyncio.Event().wait()
        return Verdict(self.verdicts.pop(0), "seen")


async def play(container, *verdicts, known=None):
    """Run one container's probes through a script; returns prober, check times, change count."""
    clock = Clock()
    script = Script(clock, *verdicts)
    changes = []
    failing = []
    async with asyncio.TaskGroup() as tasks:
        prober = Prober(
            script,
            tasks,
            clock,
            lambda: changes.append(clock.now()),
            lambda *seen: failing.append(seen),
        )
        running = RuntimeContainer("id", "c", 0, "s", State.RUNNING, started_at=1000.0)
        prober.follow(container, running, "10.0.0.9", known)
        for _ in range(200):
            await clock_tick()
        verdict = prober.verdicts()
        prober.forget("id")
    return verdict, script.times, changes, failing


async def clock_tick():
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, None)
    await future


async def test_readiness_is_checked_every_period_after_the_delay():
    container = Container(
        name="c", readiness_probe=probe(initial_delay_seconds=5, period_seconds=10)
    )
    verdict, times, changes, failing = await play(container, False, True, True)
    assert times == [1005, 1015, 1025, 1035]
    assert verdict.ready == {"id"}
    assert changes == [1015], "only a change is worth waking somebody"
    assert failing == [("c", "readiness", "seen")]


async def test_liveness_fails_after_its_threshold_and_says_so_once():
    container = Container(name="c", liveness_probe=probe(period_seconds=1, failure_threshold=3))
    verdict, _, changes, _ = await play(container, True, False, False, False, False)
    assert verdict.unhealthy == {"id": "liveness"}
    assert changes == [1003]


async def test_without_probes_a_container_is_started_and_ready():
    verdict, times, _, _ = await play(Container(name="c"))
    assert verdict.started == verdict.ready == {"id"}
    assert times == []


async def test_readiness_waits_for_the_startup_probe():
    container = Container(
        name="c",
        startup_probe=probe(period_seconds=2),
        readiness_probe=probe(period_seconds=5),
    )
    verdict, times, changes, _ = await play(container, False, False, True, True)
    assert times == [1000, 1002, 1004, 1004, 1009]
    assert verdict.started == verdict.ready == {"id"}
    assert changes == [1004, 1004]


async def test_a_startup_probe_that_never_passes_is_fatal():
    container = Container(name="c", startup_probe=probe(period_seconds=1, failure_threshold=2))
    verdict, times, _, _ = await play(container, False, False)
    assert verdict.unhealthy == {"id": "startup"}
    assert len(times) == 2, "it is not asked again"


async def test_a_restarted_agent_goes_on_from_what_was_reported():
    container = Container(
        name="c", startup_probe=probe(), readiness_probe=probe(failure_threshold=2)
    )
    verdict, _, changes, _ = await play(container, False, known=(True, True))
    assert verdict.started == verdict.ready == {"id"}
    assert changes == []
