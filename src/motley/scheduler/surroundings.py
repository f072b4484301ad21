"""Keeps the directory as the API has it: namespaces, and who selects pods.

Only what some plugin of a profile asks about is followed: a scheduler that never looks at
Services needs no right to read them.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from motley.api.selectors import Selector, SelectorError
from motley.api.views.apps import ReplicaSet
from motley.api.views.base import Key, LabelSelector
from motley.api.views.core import Namespace, Service
from motley.api.views.workloads import ReplicationController, StatefulSet
from motley.client.informer import Change, Informer
from motley.client.rest import Client
from motley.lib import journal
from motley.lib.clock import Clock
from motley.scheduler import directory
from motley.scheduler.directory import Directory
from motley.scheduler.plugins.inter_pod_affinity import InterPodAffinity
from motley.scheduler.plugins.pod_topology_spread import PodTopologySpread

log = journal.get(__name__)


def follow(
    client: Client, book: Directory, plugins: Iterable[Mapping[str, Any]], clock: Clock
) -> list[Informer[Any]]:
    """Informers that keep the book; `plugins`: those of each profile, by name."""
    informers: list[Informer[Any]] = []
    profiles = list(plugins)
    if any(InterPodAffinity.name in profile for profile in profiles):
        namespaces = Informer(client, Namespace, clock=clock)
        namespaces.add_handler(lambda change: _namespace(book, change))
        informers.append(namespaces)
    if any(
        profile[PodTopologySpread.name].asks_for_siblings
        for profile in profiles
        if PodTopologySpread.name in profile
    ):
        informers += _siblings(client, book, clock)
    return informers


def _siblings(client: Client, book: Directory, clock: Clock) -> list[Informer[Any]]:
    services = Informer(client, Service, clock=clock)
    old_controllers = Informer(client, ReplicationController, clock=clock)
    replica_sets = Informer(client, ReplicaSet, clock=clock)
    stateful_sets = Informer(client, StatefulSet, clock=clock)
    services.add_handler(
        lambda c: book.set_service(c.key, c.new.spec.selector if c.new is not None else None)
    )
    old_controllers.add_handler(
        lambda c: book.set_controller(
            directory.REPLICATION_CONTROLLER,
            c.key,
            Selector.of_map(c.new.spec.selector) if c.new is not None else None,
        )
    )
    replica_sets.add_handler(
        lambda c: book.set_controller(
            directory.REPLICA_SET, c.key, _selector(c.key, c.new.spec.selector) if c.new else None
        )
    )
    stateful_sets.add_handler(
        lambda c: book.set_controller(
            directory.STATEFUL_SET, c.key, _selector(c.key, c.new.spec.selector) if c.new else None
        )
    )
    return [services, old_controllers, replica_sets, stateful_sets]


def _namespace(book: Directory, change: Change[Namespace]) -> None:
    labels = change.new.metadata.labels if change.new is not None else None
    book.set_namespace(change.key.name, labels)


def _selector(key: Key, written: LabelSelector) -> Selector | None:
    try:
        return Selector.of(written)
    except SelectorError as error:
        log.warning("controller's selector not understood", key=key, error=str(error))
        return None
