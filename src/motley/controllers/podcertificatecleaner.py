"""Pod certificate request cleaner: deletes requests when nobody waits for them any more.

A node has taken the answer long before; a request without one was asked again.
"""

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.certificates import PodCertificateRequest
from motley.client.workqueue import WorkQueue
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.lib import clock as clocks
from motley.lib import journal

log = journal.get(__name__)

KEPT_S = 15 * 60.0  # kube-controller-manager's: every exchange is over by then


class PodCertificateCleaner:
    """See the module's docstring."""

    name = "podcertificaterequestcleaner"
    workers = 1

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._clock = context.clock
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._requests = context.informers.of(PodCertificateRequest)
        self._requests.add_handler(lambda change: self.queue.add(change.key))

    async def reconcile(self, key: Key) -> Requeue | None:
        """Delete it when its time has come, else come back then."""
        request = self._requests.get(key)
        if request is None:
            return None
        created = request.metadata.creation_timestamp or clocks.rfc3339(0)
        left_s = clocks.parse_rfc3339(created) + KEPT_S - self._clock.now()
        if left_s > 0:
            return Requeue(left_s)
        try:
            await self._client.delete(
                PodCertificateRequest, key.name, key.namespace, uid=request.metadata.uid
            )
        except (status.NotFound, status.Conflict):
            log.debug("request is gone already", request=key)
        return None
