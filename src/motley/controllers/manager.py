"""All controllers in one process: shared informers, a queue and workers for each.

    client ─ list+watch ─► informers (one per kind) ─ handlers ─► queues ─► workers ─► reconcile

The informers start at once, so that a standby is warm; the workers start when all informers have
synced and this process leads.
Invariant: one kind is watched once, however many controllers read it.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from motley.api.views.base import Object
from motley.client.events import Recorder
from motley.client.informer import Informer
from motley.client.lease import LeaderElection
from motley.client.rest import Client
from motley.client.workqueue import WorkQueue
from motley.controllers.metrics import Meters, NoMeters
from motley.controllers.reconciler import Requeue, work
from motley.lib import journal
from motley.lib.clock import SYSTEM, Clock

log = journal.get(__name__)

T = TypeVar("T", bound=Object)


class Informers:
    """One informer per kind and namespace, shared by whoever asks."""

    def __init__(self, client: Client, clock: Clock = SYSTEM) -> None:
        self._client = client
        self._clock = clock
        self._shared: dict[tuple[type[Object], str], Informer[Any]] = {}

    def of(self, cls: type[T], namespace: str = "") -> Informer[T]:
        """The informer of a kind; made at the first call, run by the manager."""
        found = self._shared.get((cls, namespace))
        if found is None:
            found = Informer(self._client, cls, namespace=namespace, clock=self._clock)
            self._shared[cls, namespace] = found
        return found

    def all(self) -> list[Informer[Any]]:
        """Every informer asked for so far."""
        return list(self._shared.values())

    def has_synced(self) -> bool:
        """Have all delivered their first list?"""
        return all(informer.has_synced for informer in self._shared.values())


@dataclass(frozen=True)
class Context:
    """What every controller is given."""

    client: Client
    informers: Informers
    recorder: Recorder
    clock: Clock = field(default=SYSTEM)


class Controller(Protocol):
    """A reconciler with its queue; made with a `Context`, it registers its own handlers."""

    name: str
    workers: int
    queue: WorkQueue[Any]

    async def reconcile(self, key: Any) -> Requeue | None:
        """See `reconciler.Reconciler`."""


class Service(Protocol):
    """Something that runs beside the workers while this process leads (the garbage collector's
    discovery, say)."""

    async def run(self) -> None:
        """Run until cancelled."""


class Manager:
    """Runs controllers over one client."""

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock = SYSTEM,
        election: LeaderElection | None = None,
        meters: Meters | None = None,
    ) -> None:
        self._meters = meters or NoMeters()
        self.context = Context(
            client,
            Informers(client, clock),
            Recorder(client, "motley-controllers", clock=clock),
            clock,
        )
        self._election = election
        self._controllers: list[Controller] = []
        self._services: list[Service] = []

    def add(self, factory: Callable[[Context], Controller]) -> None:
        """Add a controller; one that also has `run` is a service too."""
        controller = factory(self.context)
        self._controllers.append(controller)
        self._meters.attach(controller.name, controller.queue)
        if callable(getattr(controller, "run", None)):
            self._services.append(controller)  # type: ignore[arg-type]

    def serve(self, service: Service) -> None:
        """Run something else beside the workers, that controllers rely on."""
        self._services.append(service)

    def add_all(self, factories: Iterable[Callable[[Context], Controller]]) -> None:
        """Add several."""
        for factory in factories:
            self.add(factory)

    def is_ready(self) -> bool:
        """Are the informers synced? A standby is ready as well."""
        return self.context.informers.has_synced()

    async def run(self) -> None:
        """Run until cancelled; raises LostLeadership when another process took over."""
        async with asyncio.TaskGroup() as group:
            watching = [group.create_task(i.run()) for i in self.context.informers.all()]
            recording = group.create_task(self.context.recorder.run())
            if self._election is None:
                await self._work()
            else:
                await self._election.lead(self._work)
            for task in (*watching, recording):
                task.cancel()

    async def _work(self) -> None:
        for informer in self.context.informers.all():
            await informer.synced()
        log.info("controllers started", controllers=len(self._controllers))
        async with asyncio.TaskGroup() as group:
            for controller in self._controllers:
                group.create_task(
                    work(controller, controller.queue, controller.workers, self._meters)
                )
            for service in self._services:
                group.create_task(service.run())
