"""The node agent: which pods are mine, and who looks after each.

Four things make it act: a pod of this node changes in the API, something happens in the runtime,
time passes (a relist, in case an event was lost), and housekeeping. Each only wakes the worker of
the pod concerned; what is to be done is decided there. Stopping the agent leaves every container
running; the next agent finds them by their labels and goes on.
"""

import asyncio
import ssl
from pathlib import Path
from random import Random

import aiohttp

from motley.api import status as api_status
from motley.api.views.base import Key
from motley.api.views.core import Node, Service
from motley.api.views.pod import Pod
from motley.client.delegation import Delegation
from motley.client.events import Recorder
from motley.client.informer import Change, Informer
from motley.client.rest import Client
from motley.lib import journal
from motley.lib.backoff import Backoff
from motley.lib.clock import SYSTEM, Clock
from motley.node import cgroups, cpus, dnsconfig, machine
from motley.node.admission import Admission
from motley.node.allocation import Allocations
from motley.node.checks import Checker
from motley.node.context import Context, Settings
from motley.node.cri.errors import RuntimeFailure
from motley.node.cri.runtime import Runtime
from motley.node.cri.values import Version
from motley.node.eviction.evictor import Evictor
from motley.node.housekeeping import Housekeeper
from motley.node.imagegc import ImageCollector
from motley.node.images import Images
from motley.node.measuring import Measurements
from motley.node.objects import Objects
from motley.node.podcertificates import PodCertificates
from motley.node.pulledimages import PulledImages
from motley.node.readiness import NodeReadiness, SetupNetwork
from motley.node.registration import RENEW_S, STATUS_S, RefusedError, Registration
from motley.node.runtimewatch import RuntimeWatch
from motley.node.server import Server
from motley.node.staticpods import MIRROR, StaticPods, is_mirror
from motley.node.volumes.podvolumes import PodVolumes
from motley.node.workers import Workers

log = journal.get(__name__)

NOT_READY_POLL_S = 0.5
IMAGE_GC_S = 300.0
EVENTS_LINGER_S = 0.3  # a pod is up by then; until then the machine is its own
SETTLE_S = 20.0  # a start that takes longer than this is a failure to report


