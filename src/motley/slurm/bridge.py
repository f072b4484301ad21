"""SlurmJobs: each is brought to its cluster, followed, and its results brought back.

`jobs.next_step` says what comes next from the object alone; here it is done. Every step may be cut
off anywhere and done again: files are compared by checksum, a submission is looked for before it is
made, a cancelled job cannot be submitted any more.
Invariant: an attempt is written into the object before anything is done for it on the cluster.
"""

import sys
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from motley.api.views.base import Key
from motley.api.views.slurm import (
    CANCELLED,
    FAILED,
    FINALIZER,
    FINISHED,
    PENDING,
    SlurmCluster,
    SlurmJob,
)
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.lib import journal
from motley.slurm import building, jobs, mail, results, script, sources, staging
from motley.slurm import status as statuses
from motley.slurm.cluster import Failed
from motley.slurm.clusters import CLUSTER_INDEX, Poller, followed, reason_why, seen, verdict_of
from motley.slurm.jobs import Step
from motley.slurm.sessions import Sessions
from motley.slurm.ssh import Unreachable

log = journal.get(__name__)

_DEPENDENTS = "slurm-dependents"
_STEPS = 8  # of one job at a time, then another's turn
_SOON, _UNHURRIED, _LATER = Requeue(0.5), Requeue(5.0), Requeue(10.0)
LOG_ANNOTATION = "motley.io/log"

Outcome = SlurmJob | Requeue | None


