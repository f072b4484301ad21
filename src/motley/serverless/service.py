"""The component's parts put together: a router in every process, the controller in one of them."""

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path
from random import Random

from motley.api.views.pod import Pod
from motley.api.views.serverless import Function, Invocation
from motley.api.views.trigger import Trigger
from motley.client.delegation import Delegation
from motley.client.informer import Informer
from motley.client.lease import LeaderElection, process_identity
from motley.client.rest import Client
from motley.lib import health, journal
from motley.lib.clock import SYSTEM, Clock
from motley.serverless import keys, metrics, objects
from motley.serverless.accepting import Acceptance
from motley.serverless.callback import Callbacks
from motley.serverless.calls import Calls
from motley.serverless.channel import Channels
from motley.serverless.demand import Reporter
from motley.serverless.discovery import BY_FUNCTION, Discovery, by_function
from motley.serverless.executor import Executor
from motley.serverless.fleet import Fleet
from motley.serverless.gate import Gate
from motley.serverless.httpd import Server
from motley.serverless.instances import Instance, Table
from motley.serverless.legacy.server import Legacy
from motley.serverless.router import SYNC_WAIT_S, Router
from motley.serverless.specialist import Specialist
from motley.serverless.starting import Starter
from motley.serverless.triggers.paths import Paths
from motley.serverless.triggers.service import Triggers

log = journal.get(__name__)

_LOOK_AGAIN_S = 1.0
# A function that is called just before its call ends may still call others for a moment.
_TOKEN_SPARE_S = 30.0


@dataclass(frozen=True)
class Options:
    """How the component runs."""

    listen: str = "127.0.0.1"
    port: int = 10290
    url: str = ""  # how callers, and functions in their pods, reach the router
    tls_cert: Path | None = None
    tls_key: Path | None = None
    ca: Path | None = None  # by which functions know the router; its own certificate if not given
    client_ca: Path | None = None
    cache_dir: Path | None = None  # where layers are kept
    namespace: str = "kube-system"  # of the key and the lease
    image: str = objects.DEFAULT_IMAGE
    pool_size: int = 1
    pool_limit: int = 20
    max_body: int = 10_000_000
    sync_wait_s: float = SYNC_WAIT_S
    leader_elect: bool = True
    health_port: int = 10291
    callback_local: bool = False
    legacy_listen: str = "127.0.0.1"
    legacy_port: int = 0  # of the documents' URLs; 0: not served


async def run(
    client: Client, options: Options, *, clock: Clock = SYSTEM, rng: Random | None = None
) -> None:
    """Serve until cancelled."""
    await _Component(client, options, clock, rng or Random()).run()


