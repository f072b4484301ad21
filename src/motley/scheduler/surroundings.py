"""Keeps the directory as the API has it: namespaces, and who selects pods.

Only what some plugin of a profile asks about is followed: a scheduler that never looks at
Services needs no right to read them.
"""

from motley.api.selectors import Selector, SelectorError
from motley.api.views.apps import ReplicaSet
from motley.api.views.base import Key, LabelSelector
from motley.api.views.core import Namespace, Service
from motley.api.views.workloads import ReplicationController, StatefulSet
from motley.client.informer import Change
from motley.lib import journal
from motley.scheduler import directory
from motley.scheduler.directory import Directory
from motley.scheduler.feed import Feed

log = journal.get(__name__)


def follow_namespaces(feed: Feed, book: Directory) -> None:
    """Keep the labels of namespaces known."""
    if feed.once("namespaces"):
        feed.informer(Namespace).add_handler(lambda change: _namespace(book, change))


def follow_siblings(feed: Feed, book: Directory) -> None:
    """Keep known whom Services and controllers select."""
    if not feed.once("siblings"):
        return
    feed.informer(Service).add_handler(
        lambda c: book.set_service(c.key, c.new.spec.selector if c.new is not None else None)
    )
    feed.informer(ReplicationController).add_handler(
        lambda c: book.set_controller(
            directory.REPLICATION_CONTROLLER,
            c.key,
            Selector.of_map(c.new.spec.selector) if c.new is not None else None,
        )
    )
    feed.informer(ReplicaSet).add_handler(
        lambda c: book.set_controller(
            directory.REPLICA_SET, c.key, _selector(c.key, c.new.spec.selector) if c.new else None
        )
    )
    feed.informer(StatefulSet).add_handler(
        lambda c: book.set_controller(
            directory.STATEFUL_SET, c.key, _selector(c.key, c.new.spec.selector) if c.new else None
        )
    )


def _namespace(book: Directory, change: Change[Namespace]) -> None:
    labels = change.new.metadata.labels if change.new is not None else None
    book.set_namespace(change.key.name, labels)


def _selector(key: Key, written: LabelSelector) -> Selector | None:
    try:
        return Selector.of(written)
    except SelectorError as error:
        log.warning("controller's selector not understood", key=key, error=str(error))
        return None