class JobController:
    """See the module's docstring."""

    name = "slurm-jobs"
    workers = 16

    def __init__(
        self, context: Context, sessions: Sessions, poller: Poller, kept: results.Kept, rng: Random
    ) -> None:
        self._context = context
        self._client = context.client
        self._clock = context.clock
        self._sessions = sessions
        self._poller = poller
        self._kept = kept
        self._recorder = context.recorder.source("motley-slurm")
        self._jobs = context.informers.of(SlurmJob)
        self._clusters = context.informers.of(SlurmCluster)
        self._jobs.add_index(CLUSTER_INDEX, lambda job: [job.spec.cluster])
        self._jobs.add_index(_DEPENDENTS, _dependencies)
        self._begun: set[tuple[str, int]] = set()  # attempts that this process began itself
        self._tried: set[tuple[str, int]] = set()  # of those, the ones that it has begun to stage
        self._versions: dict[str, int] = {}  # what was last written of each job, by uid
        self._postman = mail.Postman(sessions.mail_login)
        self.queue: WorkQueue[Key] = WorkQueue(context.clock, rng=rng)
        self._jobs.add_handler(self._changed)
        self._clusters.add_handler(self._cluster_changed)
        self._steps = {
            Step.ADOPT: self._adopt,
            Step.BEGIN: self._begin,
            Step.SUBMIT: self._submit,
            Step.FOLLOW: self._follow,
            Step.CANCEL: self._cancel,
            Step.COLLECT: self._collect,
            Step.EXPIRE: self._expire,
            Step.RELEASE: self._release,
        }

    def _changed(self, change: Change[SlurmJob]) -> None:
        self.queue.add(change.key)
        if change.new is None:
            self._versions.pop(change.object.metadata.uid, None)
        for other in self._jobs.by_index(_DEPENDENTS, str(change.key)):
            self.queue.add(other.key)
        if jobs.has_left(change.old, change.new):  # there is room for another
            for other in self._jobs.by_index(CLUSTER_INDEX, change.object.spec.cluster):
                if other.status.reason == "Limit":
                    self.queue.add(other.key)

    def _cluster_changed(self, change: Change[SlurmCluster]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or seen(old) != seen(new):
            self.wake_all(change.key.name)

    def wake_all(self, cluster: str) -> None:
        """Look at every job of a cluster that is not at rest."""
        for job in self._jobs.by_index(CLUSTER_INDEX, cluster):
            if jobs.next_step(job) is not Step.REST:
                self.queue.add(job.key)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Do what comes next, and next after that, until something has to be waited for."""
        job = self._jobs.get(key)
        if job is None or statuses.version(job) < self._versions.get(job.metadata.uid, 0):
            return None  # gone; or the cache is behind, and what it lacks is on its way
        for _ in range(_STEPS):
            step = jobs.next_step(job)
            if jobs.mails(job) and step is not Step.RELEASE:
                job = await self._mail(job)
            if step is Step.REST:
                return _LATER if jobs.mails(job) else None
            try:
                outcome = await self._steps[step](job)
            except Unreachable as failure:
                return await self._unreachable(job, failure)
            except staging.Unwanted:
                return Requeue(0.0)  # the cache knows why
            except sources.Missing as missing:
                await self._waits(job, "SourceMissing", str(missing))
                return _LATER
            if not isinstance(outcome, SlurmJob):
                return outcome
            job = outcome
        return Requeue(0.0)

    # One method per step: the job as it is afterwards, or when to come back.

    async def _adopt(self, job: SlurmJob) -> Outcome:
        where = f"configmap/{results.map_name(job, results.LOG)}"
        change = statuses.adopted(job, {LOG_ANNOTATION: where})
        return await self._client.patch(SlurmJob, job.metadata.name, job.metadata.namespace, change)

    async def _begin(self, job: SlurmJob) -> Outcome:
        cluster = self._cluster(job)
        if (left_s := statuses.pause_left(job, self._clock.now())) > 0:
            return Requeue(left_s)
        gathered = await sources.gather(self._client, job, self._kept.roots)
        wrong = script.problems(job, cluster, gathered.files)
        if wrong:
            await self._waits(job, "Refused", "; ".join(wrong))
            return None
        ready, _ = await self._dependencies(job)
        if isinstance(ready, SlurmJob) or ready is not None:
            return ready
        if self._is_full(cluster):
            await self._waits(job, "Limit", f"cluster {cluster.metadata.name} takes no more jobs")
            return _LATER
        attempt = job.status.attempt + 1 if job.is_finished else 1
        if attempt > 1:
            self._recorder.event(job, "Normal", "Retrying", f"attempt {attempt}")
        self._begun.add((job.metadata.uid, attempt))
        return await self._write(
            job, statuses.begun(attempt, script.directory(job, cluster, attempt))
        )

    async def _submit(self, job: SlurmJob) -> Outcome:
        cluster, attempt = self._cluster(job), job.status.attempt
        session = self._sessions.get(job.spec.cluster)
        directory, name = job.status.directory, script.mark(job, attempt)
        if (job.metadata.uid, attempt) not in self._begun:
            number = await session.slurm.recover(directory, name)
            if number:
                self._recorder.event(job, "Normal", "Found", f"Slurm has it as job {number}")
                return await self._submitted(job, number, 0, is_built=False)
        waiting, options = await self._dependencies(job)
        if waiting is not None:
            return waiting
        before = [option.partition(":")[2] for option in options]
        if before and not await session.slurm.are_alive(before):
            self._poller.look(session.name)  # one has just ended: its object will say how
            return _SOON
        gathered = await sources.gather(self._client, job, self._kept.roots)
        text = script.render(
            job, cluster, attempt=attempt, sources=list(gathered.files), dependencies=options
        )
        files = {**gathered.files, script.SCRIPT: text.encode()}
        is_new = (job.metadata.uid, attempt) in self._begun - self._tried
        self._tried.add((job.metadata.uid, attempt))
        sent = await staging.upload(
            session.connection, directory, files, is_new=is_new, is_wanted=self._waits_for(job)
        )
        await building.link(session.connection, directory, gathered.links)
        build = script.login_build(job, cluster, gathered.files)
        if build:
            job = await self._write(job, {"reason": "Building", "message": build.splitlines()[-1]})
            failed = await building.build(session.connection, directory, build)
            if failed is not None:
                self._recorder.event(job, "Warning", "CompileError", failed[-1000:])
                return await self._ended(job, FAILED, "CompileError", failed)
        try:
            essential = script.essential(job, attempt, options)
            number = await session.slurm.submit(directory, name, essential)
        except Failed as refusal:
            if "limit" in str(refusal).lower():
                await self._waits(job, "Limit", str(refusal))
                return _LATER
            return await self._ended(job, FAILED, "SubmitRefused", str(refusal))
        self._recorder.event(job, "Normal", "Submitted", f"Slurm has it as job {number}")
        return await self._submitted(job, number, sent, is_built=bool(build))

    async def _submitted(self, job: SlurmJob, number: str, sent: int, *, is_built: bool) -> Outcome:
        now = self._clock.now()
        changed = await self._write(job, statuses.submitted(job, number, sent, is_built, now))
        self._begun.discard((job.metadata.uid, job.status.attempt))
        self._poller.look(job.spec.cluster)
        return changed

    async def _follow(self, job: SlurmJob) -> Outcome:
        session = self._sessions.get(job.spec.cluster)
        printed = self._poller.log_of(job).shown(job).get("error", "")
        verdict = verdict_of(session, job, printed)
        if session.connection.failure is not None:
            self._poller.look(job.spec.cluster)
            raise session.connection.failure
        if verdict is None:
            if job.status.job_id not in session.rows:
                self._poller.look(job.spec.cluster)
            return None
        if verdict.reason == "DependencyNeverSatisfied":
            await session.slurm.cancel(job.status.directory, script.mark(job, job.status.attempt))
            return await self._ended(job, FAILED, verdict.reason, "what it depends on has failed")
        if verdict.phase in FINISHED:
            log_ = self._poller.log_of(job)
            await log_.read(session.connection, job)
            await log_.write(self._client, job)
            verdict = verdict_of(session, job, log_.shown(job).get("error", "")) or verdict
            if verdict.phase == FAILED and job.spec.build_on == "Job":
                verdict = await building.within_job(session.connection, job, verdict)
        change = statuses.followed(job, verdict, self._clock.now())
        if not change:
            self._poller.queue.add_after(Key("", job.spec.cluster), 5.0)
            return None
        if verdict.phase in FINISHED:
            change |= self._poller.log_of(job).shown(job)
        if verdict.phase != job.status.phase:
            if verdict.phase == FAILED:
                self._recorder.event(job, "Warning", verdict.reason, verdict.message)
            else:
                self._recorder.event(job, "Normal", verdict.phase, verdict.message)
        changed = await self._write(job, change)
        if changed.is_finished:
            return changed
        await self._mail(changed)
        return None

    async def _cancel(self, job: SlurmJob) -> Outcome:
        status = job.status
        message = "somebody asked for its end"
        if not status.attempt:
            return await self._ended(job, CANCELLED, "Cancelled", message)
        session = self._sessions.get(job.spec.cluster)
        left = await session.slurm.cancel(status.directory, script.mark(job, status.attempt))
        if left:
            return _SOON
        if status.job_id:  # it may have ended before it could be stopped
            seen, _ = await session.slurm.look({status.job_id: followed(job)})
            rows = seen.get(status.job_id, [])
            verdict = jobs.judge(rows) if rows else None
            if verdict is not None and verdict.phase in FINISHED:
                self._recorder.event(job, "Normal", verdict.reason, verdict.message)
                change = statuses.followed(job, verdict, self._clock.now())
                return await self._write(job, change)
        self._recorder.event(job, "Normal", "Cancelled", message)
        return await self._ended(job, CANCELLED, "Cancelled", message)

    async def _collect(self, job: SlurmJob) -> Outcome:
        session = self._sessions.get(job.spec.cluster)
        try:
            message, more = await self._kept.collect(
                session.connection, self._client, job, self._waits_for(job)
            )
        except OSError as error:
            failed = {"Downloaded": (False, "NotWritten", str(error))}
            await self._write(job, statuses.conditioned(job, failed, self._clock.now()))
            return _LATER
        self._recorder.event(job, "Normal", "Downloaded", message)
        done = {"Downloaded": (True, "Downloaded", message)}
        return await self._write(job, more | statuses.conditioned(job, done, self._clock.now()))

    async def _expire(self, job: SlurmJob) -> Outcome:
        ended = statuses.heard_of_end(job)
        left_s = ended + (job.spec.ttl_seconds_after_finished or 0) - self._clock.now()
        if left_s > 0:
            return Requeue(left_s)
        meta = job.metadata
        await self._client.delete(SlurmJob, meta.name, meta.namespace, uid=meta.uid)
        return None

    async def _release(self, job: SlurmJob) -> Outcome:
        meta, status = job.metadata, job.status
        cluster = self._clusters.get(Key("", job.spec.cluster))
        if status.attempt and cluster is not None:
            session = self._sessions.get(job.spec.cluster)
            name = script.mark(job, status.attempt)
            if await session.slurm.cancel(status.directory, name):
                return _SOON
            folders = [script.attempt_directory(job, n) for n in range(1, status.attempt + 1)]
            try:
                await session.slurm.remove(folders)
            except Failed as failure:  # what resists keeps nobody from going
                self._recorder.event(job, "Warning", "NotRemoved", str(failure))
        self._begun = {entry for entry in self._begun if entry[0] != meta.uid}
        self._tried = {entry for entry in self._tried if entry[0] != meta.uid}
        self._kept.forget(job)
        self._poller.forget(meta.uid)
        left = [f for f in meta.finalizers if f != FINALIZER]
        change = {"metadata": {"resourceVersion": meta.resource_version, "finalizers": left}}
        self._versions[meta.uid] = sys.maxsize  # whatever the cache still shows: it is done
        try:
            await self._client.patch(SlurmJob, meta.name, meta.namespace, change)
        except Exception:
            self._versions.pop(meta.uid, None)
            raise
        return None

    # What the steps share.

    def _cluster(self, job: SlurmJob) -> SlurmCluster:
        found = self._clusters.get(Key("", job.spec.cluster))
        if found is None:
            raise Unreachable("NoCluster", f"SlurmCluster {job.spec.cluster} does not exist")
        return found

    def _waits_for(self, job: SlurmJob) -> Callable[[], bool]:
        """Asked during long transfers."""
        return lambda: jobs.is_wanted(job, self._jobs.get(job.key))

    def _is_full(self, cluster: SlurmCluster) -> bool:
        mine = self._jobs.by_index(CLUSTER_INDEX, cluster.metadata.name)
        begun = {uid for uid, _ in self._begun}  # of some the cache does not say so yet
        return jobs.is_full(cluster.spec.limits.max_jobs, mine, begun)

    async def _dependencies(self, job: SlurmJob) -> tuple[Outcome, Sequence[str]]:
        """What to do instead of submitting, if anything; else the options for Slurm."""
        options = []
        for wanted in job.spec.dependencies:
            other = self._jobs.get(Key(job.metadata.namespace, wanted.job))
            found = jobs.depends(wanted.type, wanted.job, other)
            if found.never:
                reason = "DependencyNeverSatisfied"
                return await self._ended(job, FAILED, reason, found.never), ()
            if found.wait:
                await self._waits(job, "Dependency", found.wait)
                return _LATER, ()
            if found.option:
                options.append(found.option)
        return None, options

    async def _ended(self, job: SlurmJob, phase: str, reason: str, message: str) -> SlurmJob:
        if phase == FAILED and reason != "CompileError":
            self._recorder.event(job, "Warning", reason, message)
        change = statuses.ended(job, phase, reason, message, self._clock.now())
        self._begun.discard((job.metadata.uid, job.status.attempt))  # it takes no place any more
        return await self._write(job, change)

    async def _waits(self, job: SlurmJob, reason: str, message: str) -> None:
        if (job.status.reason, job.status.message) == (reason, message):
            return
        self._recorder.event(job, "Warning", reason, message)
        await self._write(job, {"phase": PENDING, "reason": reason, "message": message})

    async def _unreachable(self, job: SlurmJob, failure: Unreachable) -> Requeue:
        """Say so on the job; what is known of it stays."""
        session = self._sessions.find(job.spec.cluster)
        why = reason_why(failure, job, self._clusters.get(Key("", job.spec.cluster)))
        if why is None:
            return _UNHURRIED  # it is woken as soon as there is a connection
        change = statuses.unreachable(job, why.reason, why.message, self._clock.now())
        if change:
            await self._write(job, change)
            self._recorder.event(job, "Warning", why.reason, why.message)
        if session is None or session.connection.failure is None:
            return _UNHURRIED  # it is not the connection: a full disk, say
        return Requeue(max(0.2, session.connection.retry_after_s))

    async def _mail(self, job: SlurmJob) -> SlurmJob:
        cluster = self._clusters.get(Key("", job.spec.cluster))
        if cluster is None:
            return job
        sent = await self._postman.deliver(
            job, cluster, lambda why: self._recorder.event(job, "Warning", "MailNotSent", why)
        )
        return await self._write(job, {"mailed": [*job.status.mailed, *sent]}) if sent else job

    async def _write(self, job: SlurmJob, change: dict[str, Any]) -> SlurmJob:
        meta = job.metadata
        document = {"metadata": {"resourceVersion": meta.resource_version}, "status": change}
        written = await self._client.patch(
            SlurmJob, meta.name, meta.namespace, document, subresource="status"
        )
        self._versions[meta.uid] = statuses.version(written)
        return written


def _dependencies(job: SlurmJob) -> list[str]:
    return [str(Key(job.metadata.namespace, d.job)) for d in job.spec.dependencies]
