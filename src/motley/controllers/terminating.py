"""Deletions the server accepted and the watch has not shown yet.

A pod that is being deleted still holds its name and its place on the node. A controller that waits
for it to be gone must neither delete it again nor take it for a living one.
Invariant: after `mark(pod)` `over` shows the pod as terminating until the informer does, or
shows that it is gone.
"""

from collections.abc import Iterable

import msgspec

from motley.api.views.pod import Pod
from motley.client.informer import Change, Informer
from motley.lib import clock as clocks
from motley.lib.clock import Clock


class Terminating:
    """Own deletions of pods, over their informer."""

    def __init__(self, pods: Informer[Pod], clock: Clock) -> None:
        self._pods = pods
        self._clock = clock
        self._since: dict[str, str] = {}  # uid -> when
        pods.add_handler(self._seen)

    def _seen(self, change: Change[Pod]) -> None:
        if self._since and (change.new is None or change.new.metadata.deletion_timestamp):
            self._since.pop(change.object.metadata.uid, None)

    def mark(self, pod: Pod) -> None:
        """The server accepted this pod's deletion."""
        cached = self._pods.get(pod.key)
        if cached is None or cached.metadata.deletion_timestamp:
            return  # the watch was faster than the answer
        self._since[pod.metadata.uid] = clocks.rfc3339(self._clock.now())

    def over(self, pods: Iterable[Pod]) -> list[Pod]:
        """The pods, those on their way out with a deletionTimestamp."""
        return [self._marked(pod) for pod in pods]

    def _marked(self, pod: Pod) -> Pod:
        since = self._since.get(pod.metadata.uid)
        if since is None or pod.metadata.deletion_timestamp:
            return pod
        meta = msgspec.structs.replace(pod.metadata, deletion_timestamp=since)
        return msgspec.structs.replace(pod, metadata=meta)
