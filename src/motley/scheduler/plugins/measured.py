"""What nodes really use, fetched in the background and kept for the scorers.

Two sources: a Prometheus with a pre-aggregated series of percentages per node, whose label `node`
is the node's name, or the cluster's own `metrics.k8s.io`. Scheduling only ever reads what was
fetched last. A source that fails is asked again with growing pauses; a value that was not renewed
for a while is forgotten rather than believed.

A measurement is an average over its window and so knows little of pods that were placed within it.
What they ask for is the difference between what is requested now and what was requested on average
over the same window; `Requested` keeps that average as a column. Of what nobody can request, such
as HTTP requests, the pods themselves are counted.
"""

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import aiohttp
import msgspec
import numpy as np

from motley.api import quantity
from motley.client.rest import Client
from motley.lib import clock
from motley.scheduler.columns import CPU_ROW, MEMORY_ROW, PODS_ROW
from motley.scheduler.contract import Columns, Scores

_NODES = "/apis/metrics.k8s.io/v1beta1/nodes"
_ANSWER_MAX = 64 << 20
_STEPS = 10  # in which the time before the first answer is told


class SourceError(Exception):
    """The source did not answer, or not with measurements."""


class Source(Protocol):
    """Where measurements come from."""

    async def fetch(self) -> Mapping[str, float]:
        """By node. Raises SourceError, ApiError, OSError, TimeoutError."""


class _Series(msgspec.Struct):
    metric: dict[str, str]
    value: tuple[float, str]


class _Data(msgspec.Struct, rename="camel"):
    result_type: str = ""
    result: list[_Series] = msgspec.field(default_factory=list)


class _Answer(msgspec.Struct, rename="camel"):
    status: str
    data: _Data = msgspec.field(default_factory=_Data)
    error: str = ""


_decode = msgspec.json.Decoder(_Answer).decode


def parse(body: bytes) -> dict[str, float]:
    """The instant vector in Prometheus' answer, by node. Raises SourceError.

    Series without the label `node` belong to nobody; of several series of a node the highest
    counts.
    """
    try:
        answer = _decode(body)
        found: dict[str, float] = {}
        for series in answer.data.result:
            node, value = series.metric.get("node", ""), float(series.value[1])
            if node and math.isfinite(value):
                found[node] = max(value, found.get(node, 0.0))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise SourceError(f"not an answer of Prometheus: {error}") from error
    if answer.status != "success":
        raise SourceError(f"Prometheus says: {answer.error or answer.status}")
    return found


@dataclass(frozen=True)
class Prometheus:
    """A series of percentages in a Prometheus."""

    session: aiohttp.ClientSession
    address: str
    metric: str
    timeout_s: float

    async def fetch(self) -> Mapping[str, float]:
        """Ask for the series as it is now."""
        url = f"{self.address.rstrip('/')}/api/v1/query"
        params = {"query": self.metric, "timeout": f"{self.timeout_s:g}s"}
        patience = aiohttp.ClientTimeout(total=self.timeout_s)
        try:
            async with self.session.get(url, params=params, timeout=patience) as answer:
                body = bytearray()
                async for chunk in answer.content.iter_chunked(1 << 16):
                    body += chunk
                    if len(body) > _ANSWER_MAX:
                        raise SourceError(f"the answer is longer than {_ANSWER_MAX} bytes")
        except aiohttp.InvalidURL:
            # Not as it is written: there may be a password in it.
            raise SourceError("the address of Prometheus is no URL that can be asked") from None
        except (aiohttp.ClientError, ValueError) as error:  # ValueError: a name that is none
            raise SourceError(f"{type(error).__name__}: {error}") from error
        return parse(bytes(body))


@dataclass(frozen=True)
class ResourceMetrics:
    """`metrics.k8s.io`, asked through the API server: amounts as the columns count them."""

    client: Client
    resource: str

    async def fetch(self) -> Mapping[str, float]:
        """The last measurement of every node."""
        document: Any = await self.client.raw("GET", _NODES)
        try:
            return {
                item["metadata"]["name"]: self._amount(item["usage"][self.resource])
                for item in document["items"] or ()
                if self.resource in item["usage"]
            }
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise SourceError(f"not a list of NodeMetrics: {error!r}") from error

    def _amount(self, text: str) -> float:
        amount = quantity.parse(text)
        return float(amount * 1000 if self.resource == "cpu" else amount)


class _Measured(NamedTuple):
    value: float
    at: float


