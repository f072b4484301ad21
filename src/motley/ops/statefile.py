"""What the supervisor tells everybody else: two small files in ROOT/run.

`components.json` is what `motley up` asks for, `state.json` is what there is. Both appear whole or
not at all, so a reader never needs a lock, and a supervisor that comes after a killed one finds the
processes it has to take over.
"""

from pathlib import Path

import msgspec

from motley.ops.processes import Process
from motley.ops.supervision import Spec


class ComponentState(msgspec.Struct, omit_defaults=True):
    """One component, as `motley status` shows it."""

    name: str
    state: str
    pid: int | None = None
    started: int = 0  # kernel ticks: with the pid, the process's identity
    restarts: int = 0
    since: str = ""
    reason: str = ""
    fingerprint: str = ""
    failures: int = 0  # how often in a row it ended before it had stood for a while
    last_end: str = ""  # how, the last time

    @property
    def process(self) -> Process | None:
        """Its process, if it is still that one."""
        process = Process(self.pid, self.started) if self.pid else None
        return process if process and process.is_alive else None


class State(msgspec.Struct):
    """The whole cluster on this machine."""

    supervisor: Process | None = None
    since: str = ""
    components: list[ComponentState] = []

    @property
    def is_supervised(self) -> bool:
        """Is the supervisor that wrote this alive?"""
        return self.supervisor is not None and self.supervisor.is_alive

    def component(self, name: str) -> ComponentState | None:
        """One component by name."""
        return next((c for c in self.components if c.name == name), None)


def _encode(value: object) -> bytes:
    return msgspec.json.encode(value, enc_hook=str)  # paths


def write(path: Path, value: object) -> None:
    """Replace a file as a whole."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_bytes(msgspec.json.format(_encode(value), indent=1))
    partial.replace(path)


def read_state(path: Path) -> State:
    """The state file; an empty state when there is none or it cannot be read."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=State)
    except (FileNotFoundError, msgspec.MsgspecError):
        return State()


def read_specs(path: Path) -> list[Spec]:
    """The components asked for; none when nobody has asked."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=list[Spec])
    except FileNotFoundError:
        return []
