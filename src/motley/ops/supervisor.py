"""The supervisor: a small process that keeps a cluster's components running.

It performs what `supervision` decides: starts and ends processes, asks them whether they are ready,
writes down what there is. Components are its children but do not depend on it: each has its own
session and writes its own log, and a new supervisor takes over the processes a killed one left.

    SIGTERM  stop every component, in reverse order, and end
    SIGHUP   read ROOT/run/components.json again
    SIGUSR1  end at once and leave the components running, for a successor

Invariant: at most one supervisor per root directory (it holds a lock for its whole life).
"""

import asyncio
import ctypes
import fcntl
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from random import Random

from motley.lib import clock, journal
from motley.ops import preloaded, probing, processes, spawning, statefile, supervision
from motley.ops.supervision import ALIVE, Phase, Unit

log = journal.get(__name__)

_PR_SET_CHILD_SUBREAPER = 36
_ROTATE_EVERY_S = 10.0


class Supervisor:
    """The components of one root directory."""

    def __init__(
        self, root: Path, *, clock: clock.Clock = clock.SYSTEM, rng: Random | None = None
    ) -> None:
        self._root = root
        self._run = root / "run"
        self._logs = root / "logs"
        self._clock = clock
        self._rng = rng or Random()
        self._units: dict[str, Unit] = {}
        self._wake = asyncio.Event()
        self._stopping = False
        self._handing_over = False
        self._probe_at: dict[str, float] = {}
        self._probing: set[str] = set()
        self._watched: dict[int, int] = {}  # pid → its descriptor
        self._exits: dict[int, str] = {}
        self._rotate_at = 0.0
        self._written: object = None
        self._me = processes.identify(os.getpid())
        self._since = clock_text(clock)
        self._preloaded = preloaded.Preloaded(
            root, self._logs / "supervisor.log", self._wake.set, clock
        )

    async def run(self) -> None:
        """Supervise until told to stop."""
        loop = asyncio.get_running_loop()
        for number, handler in (
            (signal.SIGTERM, self._stop),
            (signal.SIGINT, self._stop),
            (signal.SIGHUP, self._reload),
            (signal.SIGUSR1, self._hand_over),
            (signal.SIGCHLD, self._wake.set),
        ):
            loop.add_signal_handler(number, handler)
        self._adopt()
        async with asyncio.TaskGroup() as tasks:
            while not self._handing_over:
                self._wake.clear()
                self._step(tasks)
                if self._stopping and not any(u.phase in ALIVE for u in self._units.values()):
                    break
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._pause_s()):
                        await self._wake.wait()
        self._preloaded.close()
        if self._stopping:
            self._me = None
            self._write()
        log.info("supervisor ends", components_left=self._handing_over)

    def _stop(self) -> None:
        self._stopping = True
        self._wake.set()

    def _hand_over(self) -> None:
        self._handing_over = True
        self._wake.set()

    def _reload(self) -> None:
        specs = statefile.read_specs(self._run / "components.json")
        self._units = supervision.merge(self._units, specs, self._rng, self._clock.monotonic())
        log.info("components read", names=",".join(self._units))
        self._prepare()
        self._wake.set()

    def _adopt(self) -> None:
        """Take over what an earlier supervisor started: by its file, else by the mark we leave."""
        specs = statefile.read_specs(self._run / "components.json")
        before = statefile.read_state(self._run / "state.json")
        known = {spec.name for spec in specs}
        gone = [supervision.Spec(name=c.name, command=()) for c in before.components if c.process]
        now = self._clock.monotonic()
        unwanted = [spec for spec in gone if spec.name not in known]
        self._units = supervision.merge({}, [*specs, *unwanted], self._rng, now)
        strays = processes.of_cluster(self._root)
        for name, one in self._units.items():
            one.is_wanted = name in known
            recorded = before.component(name)
            if recorded and recorded.process:
                supervision.adopted(
                    one, recorded.process, recorded.fingerprint, recorded.restarts, now
                )
            else:
                for process in strays:
                    if processes.command_of(process.pid) == one.spec.command:
                        supervision.adopted(one, process, one.spec.fingerprint(), 0, now)
            if one.process:
                self._watch(one.process.pid)
                log.info("component adopted", name=name, pid=one.process.pid)
        self._prepare()

    def _prepare(self) -> None:
        """What will have to be started shall start quickly."""
        waiting = [one.spec.command for one in self._units.values() if one.phase not in ALIVE]
        self._preloaded.prepare(waiting)

    def _step(self, tasks: asyncio.TaskGroup) -> None:
        now = self._clock.monotonic()
        self._collect(now)
        for action in supervision.decide(self._units, now, stopping=self._stopping):
            self._perform(action, now)
        for name, one in self._units.items():
            due = self._probe_at.get(name, 0.0) <= now and name not in self._probing
            if due and one.spec.probe and one.phase in ALIVE and not self._stopping:
                self._probing.add(name)
                tasks.create_task(self._probe(one))
        for name in [n for n, u in self._units.items() if not u.is_wanted and u.phase not in ALIVE]:
            del self._units[name]
        if now >= self._rotate_at:
            self._rotate_at = now + _ROTATE_EVERY_S
            for path in self._logs.glob("*.log"):
                spawning.rotate(path)
        self._write()

    def _perform(self, action: supervision.Action, now: float) -> None:
        one = self._units[action.name]
        if action.verb == "start":
            self._start(one, now)
        elif one.process is not None:
            log.info("component signalled", name=action.name, verb=action.verb)
            if action.verb == "terminate":
                processes.send(one.process, signal.SIGTERM)
                supervision.terminated(one, now)
            else:
                processes.send(one.process, signal.SIGKILL)

    def _start(self, one: Unit, now: float) -> None:
        name = one.spec.name
        try:
            process = self._preloaded.launch(
                one.spec.command, component=name, log_file=self._logs / f"{name}.log"
            )
        except preloaded.NotYet:
            return  # we are woken when it can be started
        except OSError as error:
            log.error("component cannot be started", name=name, error=error)
            supervision.exited(one, str(error), now)
            return
        supervision.started(one, process, now)
        self._probe_at[name] = now
        self._write()  # at once: a successor must know this process
        self._watch(process.pid)
        log.info("component started", name=name, pid=process.pid, restarts=one.restarts)

    def _watch(self, pid: int) -> None:
        """Wake when a process ends, our child or not."""
        try:
            descriptor = os.pidfd_open(pid)
        except OSError:
            self._wake.set()
            return
        self._watched[pid] = descriptor
        asyncio.get_running_loop().add_reader(descriptor, self._ended, pid)

    def _ended(self, pid: int) -> None:
        self._forget(pid)
        self._wake.set()

    def _forget(self, pid: int) -> None:
        descriptor = self._watched.pop(pid, None)
        if descriptor is not None:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)

    def _collect(self, now: float) -> None:
        """Collect ended children, also orphans that came to us, and note ended components."""
        with suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._exits[ended[0]] = exit_text(ended[1])
        for name, one in self._units.items():
            pid = one.process.pid if one.process else 0
            if one.process is None or (pid in self._watched and pid not in self._exits):
                continue  # the kernel tells us when it ends
            if not one.process.is_alive:
                self._forget(pid)
                reason = self._exits.get(pid, "ended")
                log.info("component ended", name=name, pid=pid, reason=reason)
                supervision.exited(one, reason, now, stopping=self._stopping)
        self._exits.clear()

    async def _probe(self, one: Unit) -> None:
        name, process = one.spec.name, one.process
        try:
            outcome = await probing.ask(one.spec.probe)
        finally:
            self._probing.discard(name)
        now, before = self._clock.monotonic(), one.phase
        self._probe_at[name] = now + supervision.next_probe_s(one)
        if one.process == process:  # the answer is that of the process we asked
            supervision.probed(one, outcome, now)
            if one.phase is not before:
                log.info("component changed", name=name, state=one.phase.value)
                self._probe_at[name] = now + supervision.next_probe_s(one)
        if one.phase is not Phase.RUNNING or before is not Phase.RUNNING:
            self._wake.set()  # somebody waits for it; the others are asked together

    def _pause_s(self) -> float:
        now = self._clock.monotonic()
        due = [self._rotate_at]
        for name, one in self._units.items():
            if one.phase in (Phase.BACKOFF, Phase.WAITING) and one.start_at > now:
                due.append(one.start_at)
            if one.phase is Phase.STOPPING:
                due.append(one.kill_at)
            if one.phase in ALIVE and one.spec.probe and name not in self._probing:
                due.append(self._probe_at.get(name, now))
        return max(0.02, min(1.0, min(due) - now))

    def _write(self) -> None:
        components = [
            statefile.ComponentState(
                name=name,
                state=one.phase.value,
                pid=one.process.pid if one.process else None,
                started=one.process.started if one.process else 0,
                restarts=one.restarts,
                since=clock_text(self._clock, self._clock.monotonic() - one.changed_at),
                reason=one.reason,
                fingerprint=one.fingerprint,
                failures=one.failures,
                last_end=one.last_end,
            )
            for name, one in self._units.items()
        ]
        # Everything but the time, which would differ by rounding at every step.
        said = [(c.name, c.state, c.pid, c.restarts, c.reason, c.fingerprint) for c in components]
        if (said, self._me) != self._written:
            state = statefile.State(self._me, self._since, components)
            statefile.write(self._run / "state.json", state)
            self._written = (said, self._me)


def clock_text(source: clock.Clock, ago_s: float = 0.0) -> str:
    """A time for people."""
    return clock.rfc3339(source.now() - ago_s)


def exit_text(status: int) -> str:
    """How a child ended, in words."""
    code = os.waitstatus_to_exitcode(status)
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


def main(root: Path) -> int:
    """Supervise a root directory; 3 when another supervisor already does."""
    journal.configure()
    with (root / "run" / "supervisor.lock").open("w") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"a supervisor already runs for {root}", file=sys.stderr)
            return 3
        os.chdir(root)
        # Shims, orphaned on purpose by containerd, come to us and are collected when they end.
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        spawning.allow_many_files()
        asyncio.run(Supervisor(root).run())
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
