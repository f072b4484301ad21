"""The cluster at a glance: its processes from the kernel, its objects from the API.

What the supervisor last wrote is checked against the kernel, because it may have been killed since.
"""

import asyncio

import aiohttp
import msgspec

from motley.api import status
from motley.api.views import core, pod
from motley.client import kubeconfig, rest
from motley.lib import clock
from motley.ops import members, processes, statefile
from motley.ops.cluster import tail
from motley.ops.config import Config
from motley.ops.supervision import ALIVE, STABLE_S, Phase

_API_S = 3.0
_LINES = 5  # of the log of a component that keeps failing


class Component(msgspec.Struct, rename="camel"):
    """One process of the cluster."""

    name: str
    pid: int | None
    state: str
    restarts: int = 0
    since: str = ""
    rss_bytes: int = 0
    reason: str = ""
    log: str = ""
    failures: int = 0  # ends in a row, each before it had stood for a while
    last_end: str = ""
    last_lines: list[str] = []  # of its log, when it keeps failing


class Supervisor(msgspec.Struct, rename="camel"):
    """The process that restarts the others."""

    pid: int | None = None
    state: str = Phase.STOPPED.value
    rss_bytes: int = 0


class Cluster(msgspec.Struct, rename="camel"):
    """What the API server says."""

    server: str
    version: str
    kubeconfig: str
    nodes: int
    nodes_ready: int
    pods: int
    pods_ready: int


class Overview(msgspec.Struct, rename="camel"):
    """Everything `motley status` knows."""

    root: str
    is_running: bool = msgspec.field(default=False, name="running")
    supervisor: Supervisor = msgspec.field(default_factory=Supervisor)
    components: list[Component] = []
    cluster: Cluster | None = None
    unsupervised: list[str] = []  # nodes whose components nobody restarts
    joined: str = ""  # the API server of the cluster that this machine is a node of


async def overview(config: Config, source: clock.Clock = clock.SYSTEM) -> Overview:
    """Look at a cluster."""
    seen = processes_only(config, source)
    if any(c.name.startswith("apiserver") and c.pid for c in seen.components):
        seen.cluster = await _ask(config, source)
    return seen


def processes_only(config: Config, source: clock.Clock = clock.SYSTEM) -> Overview:
    """Look at a cluster's processes alone: the API server is not asked, so it takes no time."""
    state = statefile.read_state(config.run / "state.json")
    seen = Overview(root=str(config.root), joined=config.server)
    now = source.now()
    if state.is_supervised and state.supervisor:
        pid = state.supervisor.pid
        seen.supervisor = Supervisor(pid, Phase.RUNNING.value, processes.rss_bytes(pid))
    seen.components = [_component(config, one, now) for one in state.components]
    if not state.is_supervised:
        seen.unsupervised.append(config.node_name)
    for member in members.present(config):
        found = statefile.read_state(member.run / "state.json")
        if seen.components and not found.is_supervised:
            seen.unsupervised.append(member.node_name)
        seen.components += [
            _component(member, one, now, member.node_name) for one in found.components
        ]
    running = [c for c in seen.components if c.state == Phase.RUNNING.value]
    seen.is_running = bool(running) and len(running) == len(seen.components)
    seen.is_running = seen.is_running and not seen.unsupervised
    return seen


def is_failing(one: statefile.ComponentState, now: float) -> bool:
    """Does it end again and again? One that has come up has to stand for a while to be believed."""
    if one.state == Phase.BACKOFF.value or not one.since:
        return one.state == Phase.BACKOFF.value
    stood_s = now - clock.parse_rfc3339(one.since) if one.state == Phase.RUNNING.value else 0.0
    return one.failures > 1 and stood_s < STABLE_S


def _component(
    config: Config, one: statefile.ComponentState, now: float, node: str = ""
) -> Component:
    process = one.process
    state = one.state
    if process is None and state in {phase.value for phase in ALIVE}:
        state = Phase.STOPPED.value  # it ended after the last word of the supervisor
    return Component(
        name=f"{node}/{one.name}" if node else one.name,
        pid=process.pid if process else None,
        state=state,
        restarts=one.restarts,
        since=one.since,
        rss_bytes=processes.rss_bytes(process.pid) if process else 0,
        reason=one.reason,
        log=str(config.logs / f"{one.name}.log"),
        failures=one.failures,
        last_end=one.last_end,
        last_lines=tail(config.logs / f"{one.name}.log", _LINES) if is_failing(one, now) else [],
    )


async def _ask(config: Config, source: clock.Clock) -> Cluster | None:
    try:
        credentials = kubeconfig.load(config.admin_kubeconfig)
        async with asyncio.timeout(_API_S), rest.Client(credentials, clock=source) as client:
            version = await client.raw("GET", "/version")
            nodes = (await client.list(core.Node)).items
            pods = (await client.list(pod.Pod)).items
    except (TimeoutError, OSError, aiohttp.ClientError, status.ApiError, kubeconfig.ConfigError):
        return None
    return Cluster(
        server=credentials.server,
        version=str(version.get("gitVersion", "")),
        kubeconfig=str(config.admin_kubeconfig),
        nodes=len(nodes),
        nodes_ready=sum(node.is_ready for node in nodes),
        pods=len(pods),
        pods_ready=sum(one.is_ready for one in pods),
    )