class Agent:
    """One node. `setup_network` is called with the node's podCIDR as soon as it has one."""

    def __init__(
        self,
        settings: Settings,
        client: Client,
        runtime: Runtime,
        *,
        setup_network: SetupNetwork,
        tls: ssl.SSLContext | None = None,
        bind: str = "0.0.0.0",
        groups: cgroups.Cgroups | None = None,
        clock: Clock = SYSTEM,
        rng: Random | None = None,
    ) -> None:
        self._settings = settings
        self._client = client
        self._runtime = runtime
        self._tls = tls
        self._bind = bind
        self._groups = groups or cgroups.Cgroups(
            settings.cgroup_root, max_pids=settings.pod_max_pids
        )
        self._clock = clock
        self._rng = rng or Random()
        self._workers = Workers()
        self._is_adopting = True
        self._must_report = asyncio.Event()
        self._readiness = NodeReadiness(runtime, setup_network, clock, self._rng)
        self._known: set[str] = set()  # uids of the runtime's pods when the agent began
        self._evictor: Evictor
        selector = f"spec.nodeName={settings.name}"
        self._pods: Informer[Pod] = Informer(client, Pod, field_selector=selector, clock=clock)
        self._services: Informer[Service] = Informer(client, Service, clock=clock)
        name = f"metadata.name={settings.name}"
        self._nodes: Informer[Node] = Informer(client, Node, field_selector=name, clock=clock)
        self._static = StaticPods(
            settings.static_pods or settings.root / "static",
            settings.name,
            client,
            clock,
            begin=self._workers.begin_static,
            end=self._workers.end_static,
            shown=self._pods.get,
            node=lambda: self._nodes.get(Key("", settings.name)),
        )
        self._recorder = Recorder(
            client, "kubelet", settings.name, clock=clock, linger_s=EVENTS_LINGER_S
        )
        self._context: Context
        self._tasks: asyncio.TaskGroup

    # -- state others ask for

    @property
    def is_ready(self) -> bool:
        """Are the agent's own informers current and the runtime there?"""
        return not self._is_adopting and not self._readiness.runtime

    def not_ready(self) -> str:
        """Why the node cannot run pods now; empty when it can."""
        return self._readiness.missing

    def _objects(self) -> Objects:
        """What pods refer to; whatever changes wakes their workers."""
        client, tasks, changed = self._client, self._tasks, self._workers.objects_changed
        name = self._settings.name
        certificates = PodCertificates(
            client,
            tasks,
            changed,
            node_name=name,
            node=lambda: self._nodes.get(Key("", name)),
            recorder=self._recorder,
            clock=self._clock,
            rng=self._rng,
        )
        return Objects(client, tasks, changed, certificates=certificates, clock=self._clock)

    # -- life

    async def run(self) -> None:
        """Run until cancelled. Raises RefusedError when the name belongs to another agent."""
        settings, clock = self._settings, self._clock
        settings.log_root.mkdir(parents=True, exist_ok=True)
        version = await self._first_contact()
        about = machine.read(settings.root, settings.architecture)
        may_lower = cgroups.may_lower_oom_score(Path("/proc/self/status").read_text())
        node_resources = machine.resources(
            about, settings.system_reserved, settings.max_pods, may_lower_oom_score=may_lower
        )
        registration = Registration(
            self._client,
            self._runtime,
            settings,
            about,
            node_resources,
            version,
            clock,
            self.not_ready,
            lambda: self._evictor.conditions,
        )
        try:
            async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as self._tasks:
                await self._begin_tasks(registration, http, version)
        except BaseExceptionGroup as group:
            refused = group.subgroup(RefusedError)
            if refused is not None:
                raise next(e for e in refused.exceptions if isinstance(e, RefusedError)) from group
            raise

    async def _begin_tasks(
        self, registration: Registration, http: aiohttp.ClientSession, version: Version
    ) -> None:
        settings, clock = self._settings, self._clock
        volumes = PodVolumes(settings.root, clock=clock)
        self._context = Context(
            settings=settings,
            client=self._client,
            runtime=self._runtime,
            images=Images(
                self._runtime,
                pulled=PulledImages(settings.root / "image_pulls.json"),
                parallel=settings.max_parallel_image_pulls,
                clock=clock,
            ),
            volumes=volumes,
            cgroups=self._groups,
            cpus=self._cpu_manager(),
            allocations=Allocations(volumes.directory),
            objects=self._objects(),
            checker=Checker(self._runtime, http, clock),
            recorder=self._recorder,
            clock=clock,
            resources=registration.resources,
            host_resolver=dnsconfig.parse(_text(Path("/etc/resolv.conf"))),
            host_hosts=_text(Path("/etc/hosts")),
            services=self._services.items,
            is_network_ready=lambda: not self._readiness.network,
            as_shown=self._static.as_shown,
        )
        images = ImageCollector(self._runtime, clock, settings.image_limits)
        self._guard(images)
        start = self._tasks.create_task
        start(self._recorder.run())
        # These need no API server; all else begins when it has been reached.
        self._known = await self._list_runtime()
        start(self._static.run())
        await self._until_registered(registration)
        self._nodes.add_handler(lambda change: self._node_changed(change, registration))
        start(self._nodes.run())
        start(self._services.run())
        start(self._renew(registration))
        start(self._report(registration))
        start(self._readiness.follow_network(self._nodes, settings.name))
        start(self._evictor.run())
        start(self._collect_images(images))
        start(self._adopt())
        measurements = Measurements(self._context, self._workers.all)
        start(measurements.run())
        if self._tls is not None:
            server = Server(
                self._runtime,
                self._workers.find,
                self._workers.all,
                lambda: self.is_ready,
                settings.root / "exec",
                clock,
                self._rng,
                measurements,
                Delegation(self._client, self._client, clock=clock),
                settings.name,
                is_containerd=version.is_containerd,
            )
            start(server.run(self._bind, settings.port, self._tls))

    def _guard(self, images: ImageCollector) -> None:
        """What keeps the node from taking on more than it has, and from running out."""
        context, name = self._context, self._settings.name
        context.cgroups.limit_pods(context.resources.allocatable)

        def node() -> Node | None:
            return self._nodes.get(Key("", name))

        self._evictor = Evictor(
            context,
            self._settings.eviction,
            self._workers.all,
            images.remove_unused,
            node,
            self._must_report.set,
        )
        admission = Admission(context, self._evictor, self._workers.all, node)
        self._workers.open(context, admission, self._tasks)

    def _cpu_manager(self) -> cpus.CpuManager:
        settings = self._settings
        checkpoint = settings.root / "cpu_manager_state"
        if settings.cpu_manager_policy != "static":
            return cpus.CpuManager(checkpoint)
        places = cpus.topology()
        kept = cpus.reserved(settings.reserved_cpus, settings.system_reserved, places)
        return cpus.CpuManager(checkpoint, places, kept, is_static=True, changed=self._workers.wake)

    async def _first_contact(self) -> Version:
        backoff = Backoff(base_s=0.1, cap_s=5.0, rng=self._rng)
        while True:
            try:
                version = await self._runtime.version()
            except RuntimeFailure as error:
                log.warning("waiting for the container runtime", error=error)
                await self._clock.sleep(backoff.next())
                continue
            log.info("container runtime", name=version.name, version=version.version)
            return version

    async def _until_registered(self, registration: Registration) -> None:
        backoff = Backoff(base_s=0.2, cap_s=10.0, rng=self._rng)
        while True:
            try:
                await registration.register()
                return
            except (api_status.ServiceUnavailable, api_status.GatewayTimeout) as error:
                log.warning("waiting for the API server", error=error.message)
                await self._clock.sleep(backoff.next())

    async def _adopt(self) -> None:
        """First what there is, then what is wanted: running pods are adopted before any starts."""
        known = self._known
        self._pods.add_handler(self._pod_changed)
        await self._services.synced()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._pods.run())
            await self._pods.synced()
            self._is_adopting = False
            # Those that already run have their place; newcomers take what is left.
            every = self._pods.items()
            for mirror in filter(is_mirror, every):
                self._static.adopt(mirror)
            pods = [pod for pod in every if not is_mirror(pod)]
            for pod in sorted(pods, key=lambda p: (p.metadata.uid not in known, _created(p))):
                self._workers.ensure(pod, is_known=pod.metadata.uid in known)
            for uid in known - {p.metadata.uid for p in pods} - self._static.uids:
                self._workers.adopt_orphan(uid)
            self._context.cpus.keep_only({p.metadata.uid for p in pods} | known)
            log.info("agent ready", pods=len(pods), in_runtime=len(known))
            watch = RuntimeWatch(
                self._runtime,
                self._workers,
                lambda: (p.metadata.uid for p in self._pods.items()),
                self._workers.adopt_orphan,
                self._clock,
            )
            group.create_task(watch.run())
            group.create_task(Housekeeper(self._context).run(self._workers.all))

    async def _list_runtime(self) -> set[str]:
        backoff = Backoff(base_s=0.1, cap_s=5.0, rng=self._rng)
        while True:
            try:
                sandboxes = await self._runtime.list_sandboxes()
                containers = await self._runtime.list_containers()
            except RuntimeFailure as error:
                log.warning("waiting for the container runtime", error=error)
                await self._clock.sleep(backoff.next())
                continue
            return {s.uid for s in sandboxes} | set(containers)

    # -- workers

    def _pod_changed(self, change: Change[Pod]) -> None:
        if is_mirror(change.object):
            self._static.wake()
            if worker := self._workers.get(change.object.metadata.annotations[MIRROR]):
                worker.wake()
            return
        if not self._is_adopting:
            self._workers.pod_changed(change)

    # -- time

    async def _collect_images(self, images: ImageCollector) -> None:
        while True:
            await self._clock.sleep(IMAGE_GC_S)
            try:
                await images.round()
            except (OSError, RuntimeFailure) as error:
                log.warning("images not collected", error=error)

    # -- the node

    def _node_changed(self, change: Change[Node], registration: Registration) -> None:
        registration.update(change.new)
        if change.new is None:
            self._must_report.set()

    async def _report(self, registration: Registration) -> None:
        # A restart is no reason to send traffic away from running pods: what this agent's last
        # life reported holds until this one knows better, or has had its time to find out.
        settled_at = self._clock.monotonic() + SETTLE_S
        while True:
            if await self._readiness.check():
                self._workers.retry_now()
            is_well = not self.not_ready()
            try:
                if is_well or not registration.is_ready or self._clock.monotonic() > settled_at:
                    await registration.report()
            except api_status.ApiError as error:
                log.warning("node status not written", error=error.message)
            pause = STATUS_S if is_well else NOT_READY_POLL_S
            try:
                async with asyncio.timeout(pause):
                    await self._must_report.wait()
            except TimeoutError:
                continue
            self._must_report.clear()

    async def _renew(self, registration: Registration) -> None:
        while True:
            try:
                await registration.renew_lease()
            except api_status.ApiError as error:
                log.warning("lease not renewed", error=error.message)
            await self._clock.sleep(RENEW_S)


def _created(pod: Pod) -> str:
    return pod.metadata.creation_timestamp or ""


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
