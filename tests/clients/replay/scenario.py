"""Scenarios as they are recorded: one JSON document a line, one file an area."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec


class Request(msgspec.Struct, frozen=True):
    """What is sent. At most one of the three bodies is there."""

    method: str
    path: str
    headers: dict[str, str] = {}
    user: str = "admin"
    body: Any = msgspec.UNSET
    rawBody: str | None = None
    bodyGenerated: dict[str, Any] | None = None

    def payload(self) -> str | None:
        """The body as text, with its variables still in it."""
        if self.body is not msgspec.UNSET:
            return msgspec.json.encode(self.body).decode()
        if self.bodyGenerated is not None:
            parts = self.bodyGenerated
            repeated = parts["repeat"] * parts["count"]
            return f"{parts.get('prefix', '')}{repeated}{parts.get('suffix', '')}"
        return self.rawBody


class Response(msgspec.Struct, frozen=True):
    """What was answered: a JSON body, a text, the first bytes of something binary, or events."""

    status: int
    contentType: str | None = None
    warnings: tuple[str, ...] = ()
    headers: dict[str, str] = {}
    body: Any = msgspec.UNSET
    text: str | None = None
    binaryPrefix: str | None = None
    events: list[dict[str, Any]] | None = None
    serverEnded: bool | None = None


class RetryUntil(msgspec.Struct, frozen=True):
    """When a repeated request has succeeded."""

    status: int | None = None
    contains: str | None = None
    notContains: str | None = None

    def is_met(self, status: int, text: str) -> bool:
        """Whether this answer is the one waited for."""
        if self.status is not None and status != self.status:
            return False
        if self.contains is not None and self.contains not in text:
            return False
        return self.notContains is None or self.notContains not in text


class WaitFor(msgspec.Struct, frozen=True):
    """When enough of a watch was seen; `events` None is until the server ends it."""

    events: int | None = None
    timeoutSeconds: float = 8.0


class Step(msgspec.Struct, frozen=True):
    """One of: a request, a pause, the opening of a watch, its collection, a compaction."""

    id: str
    purpose: str = ""
    request: Request | None = None
    response: Response | None = None
    capture: dict[str, str] = {}
    retryUntil: RetryUntil | None = None
    thenDelete: bool = False
    unstable: tuple[str, ...] = ()
    sleepSeconds: float | None = None
    watchOpen: str | None = None
    watchCollect: str | None = None
    waitFor: WaitFor = WaitFor()
    compact: bool = False


class Scenario(msgspec.Struct, frozen=True):
    """Steps in order, in a namespace of their own."""

    scenario: str
    area: str
    steps: tuple[Step, ...]
    purpose: str = ""
    namespace: bool = True
    namespaceLabels: dict[str, str] = {}

    @property
    def compacts(self) -> bool:
        """Whether it needs a way to compact the store."""
        return any(step.compact for step in self.steps)


_decode = msgspec.json.Decoder(Scenario).decode


def load(path: Path) -> list[Scenario]:
    """The scenarios of one file."""
    return [_decode(line) for line in path.read_bytes().splitlines() if line.strip()]


def load_all(directory: Path) -> list[Scenario]:
    """Every scenario of a directory: `setup` first, then `discovery` (which expects a server that
    nobody has defined resources on), then the rest by name."""
    order = {"setup": 0, "discovery": 1}
    found = [one for path in sorted(directory.glob("*.jsonl")) for one in load(path)]
    return sorted(found, key=lambda one: order.get(one.area, 2))


def chosen(
    scenarios: Iterable[Scenario], areas: Sequence[str], names: Sequence[str]
) -> list[Scenario]:
    """The scenarios of these areas or of these names; all without either. Setup always."""
    return [
        one
        for one in scenarios
        if one.area == "setup"
        or not (areas or names)
        or one.area in areas
        or any(one.scenario == name or one.scenario.startswith(name + "/") for name in names)
    ]
