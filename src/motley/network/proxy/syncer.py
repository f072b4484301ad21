"""Keeps the kernel's table equal to the plan: gathers changes, applies them, watches for drift.

Changes come in bursts (a rollout touches one slice many times), so a change waits a moment for
its neighbours. Whatever goes wrong, the rules in the kernel stay as they are until they can be
replaced whole; the next attempt starts from what the kernel really has.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from ipaddress import IPv4Network
from typing import Protocol

from motley.api.views.base import Key
from motley.api.views.core import EndpointSlice, Service
from motley.lib import clock as clocks
from motley.lib import journal
from motley.lib.backoff import Backoff
from motley.network import sysctl
from motley.network.proxy import conntrack, ruleset
from motley.network.proxy.endpoints import Surroundings
from motley.network.proxy.fragments import Fragment
from motley.network.proxy.layout import Settings
from motley.network.proxy.nftables import Nft, NftError
from motley.network.proxy.plan import Plan

log = journal.get(__name__)

_QUIET_S = 0.03
_LONGEST_WAIT_S = 1.0
_DRIFT_S = 30.0


class Source(Protocol):
    """Where the current Services are."""

    def keys(self) -> Iterable[Key]:
        """Every Service there is."""

    def service(self, key: Key) -> Service | None:
        """One Service, or None when it is gone."""

    def slices(self, key: Key) -> Sequence[EndpointSlice]:
        """The EndpointSlices of a Service."""


class Fragments(Protocol):
    """Where other parts of the table come from."""

    def take(self) -> Mapping[Key, Fragment]:
        """The fragments that changed since the last call."""


class Syncer:
    """`mark` Services that changed; `run` brings them into the kernel."""

    def __init__(
        self,
        nft: Nft,
        table: str,
        settings: Settings,
        source: Source,
        *,
        policies: Fragments | None = None,
        clock: clocks.Clock = clocks.SYSTEM,
        drift_s: float = _DRIFT_S,
    ) -> None:
        self._nft = nft
        self._table = table
        self._source = source
        self._policies = policies
        self._clock = clock
        self._drift_s = drift_s
        self._plan = Plan(settings)
        self._dirty: set[Key] = set()
        self._wake = asyncio.Event()
        self._generation: int | None = None
        self._first = True
        self.is_synced = False

    def mark(self, key: Key) -> None:
        """This Service or its endpoints changed."""
        self._dirty.add(key)
        self._wake.set()

    def mark_policies(self) -> None:
        """Something that the policies depend on changed."""
        self._wake.set()

    def surround(self, around: Surroundings, changed: Iterable[Key]) -> None:
        """The nodes are other than before, which matters to these Services."""
        self._plan.around = around
        for key in changed:
            self.mark(key)

    async def run(self) -> None:
        """Sync for ever. Start it when the source is complete, or Services would be taken away."""
        backoff = Backoff(base_s=0.1, cap_s=10.0)
        self._dirty.update(self._source.keys())
        while True:
            try:
                if self._generation is None or await self._nft.generation() != self._generation:
                    self._plan.adopt(await self._nft.read(self._table))
                await self.sync()
            except (NftError, OSError) as error:
                self.is_synced = False
                self._generation = None  # what the kernel has must be read again
                log.error("service rules are not applied", error=error, table=self._table)
                await self._clock.sleep(backoff.next())
                continue
            backoff.reset()
            await self._changed()

    async def sync(self) -> None:
        """One pass: take in what changed, apply it, forget flows that lead nowhere."""
        started = self._clock.monotonic()
        dirty, self._dirty = self._dirty, set()
        for key in dirty:
            self._plan.put(key, self._source.service(key), self._source.slices(key))
        if self._policies is not None:
            for owner, fragment in self._policies.take().items():
                self._plan.place(owner, fragment)
        changes = self._plan.changes()
        if changes:
            await self._nft.apply(ruleset.render(self._table, changes))
            self._generation = await self._nft.generation()
            took_ms = round((self._clock.monotonic() - started) * 1000, 1)
            log.info(
                "service rules applied",
                services=len(dirty),
                changes=changes.size,
                rebuilt=changes.rebuild,
                took_ms=took_ms,
            )
        elif self._generation is None:
            self._generation = await self._nft.generation()
        self._plan.commit(changes)
        await self._forget_flows()
        if self._first and self._plan.settings.localhost_node_ports:
            # Only now: the table keeps strangers away from loopback.
            sysctl.write("net.ipv4.conf.all.route_localnet", "1")
        self._first = False
        self.is_synced = True

    async def _forget_flows(self) -> None:
        left = self._plan.take_left()
        if left:
            count = await asyncio.to_thread(conntrack.forget_unanswered, left)
            if count:
                log.info("unanswered connections forgotten", flows=count)
        retired = self._plan.take_retired()
        if not retired and not self._first:
            return
        services = IPv4Network(self._plan.settings.service_cidr)
        current = self._plan.udp_routes()
        count = await asyncio.to_thread(conntrack.forget_stale, current, retired, services)
        if count:
            log.info("stale UDP flows forgotten", flows=count)

    async def _changed(self) -> None:
        """Wait for a change and then for quiet, or until it is time to look for drift."""
        try:
            async with asyncio.timeout(self._drift_s):
                await self._wake.wait()
        except TimeoutError:
            return
        deadline = self._clock.monotonic() + _LONGEST_WAIT_S
        while self._wake.is_set() and self._clock.monotonic() < deadline:
            self._wake.clear()
            await self._clock.sleep(_QUIET_S)
        self._wake.clear()
