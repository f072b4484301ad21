"""`motley gateway`: informers in, a running nginx out.

Changes are gathered for a moment, planned, tested by nginx, loaded, and only then told: a name
resolves once its paths answer. When the API server is away nginx keeps what it has; when this
process ends nginx goes on, and the next one takes it over. Where there is nothing to serve there is
no nginx.

Of several gateways one tells (statuses, events, names); all serve.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import SubprocessError
from typing import Any

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.core import EndpointSlice, Secret, Service
from motley.api.views.paths import Ingress, IngressClass, Route
from motley.client.events import Recorder
from motley.client.informer import Informer
from motley.client.lease import LeaderElection
from motley.client.rest import Client
from motley.lib import clock as clocks
from motley.lib import health, journal
from motley.lib.backoff import Backoff
from motley.network.dns.hosts import GATEWAY
from motley.network.paths import hostsfile, nginxconf, plan, publish
from motley.network.paths.backends import Backends
from motley.network.paths.certificates import Store
from motley.network.paths.nginx import Nginx, NginxError
from motley.network.paths.nginxconf import Listening
from motley.network.paths.plan import World
from motley.network.paths.sites import Owner, Plan, Problem
from motley.network.proxy.endpoints import SERVICE_NAME

log = journal.get(__name__)

_GATHER_S = 0.05
_LOOK_S = 2.0  # how often nginx is looked after
_AGAIN_S = 10.0  # until an address that was refused is asked for again
_HEADLESS = "service.kubernetes.io/headless"
_TLS = "type=kubernetes.io/tls"


@dataclass(frozen=True)
class Options:
    """How one machine's gateway is set up."""

    node_name: str
    directory: Path
    address: str  # of this machine, where other nodes reach it
    http_port: int = 10280
    https_port: int = 10281
    host_ports: bool = False  # also at ports 80 and 443 of the machine
    cluster_domain: str = "cluster.local"
    hosts_file: Path | None = None
    workers: int = 1
    user: str = ""
    health_port: int = 10282
    leader_elect: bool = True

    @property
    def listening(self) -> Listening:
        """Where nginx listens."""
        more = self.host_ports
        return Listening(
            directory=self.directory,
            http=[(self.address, self.http_port), *([(self.address, 80)] if more else [])],
            https=[(self.address, self.https_port), *([(self.address, 443)] if more else [])],
            workers=self.workers,
            user=self.user,
        )


