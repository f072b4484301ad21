"""SlurmClusters: is each reachable, what does it have, and how do its jobs fare?

Two controllers. One keeps a session for every object and writes what it finds into the object's
status; the other looks at the queue of every cluster that has jobs of ours, all of them with one
question, and wakes those for which something has changed.
"""

from collections.abc import Callable
from random import Random

from motley.api import status as api_status
from motley.api.views.base import Key
from motley.api.views.slurm import FINISHED, SlurmCluster, SlurmJob
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.lib import journal
from motley.slurm import jobs, results, script
from motley.slurm import status as statuses
from motley.slurm.cluster import Failed, Followed
from motley.slurm.sessions import Session, Sessions
from motley.slurm.ssh import Unreachable

log = journal.get(__name__)

CLUSTER_INDEX = "slurm-cluster"
_PROBE_S = 60.0
_LOOKS = 5  # without a trace of a job, before it counts as lost: accounts come late


class ClusterController:
    """Keeps sessions and the objects' status."""

    name = "slurm-clusters"
    workers = 4

    def __init__(
        self, context: Context, sessions: Sessions, wake: Callable[[str], None], rng: Random
    ) -> None:
        self._context = context
        self._sessions = sessions
        self._wake = wake
        self._clusters = context.informers.of(SlurmCluster)
        self._recorder = context.recorder.source("motley-slurm")
        self.queue: WorkQueue[Key] = WorkQueue(context.clock, rng=rng)
        self._clusters.add_handler(self._changed)

    def _changed(self, change: Change[SlurmCluster]) -> None:
        old, new = change.old, change.new
        if old is None or new is None or old.metadata.generation != new.metadata.generation:
            self.queue.add(change.key)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Probe one cluster and write what came of it."""
        cluster = self._clusters.get(key)
        if cluster is None:
            await self._sessions.close(key.name)
            return None
        session = None
        try:
            session = await self._sessions.ensure(cluster)
            session.machine = await session.slurm.machine(cluster.spec.default_partition)
        except (Unreachable, Failed) as failure:
            reason = failure.reason if isinstance(failure, Unreachable) else "SlurmFailed"
            await self._write(cluster, session, (False, reason, str(failure)))
            wait_s = session.connection.retry_after_s if session else 0.0
            return Requeue(max(1.0, min(wait_s, _PROBE_S)))
        await self._write(cluster, session, (True, "Connected", f"as {cluster.spec.user}"))
        self._wake(key.name)
        return Requeue(_PROBE_S)

    async def _write(
        self, cluster: SlurmCluster, session: Session | None, connected: tuple[bool, str, str]
    ) -> None:
        before = next((c for c in cluster.status.conditions if c.type == "Connected"), None)
        is_good, reason, message = connected
        wanted = {"conditions": statuses.conditions(
            cluster.status.conditions, {"Connected": connected}, self._context.clock.now()
        )}  # fmt: skip
        machine = session.machine if session else None
        seen = {
            "host": session.connection.host if session and is_good else None,
            "version": machine.version if machine else None,
            "runtime": machine.runtime if machine else None,
            "partitions": list(machine.partitions) if machine else None,
        }
        if is_good:
            mine = cluster.status
            same = (mine.host, mine.version, mine.runtime, mine.partitions) == tuple(seen.values())
        else:
            seen, same = {}, True
        is_news = before is None or (before.status == "True", before.reason) != (is_good, reason)
        if not is_news and same and before is not None and before.message == message:
            return
        await self._context.client.patch(
            SlurmCluster, cluster.metadata.name, "", {"status": {**seen, **wanted}},
            subresource="status",
        )  # fmt: skip
        if is_news:
            self._recorder.event(cluster, "Normal" if is_good else "Warning", reason, message)


class Poller:
    """Looks at the queues."""

    name = "slurm-polling"
    workers = 4

    def __init__(
        self,
        context: Context,
        sessions: Sessions,
        wake: Callable[[Key], None],
        rng: Random,
        poll_s: float | None = None,
    ) -> None:
        """`poll_s` overrides what clusters say."""
        self._context = context
        self._sessions = sessions
        self._wake = wake
        self._poll_s = poll_s
        self._clusters = context.informers.of(SlurmCluster)
        self._jobs = context.informers.of(SlurmJob)
        self._jobs.add_index(CLUSTER_INDEX, lambda job: [job.spec.cluster])
        self._logs: dict[str, results.Log] = {}
        self._written_jobs: dict[str, int] = {}
        self.queue: WorkQueue[Key] = WorkQueue(context.clock, rng=rng)

    def look(self, name: str) -> None:
        """Look at a cluster's queue now."""
        self.queue.add(Key("", name))

    def log_of(self, job: SlurmJob) -> results.Log:
        """What a job has printed, as far as it is known here."""
        return self._logs.setdefault(f"{job.metadata.uid}.{job.status.attempt}", results.Log())

    def forget(self, uid: str) -> None:
        """A job is gone."""
        for key in [key for key in self._logs if key.startswith(uid)]:
            del self._logs[key]

    async def reconcile(self, key: Key) -> Requeue | None:
        """Look once, and again after a while for as long as there are jobs."""
        cluster, session = self._clusters.get(key), self._sessions.find(key.name)
        if cluster is None or session is None:
            return None
        every_s = self._poll_s or float(cluster.spec.poll_seconds)
        mine = [
            job
            for job in self._jobs.by_index(CLUSTER_INDEX, key.name)
            if job.status.job_id and not job.is_finished
        ]
        if mine:
            try:
                await self._look(session, mine)
            except Unreachable as failure:
                log.debug("queue not seen", cluster=key.name, error=failure.message)
                for job in mine:
                    self._wake(job.key)
                return Requeue(max(session.connection.retry_after_s, min(every_s, 1.0)))
            except Failed as failure:
                log.warning("squeue failed", cluster=key.name, error=str(failure))
        await self._count(cluster, len(mine))
        return Requeue(every_s) if mine else None

    async def _look(self, session: Session, mine: list[SlurmJob]) -> None:
        folders = {job.status.job_id: followed(job) for job in mine}
        seen, is_sure = await session.slurm.look(folders)
        for job in mine:
            number = job.status.job_id
            if number in seen:
                session.missed.pop(number, None)
                is_new = session.rows.get(number) != seen[number] or not job.has("Reachable")
                is_new = is_new or _partly(number) in session.missed
                session.rows[number] = seen[number]
                if is_new:
                    self._wake(job.key)
            elif is_sure:
                session.missed[number] = session.missed.get(number, 0) + 1
                self._wake(job.key)
        for number in session.rows.keys() - folders.keys():
            del session.rows[number]
        for job in mine:
            rows = session.rows.get(job.status.job_id, [])
            if any(row.phase == "Running" for row in rows):
                await self._print(session, job)

    async def _print(self, session: Session, job: SlurmJob) -> None:
        printed = self.log_of(job)
        await printed.read(session.connection, job)
        try:
            await printed.write(self._context.client, job)
        except api_status.ApiError as error:
            log.info("log not written", job=job.key, error=error.message)

    async def _count(self, cluster: SlurmCluster, count: int) -> None:
        name = cluster.metadata.name
        if self._written_jobs.get(name, cluster.status.jobs) == count:
            return
        self._written_jobs[name] = count
        change = {"status": {"jobs": count}}
        await self._context.client.patch(SlurmCluster, name, "", change, subresource="status")