class _Component:
    def __init__(self, client: Client, options: Options, clock: Clock, rng: Random) -> None:
        self._client = client
        self._options = options
        self._clock = clock
        self._rng = rng
        self._is_serving = False
        self._functions: Informer[Function] = Informer(client, Function, clock=clock)
        self._pods: Informer[Pod] = Informer(
            client,
            Pod,
            label_selector=objects.RUNTIME,
            indexes={BY_FUNCTION: by_function},
            clock=clock,
        )
        self._invocations: Informer[Invocation] = Informer(client, Invocation, clock=clock)
        self._triggers: Informer[Trigger] = Informer(client, Trigger, clock=clock)

    async def run(self) -> None:
        options, clock = self._options, self._clock
        informers = (self._functions, self._pods, self._invocations, self._triggers)
        async with asyncio.TaskGroup() as group:
            group.create_task(health.serve(options.health_port, lambda: self._is_serving))
            for informer in informers:
                group.create_task(informer.run())
            key = await keys.load(self._client, options.namespace)
            meters = metrics.make()
            table = Table(clock)
            channels = Channels(objects.PORT)

            def call_token(namespace: str, timeout_s: float) -> str:
                return keys.call_token(key, namespace, clock.now() + timeout_s + _TOKEN_SPARE_S)

            calls = Calls(table, channels, clock, meters, call_token)
            discovery = Discovery(table, calls, self._functions, self._pods, key, clock)
            for informer in informers:
                await informer.synced()
            discovery.attach()
            acceptance = Acceptance(self._client, self._invocations, self._rng)
            acceptance.attach()
            server = self._server(calls, acceptance, meters, key)
            tls = self._tls()
            try:
                group.create_task(server.run(options.listen, options.port, tls))
                if options.legacy_port:
                    legacy = Legacy(
                        self._client, self._invocations, wait_s=options.sync_wait_s, clock=clock
                    )
                    group.create_task(
                        Server(legacy.handle, options.max_body).run(
                            options.legacy_listen, options.legacy_port, None
                        )
                    )
                group.create_task(self._look_again(discovery))
                self._is_serving = True
                await self._lead(table, calls, discovery, meters, key)
            finally:
                channels.close()

    def _server(
        self, calls: Calls, acceptance: Acceptance, meters: metrics.Meters, key: bytes
    ) -> Server:
        options, clock = self._options, self._clock
        gate = Gate(
            Delegation(self._client, self._client, clock=clock),
            lambda token: keys.namespace_of(key, token, clock.now()),
            clock.monotonic,
        )
        router = Router(
            calls,
            gate,
            acceptance,
            self._functions.get,
            lambda key: self._client.get(Function, key.name, key.namespace),
            meters,
            clock,
            sync_wait_s=options.sync_wait_s,
        )
        router.further = Paths(self._triggers, router.called).answer
        server = Server(router.handle, options.max_body)
        router.start = server.start
        return server

    async def _lead(
        self,
        table: Table,
        calls: Calls,
        discovery: Discovery,
        meters: metrics.Meters,
        key: bytes,
    ) -> None:
        """Make instances and drive invocations while leading; tell the leader while not."""
        options, clock = self._options, self._clock
        trusted = options.ca or options.tls_cert
        ca = trusted.read_text() if trusted else ""
        specialist = Specialist(
            self._client,
            calls.channels,
            options.cache_dir,
            options.url,
            ca,
            options.image,
            clock,
        )
        starter = Starter(
            self._client,
            table,
            self._pods,
            discovery,
            specialist,
            key,
            options.image,
            meters,
            clock,
            self._rng,
        )
        fleet = Fleet(
            self._client,
            table,
            self._functions,
            self._pods,
            starter,
            meters,
            clock,
            self._rng,
            pool_size=options.pool_size,
            pool_limit=options.pool_limit,
            default_image=options.image,
            url=options.url,
        )
        callbacks = Callbacks(self._client, clock, self._rng, allow_local=options.callback_local)
        executor = Executor(
            self._client,
            self._invocations,
            self._functions.get,
            calls,
            callbacks,
            fleet.prewarm,
            clock,
        )

        triggers = Triggers(self._client, self._triggers, clock=clock, rng=self._rng)

        async def lead() -> None:
            table.on_spent = fleet.spent
            async with asyncio.TaskGroup() as group:
                group.create_task(fleet.run())
                group.create_task(executor.run())
                group.create_task(triggers.run())

        if not options.leader_elect:
            await lead()
            return
        async with asyncio.TaskGroup() as group:
            reporting = group.create_task(self._follow(table, starter, group))

            async def led() -> None:
                reporting.cancel()
                await lead()

            election = LeaderElection(
                self._client, "motley-functions", namespace=options.namespace, clock=clock
            )
            await election.lead(led)

    async def _follow(self, table: Table, starter: Starter, group: asyncio.TaskGroup) -> None:
        """Without leadership: ask for instances, and remove v1 instances that were used here."""

        def spent(instance: Instance) -> None:
            group.create_task(starter.remove(instance.pod, 1))

        table.on_spent = spent
        identity = process_identity().replace("_", "-")[-50:]
        await Reporter(self._client, table, identity, self._clock).run()

    async def _look_again(self, discovery: Discovery) -> None:
        while True:
            await self._clock.sleep(_LOOK_AGAIN_S)
            discovery.look_again()

    def _tls(self) -> ssl.SSLContext | None:
        options = self._options
        if options.tls_cert is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(options.tls_cert, options.tls_key)
        if options.client_ca is not None:
            context.load_verify_locations(options.client_ca)
            context.verify_mode = ssl.CERT_OPTIONAL
        return context
