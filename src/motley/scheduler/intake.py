"""What the informers say of pods and nodes, carried into columns and queue.

A pod is placed, pending for one of our profiles, or of no concern; each change moves it between
these, and says what happened so that others may be woken.
"""

from typing import Protocol

from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.client.informer import Change
from motley.scheduler import events, resized
from motley.scheduler.columns import Columns
from motley.scheduler.podinfo import PodInfos, identity
from motley.scheduler.preempting import Preempting
from motley.scheduler.queue import Queue


class Told(Protocol):
    """Who is told what the changes mean."""

    def happened(self, event: events.ClusterEvent) -> None:
        """Something that may make an unschedulable pod schedulable."""

    def arrived(self) -> None:
        """There is a pod to try."""

    def settled(self, uid: str) -> None:
        """The pod is placed or gone: nothing is assumed or written of it any more."""


class Intake:
    """The handlers of the pod and node informers."""

    def __init__(
        self,
        nodes: Columns,
        queue: Queue,
        infos: PodInfos,
        preempting: Preempting,
        scheduler: Told,
    ) -> None:
        self._nodes = nodes
        self._queue = queue
        self._infos = infos
        self._preempting = preempting
        self._scheduler = scheduler

    def node_changed(self, change: Change[Node]) -> None:
        """A node came, changed or went."""
        if change.new is None:
            if self._nodes.remove_node(change.key.name):
                self._scheduler.happened(events.NodeRemoved(change.key.name))
            return
        difference = self._nodes.set_node(change.new)
        if difference is None:
            self._scheduler.happened(events.NodeAdded(change.new))
            return
        for event in events.of_node(difference, change.new):
            self._scheduler.happened(event)

    def pod_changed(self, change: Change[Pod]) -> None:
        """A pod came, changed or went."""
        old, new = change.old, change.new
        if old is not None and (new is None or identity(old) != identity(new)):
            self._pod_gone(identity(old))
        if new is None:
            return
        if new.is_terminal:
            self._pod_gone(identity(new))
        elif new.spec.node_name:
            self._pod_placed(old, new)
        elif not is_pending(new):
            self._queue.remove(identity(new))
            self._scheduler.settled(identity(new))
            self._preempting.gone(identity(new))
        elif new.spec.scheduler_name in self._queue.profiles:
            self._pod_pending(old, new)

    def _pod_gone(self, uid: str) -> None:
        self._queue.remove(uid)
        self._scheduler.settled(uid)
        self._preempting.gone(uid)
        placed = self._nodes.remove_pod(uid)
        if placed is not None:
            self._scheduler.happened(events.PodDeleted(placed.info, placed.node))

    def _pod_placed(self, old: Pod | None, new: Pod) -> None:
        uid = identity(new)
        if old is not None and old.status.start_time != new.status.start_time:
            self._nodes.touch(new.spec.node_name)
        # Most updates are statuses; comparing is cheaper than computing everything again.
        if (
            old is not None
            and old.spec == new.spec
            and old.metadata.labels == new.metadata.labels
            and old.metadata.deletion_timestamp == new.metadata.deletion_timestamp
            and uid in self._nodes.placed
            and resized.as_counted(old) is old
            and resized.as_counted(new) is new
        ):
            self._nodes.placed[uid].info.pod = new
            return
        info = self._infos.of(new)
        known = self._nodes.placed.get(uid)
        is_news = known is None or known.assumed
        is_other = known is not None and known.info.template != info.template
        self._nodes.add_pod(info, new.spec.node_name)
        self._preempting.gone(uid)
        self._queue.remove(uid)
        self._scheduler.settled(uid)
        if is_news:
            self._scheduler.happened(events.PodAdded(info, new.spec.node_name))
        elif is_other:
            self._scheduler.happened(events.PodUpdated(info, new.spec.node_name))

    def _pod_pending(self, old: Pod | None, new: Pod) -> None:
        if identity(new) in self._nodes.placed:
            return  # assumed: its binding is under way
        info = self._infos.of(new)
        self._preempting.follow(old, new, info)
        self._queue.add(info)
        self._scheduler.arrived()


def is_pending(pod: Pod) -> bool:
    """Does the pod wait for a node?"""
    return not pod.spec.node_name and not pod.is_terminal and not pod.metadata.deletion_timestamp
