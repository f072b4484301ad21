"""Measures the node and its pods every few seconds, so that rates are there when somebody asks."""

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from motley.lib import journal
from motley.node import cgroups, diskusage, machine, resources, stats, usage
from motley.node.context import Context
from motley.node.cri.errors import RuntimeFailure
from motley.node.cri.values import ContainerUsage
from motley.node.diskusage import PodDisk
from motley.node.podworker import PodWorker
from motley.node.summary import ContainerSample, Disk, NodeSample, PodSample
from motley.node.usage import Cpu, Groups, GroupUsage, Memory, Rates

log = journal.get(__name__)

EVERY_S = 5.0
DISK_S = 60.0  # walking trees costs more than reading counters


class Measurements:
    """The latest figures; `run` it in a task group."""

    def __init__(self, context: Context, workers: Callable[[], Sequence[PodWorker]]) -> None:
        self._context = context
        self._workers = workers
        self._groups = Groups(context.cgroups.hierarchies)
        self._rates = Rates()
        self._disks: dict[str, PodDisk] = {}
        self._image_root = context.settings.root
        self.pods: list[PodSample] = []

    async def run(self) -> None:
        """Measure until cancelled."""
        clock = self._context.clock
        disks_at = float("-inf")
        while True:
            try:
                if clock.monotonic() - disks_at >= DISK_S:
                    disks_at = clock.monotonic()
                    await self._measure_disks()
                self.look()
            except (OSError, RuntimeFailure) as error:
                log.warning("node not measured", error=error)
            await clock.sleep(EVERY_S)

    async def _measure_disks(self) -> None:
        context = self._context
        directories = await context.runtime.image_directories()
        if directories:
            self._image_root = Path(directories[0])
        usages: Mapping[str, ContainerUsage] = await context.runtime.container_usage()
        found = {}
        for worker in self._workers():
            if worker.pod is not None and worker.observed.running():
                found[worker.uid] = await asyncio.to_thread(
                    diskusage.of_pod,
                    worker.pod,
                    context.volumes.directory(worker.uid),
                    worker.observed.containers,
                    usages,
                )
        self._disks = found

    def look(self) -> None:
        """Read the counters of every pod once."""
        samples = [self._pod(worker) for worker in self._workers()]
        self.pods = [sample for sample in samples if sample is not None]
        names = {s.pod.metadata.uid for s in self.pods}
        containers = {f"{s.pod.metadata.uid}/{c.name}" for s in self.pods for c in s.containers}
        self._rates.keep_only({"/", "pods"} | names | containers)

    def _pod(self, worker: PodWorker) -> PodSample | None:
        pod = worker.pod
        running = worker.observed.running()
        if pod is None or not running:
            return None
        qos = pod.status.qos_class or resources.qos_class(pod)
        path = cgroups.pod_path(self._context.settings.cgroup_root, qos, worker.uid)
        whole = self._read(path, worker.uid)
        containers = []
        for container in running:
            own = f"{path}/{container.id}"
            used = self._read(own, f"{worker.uid}/{container.name}")
            if used is not None:
                containers.append(ContainerSample(container.name, container.started_at, used))
        if whole is None:
            return None
        sandbox = worker.observed.sandbox
        pid = self._groups.first_pid(f"{path}/{sandbox.id}") if sandbox is not None else None
        network: list[usage.Interface] = []
        if pid is not None and not pod.spec.host_network:
            network = usage.interfaces(_text(Path(f"/proc/{pid}/net/dev")))
        return PodSample(pod, whole, containers, network, self._disks.get(worker.uid, PodDisk()))

    def _read(self, path: str, name: str) -> GroupUsage | None:
        found = self._groups.read(path, self._context.clock.now())
        if found is None:
            return None
        return GroupUsage(self._rates.rated(name, found.cpu), found.memory, found.processes)

    def node(self) -> NodeSample:
        """The machine, now."""
        context = self._context
        whole = stats.machine(context.clock.now())
        memory = usage.meminfo(Path("/proc/meminfo").read_text())
        total = memory.get("MemTotal", 0)
        used = GroupUsage(
            self._rates.rated("/", Cpu(whole.at, whole.cpu_s)),
            Memory(
                usage=total - memory.get("MemFree", 0),
                working_set=whole.working_set_bytes,
                rss=memory.get("AnonPages", 0),
            ),
        )
        pods = self._read(f"/{context.settings.cgroup_root}", "pods")
        load = Path("/proc/loadavg").read_text().split()[3]
        return NodeSample(
            name=context.settings.name,
            booted_at=machine.booted_at(Path("/proc/stat").read_text()),
            usage=used,
            memory_available=max(0, total - whole.working_set_bytes),
            network=usage.interfaces(_text(Path("/proc/self/net/dev"))),
            nodefs=_disk(context.settings.root),
            imagefs=_disk(self._image_root),
            processes=int(load.partition("/")[2]),
            most_processes=int(Path("/proc/sys/kernel/pid_max").read_text()),
            systems={"pods": pods} if pods is not None else {},
        )


def _disk(path: Path) -> Disk:
    found = os.statvfs(path)
    return Disk(
        found.f_blocks * found.f_frsize,
        found.f_bavail * found.f_frsize,
        found.f_files,
        found.f_favail,
    )


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
