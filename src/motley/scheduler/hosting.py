"""What plugins do besides answering: the objects they follow and their work in the background.

Plugins come and go while the scheduler runs, as users change theirs. One that goes is told
nothing more and its task ends; one that comes first gets to know all there is.

Invariant: every plugin at work has its handlers and its task; no other has.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar, cast

from motley.api.views.base import Object
from motley.client.informer import Change, Informer
from motley.client.rest import Client
from motley.lib import journal
from motley.lib.backoff import Backoff
from motley.lib.clock import SYSTEM, Clock
from motley.scheduler import contract
from motley.scheduler.events import ClusterEvent
from motley.scheduler.feed import Feed

log = journal.get(__name__)

_SYNC_TIMEOUT_S = 30.0

T = TypeVar("T", bound=Object)


class Hosting:
    """The plugins' informers and tasks; `run` it in a task group."""

    def __init__(self, client: Client, feed: Feed, *, clock: Clock = SYSTEM) -> None:
        self._client = client
        self._feed = feed
        self._clock = clock
        self._group: asyncio.TaskGroup | None = None
        self._started: set[int] = set()  # informers, by id: they stay
        self._guests: dict[int, _Guest] = {}  # by the plugin's id

    def adopt(self, plugin: Any) -> None:
        """Let a plugin follow what it wants, and work once the cluster is known."""
        if id(plugin) in self._guests:
            return
        guest = self._guests[id(plugin)] = _Guest(plugin, _OwnFeed(self._feed))
        if isinstance(plugin, contract.FollowsObjects):
            # A built-in plugin stays as long as the process.
            follows_for_good = not getattr(plugin, "is_guarded", False)
            plugin.follow(self._feed if follows_for_good else cast("Feed", guest.feed))
        if self._group is not None:
            self._start(self._group, guest)

    def release(self, plugin: Any) -> None:
        """Have a plugin told nothing more and its task ended."""
        guest = self._guests.pop(id(plugin), None)
        if guest is None:
            return
        guest.feed.close()
        if guest.task is not None:
            guest.task.cancel()

    async def known(self) -> None:
        """Wait until all that plugins follow has been read. Raises TimeoutError."""
        async with asyncio.timeout(_SYNC_TIMEOUT_S):
            await self._feed.synced()

    async def run(self) -> None:
        """Follow and work until cancelled."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                self._follow(group)
                for guest in list(self._guests.values()):
                    self._start(group, guest)
                await asyncio.Event().wait()
            finally:
                self._group = None

    def _follow(self, group: asyncio.TaskGroup) -> None:
        for informer in self._feed.informers:
            if id(informer) not in self._started:
                self._started.add(id(informer))
                group.create_task(informer.run())

    def _start(self, group: asyncio.TaskGroup, guest: "_Guest") -> None:
        self._follow(group)
        if isinstance(guest.plugin, contract.WorksInBackground):
            guest.task = group.create_task(self._background(guest.plugin))

    async def _background(self, plugin: contract.WorksInBackground) -> None:
        """Keep a plugin's own task going: what it raises is its own trouble."""
        await self._feed.synced()
        pauses = Backoff(base_s=1.0)
        while True:
            try:
                await plugin.background(self._client)
                return
            except Exception as error:
                name = getattr(plugin, "name", "")
                log.error("plugin failed", exc_info=error, plugin=name, point="background")
                await self._clock.sleep(pauses.next())


class _Guest:
    """A plugin at work."""

    __slots__ = ("feed", "plugin", "task")

    def __init__(self, plugin: Any, feed: "_OwnFeed") -> None:
        self.plugin = plugin
        self.feed = feed
        self.task: asyncio.Task[None] | None = None


class _OwnFeed:
    """The feed as a plugin sees it that may go again: what it began is ended with it."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._handlers: list[tuple[Informer[Any], Callable[[Change[Any]], None]]] = []
        self._claims: list[Hashable] = []

    def happened(self, event: ClusterEvent) -> None:
        """Wake the pods that the event may help."""
        self._feed.happened(event)

    def informer(self, cls: type[T], *, optional: bool = False) -> Informer[T]:
        """The informer of a kind; handlers added to it are removed when the plugin goes."""
        informer = self._feed.informer(cls, optional=optional)
        return cast("Informer[T]", _OwnInformer(informer, self._handlers))

    def once(self, what: Hashable) -> bool:
        """True for the first of the plugins at work that asks."""
        first = self._feed.once(what)
        if first:
            self._claims.append(what)
        return first

    @property
    def informers(self) -> Iterable[Informer[Any]]:
        """All of the scheduler's."""
        return self._feed.informers

    def close(self) -> None:
        """Remove the handlers, and let another plugin claim what this one did."""
        for informer, handler in self._handlers:
            informer.remove_handler(handler)
        self._feed.release(self._claims)


class _OwnInformer:
    """An informer that notes the handlers added through it."""

    def __init__(
        self,
        informer: Informer[Any],
        handlers: list[tuple[Informer[Any], Callable[[Change[Any]], None]]],
    ) -> None:
        self._informer = informer
        self._handlers = handlers

    def add_handler(self, handler: Callable[[Change[Any]], None]) -> None:
        """As the informer's own."""
        self._handlers.append((self._informer, handler))
        self._informer.add_handler(handler)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._informer, name)
