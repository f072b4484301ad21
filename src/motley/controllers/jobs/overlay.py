"""Pods as this process knows them to be, ahead of its watch.

A pod whose finalizer was just taken off is counted; if the next pass saw it with its finalizer
in a cache that lags, it would count it again. A pod that was just deleted is on its way out,
whatever the cache says, and no replacement may be made for it where the Job waits for its end.
Invariant: `over` never shows the tracking finalizer on a released pod, nor a deleted pod as active.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from motley.api.views.pod import Pod
from motley.client.informer import Change, Informer
from motley.controllers.jobs.pods import TRACKING, is_tracked
from motley.lib import clock as clocks
from motley.lib.clock import SYSTEM, Clock

# Far longer than a watch lags. A pod that was gone before its event could come leaves an entry.
_FORGET_S = 120.0
_MANY = 4096


class Overlay:
    """Releases and deletions that the informer has not shown yet, by uid and time."""

    def __init__(self, informer: Informer[Pod], clock: Clock = SYSTEM) -> None:
        self._clock = clock
        self._released: dict[str, float] = {}
        self._deleted: dict[str, float] = {}
        informer.add_handler(self._seen)

    def _seen(self, change: Change[Pod]) -> None:
        uid, new = change.object.metadata.uid, change.new
        if new is None or not is_tracked(new):
            self._released.pop(uid, None)
        if new is None or new.metadata.deletion_timestamp is not None:
            self._deleted.pop(uid, None)

    def release(self, pod: Pod) -> None:
        """The pod's finalizer is about to be taken off."""
        self._released = self._note(self._released, pod)

    def keep(self, pod: Pod) -> None:
        """The finalizer could not be taken off after all."""
        self._released.pop(pod.metadata.uid, None)

    def delete(self, pod: Pod) -> None:
        """The server accepted the pod's deletion."""
        self._deleted = self._note(self._deleted, pod)

    def _note(self, notes: dict[str, float], pod: Pod) -> dict[str, float]:
        now = self._clock.now()
        if len(notes) > _MANY:
            notes = {uid: at for uid, at in notes.items() if now - at < _FORGET_S}
        notes[pod.metadata.uid] = now
        return notes

    def over(self, items: Iterable[Pod]) -> list[Pod]:
        """The pods, corrected."""
        return [self._corrected(pod) for pod in items]

    def _corrected(self, pod: Pod) -> Pod:
        meta = pod.metadata
        if meta.uid in self._released and is_tracked(pod):
            meta = replace(meta, finalizers=[f for f in meta.finalizers if f != TRACKING])
        if meta.uid in self._deleted and meta.deletion_timestamp is None:
            stamp = clocks.rfc3339(self._deleted[meta.uid])
            meta = replace(meta, deletion_timestamp=stamp)
        return pod if meta is pod.metadata else replace(pod, metadata=meta)
