"""TTL after finished: an ended Job is deleted, with its pods, after the time it asks for."""

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.batch import Job
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.lib import clock as clocks
from motley.lib import journal

log = journal.get(__name__)


def expires_at(job: Job) -> float | None:
    """When the Job is to be deleted; None if it has not ended, or may stay. Pure."""
    ttl_s, end = job.spec.ttl_seconds_after_finished, job.ended()
    if ttl_s is None or end is None or job.metadata.deletion_timestamp is not None:
        return None
    if not end.last_transition_time:
        return None
    return clocks.parse_rfc3339(end.last_transition_time) + ttl_s


class TTLAfterFinishedController:
    """See the module's docstring."""

    name = "ttlafterfinished"
    workers = 5

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._clock = context.clock
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._jobs = context.informers.of(Job)
        self._jobs.add_handler(self._job_changed)

    def _job_changed(self, change: Change[Job]) -> None:
        if change.new is not None and expires_at(change.new) is not None:
            self.queue.add(change.key)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Delete the Job if its time is over, else come back then."""
        job = self._jobs.get(key)
        if job is None:
            return None
        wait = self._wait(job)
        if wait is None or wait.after_s > 0:
            return wait
        # The cache may not know yet that someone gave the Job more time.
        try:
            job = await self._client.get(Job, key.name, key.namespace)
            wait = self._wait(job)
            if wait is None or wait.after_s > 0:
                return wait
            await self._client.delete(
                Job, key.name, key.namespace, uid=job.metadata.uid, propagation="Foreground"
            )
        except status.NotFound:
            return None
        log.info("ended job deleted", job=key)
        return None

    def _wait(self, job: Job) -> Requeue | None:
        expiry = expires_at(job)
        return None if expiry is None else Requeue(max(0.0, expiry - self._clock.now()))
