"""Simulated sandboxes and containers: no process, no namespace, only what a clock decides.

A container's end needs nobody to bring it about: whoever asks after its time finds it ended. So
ten thousand containers that run cost nothing.
Invariant: what `settle` has ended stays as it ended.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from motley.lib import durations
from motley.lib.clock import Clock, rfc3339_micro
from motley.node.cri.errors import RuntimeFailure, RuntimeNotFound
from motley.node.fakecri.stages import Run, Stage, Stages

KILLED = 137
ADDRESSES = "100.96.0.0/11"  # shared address space (RFC 6598): never mistaken for a real pod's


@dataclass(slots=True)
class Sandbox:
    """A pod's place."""

    id: str
    config: Any
    created_at: float
    address: str
    is_ready: bool = True


@dataclass(slots=True)
class Container:
    """One container, from its making to its removal."""

    id: str
    config: Any
    sandbox: Sandbox
    stage: Stage
    run: Run
    created_at: float
    started_at: float = 0.0
    finished_at: float = 0.0
    exit_code: int = 0
    reason: str = ""

    @property
    def is_running(self) -> bool:
        """Has it started and not ended?"""
        return bool(self.started_at) and not self.finished_at

    @property
    def ends_at(self) -> float | None:
        """When it will end by itself."""
        seconds = self.run.seconds
        return None if seconds is None or not self.is_running else self.started_at + seconds

    @property
    def log(self) -> Path | None:
        """Its log file."""
        directory, path = self.sandbox.config.log_directory, self.config.log_path
        return Path(directory) / path if directory and path else None