@dataclass
class Measurements:
    """The last value of every node, and its column."""

    stale_s: float
    is_percent: bool = True
    _values: dict[str, _Measured] = field(default_factory=dict)
    _column: Scores = field(default_factory=lambda: np.zeros(0))
    _amounts: Scores = field(default_factory=lambda: np.zeros(0))
    _made_for: tuple[int, int] = (-1, -1)
    _placed_for: tuple[int, int] = (-1, -1)
    _taken: int = 0
    _good_until: float = -math.inf
    _last_at: float = -math.inf

    def take(self, values: Mapping[str, float], now: float) -> None:
        """A source has answered; nodes it left out keep their value until that is stale."""
        kept = {n: m for n, m in self._values.items() if now - m.at <= self.stale_s}
        self._values = kept | {n: _Measured(v, now) for n, v in values.items()}
        self._taken += 1
        if values:
            self._last_at = now

    def age_s(self, now: float) -> float | None:
        """How long ago the source answered last; None: never, or too long ago."""
        age_s = now - self._last_at
        return age_s if age_s <= self.stale_s else None

    def percent(self, nodes: Columns, resource: int, now: float) -> Scores:
        """By row: percent in use; NaN where nothing is known, or nothing recent."""
        is_old = now > self._good_until
        if is_old or self._placed_for != (self._taken, nodes.seating):
            self._amounts = self._dense(nodes, now)
            self._placed_for = (self._taken, nodes.seating)
        elif self._made_for == (self._taken, nodes.generation):
            return self._column
        self._made_for = (self._taken, nodes.generation)
        self._column = self._amounts if self.is_percent else self._shares(nodes, resource)
        return self._column

    def _shares(self, nodes: Columns, resource: int) -> Scores:
        with np.errstate(divide="ignore", invalid="ignore"):
            column: Scores = self._amounts * 100 / nodes.reported[resource]
        column[~np.isfinite(column)] = np.nan
        return column

    def _dense(self, nodes: Columns, now: float) -> Scores:
        """Once per answer or node that comes or goes: never per decision."""
        known = [
            (nodes.rows[n], m) for n, m in self._values.items()
            if n in nodes.rows and now - m.at <= self.stale_s
        ]  # fmt: skip
        self._good_until = min((m.at for _, m in known), default=math.inf) + self.stale_s
        column = np.full(nodes.size, np.nan)
        column[[row for row, _ in known]] = [m.value for _, m in known]
        return column


class Requested:
    """What was requested of nodes on average over a window, from snapshots at every answer.

    `resource` is CPU or memory; `PODS_ROW` counts pods.
    """

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._snapshots: deque[tuple[float, Scores]] = deque()
        self._names: list[str] = []
        self._seating = -1
        self._mean = np.zeros(0)

    def snapshot(self, nodes: Columns, resource: int, now: float, wall: float) -> None:
        """Remember what is requested now; the measurement taken at this moment knows of it.
        `wall`: the time of day."""
        self._follow(nodes, resource)
        if not self._snapshots:
            self._snapshots.extend(self._before(nodes, resource, now, wall))
        self._snapshots.append((now, _asked(nodes, resource).copy()))
        # The oldest one stands for all the time before it, up to the length of the window.
        while len(self._snapshots) > 1 and now - self._snapshots[1][0] >= self._window_s:
            self._snapshots.popleft()
        times = np.array([at for at, _ in self._snapshots])
        lasted = np.diff(times, append=now)
        lasted[0] += self._window_s - (now - times[0])
        self._mean = np.average([s for _, s in self._snapshots], axis=0, weights=lasted)

    def unseen(self, nodes: Columns, resource: int) -> Scores:
        """By row: what pods ask for that the measurements do not show yet."""
        self._follow(nodes, resource)
        grown: Scores = np.maximum(_asked(nodes, resource) - self._mean, 0.0)
        return grown

    def _before(
        self, nodes: Columns, resource: int, now: float, wall: float
    ) -> Iterator[tuple[float, Scores]]:
        """What was requested within the window before the first answer: a scheduler that takes
        over in the middle of a burst must not believe that all of it is measured."""
        young = _young(nodes, resource, wall, self._window_s)
        step_s = self._window_s / _STEPS
        for age_s in (step * step_s for step in range(_STEPS, 0, -1)) if young else ():
            asked = _asked(nodes, resource).copy()
            for row, amount, placed_s in young:
                if placed_s < age_s:
                    asked[row] -= amount
            yield now - age_s, asked

    def _follow(self, nodes: Columns, resource: int) -> None:
        """Rows that are other nodes now begin with what is requested of them at this moment."""
        if self._seating == nodes.seating:
            return
        self._seating = nodes.seating
        now = _asked(nodes, resource)
        before = self._names + [""] * (len(nodes.names) - len(self._names))
        others = np.array(before) != np.array(nodes.names)
        self._mean = _extended(self._mean, now, others)
        self._snapshots = deque((at, _extended(s, now, others)) for at, s in self._snapshots)
        self._names = list(nodes.names)


def _asked(nodes: Columns, resource: int) -> Scores:
    column: Scores = (nodes.requested if resource == PODS_ROW else nodes.nonzero)[resource]
    return column


def _young(
    nodes: Columns, resource: int, wall: float, window_s: float
) -> list[tuple[int, float, float]]:
    """Of pods that began within the window: row, what each counts for, and for how long it has.

    The API's times of day are compared as texts first: most pods are old, and there are many.
    """
    begin, found = clock.rfc3339(wall - window_s), []
    for placed in nodes.placed.values():
        info, row = placed.info, nodes.rows.get(placed.node)
        started = info.pod.status.start_time
        if row is None or (started is not None and started <= begin):
            continue
        # One that its node has not taken up yet was placed not long after it was made.
        begun = clock.parse_rfc3339(started) if started is not None else info.created
        age_s = wall - begun
        if age_s >= window_s:
            continue
        asked = {CPU_ROW: info.nonzero_cpu, MEMORY_ROW: info.nonzero_memory}
        found.append((row, float(asked.get(resource, 1)), age_s))
    return found


def _extended(old: Scores, now: Scores, others: Any) -> Scores:
    grown = np.concatenate([old, np.zeros(len(now) - len(old))])
    return np.where(others, now, grown)
