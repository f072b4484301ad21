"""Sends what was measured to a store that keeps it: Prometheus' remote-write.

    rounds ─► queue (bounded) ─► one request at a time, oldest first ─► 2xx: next
                                     └─ unreachable, 429, 5xx: wait, longer each time, and again

Invariant: rounds arrive in the order in which they were measured, and none is left out while the
receiver's silence is shorter than what the queue holds (two hours). Beyond that the oldest go, and
the journal says how many. What a receiver refuses for good (4xx) is not sent again.
"""

import asyncio
from array import array
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import aiohttp

from motley import __version__
from motley.lib import journal
from motley.lib.backoff import Backoff
from motley.lib.clock import SYSTEM, Clock
from motley.metrics import remotewrite_wire
from motley.metrics.export import Point

log = journal.get(__name__)

_TIMEOUT = aiohttp.ClientTimeout(total=30.0)  # Prometheus' remote_timeout
_MOST_POINTS = 2000  # per request: Prometheus' max_samples_per_send
_QUEUE_S = 7200.0
_LONGEST_WAIT_S = 30.0  # Prometheus' max_backoff is 5 s; ours outlasts a restart as well


@dataclass(frozen=True)
class Target:
    """Where to, and as whom."""

    url: str
    token_file: Path | None = None  # read for each request: tokens are renewed
    labels: tuple[tuple[str, str], ...] = ()  # on every series: which cluster it was


@dataclass
class Counts:
    """What became of the points so far."""

    sent: int = 0
    refused: int = 0
    dropped: int = 0


Name = tuple[str, tuple[tuple[str, str], ...]]
"""A series: its name and its labels."""


@dataclass
class _Batch:
    """A round. Who waits long holds many: names are shared with the round before, and a figure
    takes eight bytes."""

    names: list[Name]
    values: "array[float]"
    at: float

    def part(self, start: int) -> list[tuple[Point, float]]:
        """As much of it as one request takes."""
        chosen = slice(start, start + _MOST_POINTS)
        pairs = zip(self.names[chosen], self.values[chosen], strict=True)
        return [(Point(*name, value), self.at) for name, value in pairs]


@dataclass
class RemoteWrite:
    """A queue and its sender; `run` it until it is no longer needed."""

    target: Target
    every_s: float
    clock: Clock = SYSTEM
    rng: Random = field(default_factory=Random)
    counts: Counts = field(default_factory=Counts)

    def __post_init__(self) -> None:
        """Bounded: as many rounds as the promise of the module's docstring needs."""
        self._queue: deque[_Batch] = deque()
        self._most = max(1, int(_QUEUE_S / self.every_s))
        self._names: dict[Name, Name] = {}  # of the last round, while rounds wait
        self._filled = asyncio.Event()

    def take(self, points: Sequence[Point], at: float) -> None:
        """Queue a round."""
        if len(self._queue) >= self._most:
            dropped = self._queue.popleft()
            self.counts.dropped += len(dropped.names)
            log.warning("remote write lags: oldest round dropped", dropped=self.counts.dropped)
        names: list[Name] = [(point.name, point.labels) for point in points]
        if self._queue:  # the receiver is slow or silent
            names = [self._names.get(name, name) for name in names]
            self._names = {name: name for name in names}
        else:
            self._names = {}
        self._queue.append(_Batch(names, array("d", (point.value for point in points)), at))
        self._filled.set()

    @property
    def waiting(self) -> int:
        """How many rounds are queued."""
        return len(self._queue)

    async def run(self) -> None:
        """Send until cancelled."""
        async with aiohttp.ClientSession(timeout=_TIMEOUT) as session:
            while True:
                await self._filled.wait()
                while self._queue:
                    batch = self._queue[0]
                    await self._send(session, batch)
                    if self._queue and self._queue[0] is batch:  # else it was dropped meanwhile
                        self._queue.popleft()
                self._filled.clear()

    async def _send(self, session: aiohttp.ClientSession, batch: _Batch) -> None:
        backoff = Backoff(base_s=0.5, cap_s=_LONGEST_WAIT_S, rng=self.rng)
        for start in range(0, len(batch.names), _MOST_POINTS):
            listed = batch.part(start)
            body = await asyncio.to_thread(self._body, listed)
            while problem := await self._post(session, body, len(listed)):
                wait_s = backoff.next()
                log.info("remote write waits", error=problem, wait_s=round(wait_s, 1))
                await self.clock.sleep(wait_s)

    def _body(self, listed: list[tuple[Point, float]]) -> bytes:
        return remotewrite_wire.snappy(remotewrite_wire.request(listed, self.target.labels))

    async def _post(self, session: aiohttp.ClientSession, body: bytes, count: int) -> str:
        """Why it must be tried again; empty when the matter is settled."""
        headers = {
            "Content-Type": "application/x-protobuf",
            "Content-Encoding": "snappy",
            "X-Prometheus-Remote-Write-Version": "0.1.0",
            "User-Agent": f"motley/{__version__}",
        }
        try:
            if self.target.token_file is not None:
                token = await asyncio.to_thread(self.target.token_file.read_text)
                headers["Authorization"] = f"Bearer {token.strip()}"
            async with session.post(self.target.url, data=body, headers=headers) as answer:
                if answer.status < 300:
                    self.counts.sent += count
                    return ""
                said = (await answer.text(errors="replace"))[:200].strip()
                if answer.status == 429 or answer.status >= 500:
                    return f"status {answer.status}: {said}"
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return str(error) or repr(error)
        self.counts.refused += count
        log.warning("remote write refused", status=answer.status, error=said, points=count)
        return ""