class Gateway:
    """One machine's gateway."""

    def __init__(
        self, client: Client, options: Options, *, clock: clocks.Clock = clocks.SYSTEM
    ) -> None:
        self._options = options
        self._clock = clock
        self._routes = Informer(client, Route, clock=clock)
        self._ingresses = Informer(client, Ingress, clock=clock)
        self._classes = Informer(client, IngressClass, clock=clock)
        self._services = Informer(client, Service, clock=clock)
        self._slices = Informer(client, EndpointSlice, label_selector=_HEADLESS, clock=clock)
        self._secrets = Informer(client, Secret, field_selector=_TLS, clock=clock)
        self._events = Recorder(client, "motley-gateway", options.node_name, clock=clock)
        self._publisher = publish.Publisher(client, options.node_name, clock=clock)
        self._leadership = LeaderElection(client, "motley-gateway", clock=clock)
        self._nginx = Nginx(options.listening, clock=clock)
        self._certificates = Store(options.directory / "tls")
        self._changed = asyncio.Event()
        self._told: set[Problem] = set()
        self._live = ""  # the generation nginx serves
        self._is_refused = False
        self.is_ready = False
        self.is_leader = not options.leader_elect
        for informer in self._all:
            informer.add_handler(self._mark)

    @property
    def _all(self) -> tuple[Informer[Any], ...]:
        return (
            self._routes,
            self._ingresses,
            self._classes,
            self._services,
            self._slices,
            self._secrets,
        )

    def _mark(self, _change: object) -> None:
        self._changed.set()

    async def run(self) -> None:
        """Serve until cancelled; nginx goes on."""
        async with asyncio.TaskGroup() as tasks:
            for informer in self._all:
                tasks.create_task(informer.run(), name=informer.cls.PLURAL)
            tasks.create_task(self._events.run(), name="events")
            tasks.create_task(self._follow(), name="configuration")
            port = self._options.health_port
            tasks.create_task(health.serve(port, lambda: self.is_ready), name="health")
            if self._options.leader_elect:
                tasks.create_task(self._leadership.lead(self._lead), name="leadership")

    async def _lead(self) -> None:
        self.is_leader = True
        self._changed.set()
        await asyncio.Event().wait()

    async def _follow(self) -> None:
        for informer in self._all:
            await informer.synced()
        backoff = Backoff(base_s=0.2, cap_s=5.0)
        while True:
            self._changed.clear()
            try:
                await self.sync()
            except (status.ApiError, NginxError, OSError, SubprocessError) as error:
                log.warning("paths are not up to date", error=str(error))
                await self._clock.sleep(backoff.next())
                continue
            self.is_ready = True
            backoff.reset()
            await self._until_changed()

    async def _until_changed(self) -> None:
        """Wait for a change, or for the end of an nginx that should run."""
        again_at = self._clock.monotonic() + _AGAIN_S
        while not self._changed.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._changed.wait()
            if self._live and not self._nginx.is_running:
                log.warning("nginx has ended")
                return
            if self._is_refused and self._clock.monotonic() > again_at:
                return  # an address may be free, or its range there, by now
        await self._clock.sleep(_GATHER_S)

    def _world(self, left_out: frozenset[Owner] = frozenset()) -> World:
        services = {service.key: service for service in self._services.items()}
        slices: dict[Key, list[EndpointSlice]] = {}
        for piece in sorted(self._slices.items(), key=lambda p: p.key):
            name = piece.metadata.labels.get(SERVICE_NAME, "")
            slices.setdefault(Key(piece.metadata.namespace, name), []).append(piece)
        domain = self._options.cluster_domain
        return World(
            backends=Backends(services, slices, domain),
            routes=self._routes.items(),
            ingresses=self._ingresses.items(),
            classes=self._classes.items(),
            certificates=self._certificates.read(self._secrets.items()),
            left_out=left_out,
            domain=domain,
        )

    async def sync(self) -> None:
        """Bring nginx, then what is said about it, up to date."""
        world = self._world()
        wanted = plan.plan(world)
        text, generation = nginxconf.render(wanted, self._options.listening)
        is_live = self._live == generation and self._nginx.is_running
        if wanted.sites and not is_live:
            wanted, text, generation = await self._accepted(world, wanted, text, generation)
        if not wanted.sites:
            await self._idle()
        elif not (self._live == generation and self._nginx.is_running):
            await self._nginx.apply(text, generation)
            self._live = generation
            self._certificates.forget_unused()
            log.info("paths served", sites=len(wanted.sites), generation=generation)
        await self._publish(world, wanted)

    async def _idle(self) -> None:
        if self._nginx.is_running:
            await self._nginx.stop()
            log.info("nothing to serve, nginx ended")
        self._live = ""

    async def _accepted(
        self, world: World, wanted: Plan, text: str, generation: str
    ) -> tuple[Plan, str, str]:
        """The plan as nginx takes it: objects that it refuses are left out, with a problem."""
        said = await self._nginx.check(text)
        if not said:
            return wanted, text, generation
        log.warning("nginx refuses the configuration", error=said)
        bad = await self._culprits(world, sorted(wanted.served))
        if not bad:
            raise NginxError(said)
        left = World(**{**vars(world), "left_out": frozenset(bad)})
        without = plan.plan(left)
        without.problems += [
            Problem(owner, "Refused", f"nginx: {why}") for owner, why in bad.items()
        ]
        text, generation = nginxconf.render(without, self._options.listening)
        said = await self._nginx.check(text)
        if said:
            raise NginxError(said)
        return without, text, generation

    async def _culprits(self, world: World, owners: Sequence[Owner]) -> dict[Owner, str]:
        """Who it is, by halves: each is tried without all the others."""
        everyone = plan.plan(world).served
        left = World(**{**vars(world), "left_out": frozenset(everyone - set(owners))})
        text, _ = nginxconf.render(plan.plan(left), self._options.listening)
        said = await self._nginx.check(text)
        if not said:
            return {}
        if len(owners) == 1:
            return {owners[0]: said}
        middle = len(owners) // 2
        first = await self._culprits(world, owners[:middle])
        return {**first, **await self._culprits(world, owners[middle:])}

    async def _publish(self, world: World, wanted: Plan) -> None:
        services = world.backends.services
        chosen = dict.fromkeys(wanted.addresses.values())
        addresses = ["", *chosen] if wanted.sites else []
        if self.is_leader:
            await self._publisher.ingress_class(world.classes)
            found, refused = await self._publisher.services(services, addresses)
        else:
            found, refused = _present(services, addresses), {}
        self._is_refused = bool(refused)
        own = found.get("", "")
        for host, address in list(wanted.addresses.items()):
            if address in refused:
                del wanted.addresses[host]
        hosts = wanted.hosts(own) if own else {}
        problems = [*wanted.problems, *self._refusals(world, refused)]
        here = self._options.address if wanted.sites else ""
        names = [plan.service_of(address).name for address in found]
        if not names and GATEWAY in services:
            names = [GATEWAY.name]
        ports = (self._options.http_port, self._options.https_port)
        await self._publisher.endpoints(names, here, *ports)
        if self._options.hosts_file is not None:
            mark = hostsfile.mark_of(self._options.directory)
            hostsfile.write(self._options.hosts_file, hosts, mark)
        if self.is_leader:
            await self._publisher.hosts(services, hosts)
            await self._tell(world, wanted, problems, hosts, own)

    def _refusals(self, world: World, refused: Mapping[str, str]) -> list[Problem]:
        return [
            Problem(plan.owner_of(route), "AddressRefused", refused[route.spec.address])
            for route in world.routes
            if route.spec.address in refused
        ]

    async def _tell(
        self,
        world: World,
        wanted: Plan,
        problems: Sequence[Problem],
        hosts: Mapping[str, str],
        own: str,
    ) -> None:
        of: dict[Owner, list[Problem]] = {}
        for problem in problems:
            of.setdefault(problem.owner, []).append(problem)
        objects: dict[Owner, Route | Ingress] = {}
        for route in world.routes:
            owner = plan.owner_of(route)
            objects[owner] = route
            host = route.spec.host.lower().rstrip(".")
            address = hosts.get(host, "") if owner in wanted.served else ""
            await self._publisher.route(route, address, of.get(owner, []))
        gateway = world.backends.services.get(GATEWAY)
        ours = {own, self._options.address, gateway.spec.cluster_ip if gateway else ""}
        public = self._options.address if self._options.host_ports else own
        for ingress in world.ingresses:
            owner = plan.owner_of(ingress)
            objects[owner] = ingress
            address = public if owner in wanted.served else ""
            await self._publisher.ingress(ingress, address, ours)
        for problem in problems:
            if problem not in self._told and problem.owner in objects:
                obj = objects[problem.owner]
                self._events.event(obj, "Warning", problem.reason, problem.message)
        self._told = set(problems)


def _present(services: Mapping[Key, Service], addresses: Sequence[str]) -> dict[str, str]:
    found = {}
    for address in addresses:
        known = services.get(plan.service_of(address))
        if known is not None and known.spec.cluster_ip:
            found[address] = known.spec.cluster_ip
    return found


async def run(client: Client, options: Options, *, clock: clocks.Clock = clocks.SYSTEM) -> None:
    """Run the gateway until cancelled."""
    await Gateway(client, options, clock=clock).run()
