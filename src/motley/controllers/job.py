"""Job: runs pods until enough of them have succeeded, or too many have failed.

What is decided lives in `jobs`: the census of its pods, the plan, and the ledger that counts each
pod once. Own writes are seen at once (`written` for what was created, `jobs.overlay` for what was
released or deleted), so that a lagging watch never makes it count or create twice.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from motley.api import status
from motley.api.selectors import Selector
from motley.api.views.base import Key
from motley.api.views.batch import Job
from motley.api.views.pod import Pod
from motley.client.index import by_controller_uid, by_namespace
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers import claim, replicas
from motley.controllers.jobs import backoff, ledger, plan, pods
from motley.controllers.jobs.census import Census, take
from motley.controllers.jobs.ledger import Ledger
from motley.controllers.jobs.overlay import Overlay
from motley.controllers.jobs.plan import Finish
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.controllers.written import Written
from motley.lib import clock as clocks
from motley.lib import journal

log = journal.get(__name__)

_MANAGER = "kubernetes.io/job-controller"  # what spec.managedBy says where it means us
_BATCH_S = 1.0  # kube-controller-manager: pods' news of one second make one status


@dataclass(frozen=True)
class Orphan:
    """A pod with the tracking finalizer that no running Job will take off."""

    namespace: str
    name: str


@dataclass
class _Counts:
    active: int
    ready: int
    terminating: int


class JobController:
    """See the module's docstring."""

    name = "job"
    workers = 5

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._clock = context.clock
        self._recorder = context.recorder.source("job-controller")
        self.queue: WorkQueue[Key | Orphan] = WorkQueue(context.clock)
        self._jobs = context.informers.of(Job)
        self._pods = context.informers.of(Pod)
        self._jobs.add_index("namespace", by_namespace)
        self._pods.add_index("controller", by_controller_uid)
        self._pods.add_index("orphan", claim.orphan_namespace)
        self._overlay = Overlay(self._pods, context.clock)
        self._created: Written[Pod] = Written(self._pods, context.clock)
        self._own: Written[Job] = Written(self._jobs, context.clock)
        self._records: dict[str, backoff.Record] = {}  # by the Job's uid
        self._looked: dict[Key, float] = {}  # when a Job was last worked on
        self._jobs.add_handler(self._job_changed)
        self._pods.add_handler(self._pod_changed)

    def _job_changed(self, change: Change[Job]) -> None:
        job = change.new
        if job is None or job.ended() is not None:
            self._looked.pop(change.key, None)
            self._records.pop(change.object.metadata.uid, None)
            for pod in self._pods.by_index("controller", change.object.metadata.uid):
                self._enqueue_orphan(pod)
        elif change.old is None or change.old.metadata.generation != job.metadata.generation:
            self.queue.add(job.key)
        else:
            self._enqueue(job.key)

    def _pod_changed(self, change: Change[Pod]) -> None:
        for pod in (change.old, change.new):
            owner = pod.metadata.controller() if pod else None
            if pod is not None and owner is not None and owner.kind == Job.KIND:
                job = self._jobs.get(Key(pod.metadata.namespace, owner.name))
                if job is not None and job.metadata.uid == owner.uid and not job.ended():
                    self._enqueue(job.key)
                elif pod is change.new:
                    self._enqueue_orphan(pod)
        if change.new is not None and change.new.metadata.controller() is None:
            self._enqueue_orphan(change.new)
            self._enqueue_adopters(change.new)

    def _enqueue(self, key: Key) -> None:
        """At once after a pause; else with what else comes in the same second."""
        last = self._looked.get(key)
        self.queue.add_after(key, 0.0 if last is None else last + _BATCH_S - self._monotonic())

    def _monotonic(self) -> float:
        return self._clock.monotonic()

    def _enqueue_orphan(self, pod: Pod) -> None:
        if pods.is_tracked(pod):
            self.queue.add(Orphan(*pod.key))

    def _enqueue_adopters(self, pod: Pod) -> None:
        if not pod.metadata.labels or pod.metadata.deletion_timestamp is not None:
            return
        for job in self._jobs.by_index("namespace", pod.metadata.namespace):
            if not job.ended() and Selector.of(job.spec.selector).matches(pod.metadata.labels):
                self._enqueue(job.key)

    async def reconcile(self, key: Key | Orphan) -> Requeue | None:
        """Bring one Job closer to its end, or let one pod go that no Job holds any more."""
        if isinstance(key, Orphan):
            await self._free(key)
            return None
        job = self._own.get(key)
        if job is None or job.ended() is not None:
            return None
        if _is_foreign(job):
            return None
        if job.spec.completion_mode not in ("NonIndexed", "Indexed"):
            message = "Skipped Job sync because completion mode is unknown"
            self._recorder.event(job, "Warning", "UnknownCompletionMode", message)
            return None
        self._looked[key] = self._monotonic()
        try:
            return await self._sync(job)
        except status.NotFound:
            if self._jobs.get(key) is not None and await claim.is_alive(self._client, job):
                raise
            return None  # deleted meanwhile

    async def _free(self, key: Orphan) -> None:
        pod = self._pods.get(Key(key.namespace, key.name))
        if pod is None or not pods.is_tracked(pod):
            return
        owner = pod.metadata.controller()
        if owner is not None:
            if owner.kind != Job.KIND or owner.api_version != Job.API_VERSION:
                return
            job = self._jobs.get(Key(key.namespace, owner.name))
            is_held = job is not None and (not job.ended() or _is_foreign(job))
            if job is not None and job.metadata.uid == owner.uid and is_held:
                return
        await self._untrack(pod)

    async def _owned(self, job: Job) -> list[Pod]:
        uid = job.metadata.uid
        mine = self._created.over(self._pods.by_index("controller", uid), uid)
        loose = self._pods.by_index("orphan", job.metadata.namespace)
        claims = claim.plan(job, Selector.of(job.spec.selector), [*mine, *loose])
        owned = await claim.perform(
            self._client,
            job,
            claims,
            may_adopt=lambda: claim.is_alive(self._client, job),
            finalizer=pods.TRACKING,
        )
        return self._overlay.over(owned)

    async def _sync(self, job: Job) -> Requeue | None:
        census = take(job, await self._owned(job))
        now = self._clock.now()
        book = Ledger.of(job)
        book.start_time = plan.start_of(job, now)
        started_at = clocks.parse_rfc3339(book.start_time) if book.start_time else None
        record = self._records.get(job.metadata.uid, backoff.Record())
        record = record.after(census.new_succeeded, census.new_failed)
        counts = _Counts(len(census.active), census.ready, len(census.terminating))
        finish = plan.verdict(job, census, started_at, now)
        todo, failure = plan.Plan(), None
        if finish is not None:
            failure = await self._delete(job, census.active, counts)
            if failure is not None:
                finish = None  # not before every pod is gone
        else:
            if job.metadata.deletion_timestamp is None:
                todo = plan.pods_for(job, census, record, now)
                failure = await self._perform(job, todo, census, counts)
            finish = plan.completed(job, census, counts.active)
            if finish is None and job.metadata.deletion_timestamp is None:
                self._tell_suspension(job, book, now)
        book.active, book.ready, book.terminating = counts.active, counts.ready, counts.terminating
        await self._count(job, census, book, finish, record)
        if failure is not None:
            raise failure
        left_s = plan.deadline_in_s(job, started_at, now)
        waits = [wait for wait in (todo.wait_s, left_s) if wait and wait > 0 and not finish]
        return Requeue(min(waits)) if waits else None

    def _tell_suspension(self, job: Job, book: Ledger, now: float) -> None:
        if job.spec.suspend:
            if book.set_condition("Suspended", "True", "JobSuspended", "Job suspended", now):
                self._recorder.event(job, "Normal", "Suspended", "Job suspended")
                book.start_time = None
        elif book.set_condition("Suspended", "False", "JobResumed", "Job resumed", now):
            self._recorder.event(job, "Normal", "Resumed", "Job resumed")
            # The deadline is for the time a Job is active without a break.
            book.start_time = clocks.rfc3339(now)

    async def _count(
        self,
        job: Job,
        census: Census,
        book: Ledger,
        finish: Finish | None,
        record: backoff.Record,
    ) -> None:
        """Store what ended, let those pods go, then store the counters; see `jobs.ledger`."""
        entry = ledger.enter(job, census, book, finish)
        if finish is not None:
            book.announce(finish, self._clock.now())
        job = await self._store(job, book)
        self._records[job.metadata.uid] = record
        results = await asyncio.gather(
            *(self._untrack(pod) for pod in entry.release), return_exceptions=True
        )
        gone = {
            pod.metadata.uid
            for pod, result in zip(entry.release, results, strict=True)
            if result is None
        }
        book.settle({p.metadata.uid for p in census.pods if pods.is_tracked(p)} - gone)
        failure = next((r for r in results if r is not None), None)
        is_over = failure is None and entry.is_whole and finish is not None
        if is_over and finish is not None and book.close(finish, self._clock.now()):
            job = await self._store(job, book)
            self._tell_end(job, finish)
        else:
            await self._store(job, book)
        if failure is not None:
            raise failure

    def _tell_end(self, job: Job, finish: Finish) -> None:
        log.info("job ended", job=job.key, condition=finish.type, reason=finish.reason)
        if finish.type == plan.FAILED:
            self._recorder.event(job, "Warning", finish.reason, finish.message)
            return
        if job.spec.completions is not None and job.status.succeeded > job.spec.completions:
            message = "Too many succeeded pods running after completion count reached"
            self._recorder.event(job, "Warning", "TooManySucceededPods", message)
        self._recorder.event(job, "Normal", "Completed", "Job completed")

    async def _store(self, job: Job, book: Ledger) -> Job:
        document = book.document()
        if document == Ledger.of(job).document():
            return job
        meta = job.metadata
        body = {
            # On a stale version every count could be one too many: then not at all.
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
            "status": document,
        }
        stored = await self._client.patch(
            Job, meta.name, meta.namespace, body, subresource="status"
        )
        self._own.put(stored)
        return stored

    async def _perform(
        self, job: Job, todo: plan.Plan, census: Census, counts: _Counts
    ) -> BaseException | None:
        if todo.delete:
            return await self._delete(job, todo.delete, counts, release=True)
        queue = list(todo.create)
        for batch in replicas.slow_start(len(queue)):
            now, queue = queue[:batch], queue[batch:]
            results = await asyncio.gather(
                *(self._create(job, index, census) for index in now), return_exceptions=True
            )
            counts.active += sum(1 for r in results if r is None)
            failure = next((r for r in results if r is not None), None)
            if failure is not None:
                return failure
        return None

    async def _create(self, job: Job, index: int | None, census: Census) -> None:
        replaced = None if index is None else census.kept.get(index)
        try:
            pod = await self._client.create(Pod, pods.document(job, index, replaced))
        except status.ApiError as error:
            message = f"Error creating: {error.message}"
            self._recorder.event(job, "Warning", "FailedCreate", message)
            raise
        self._created.put(pod, job.metadata.uid)
        self._recorder.event(job, "Normal", "SuccessfulCreate", f"Created pod: {pod.metadata.name}")

    async def _delete(
        self, job: Job, chosen: Sequence[Pod], counts: _Counts, *, release: bool = False
    ) -> BaseException | None:
        """Delete pods; those released first are not counted as failed."""
        results = await asyncio.gather(
            *(self._delete_one(job, pod, release) for pod in chosen), return_exceptions=True
        )
        for pod, result in zip(chosen, results, strict=True):
            if result is None:
                counts.active -= 1
                counts.terminating += 1
                counts.ready -= pod.is_ready
        return next((r for r in results if r is not None), None)

    async def _delete_one(self, job: Job, pod: Pod, release: bool) -> None:
        meta = pod.metadata
        if release:
            await self._untrack(pod)
        try:
            await self._client.delete(Pod, meta.name, meta.namespace, uid=meta.uid)
        except (status.NotFound, status.Conflict):
            pass  # gone already, or another pod has its name: both are what was wanted
        except status.ApiError as error:
            message = f"Error deleting: {error.message}"
            self._recorder.event(job, "Warning", "FailedDelete", message)
            raise
        else:
            self._recorder.event(job, "Normal", "SuccessfulDelete", f"Deleted pod: {meta.name}")
        self._overlay.delete(pod)

    async def _untrack(self, pod: Pod) -> None:
        """Take the tracking finalizer off."""
        if not pods.is_tracked(pod):
            return
        meta = pod.metadata
        change = {"uid": meta.uid, "$deleteFromPrimitiveList/finalizers": [pods.TRACKING]}
        self._overlay.release(pod)
        try:
            await self._client.patch(
                Pod, meta.name, meta.namespace, {"metadata": change}, type="strategic"
            )
        except status.NotFound:
            pass  # gone: nothing holds it
        except BaseException:
            self._overlay.keep(pod)
            raise


def _is_foreign(job: Job) -> bool:
    """Does another controller look after this Job?"""
    return job.spec.managed_by not in (None, _MANAGER)
