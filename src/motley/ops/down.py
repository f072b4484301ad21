"""`motley down`: no process, namespace, mount, bridge, rule or cgroup of the cluster is left.

Stopping goes through the same supervisor as starting: asked to keep only containerd, it ends the
rest in order, also what a killed predecessor left behind. Pods are then stopped properly through
CRI, which gives back their addresses. What survives even that is removed by force (`remains`).
Data stays unless its removal is asked for: the same objects come back with the next `up`.

With `keep_pods` only the cluster's own processes end: containers, their network and the rules of
Services stay as they are, and the next `up` takes them over.

Invariant: `down` may be repeated, and works after `kill -9` of anything.
"""

import asyncio
import shutil
import signal
from pathlib import Path
from typing import Any

from motley.lib import clock, journal
from motley.network import cleanup
from motley.network.paths import hostsfile, nginx
from motley.node.cri import cri_pb2 as cri
from motley.node.cri.errors import RuntimeFailure
from motley.node.cri.runtime import Runtime
from motley.ops import components, containerd, preflight, processes, remains
from motley.ops.cluster import Cluster
from motley.ops.config import Config, current_netns
from motley.ops.failure import Failure
from motley.ops.progress import Progress

log = journal.get(__name__)

_AT_ONCE = 8  # pods stopped in parallel
GRACE_S = 5  # as long as a container gets to end; a machine that shuts down gives no more


async def down(
    config: Config,
    progress: Progress,
    *,
    grace_s: int = GRACE_S,
    delete_data: bool = False,
    keep_pods: bool = False,
    source: clock.Clock = clock.SYSTEM,
) -> None:
    """Stop the cluster; with `delete_data` forget it, with `keep_pods` let its pods run."""
    preflight.require_root()
    cluster = Cluster(config, source)
    with cluster.exclusive():
        sockets = remains.shim_sockets(components.layout(config).directory)
        if _is_anything_left(cluster):
            await _stop(cluster, progress, None if keep_pods else grace_s)
        if keep_pods:
            return
        with progress.step("remove what is left"):
            await _sweep(config, sockets)
    if delete_data:
        with progress.step(f"delete {config.root}"):
            _delete(config.root)


def _is_anything_left(cluster: Cluster) -> bool:
    state = cluster.state
    tasks = components.layout(cluster.config).state / "io.containerd.runtime.v2.task"
    return (
        state.is_supervised
        or any(c.process for c in state.components)
        or bool(remains.workloads(cluster.config))
        or any(tasks.glob("*/*"))
    )


async def _stop(cluster: Cluster, progress: Progress, grace_s: int | None) -> None:
    """The components, and the pods unless no time is given in which these are to end."""
    config = cluster.config
    files = components.layout(config)
    with progress.step("stop components"):
        runtime = next(
            (s for s in cluster.specs if s.name == components.CONTAINERD),
            components.runtime(config),
        )
        if files.config.exists():
            containerd.prepare(files)
        cluster.supervise([runtime])
        if not await cluster.wait_gone({runtime.name}):
            log.warning("components do not end", root=config.root)
    try:
        if grace_s is not None:
            with progress.step("stop pods"):
                await cluster.wait_ready(runtime, timeout_s=20.0)
                count = await _stop_pods(f"unix://{files.socket}", grace_s)
                if count:
                    progress.say(f"{count} pods stopped")
    except (Failure, RuntimeFailure) as error:
        progress.say(f"containerd is of no help ({error}); pods are ended by force")
    with progress.step("stop containerd"):
        supervisor = cluster.state.supervisor
        if supervisor and processes.send(supervisor, signal.SIGTERM):
            await asyncio.to_thread(processes.wait, supervisor, 30.0)


async def _stop_pods(endpoint: str, grace_s: int) -> int:
    """Stop and remove every pod of the runtime; how many there were."""
    runtime = Runtime(endpoint)
    limit = asyncio.Semaphore(_AT_ONCE)
    service = "/runtime.v1.RuntimeService"

    async def end(sandbox: str, containers: list[str]) -> None:
        async with limit:
            try:
                for container in containers:
                    await runtime.stop_container(container, grace_s)
                await runtime.stop_sandbox(sandbox)
                await runtime.remove_sandbox(sandbox)
            except RuntimeFailure as error:  # the rest goes on; this one is ended by force
                log.warning("pod does not end", sandbox=sandbox, error=error)

    try:
        listed: Any = await runtime.call(
            f"{service}/ListPodSandbox", cri.ListPodSandboxRequest(), cri.ListPodSandboxResponse
        )
        running: Any = await runtime.call(
            f"{service}/ListContainers", cri.ListContainersRequest(), cri.ListContainersResponse
        )
        async with asyncio.TaskGroup() as tasks:
            for item in listed.items:
                inside = [c.id for c in running.containers if c.pod_sandbox_id == item.id]
                tasks.create_task(end(item.id, inside))
    finally:
        await runtime.close()
    return len(listed.items)


async def _sweep(config: Config, sockets: set[Path]) -> None:
    state = Cluster(config).state
    if state.supervisor:
        processes.stop([state.supervisor], 1.0)
    processes.stop([p for c in state.components if (p := c.process)], 1.0)
    await nginx.stop(config.gateway, grace_s=1.0)
    if config.hosts:
        hostsfile.forget(components.HOSTS_FILE, config.gateway)
    remains.kill(remains.workloads(config))
    # Only what we mounted: a disk that somebody gave to the store stays where it is.
    for directory in (components.layout(config).directory, config.root / "node"):
        remains.unmount(directory)
    remains.remove_runtime_files(components.layout(config).directory, sockets)
    remains.remove_cgroups(config.cgroup_root)
    (config.run / "components.json").unlink(missing_ok=True)
    (config.run / "state.json").unlink(missing_ok=True)
    # Another namespace than ours is gone with all that was in it, or it is not ours to touch.
    if config.netns in (0, current_netns()):
        await cleanup.remove(
            bridge=config.bridge,
            table=config.table,
            service_cidr=config.service_cidr,
            cluster_cidr=config.pod_cidr,
            service_interface=config.service_interface,
        )


def _delete(root: Path) -> None:
    left = remains.mounts(root)
    if left:
        raise Failure(f"{left[0]} is still mounted", "Data below a mount is not deleted.")
    shutil.rmtree(root)
