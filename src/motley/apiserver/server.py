"""The server process: store, caches, allocator, bootstrap, TLS socket, upkeep, and the end.

Order matters at the start: the kubeconfig is written before anything listens, and `/readyz`
says no until every cache has its listing. At the end watches are closed first, so that clients
notice at once and the sockets drain.
"""

import asyncio
import contextlib
import gc
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random, SystemRandom

from motley.api import motleyio, scheme
from motley.apiserver import (
    audit,
    bootstrap,
    compat,
    document,
    encryption,
    extension,
    flowcontrol,
    serving,
    tls,
    upkeep,
)
from motley.apiserver.admission import chain
from motley.apiserver.admission.lookup import Lookup
from motley.apiserver.admission.policy import status as policystatus
from motley.apiserver.admission.services import ServiceAllocator
from motley.apiserver.admission.webhook.caller import Caller
from motley.apiserver.admission.webhook.caller import session as webhook_session
from motley.apiserver.agents import Agents
from motley.apiserver.aggregation import Aggregation, FrontProxy
from motley.apiserver.allocation import repair
from motley.apiserver.app import App
from motley.apiserver.audit import policy as auditpolicy
from motley.apiserver.authn import Authenticator, TokenFile
from motley.apiserver.authn.bootstrap import BootstrapTokens
from motley.apiserver.authn.keys import Keys
from motley.apiserver.authn.serviceaccounts import DEFAULT_ISSUER, ServiceAccountTokens
from motley.apiserver.authz import Access, Authorizer, StoredObjects
from motley.apiserver.authz import bootstrap as default_policy
from motley.apiserver.authz.escalation import EscalationCheck
from motley.apiserver.authz.signers import PodCertificateAnswers
from motley.apiserver.caches import Caches
from motley.apiserver.core import Core
from motley.apiserver.crds.controller import Definitions
from motley.apiserver.crds.conversion import Conversions
from motley.apiserver.encryption import Sealer
from motley.apiserver.flowcontrol import follower as flowfollower
from motley.apiserver.nonresource import NonResource
from motley.apiserver.presence import Presence, Server
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
    max_requests: int = flowcontrol.MAX_READS + flowcontrol.MAX_WRITES
    audit_log: audit.Options | None = None
    audit_policy: Path | None = None
    encryption: Path | None = None
    compat: str = ""
    runtime_config: str = ""
    servers: tuple[str, ...] = ()
    """Every API server of the cluster, for the administrator's kubeconfig; empty: this one."""

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


def switched_off(runtime_config: str) -> list[str]:
    """The API versions that `--runtime-config` turns off (`extensions/v1beta1=false,...`).

    ValueError for one that is not there, or that others are kept as.
    """
    off = []
    for one in filter(None, runtime_config.split(",")):
        api_version, _, wanted = one.partition("=")
        if wanted.lower() not in ("", "true", "false"):
            raise ValueError(f"--runtime-config {one}: neither true nor false")
        rows = [kind for kind in scheme.kinds() if kind.api_version == api_version]
        if not rows:
            raise ValueError(f"--runtime-config {one}: no such version")
        if wanted.lower() != "false":
            continue
        if any(row.definition is None and row.stored_as is None for row in rows):
            raise ValueError(f"--runtime-config {one}: the server itself needs this version")
        off.append(api_version)
    return off


async def open_store(config: Config, seal: Sealer | None = None) -> Store:
    """The store the options name; what it keeps on a disk goes through `seal`."""
    seal = seal or Sealer()
    if config.store == "memory":
        return MemoryStore(document.stamp)
    if config.store == "etcd":
        if config.etcd is None:
            raise ValueError("etcd needs the URL of at least one server")
        from motley.store.etcd.store import EtcdStore  # here: gRPC takes a while to load

        return await EtcdStore.open(config.etcd, stamp=document.stamp, seal=seal)
    path = config.data_dir / "store.db"
    return await SqliteStore.open(path, stamp=document.stamp, seal=seal)


async def run(
    config: Config, clock: Clock = SYSTEM, *, extensions: Sequence[extension.Factory] = ()
) -> None:
    """Serve until cancelled."""
    gc.set_threshold(*_GC_THRESHOLDS)
    motleyio.install()
    for api_version in switched_off(config.runtime_config):
        scheme.withhold(api_version)
    seal = Sealer(encryption.load(config.encryption) if config.encryption else ())
    listener = listen(config.bind, config.port)  # first: a port in use is known before any work
    addresses = [config.bind, config.address, bootstrap.service_address(config.service_cidr)]
    first, *further = config.servers or (config.local_url,)
    pki = tls.ensure(
        config.data_dir, addresses=addresses, server_url=first, further=further, now=clock
    )
    tokens = TokenFile.load(config.token_file) if config.token_file else None
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(listener.close)
        auditor = _auditor(config, stack, clock)
        store = await open_store(config, seal)
        stack.push_async_callback(store.close)
        await seal.check(store)
        assembling = assemble(
            config,
            store,
            pki,
            tokens,
            clock,
            extensions=extensions,
            auditor=auditor,
            is_stale=seal.is_stale,
        )
        app = await stack.enter_async_context(assembling)
        gc.collect()
        gc.freeze()  # what is loaded now lives as long as the process: never walk it again
        async with asyncio.TaskGroup() as group:
            compaction = group.create_task(upkeep.compact_on_signal(store), name="SIGUSR1")
            try:
                await _serve(config, app, pki, listener, clock)
            finally:
                compaction.cancel()