@dataclass(slots=True)
class Engine:
    """The state of one simulated machine."""

    stages: Stages
    clock: Clock
    sandboxes: dict[str, Sandbox] = field(default_factory=dict)
    containers: dict[str, Container] = field(default_factory=dict)
    images: dict[str, str] = field(default_factory=dict)  # reference -> id
    _made: int = 0
    _pulls: dict[str, int] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _happened: list[tuple[str, str]] = field(default_factory=list)

    async def _spend(self, duration: str) -> None:
        if seconds := durations.seconds(duration):
            await self.clock.sleep(seconds)

    def _id(self) -> str:
        self._made += 1
        return f"{self._made:064x}"

    # -- time

    def settle(self) -> None:
        """End what should have ended by now."""
        now = self.clock.now()
        for container in self.containers.values():
            ends_at = container.ends_at
            if ends_at is not None and ends_at <= now:
                self._end(container, ends_at, container.run.exit_code, container.run.reason)

    def _end(self, container: Container, at: float, code: int, reason: str = "") -> None:
        container.finished_at, container.exit_code = at, code
        container.reason = reason or ("Error" if code else "Completed")
        self._tell("/tasks/oom" if reason == "OOMKilled" else "/tasks/exit", container.id)

    def _tell(self, topic: str, runtime_id: str) -> None:
        self._happened.append((topic, runtime_id))
        del self._happened[:-10_000]
        self._changed.set()

    async def events(self) -> AsyncIterator[tuple[str, str]]:
        """(topic, id) as it happens, for one listener."""
        self._happened.clear()
        while True:
            self.settle()
            while self._happened:
                yield self._happened.pop(0)
            self._changed.clear()
            ends = [e for c in self.containers.values() if (e := c.ends_at) is not None]
            wait_s = max(0.0, min(ends) - self.clock.now()) if ends else None
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                continue

    # -- sandboxes

    async def run_sandbox(self, config: Any) -> str:
        """Make a pod's place."""
        await self._spend(self.stages.of(pod=config.metadata.name).sandbox)
        wanted = (config.metadata.uid, config.metadata.attempt)
        if any((s.config.metadata.uid, s.config.metadata.attempt) == wanted for s in self.all()):
            raise RuntimeFailure(f'sandbox name "{config.metadata.name}" is reserved')
        made = self._id()
        address = str(ip_network(ADDRESSES)[self._made])
        self.sandboxes[made] = Sandbox(made, config, self.clock.now(), address)
        if config.log_directory:
            Path(config.log_directory).mkdir(parents=True, exist_ok=True)
        self._changed.set()
        return made

    def all(self) -> list[Sandbox]:
        """Every sandbox."""
        return list(self.sandboxes.values())

    def sandbox(self, sandbox_id: str) -> Sandbox:
        """One sandbox. Raises RuntimeNotFound."""
        if sandbox_id not in self.sandboxes:
            raise RuntimeNotFound(f'sandbox "{sandbox_id}" not found')
        return self.sandboxes[sandbox_id]

    def stop_sandbox(self, sandbox_id: str) -> None:
        """End everything in it."""
        found = self.sandbox(sandbox_id)
        for container in self.containers.values():
            if container.sandbox is found and container.is_running:
                self._end(container, self.clock.now(), KILLED)
        if found.is_ready:
            found.is_ready = False
            self._tell("/tasks/exit", found.id)

    def remove_sandbox(self, sandbox_id: str) -> None:
        """Forget it and what is in it."""
        self.stop_sandbox(sandbox_id)
        found = self.sandboxes.pop(sandbox_id)
        self.containers = {k: c for k, c in self.containers.items() if c.sandbox is not found}

    # -- containers

    def container(self, container_id: str) -> Container:
        """One container. Raises RuntimeNotFound."""
        self.settle()
        if container_id not in self.containers:
            raise RuntimeNotFound(f'container "{container_id}" not found')
        return self.containers[container_id]

    async def create(self, sandbox_id: str, config: Any) -> str:
        """Make a container ready to start."""
        sandbox = self.sandbox(sandbox_id)
        stage = self.stages.of(
            pod=sandbox.config.metadata.name,
            container=config.metadata.name,
            image=self._named(config.image.image),
        )
        await self._spend(stage.create)
        made, run = self._id(), stage.run(config.metadata.attempt)
        now = self.clock.now()
        self.containers[made] = Container(made, config, sandbox, stage, run, now)
        return made

    def _named(self, image: str) -> str:
        """An image is used by its id; stages know it by its reference."""
        return next((ref for ref, image_id in self.images.items() if image_id == image), image)

    async def start(self, container_id: str) -> None:
        """Let it run."""
        container = self.container(container_id)
        await self._spend(container.stage.start)
        if container.run.error:
            raise RuntimeFailure(container.run.error)
        container.started_at = self.clock.now()
        self.reopen_log(container)
        self.say(container, container.stage.log)
        self._tell("/tasks/start", container.id)

    async def stop(self, container_id: str, grace_s: float) -> None:
        """Ask it to end; kill it when its grace is over."""
        container = self.container(container_id)
        if not container.is_running:
            return
        takes = durations.seconds(container.stage.stop)
        is_killed = takes > grace_s
        await self.clock.sleep(min(takes, grace_s))
        self.settle()
        if container.is_running:
            self._end(container, self.clock.now(), KILLED if is_killed else 0)

    def remove(self, container_id: str) -> None:
        """Forget it; a running one is refused."""
        if self.container(container_id).is_running:
            raise RuntimeFailure(f'container "{container_id}" is running')
        del self.containers[container_id]

    async def execute(self, container_id: str, command: list[str]) -> tuple[int, bytes]:
        """Run a command in it: exit code, output."""
        container = self.container(container_id)
        if not container.is_running:
            raise RuntimeFailure(f'container "{container_id}" is not running')
        since = self.clock.now() - container.started_at
        answer = container.stage.answer(" ".join(command), since)
        await self._spend(answer.takes)
        return answer.exit_code, answer.output.encode()

    # -- logs

    def reopen_log(self, container: Container) -> None:
        """Make the log file."""
        if container.log is not None:
            container.log.parent.mkdir(parents=True, exist_ok=True)
            container.log.touch()

    def say(self, container: Container, lines: list[str]) -> None:
        """Write lines to a container's log."""
        if container.log is None or not lines:
            return
        time = rfc3339_micro(self.clock.now())
        with container.log.open("a") as file:
            file.writelines(f"{time} stdout F {line}\n" for line in lines)

    # -- images

    async def pull(self, reference: str) -> str:
        """Fetch an image, or fail as often as it says."""
        stage = self.stages.of(image=reference)
        await self._spend(stage.pull)
        number = self._pulls.get(reference, 0)
        self._pulls[reference] = number + 1
        if number < len(stage.pull_errors):
            raise RuntimeFailure(stage.pull_errors[number])
        return self.images.setdefault(reference, f"sha256:{len(self.images) + 1:064x}")

    def image(self, wanted: str) -> tuple[str, str] | None:
        """(reference, id) by either."""
        pairs: Mapping[str, str] = self.images
        return next(((r, i) for r, i in pairs.items() if wanted in (r, i)), None)
