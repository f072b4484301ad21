"""The server process: store, caches, allocator, bootstrap, TLS socket, upkeep, and the end.

Order matters at the start: the kubeconfig is written before anything listens, and `/readyz`
says no until every cache has its listing. At the end watches are closed first, so that clients
notice at once and the sockets drain.
"""

import asyncio
import contextlib
import gc
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from random import Random, SystemRandom

import uvicorn

from motley.api import motleyio
from motley.apiserver import bootstrap, document, tls, upkeep
from motley.apiserver.admission import chain
from motley.apiserver.admission.lookup import Lookup
from motley.apiserver.admission.policy import status as policystatus
from motley.apiserver.admission.pool import address_pool, port_pool
from motley.apiserver.admission.services import ServiceAllocator
from motley.apiserver.agents import Agents
from motley.apiserver.aggregation import Aggregation, FrontProxy
from motley.apiserver.app import App
from motley.apiserver.authn import Authenticator, TokenFile
from motley.apiserver.authn.bootstrap import BootstrapTokens
from motley.apiserver.authn.keys import Keys
from motley.apiserver.authn.serviceaccounts import DEFAULT_ISSUER, ServiceAccountTokens
from motley.apiserver.authz import Access, Authorizer, StoredObjects
from motley.apiserver.authz import bootstrap as default_policy
from motley.apiserver.authz.escalation import EscalationCheck
from motley.apiserver.caches import Caches
from motley.apiserver.core import Core
from motley.apiserver.crds.controller import Definitions
from motley.apiserver.nonresource import NonResource
from motley.apiserver.protocol import HttpProtocol, WebSocketProtocol
from motley.apiserver.writer import Writer
from motley.lib import journal
from motley.lib.clock import SYSTEM, Clock
from motley.store.contract import Store
from motley.store.etcd.config import Config as EtcdConfig
from motley.store.memory import MemoryStore
from motley.store.sqlite import SqliteStore

log = journal.get(__name__)

# Objects live long here: collect young ones rarely, old ones hardly ever.
_GC_THRESHOLDS = (50_000, 20, 50)
_DRAIN_S = 1  # for requests in flight; whoever has not taken its answer by then is slow
_KEEP_ALIVE_S = 90  # longer than Go's idle timeout of 90 s would cut connections it still uses


@dataclass(frozen=True)
class Config:
    """The server's options."""

    data_dir: Path
    bind: str = "127.0.0.1"
    port: int = 6443
    advertise_address: str = ""
    store: str = "sqlite"
    service_cidr: str = "10.96.0.0/16"
    node_ports: str = "30000-32767"
    token_file: Path | None = None
    service_account_issuer: str = DEFAULT_ISSUER
    disabled_admission: frozenset[str] = frozenset()
    mount_service_account_token: bool = True
    etcd: EtcdConfig | None = None

    @property
    def address(self) -> str:
        """The address other machines and pods reach the server at."""
        if self.advertise_address:
            return self.advertise_address
        return self.bind if self.bind not in ("0.0.0.0", "::") else own_address()

    @property
    def local_url(self) -> str:
        """The URL for clients on this machine."""
        host = self.bind if self.bind not in ("0.0.0.0", "::") else "127.0.0.1"
        return f"https://[{host}]:{self.port}" if ":" in host else f"https://{host}:{self.port}"