@contextlib.asynccontextmanager
async def assemble(
    config: Config,
    store: Store,
    pki: tls.Pki | None,
    tokens: TokenFile | None,
    clock: Clock = SYSTEM,
    rng: Random | None = None,
    *,
    extensions: Sequence[extension.Factory] = (),
    auditor: audit.Auditor | None = None,
    is_stale: Callable[[str], bool] | None = None,
) -> AsyncIterator[App]:
    """The application over an open store, with its background work running."""
    # Uids, name suffixes and addresses must be unique, not secret: seeded from the system once,
    # because asking it each time is a system call for every object.
    rng = rng or Random(SystemRandom().getrandbits(256))
    motleyio.install()
    caches = Caches(store, clock)
    access = _access(config, store, caches, pki, tokens, clock)
    lookup = Lookup(store, caches)
    services = ServiceAllocator(
        store,
        caches,
        lookup,
        service_cidr=config.service_cidr,
        node_ports=config.node_ports,
        clock=clock,
        rng=rng,
    )
    admission = chain.build(
        lookup,
        rng,
        first=[
            EscalationCheck(access.authorizer),
            PodCertificateAnswers(access.authorizer, clock=clock),
        ],
        allocators=[services],
        disabled=config.disabled_admission,
        mount_token=config.mount_service_account_token,
        authorizer=access.authorizer,
    )
    writer = Writer(store, admission, clock, rng)
    converting = Caller(lookup, webhook_session)
    writer.conversions = Conversions(converting.call, rng)
    if is_stale is not None:
        writer.is_stale = is_stale
    flow = flowcontrol.FlowControl(config.max_requests)
    agents = Agents(store, serving.agent_context(pki) if pki is not None else None)
    core = Core(store, caches, writer, agents, clock, rng, access)
    await repair.run(writer, services.ledger)
    is_alone = config.store != "etcd"
    await bootstrap.run(
        writer,
        service_cidr=config.service_cidr,
        address=config.address,
        port=config.port,
        is_alone=is_alone,
    )
    async with asyncio.TaskGroup() as starting:  # making a key takes a while, at first start
        if pki is not None:
            starting.create_task(asyncio.to_thread(access.tokens.keys.load))
        starting.create_task(default_policy.run(writer))
        starting.create_task(flowfollower.ensure(writer))

    brought = [make(core) for make in extensions]
    aggregation = Aggregation(core, _front_proxy(pki, clock), brought)
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
        # The store goes by `etcd`, which is what monitoring asks for: it is well when the caches
        # can follow its log.
        {"etcd": unready},
        {"etcd-readiness": unready, "informer-sync": unready, "shutdown": stopping},
        access.tokens,
        compat.listed() if config.compat else (),
    )

    async def renewed(ca_pem: bytes) -> None:
        if pki is not None:
            agents.renew(serving.agent_context(pki))
            await aggregation.publish_trust()

    app = App(
        core,
        nonresource,
        aggregation,
        flow=flow,
        auditor=auditor,
        renewed=renewed,
        compat=compat.Compat(config.compat) if config.compat else None,
        catch_up=None if is_alone else definitions.catch_up,
    )
    present = Presence(writer, Server(config.address, config.port), clock)
    async with asyncio.TaskGroup() as group:
        background = [
            group.create_task(caches.run(), name="caches"),
            group.create_task(services.run(), name="node ports"),
            group.create_task(repair.forever(writer, services, clock), name="allocations"),
            group.create_task(definitions.run(), name="definitions"),
            group.create_task(aggregation.run(), name="aggregation"),
            group.create_task(upkeep.compact_forever(store, clock), name="compaction"),
            group.create_task(upkeep.expire_events_forever(store, clock), name="events"),
            group.create_task(policystatus.observe_forever(caches, writer), name="policies"),
            group.create_task(flowfollower.follow_forever(caches, writer, flow), name="flows"),
            group.create_task(flowfollower.restore_forever(writer, clock), name="flow defaults"),
            *(group.create_task(one.run(), name=one.group) for one in brought),
            *(() if is_alone else [group.create_task(present.run(), name="presence")]),
        ]
        try:
            await caches.ready()
            yield app
        finally:
            core.end_streams()
            for task in background:
                task.cancel()
            await agents.close()
            await admission.aclose()
            await converting.aclose()


def _auditor(
    config: Config, stack: contextlib.AsyncExitStack, clock: Clock
) -> audit.Auditor | None:
    if config.audit_log is None:
        return None
    chosen = auditpolicy.load(config.audit_policy) if config.audit_policy else auditpolicy.DEFAULT
    written = audit.AuditLog(config.audit_log, clock)
    stack.callback(written.close)
    return audit.Auditor(written.write, clock, chosen)


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
    return FrontProxy(*tls.front_proxy(pki, now=clock), pki.ca_file)


async def _serve(
    config: Config, app: App, pki: tls.Pki, listener: socket.socket, clock: Clock
) -> None:
    log.info("serving", address=config.bind, port=config.port, store=config.store)
    await serving.serve(config.bind, config.port, app, pki, listener, clock, app.renewed)


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
