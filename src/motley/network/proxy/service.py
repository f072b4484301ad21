"""`motley proxy`: informers in, rules and names out.

One view of Services and EndpointSlices feeds both the nftables table and the DNS zone. When the
API server is away, both keep what they know; when this process dies, the rules stay in the kernel.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pyroute2 import NetlinkError

from motley.api.views.base import Key, Object
from motley.api.views.core import EndpointSlice, Service
from motley.client.informer import Change, Informer
from motley.client.rest import Client
from motley.lib import clock as clocks
from motley.lib import health, journal
from motley.network import podnet
from motley.network.dns.forward import Forwarder, HostUpstreams, Upstream
from motley.network.dns.resolver import Resolver
from motley.network.dns.server import DnsServer
from motley.network.dns.zone import Zone
from motley.network.policy.planner import Policies
from motley.network.policy.source import PolicySource
from motley.network.proxy import healthcheck
from motley.network.proxy.endpoints import SERVICE_NAME, is_weighted
from motley.network.proxy.healthcheck import HealthChecks
from motley.network.proxy.layout import Settings
from motley.network.proxy.nftables import Nft
from motley.network.proxy.surroundings import NodeSource
from motley.network.proxy.syncer import Syncer
from motley.network.proxy.ways import Ways, virtual

log = journal.get(__name__)

_BY_SERVICE = "service"
_ADDRESS_CHECK_S = 5.0


@dataclass(frozen=True)
class Options:
    """How one node's proxy is set up; the defaults are the cluster's."""

    node_name: str
    table: str = "motley"
    bridge: str = "motley0"
    service_cidr: str = "10.96.0.0/16"
    cluster_cidr: str = "10.244.0.0/16"
    cluster_domain: str = "cluster.local"
    dns: bool = True
    dns_address: str = "10.96.0.10"
    dns_port: int = 53
    dns_upstreams: Sequence[Upstream] | None = None  # None: the host's own
    localhost_node_ports: bool = True
    network_policy: bool = True
    service_interface: str = ""  # where Services' addresses are to be; empty: nowhere
    health_port: int = 10256

    @property
    def settings(self) -> Settings:
        """What of this the table depends on."""
        return Settings(
            node_name=self.node_name,
            cluster_cidr=self.cluster_cidr,
            service_cidr=self.service_cidr,
            localhost_node_ports=self.localhost_node_ports,
            network_policy=self.network_policy,
            dns_address=self.dns_address if self.dns else "",
        )


class Services:
    """Services and their slices, as informers know them."""

    def __init__(self, client: Client, clock: clocks.Clock) -> None:
        self._services = Informer(client, Service, clock=clock)
        indexes = {_BY_SERVICE: _service_of}
        self._slices = Informer(client, EndpointSlice, indexes=indexes, clock=clock)

    def on_change(self, handler: Callable[[Key], None]) -> None:
        """Call `handler` with the Service's key when it or one of its slices changes."""

        def service_changed(change: Change[Service]) -> None:
            handler(change.key)

        def slice_changed(change: Change[EndpointSlice]) -> None:
            seen = {_owner(s) for s in (change.old, change.new) if s is not None}
            for key in seen - {None}:
                assert key is not None
                handler(key)

        self._services.add_handler(service_changed)
        self._slices.add_handler(slice_changed)

    def start(self, tasks: asyncio.TaskGroup) -> None:
        """Follow the API server."""
        tasks.create_task(self._services.run(), name="services")
        tasks.create_task(self._slices.run(), name="endpointslices")

    async def synced(self) -> None:
        """Wait until both lists are complete."""
        await self._services.synced()
        await self._slices.synced()

    def keys(self) -> Iterable[Key]:
        """Every Service there is."""
        return [service.key for service in self._services.items()]

    def weighted(self) -> Iterable[Key]:
        """Every Service whose endpoints are weighted by speed."""
        return [service.key for service in self._services.items() if is_weighted(service)]

    def service(self, key: Key) -> Service | None:
        """One Service."""
        return self._services.get(key)

    def slices(self, key: Key) -> Sequence[EndpointSlice]:
        """The slices of a Service, in a stable order."""
        return sorted(self._slices.by_index(_BY_SERVICE, str(key)), key=lambda s: s.key)


