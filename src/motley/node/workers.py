"""Who looks after each pod of a node: one worker per uid, from first sight to the last trace."""

import asyncio
from collections.abc import Iterator, Mapping

from motley.api.views.base import Key
from motley.api.views.pod import Pod
from motley.client.informer import Change
from motley.lib import journal
from motley.node import resources
from motley.node.admission import Admission
from motley.node.context import Context
from motley.node.podworker import PodWorker

log = journal.get(__name__)

RESTART_S = 5.0  # a worker that failed by a defect is not started again in a tight loop


class Workers(Mapping[str, PodWorker]):
    """The workers by uid. `open` it before the first pod comes."""

    def __init__(self) -> None:
        self._by_uid: dict[str, PodWorker] = {}
        self._burstable_milli = -1
        self._context: Context
        self._admission: Admission
        self._tasks: asyncio.TaskGroup

    def open(self, context: Context, admission: Admission, tasks: asyncio.TaskGroup) -> None:
        """Begin to take pods."""
        self._context, self._admission, self._tasks = context, admission, tasks

    def __getitem__(self, uid: str) -> PodWorker:
        return self._by_uid[uid]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_uid)

    def __len__(self) -> int:
        return len(self._by_uid)

    def all(self) -> list[PodWorker]:
        """Every worker."""
        return list(self._by_uid.values())

    def find(self, key: Key) -> PodWorker | None:
        """The worker of a pod by name; of two with one name, the living one."""
        found = [w for w in self.all() if w.pod is not None and w.pod.key == key]
        return found[-1] if found else None

    # -- what comes and goes

    def pod_changed(self, change: Change[Pod]) -> None:
        """What the API says of a pod."""
        if change.new is not None:
            self.ensure(change.new, is_known=False)
        elif (worker := self._by_uid.get(change.object.metadata.uid)) is not None:
            worker.removed(change.old)

    def ensure(self, pod: Pod, *, is_known: bool) -> None:
        """Look after a pod; one that is new is taken only if the node can."""
        uid = pod.metadata.uid
        if uid in self._by_uid:
            self._by_uid[uid].update(pod)
            self._admission.consider_resizes()
            self._keep_class_shares()
            return
        rejected = None
        if not is_known and not pod.status.start_time and not pod.is_terminal:
            rejected = self._admission.admit(pod)
        self._begin(PodWorker(self._context, uid, pod, rejected))

    def begin_static(self, pod: Pod) -> None:
        """Look after a pod of the node's own, which is always taken."""
        self._begin(PodWorker(self._context, pod.metadata.uid, pod))

    def end_static(self, uid: str) -> None:
        """Its file is gone."""
        if worker := self._by_uid.get(uid):
            worker.removed(worker.pod)

    def adopt_orphan(self, uid: str) -> None:
        """Something runs here that the API does not know: it was deleted while nobody looked."""
        if uid not in self._by_uid:
            log.info("removing a pod the API no longer has", uid=uid)
            self._begin(PodWorker(self._context, uid, None))

    # -- what concerns them

    def wake(self) -> None:
        """Everybody looks again."""
        for worker in self.all():
            worker.wake()

    def retry_now(self) -> None:
        """What many waited for may be there."""
        for worker in self.all():
            worker.retry_now()

    def objects_changed(self, uid: str) -> None:
        """A ConfigMap or Secret of this pod changed."""
        if worker := self._by_uid.get(uid):
            worker.objects_changed()

    def _keep_class_shares(self) -> None:
        """Burstable pods together weigh what they request, against those who request nothing."""
        milli = 0
        for worker in self.all():
            pod = worker.pod
            if pod is not None and not pod.is_terminal and resources.qos_class(pod) == "Burstable":
                milli += resources.pod_requests(self._context.allocations.of(pod)).get("cpu", 0)
        if milli != self._burstable_milli:
            self._context.cgroups.set_class_shares(milli)
            self._burstable_milli = milli

    def _begin(self, worker: PodWorker) -> None:
        self._by_uid[worker.uid] = worker
        self._keep_class_shares()
        self._tasks.create_task(self._work(worker))

    async def _work(self, worker: PodWorker) -> None:
        while True:
            try:
                await worker.run()
            except Exception as error:
                log.error("pod worker failed, starting another", exc_info=error, uid=worker.uid)
                await self._context.clock.sleep(RESTART_S)
                worker = PodWorker(self._context, worker.uid, worker.pod, worker.notes.rejected)
                self._by_uid[worker.uid] = worker
                continue
            del self._by_uid[worker.uid]
            self._keep_class_shares()
            self._admission.consider_resizes()
            return
