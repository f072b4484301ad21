"""Keeps what was measured, round by round: on disk, for a scrape, and for a remote store.

The figures come from whoever measures or asks: the API server's collector, or a follower of
`metrics.k8s.io`. What becomes of them is the same for both.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from motley.lib import journal
from motley.metrics import export, history_rollup
from motley.metrics.history import History, Series
from motley.metrics.history_ring import DEFAULT_SERIES, Ring
from motley.metrics.history_rollup import Facts, Pods
from motley.metrics.remotewrite import RemoteWrite
from motley.metrics.usage import Use

log = journal.get(__name__)


class Keeper:
    """`run` it for as long as rounds are to be taken; `history` is None before and after."""

    def __init__(
        self,
        path: Path | None,
        series: int = DEFAULT_SERIES,
        remote: RemoteWrite | None = None,
    ) -> None:
        """Without a path the past is in memory, and gone with the process."""
        self._path, self._series = path, series
        self._remote = remote
        self.history: History | None = None
        self.points: list[export.Point] = []
        self.at = 0.0

    async def run(self) -> None:
        """Open the ring, and send to the remote store until cancelled."""
        try:
            ring = await asyncio.to_thread(_opened, self._path, self._series)
        except OSError as error:
            log.error("usage history is kept in memory only", error=str(error))
            ring = _opened(None, self._series)
        if ring.torn:
            log.warning("usage history had torn records", count=ring.torn)
        self.history = History(ring)
        try:
            if self._remote is not None:
                await self._remote.run()
            await asyncio.get_running_loop().create_future()
        finally:
            self.history.close()
            self.history = None

    def take(
        self,
        now: float,
        nodes: Mapping[str, Use],
        pods: Pods,
        facts: Facts,
        speeds: Mapping[str, float],
    ) -> None:
        """Write one round down."""
        samples = history_rollup.samples(nodes, pods, facts, speeds)
        self.points, self.at = list(export.points(samples, facts, speeds)), now
        if self.history is not None:
            try:
                self.history.write(now, samples)
            except OSError as error:
                log.error("usage history not written", error=str(error))
        if self._remote is not None:
            self._remote.take(self.points, now)

    def text(self) -> str:
        """The figures of the last round, for a Prometheus."""
        return export.text(self.points, self.at)


def _opened(path: Path | None, series: int) -> Ring:
    return Ring(path, series, matters_less=Series.matters_less)