def _owner(piece: Object) -> Key | None:
    name = piece.metadata.labels.get(SERVICE_NAME)
    return Key(piece.metadata.namespace, name) if name else None


def _service_of(piece: EndpointSlice) -> Iterable[str]:
    owner = _owner(piece)
    return (str(owner),) if owner is not None else ()


async def run(client: Client, options: Options, *, clock: clocks.Clock = clocks.SYSTEM) -> None:
    """Run the proxy until cancelled."""
    services = Services(client, clock)
    nft = Nft()
    settings = options.settings
    policies = Policies(settings.dns_address) if options.network_policy else None
    syncer = Syncer(nft, options.table, settings, services, policies=policies, clock=clock)
    services.on_change(syncer.mark)
    ways = _ways(services, options, clock)
    resolver = _resolver(services, options, clock) if options.dns else None
    checks = _health_checks(services, syncer, options)
    nodes = _node_source(client, services, syncer, options, clock)
    judged = (
        PolicySource(client, policies, options.node_name, syncer.mark_policies, clock=clock)
        if policies is not None
        else None
    )

    async def follow() -> None:
        await services.synced()
        if resolver is not None:
            resolver.is_ready = True
        await nodes.complete()
        if judged is not None:
            await judged.complete()
        await syncer.run()

    async def lead() -> None:
        await services.synced()
        await ways.run()

    try:
        async with asyncio.TaskGroup() as tasks:
            services.start(tasks)
            tasks.create_task(nodes.run(), name="nodes")
            if judged is not None:
                tasks.create_task(judged.run(), name="policies")
            tasks.create_task(checks.run(), name="health checks")
            tasks.create_task(follow(), name="rules")
            tasks.create_task(lead(), name="ways")
            if resolver is not None:
                server = DnsServer(resolver, options.dns_address, options.dns_port, clock=clock)
                tasks.create_task(server.run(), name="dns")
                tasks.create_task(_keep_address(options, clock), name="dns address")
            tasks.create_task(health.serve(options.health_port, lambda: syncer.is_synced))
    finally:
        await nft.close()


def _ways(services: Services, options: Options, clock: clocks.Clock) -> Ways:
    ways = Ways(
        lambda: virtual(map(services.service, services.keys())),
        options.bridge,
        (options.service_cidr, options.cluster_cidr),
        options.service_interface,
        clock,
    )
    services.on_change(ways.mark)
    return ways


def _resolver(services: Services, options: Options, clock: clocks.Clock) -> Resolver:
    zone = Zone(
        options.cluster_domain,
        dns_address=options.dns_address,
        networks=(options.service_cidr, options.cluster_cidr),
    )

    def rename(key: Key) -> None:
        zone.put(key, services.service(key), services.slices(key))

    services.on_change(rename)
    upstreams: Callable[[], Sequence[Upstream]] = HostUpstreams(options.dns_address)
    if (configured := options.dns_upstreams) is not None:
        upstreams = lambda: configured  # noqa: E731
    return Resolver(zone, Forwarder(upstreams, clock=clock))


def _health_checks(services: Services, syncer: Syncer, options: Options) -> HealthChecks:
    checks = HealthChecks(lambda: syncer.is_synced)

    def changed(key: Key) -> None:
        slices = services.slices(key)
        checks.put(key, healthcheck.check(services.service(key), slices, options.node_name))

    services.on_change(changed)
    return checks


def _node_source(
    client: Client, services: Services, syncer: Syncer, options: Options, clock: clocks.Clock
) -> NodeSource:
    nodes = NodeSource(
        client,
        options.node_name,
        services=services.keys,
        weighted=services.weighted,
        on_change=syncer.surround,
        clock=clock,
    )

    def changed(key: Key) -> None:
        service = services.service(key)
        if service is not None and is_weighted(service):
            nodes.want_speeds()

    services.on_change(changed)
    return nodes


async def _keep_address(options: Options, clock: clocks.Clock) -> None:
    """Put the DNS address back on the bridge when something took it away."""
    while True:
        try:
            await podnet.ensure_dns_address(bridge=options.bridge, address=options.dns_address)
        except (NetlinkError, OSError) as error:
            log.warning("DNS address cannot be set", bridge=options.bridge, error=error)
        await clock.sleep(_ADDRESS_CHECK_S)
