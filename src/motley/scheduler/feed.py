"""What the cluster tells the plugins: one informer per kind, shared by all profiles.

A plugin that decides by more than pods and nodes says so in `follow`: it asks for the informers it
needs and puts what they bring into its book. What nobody asks for is not read, so a scheduler
without volume plugins needs no right to read volumes.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

from motley.api import status
from motley.api.views.base import Object
from motley.client.informer import Informer
from motley.client.rest import Client
from motley.lib.clock import SYSTEM, Clock
from motley.scheduler.events import ClusterEvent

T = TypeVar("T", bound=Object)


class Feed:
    """The informers of one scheduler; `happened` tells its queue what may wake pods."""

    def __init__(
        self,
        client: Client,
        happened: Callable[[ClusterEvent], None],
        *,
        clock: Clock = SYSTEM,
    ) -> None:
        self.happened = happened
        self.informers: list[Informer[Any]] = []
        self._by_kind: dict[type[Object], Informer[Any]] = {}
        self._optional: set[type[Object]] = set()
        self._followed: set[Hashable] = set()
        self._client = client
        self._clock = clock

    def informer(self, cls: type[T], *, optional: bool = False) -> Informer[T]:
        """The informer of a kind. `optional`: the server may not know the kind (yet)."""
        informer: Informer[T] | None = self._by_kind.get(cls)
        if informer is None:
            informer = self._by_kind[cls] = Informer(self._client, cls, clock=self._clock)
            self.informers.append(informer)
            if optional:
                self._optional.add(cls)
        return informer

    def once(self, what: Hashable) -> bool:
        """True the first time: a book that several plugins read is filled by one of them."""
        if what in self._followed:
            return False
        self._followed.add(what)
        return True

    def release(self, claims: Iterable[Hashable]) -> None:
        """Whoever claimed these with `once` has gone."""
        self._followed.difference_update(claims)

    @property
    def has_synced(self) -> bool:
        """Is everything known that must be?"""
        return all(i.has_synced for i in self.informers if i.cls not in self._optional)

    async def synced(self) -> None:
        """Wait until every kind has been listed, but for those the server does not know."""
        for informer in list(self.informers):
            if informer.cls not in self._optional or await self._is_served(informer.cls):
                await informer.synced()

    async def _is_served(self, cls: type[Object]) -> bool:
        try:
            await self._client.list(cls, limit=1)
        except (status.NotFound, status.Forbidden):
            return False
        except status.ApiError:
            return True  # not now: the informer will find out
        return True
