"""A cluster's processes as a command sees them: through the supervisor's files and signals."""

import fcntl
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from motley.lib import clock
from motley.ops import processes, spawning, statefile
from motley.ops.config import Config
from motley.ops.failure import Failure
from motley.ops.statefile import State
from motley.ops.supervision import Spec

READY_S = 120.0
POLL_S = 0.05
_LOG_LINES = 15
_TRIES = 3  # a component that ended this often while we waited will not come up by waiting


class Cluster:
    """The supervised processes of one root directory, seen from a command."""

    def __init__(self, config: Config, source: clock.Clock = clock.SYSTEM) -> None:
        self.config = config
        self._clock = source

    @property
    def state(self) -> State:
        """What the supervisor last wrote."""
        return statefile.read_state(self.config.run / "state.json")

    @property
    def specs(self) -> list[Spec]:
        """What it was last asked for."""
        return statefile.read_specs(self.config.run / "components.json")

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Only one `up` or `down` at a time."""
        self.config.run.mkdir(parents=True, exist_ok=True)
        with (self.config.run / "command.lock").open("w") as held:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Failure(
                    f"another motley up or down works on {self.config.root}",
                    "Wait for it to end, then try again.",
                ) from None
            yield

    def supervise(self, specs: Sequence[Spec]) -> None:
        """Have exactly these components kept running."""
        self.config.logs.mkdir(parents=True, exist_ok=True)
        statefile.write(self.config.run / "components.json", list(specs))
        state = self.state
        if state.is_supervised and state.supervisor:
            processes.send(state.supervisor, signal.SIGHUP)
            return
        inside = ("nsenter", f"--net=/run/netns/{name}") if (name := self.config.namespace) else ()
        spawning.launch(
            (*inside, sys.executable, "-P", "-m", "motley.ops.supervisor", str(self.config.root)),
            root=self.config.root,
            component="supervisor",
            log=self.config.logs / "supervisor.log",
        )

    def replace_supervisor(self) -> None:
        """End the supervisor and leave its components; the next `supervise` starts a successor."""
        supervisor = self.state.supervisor
        if supervisor and processes.send(supervisor, signal.SIGUSR1):
            processes.wait(supervisor, 10.0)

    async def wait_ready(self, spec: Spec, timeout_s: float = READY_S) -> None:
        """Wait until a component runs as asked; a Failure shows the end of its log."""
        wanted = spec.fingerprint()
        deadline = self._clock.monotonic() + timeout_s
        before: int | None = None
        while self._clock.monotonic() < deadline:
            state = self.state
            component = state.component(spec.name) if state.is_supervised else None
            if component is not None:
                if component.state == "running" and component.fingerprint == wanted:
                    return
                before = component.restarts if before is None else before
                if component.restarts - before >= _TRIES:
                    raise self._failed(spec.name, f"ends again and again ({component.reason})")
            await self._clock.sleep(POLL_S)
        supervised = self.state.is_supervised
        name = spec.name if supervised else "supervisor"
        raise self._failed(name, f"is not ready after {timeout_s:.0f} s")

    def _failed(self, name: str, text: str) -> Failure:
        log = self.config.logs / f"{name}.log"
        lines = tail(log, _LOG_LINES)
        shown = "\n".join(["The last lines of its log:", *(f"  {line}" for line in lines)])
        return Failure(f"{name} {text}", f"{shown}\nAll of it: {log}")

    async def wait_gone(self, keep: set[str], timeout_s: float = 60.0) -> bool:
        """Wait until no component but those to keep has a process."""
        deadline = self._clock.monotonic() + timeout_s
        while self._clock.monotonic() < deadline:
            state = self.state
            left = {c.name for c in state.components if c.process} - keep
            if state.is_supervised and not left:
                return True
            await self._clock.sleep(POLL_S)
        return False


def tail(path: Path, count: int) -> list[str]:
    """The last lines of a file; none when there is no such file."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 64 * 1024))
            return file.read().decode(errors="replace").splitlines()[-count:]
    except FileNotFoundError:
        return []
