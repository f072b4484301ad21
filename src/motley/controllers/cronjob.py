"""CronJob: makes Jobs by the clock.

A Job's name is made from its CronJob's name and the minute it was due, so the name itself is the
lock: whatever crashes, a start happens at most once. What is due is decided in `cron` and
`cronjobs`; this module looks, makes, deletes and reports.
"""

from email.utils import formatdate

from msgspec.structs import replace

from motley.api import status
from motley.api.schedule import ScheduleError
from motley.api.views.base import Key
from motley.api.views.batch import CronJob, CronJobStatus, Job
from motley.client.index import by_controller_uid
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers import cron as crons
from motley.controllers import cronjobs
from motley.controllers.cron import Schedule, UnknownTimeZone
from motley.controllers.cronjobs import NeverFires
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.controllers.workload import is_controlled_by
from motley.controllers.written import Written
from motley.lib import clock as clocks
from motley.lib import journal

log = journal.get(__name__)


class CronJobController:
    """See the module's docstring."""

    name = "cronjob"
    workers = 5

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._clock = context.clock
        self._recorder = context.recorder.source("cronjob-controller")
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._crons = context.informers.of(CronJob)
        self._jobs = context.informers.of(Job)
        self._jobs.add_index("controller", by_controller_uid)
        self._own: Written[CronJob] = Written(self._crons, context.clock)
        self._made: Written[Job] = Written(self._jobs, context.clock)
        self._crons.add_handler(self._cron_changed)
        self._jobs.add_handler(self._job_changed)

    def _cron_changed(self, change: Change[CronJob]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or _when(old) == _when(new):
            self.queue.add(change.key)
            return
        # A new schedule starts with its next time; it does not make up for times it never had.
        try:
            schedule = crons.read(*_when(new))
        except ValueError:
            self.queue.add(change.key)
            return
        wait_s = cronjobs.next_in_s(new, schedule, self._clock.now())
        if wait_s is not None:
            self.queue.add_after(change.key, wait_s)

    def _job_changed(self, change: Change[Job]) -> None:
        for job in (change.old, change.new):
            owner = job.metadata.controller() if job else None
            if job is not None and owner is not None and owner.kind == CronJob.KIND:
                self.queue.add(Key(job.metadata.namespace, owner.name))

    async def reconcile(self, key: Key) -> Requeue | None:
        """Tidy up, start what is due, and come back for the next start."""
        cron = self._own.get(key)
        if cron is None:
            return None
        before = cron.status
        uid = cron.metadata.uid
        jobs = self._made.over(self._jobs.by_index("controller", uid), uid)
        for job in cronjobs.to_delete(cron, jobs):
            cron = await self._delete(cron, job)
        cron = await self._follow(cron, jobs)
        again: Requeue | None = None
        if cron.metadata.deletion_timestamp is None:
            try:
                cron, again = await self._start(cron)
            except status.ApiError:
                await self._store(cron, before)  # what was seen holds all the same
                raise
        await self._store(cron, before)
        return again

    async def _follow(self, cron: CronJob, jobs: list[Job]) -> CronJob:
        """Bring the list of active Jobs up to date with the Jobs there are."""
        active = list(cron.status.active)
        for job in jobs:
            listed = any(known.uid == job.metadata.uid for known in active)
            end = job.ended()
            if end is not None and listed:
                active = cronjobs.without(active, job.metadata.uid)
                message = f"Saw completed job: {job.metadata.name}, condition: {end.type}"
                self._recorder.event(cron, "Normal", "SawCompletedJob", message)
            elif end is None and not listed:
                message = (
                    f"Saw a job that the controller did not create or forgot: {job.metadata.name}"
                )
                self._recorder.event(cron, "Warning", "UnexpectedJob", message)
        there = {job.metadata.uid for job in jobs}
        for known in [known for known in active if known.uid not in there]:
            if not await self._exists(known.namespace, known.name):
                active = cronjobs.without(active, known.uid)
                message = f"Active job went missing: {known.name}"
                self._recorder.event(cron, "Normal", "MissingJob", message)
        succeeded = cronjobs.last_success(cron.status.last_successful_time, jobs)
        return _with(cron, replace(cron.status, active=active, last_successful_time=succeeded))

    async def _exists(self, namespace: str, name: str) -> bool:
        """Asked live: the watch may be slower than the status."""
        try:
            await self._client.get(Job, name, namespace)
        except status.NotFound:
            return False
        return True

    def _schedule(self, cron: CronJob) -> Schedule | None:
        spec = cron.spec
        try:
            crons.time_zone(spec.time_zone)
        except UnknownTimeZone as error:
            message = f'invalid timeZone: "{spec.time_zone}": {error}'
            self._recorder.event(cron, "Warning", "UnknownTimeZone", message)
            return None
        if spec.suspend:
            return None
        if "TZ" in spec.schedule:
            message = (
                f'CRON_TZ or TZ used in schedule "{spec.schedule}" is not officially supported'
            )
            self._recorder.event(cron, "Warning", "UnsupportedSchedule", message)
        try:
            return crons.read(*_when(cron))
        except (ScheduleError, UnknownTimeZone) as error:
            message = f'unparseable schedule: "{spec.schedule}" : {error}'
            self._recorder.event(cron, "Warning", "UnparseableSchedule", message)
            return None

    async def _start(self, cron: CronJob) -> tuple[CronJob, Requeue | None]:
        schedule = self._schedule(cron)
        if schedule is None:
            return cron, None  # until its spec changes
        now = self._clock.now()
        try:
            due = cronjobs.due(cron, schedule, now, within_deadline=True)
        except NeverFires as error:
            message = f"invalid schedule: {cron.spec.schedule} : {error}"
            self._recorder.event(cron, "Warning", "InvalidSchedule", message)
            return cron, None
        if due.latest is not None and self._may_start(cron, due, now):
            cron = await self._replace(cron)
            cron = await self._make(cron, due.latest)
        wait_s = cronjobs.next_in_s(cron, schedule, now)
        return cron, None if wait_s is None else Requeue(wait_s)

    def _may_start(self, cron: CronJob, due: cronjobs.Due, now: float) -> bool:
        assert due.latest is not None
        if due.is_many:
            message = (
                "too many missed start times. Set or decrease .spec.startingDeadlineSeconds"
                " or check clock skew"
            )
            self._recorder.event(cron, "Warning", "TooManyMissedTimes", message)
        if cronjobs.is_too_late(cron, due.latest, now):
            when = formatdate(due.latest)  # RFC 1123, as Go writes it
            message = f"Missed scheduled time to start a job: {when.replace('-0000', '+0000')}"
            self._recorder.event(cron, "Warning", "MissSchedule", message)
            return False
        state, name = cron.status, cronjobs.job_name(cron, due.latest)
        if any(known.name == name for known in state.active):
            return False
        if state.last_schedule_time == clocks.rfc3339(due.latest):
            return False
        if cron.spec.concurrency_policy == "Forbid" and state.active:
            message = (
                "Not starting job because prior execution is running and concurrency policy is"
                " Forbid"
            )
            self._recorder.event(cron, "Normal", "JobAlreadyActive", message)
            return False
        return True

    async def _replace(self, cron: CronJob) -> CronJob:
        if cron.spec.concurrency_policy != "Replace":
            return cron
        for known in list(cron.status.active):
            try:
                job = await self._client.get(Job, known.name, known.namespace)
            except status.ApiError as error:
                self._recorder.event(cron, "Warning", "FailedGet", f"Get job: {error.message}")
                raise
            cron = await self._delete(cron, job)
        return cron

    async def _delete(self, cron: CronJob, job: Job) -> CronJob:
        meta = job.metadata
        try:
            await self._client.delete(
                Job, meta.name, meta.namespace, uid=meta.uid, propagation="Background"
            )
        except (status.NotFound, status.Conflict):
            pass  # gone already, or another one has its name
        except status.ApiError as error:
            message = f"Deleted job: {error.message}"
            self._recorder.event(cron, "Warning", "FailedDelete", message)
            raise
        else:
            message = f"Deleted job {meta.name}"
            self._recorder.event(cron, "Normal", "SuccessfulDelete", message)
        self._made.delete(job)
        active = cronjobs.without(cron.status.active, meta.uid)
        return _with(cron, replace(cron.status, active=active))

    async def _make(self, cron: CronJob, scheduled: int) -> CronJob:
        document = cronjobs.job_document(cron, scheduled)
        try:
            job = await self._client.create(Job, document)
        except status.AlreadyExists:
            job = await self._client.get(Job, document["metadata"]["name"], cron.metadata.namespace)
            if not is_controlled_by(job, cron):
                return cron  # someone else's: whoever made it answers for it
            if any(known.uid == job.metadata.uid for known in cron.status.active):
                return cron
        except status.ApiError as error:
            message = f"Error creating job: {error.message}"
            self._recorder.event(cron, "Warning", "FailedCreate", message)
            raise
        else:
            message = f"Created job {job.metadata.name}"
            self._recorder.event(cron, "Normal", "SuccessfulCreate", message)
            log.info("job started", cronjob=cron.key, job=job.metadata.name)
        self._made.put(job, cron.metadata.uid)
        active = [*cron.status.active, cronjobs.reference(job)]
        stamp = clocks.rfc3339(scheduled)
        return _with(cron, replace(cron.status, active=active, last_schedule_time=stamp))

    async def _store(self, cron: CronJob, before: CronJobStatus) -> None:
        if cron.status == before:
            return
        meta = cron.metadata
        body = {
            "metadata": {"uid": meta.uid, "resourceVersion": meta.resource_version},
            "status": cronjobs.status_document(cron.status),
        }
        try:
            stored = await self._client.patch(
                CronJob, meta.name, meta.namespace, body, subresource="status"
            )
        except status.NotFound:
            return  # deleted meanwhile
        self._own.put(stored)


def _when(cron: CronJob) -> tuple[str, str | None]:
    return cron.spec.schedule, cron.spec.time_zone


def _with(cron: CronJob, state: CronJobStatus) -> CronJob:
    return replace(cron, status=state)