def own_address() -> str:
    """This machine's address towards others; loopback when it has no network.

    Connecting a datagram socket sends nothing: it only asks the routing table.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # TEST-NET-1: an address nobody has
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


async def open_store(config: Config) -> Store:
    """The store the options name."""
    if config.store == "memory":
        return MemoryStore(document.stamp)
    if config.store == "etcd":
        if config.etcd is None:
            raise ValueError("etcd needs the URL of at least one server")
        from motley.store.etcd.store import EtcdStore  # here: gRPC takes a while to load

        return await EtcdStore.open(config.etcd, stamp=document.stamp)
    return await SqliteStore.open(config.data_dir / "store.db", stamp=document.stamp)


async def run(config: Config, clock: Clock = SYSTEM) -> None:
    """Serve until cancelled."""
    gc.set_threshold(*_GC_THRESHOLDS)
    listener = listen(config.bind, config.port)  # first: a port in use is known before any work
    addresses = [config.bind, config.address, bootstrap.service_address(config.service_cidr)]
    pki = tls.ensure(config.data_dir, addresses=addresses, server_url=config.local_url, now=clock)
    tokens = TokenFile.load(config.token_file) if config.token_file else None
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(listener.close)
        store = await open_store(config)
        stack.push_async_callback(store.close)
        app = await stack.enter_async_context(assemble(config, store, pki, tokens, clock))
        await _serve(config, app, pki, listener)


@contextlib.asynccontextmanager
async def assemble(
    config: Config,
    store: Store,
    pki: tls.Pki | None,
    tokens: TokenFile | None,
    clock: Clock = SYSTEM,
) -> AsyncIterator[App]:
    """The application over an open store, with its background work running."""
    # Uids, name suffixes and addresses must be unique, not secret: seeded from the system once,
    # because asking it each time is a system call for every object.
    rng = Random(SystemRandom().getrandbits(256))
    motleyio.install()
    caches = Caches(store, clock)
    access = _access(config, store, caches, pki, tokens, clock)
    services = ServiceAllocator(
        address_pool(config.service_cidr, rng=rng), port_pool(config.node_ports, rng=rng)
    )
    admission = chain.build(
        Lookup(store, caches),
        rng,
        first=[EscalationCheck(access.authorizer)],
        allocators=[services],
        disabled=config.disabled_admission,
        mount_token=config.mount_service_account_token,
    )
    writer = Writer(store, admission, clock, rng)
    agents = Agents(store, _agent_context(pki))
    core = Core(store, caches, writer, agents, clock, rng, access)
    await services.rebuild(store)
    await bootstrap.run(
        writer, service_cidr=config.service_cidr, address=config.address, port=config.port
    )
    async with asyncio.TaskGroup() as starting:  # making a key takes a while, at first start
        if pki is not None:
            starting.create_task(asyncio.to_thread(access.tokens.keys.load))
        starting.create_task(default_policy.run(writer))

    aggregation = Aggregation(core, _front_proxy(pki, clock))
    definitions = Definitions(core, aggregation.wake)
    await definitions.load()
    await aggregation.load()

    def unready() -> str:
        waiting = caches.unready
        return f"caches not ready: {', '.join(waiting)}" if waiting else ""

    def stopping() -> str:
        return "shutting down" if core.stopping else ""

    nonresource = NonResource(
        f"{config.address}:{config.port}",
        {"caches": unready, "shutdown": stopping},
        access.tokens,
    )
    app = App(core, nonresource, aggregation)
    async with asyncio.TaskGroup() as group:
        background = [
            group.create_task(caches.run(), name="caches"),
            group.create_task(definitions.run(), name="definitions"),
            group.create_task(aggregation.run(), name="aggregation"),
            group.create_task(upkeep.compact_forever(store, clock), name="compaction"),
            group.create_task(upkeep.expire_events_forever(store, clock), name="events"),
            group.create_task(policystatus.observe_forever(caches, writer), name="policies"),
        ]
        try:
            await caches.ready()
            gc.collect()
            gc.freeze()  # what is loaded now lives as long as the process: never walk it again
            yield app
        finally:
            core.end_streams()
            for task in background:
                task.cancel()
            await agents.close()
            await admission.aclose()


def _access(
    config: Config,
    store: Store,
    caches: Caches,
    pki: tls.Pki | None,
    tokens: TokenFile | None,
    clock: Clock,
) -> Access:
    objects = StoredObjects(store, caches)
    accounts = ServiceAccountTokens(
        Keys(pki.directory if pki is not None else None),
        objects,
        clock,
        issuer=config.service_account_issuer,
    )
    authenticator = Authenticator(tokens, accounts, BootstrapTokens(objects, clock))
    return Access(authenticator, Authorizer(caches), accounts)


def _front_proxy(pki: tls.Pki | None, clock: Clock) -> FrontProxy | None:
    if pki is None:
        return None
    return FrontProxy(*tls.front_proxy(pki, now=clock), pki.ca_pem.decode())


def _agent_context(pki: tls.Pki | None) -> ssl.SSLContext | None:
    if pki is None:
        return None
    context = ssl.create_default_context(cafile=str(pki.ca_file))
    context.load_cert_chain(pki.kubelet_client_cert_file, pki.kubelet_client_key_file)
    # Agents are found by address; their certificates name the node. The authority is the check.
    context.check_hostname = False
    return context


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: `motley.lib.tasks` owns the process's signals."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]  # noqa: ANN202
        yield


async def _serve(config: Config, app: App, pki: tls.Pki, listener: socket.socket) -> None:
    settings = uvicorn.Config(
        app,
        host=config.bind,
        port=config.port,
        http=HttpProtocol,
        ws=WebSocketProtocol,
        ws_ping_interval=None,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_DRAIN_S,
        ssl_certfile=str(pki.cert_file),
        ssl_keyfile=str(pki.key_file),
        ssl_ca_certs=str(pki.ca_file),
        ssl_cert_reqs=ssl.CERT_OPTIONAL,
        backlog=1024,
    )
    server = _Server(settings)
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(server.serve(sockets=[listener]), name="https")
        log.info("serving", address=config.bind, port=config.port, store=config.store)
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            app.end_streams()
            server.should_exit = True
            await serving
            raise


def listen(address: str, port: int) -> socket.socket:
    """A bound socket; OSError says which address when it cannot be had."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((address, port))
    except OSError as error:
        listener.close()
        raise OSError(f"cannot listen on {address}:{port}: {error.strerror}") from None
    listener.setblocking(False)
    return listener
