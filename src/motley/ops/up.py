"""`motley up`: from nothing to a Ready node, step by step, each step idempotent.

Every step first looks whether its work is done, so a second `up` changes nothing and is quick,
and an `up` after any kind of crash goes on where the last one stopped. Components run under the
supervisor; this command only says which, and watches until they are ready.

Invariant: `up` deploys nothing; what runs in the cluster is what its users put there. The one
object it makes is a StorageClass, so that claims find volumes.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from motley.api import status
from motley.api.views import core
from motley.client import kubeconfig, rest
from motley.lib import clock
from motley.network.paths import nginx
from motley.ops import (
    certificates,
    components,
    containerd,
    etcdmembers,
    images,
    install,
    preflight,
    registries,
    remains,
    rootfs,
    storageclass,
)
from motley.ops.cluster import POLL_S, READY_S, Cluster
from motley.ops.config import Config
from motley.ops.failure import Failure
from motley.ops.progress import Progress
from motley.ops.supervision import Spec

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def with_generations(
    specs: Sequence[Spec], before: Sequence[Spec], replaced: Callable[[Spec], bool]
) -> list[Spec]:
    """The specs to ask for now: those to be replaced count one generation up."""
    last = {spec.name: spec.generation for spec in before}
    return [
        msgspec.structs.replace(spec, generation=last.get(spec.name, 0) + replaced(spec))
        for spec in specs
    ]


async def up(
    config: Config,
    progress: Progress,
    *,
    restart: bool = False,
    source: clock.Clock = clock.SYSTEM,
) -> None:
    """Bring the cluster up and wait until its node is Ready."""
    preflight.require_root()
    if config.is_joined:
        raise Failure(
            f"this machine has joined the cluster at {config.server}",
            f"Start its components again with: motley join --root {config.root}\n"
            f"Leave that cluster with: motley leave --root {config.root}",
        )
    cluster = Cluster(config, source)
    with progress.step("packages"):
        install.packages(progress.say)
    with progress.step("machine"):
        preflight.check(config, held_ports(cluster))
    with cluster.exclusive():
        with progress.step("certificates"):
            config.save()
            etcdmembers.prepare(config, progress.say, source)
            credentials = certificates.ensure(config, source)
        await start(cluster, components.specs(config, credentials), progress, restart=restart)
        with progress.step(f"node {config.node_name} is Ready"):
            await wait_node(config, config.admin_kubeconfig, source)
        async with administrator(config, source) as client:
            if await storageclass.ensure(client, config):
                progress.say(f"made StorageClass {storageclass.NAME}")


async def start(
    cluster: Cluster, specs: Sequence[Spec], progress: Progress, *, restart: bool = False
) -> None:
    """Have exactly these components running and ready; the runtime is the first of them."""
    config = cluster.config
    with progress.step("images"):
        try:
            archives = images.ensure(config.images, progress.say, arch=config.emulates)
        except rootfs.Unavailable as error:
            raise Failure(str(error)) from None
    forget_last_boot(config)
    reconfigured = containerd.prepare(components.layout(config))
    registries.ensure(config, components.layout(config).registries)
    if restart:
        cluster.replace_supervisor()
    wanted = with_generations(
        specs,
        cluster.specs,
        lambda spec: reconfigured if spec.name == components.CONTAINERD else restart,
    )
    runtime, *others = wanted
    # Pods wait for their images rather than fail: the node comes when they are there.
    early = [spec for spec in wanted if components.NODE not in (spec.name, *spec.after)]
    cluster.supervise(wanted if _runs(cluster, components.NODE) else early)
    with progress.step(runtime.name):
        await cluster.wait_ready(runtime)
        present = images.Imports(components.layout(config).socket)
        imported = await asyncio.to_thread(present.ensure, archives)
        if imported:
            progress.say(f"imported {', '.join(imported)}")
    cluster.supervise(wanted)
    for spec in others:
        with progress.step(spec.name):
            await cluster.wait_ready(spec)


def forget_last_boot(config: Config) -> None:
    """What ran before the machine was started again does not run: containerd must not look for it.

    Other installations keep such files on a file system that is empty after every boot.
    """
    known, current = config.run / "boot_id", _BOOT_ID.read_text()
    if known.exists() and known.read_text() != current:
        remains.remove_runtime_files(components.layout(config).directory, set())
    known.write_text(current)


def _runs(cluster: Cluster, name: str) -> bool:
    component = cluster.state.component(name)
    return component is not None and component.process is not None


def held_ports(cluster: Cluster) -> set[int]:
    """Ports of components that run: taken, but by us."""
    config = cluster.config
    running = {c.name for c in cluster.state.components if c.process}
    held = {port for port, name in config.ports.items() if name in running}
    # nginx outlives the gateway, which takes it over again.
    return held | set(config.gateway_ports) if nginx.running(config.gateway) else held


@asynccontextmanager
async def administrator(config: Config, source: clock.Clock) -> AsyncIterator[rest.Client]:
    """A client with every right, as the person who runs the cluster."""
    async with rest.Client(
        kubeconfig.load(config.admin_kubeconfig), user_agent="motley-ops", clock=source
    ) as client:
        yield client


async def wait_node(config: Config, credentials: Path, source: clock.Clock) -> None:
    """Wait until this machine's node is Ready; `credentials`: a kubeconfig that may look at it."""
    deadline = source.monotonic() + READY_S
    said = "it has not registered"
    async with rest.Client(
        kubeconfig.load(credentials), user_agent="motley-ops", clock=source
    ) as client:
        while source.monotonic() < deadline:
            try:
                node = await client.get(core.Node, config.node_name)
            except status.NotFound:
                said = "it has not registered"
            else:
                if node.is_ready:
                    return
                ready = node.status.condition("Ready")
                said = ready.message if ready else "it has not reported"
            await source.sleep(POLL_S * 2)
    raise Failure(
        f"node {config.node_name} is not Ready: {said}",
        f"Its log: {config.logs / 'node.log'}",
    )