def reason_why(
    failure: Unreachable, job: SlurmJob, cluster: SlurmCluster | None
) -> Unreachable | None:
    """What to say of a job whose cluster cannot be asked. Nothing while a bridge that has just
    begun makes its connections; when it cannot, its cluster says why."""
    if failure.reason not in ("NotReady", "NotConnected"):
        return failure
    if cluster is None:
        return Unreachable("NoCluster", f"SlurmCluster {job.spec.cluster} does not exist")
    said = next((c for c in cluster.status.conditions if c.type == "Connected"), None)
    if said is None or said.status == "True":
        return None
    return Unreachable(said.reason, said.message)


def followed(job: SlurmJob) -> Followed:
    """A job as Slurm is asked for it."""
    return Followed(job.status.directory, script.mark(job, job.status.attempt))


def verdict_of(session: Session, job: SlurmJob, printed: str) -> jobs.Verdict | None:
    """What was last seen of a job; None when that is nothing yet."""
    number = job.status.job_id
    if session.missed.get(number, 0) >= _LOOKS:
        return jobs.lost()
    rows = session.rows.get(number)
    if not rows:
        return None
    verdict = jobs.judge(rows, printed=printed)
    is_whole = not job.spec.array or len(rows) >= jobs.task_count(job.spec.array)
    if verdict.phase in FINISHED and not is_whole:
        # Accounts of some tasks are still on their way; unless they never come.
        mark = _partly(number)
        missing = session.missed[mark] = session.missed.get(mark, 0) + 1
        return verdict if missing >= _LOOKS else None
    return verdict


def _partly(number: str) -> str:
    """The mark of an array of which not every task is known."""
    return f"{number}[]"


def seen(cluster: SlurmCluster) -> tuple[int, str]:
    """What matters of a cluster to its jobs: a change of it wakes them."""
    return cluster.metadata.generation, cluster.status.host
