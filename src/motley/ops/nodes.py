"""`motley up --nodes N`, and its end: several nodes on this machine.

The first node comes up as the only node of a machine does, with the control plane. The others are
started as machines that have joined, each in its namespace; only their credentials are made here,
where the authority is. `down` goes the other way round.

Invariant: the cluster's configuration is on disk before the first namespace is, so `down` always
knows what there may be.
"""

import asyncio
import io
from collections.abc import Awaitable, Callable, Iterable

import msgspec

from motley.api import status
from motley.api.views.core import Node
from motley.lib import clock
from motley.ops import certificates, components, emulation, members, preflight, processes, underlay
from motley.ops import up as ups
from motley.ops.cluster import Cluster
from motley.ops.config import Config, current_netns
from motley.ops.failure import Failure
from motley.ops.progress import Progress


async def up(
    config: Config,
    progress: Progress,
    *,
    restart: bool = False,
    source: clock.Clock = clock.SYSTEM,
) -> None:
    """Bring the cluster up with all its nodes."""
    if not config.nodes:
        await ups.up(config, progress, restart=restart, source=source)
        return
    preflight.require_root()
    _refuse_others(config)
    if config.arch:
        with progress.step("emulation"):
            config = await asyncio.to_thread(emulation.fetch, config, progress.say)
    config.save()
    with progress.step("network of nodes"):
        underlay.ensure(config)
    await ups.up(config, progress, restart=restart, source=source)
    wanted = members.names(config)
    gone = [one for one in members.present(config) if one.node_name not in wanted]
    if gone:
        with progress.step(f"remove {_list(gone)}"):
            await _remove(config, gone, source)
    if wanted:
        found = [members.member(config, name) for name in wanted]
        with progress.step(f"{_list(found)} Ready"):
            await _each(found, lambda one: _start(config, one, restart, source))


def _refuse_others(config: Config) -> None:
    """A node keeps its architecture: its images and pods are of it."""
    wanted = members.architectures(config)
    emulation.check(list(wanted.values()))
    for one in members.present(config):
        now = wanted.get(one.node_name, "")
        if one.node_name in members.names(config) and one.emulates != now:
            number = int(one.node_name.rpartition("-")[2])
            raise Failure(
                f"{one.node_name} was made as {one.emulates or 'a node like the machine'}",
                f"Remove it first: motley up --nodes {number - 1} --root {config.root}",
            )


async def _start(config: Config, one: Config, restart: bool, source: clock.Clock) -> None:
    """One further node, up to its being Ready."""
    namespace = underlay.ensure_namespace(config, one)
    if one.emulates:
        one = await asyncio.to_thread(emulation.prepare, one)
    one = msgspec.structs.replace(one, netns=namespace)
    cluster = Cluster(one, source)
    if _lives_elsewhere(cluster, namespace):
        await _stop(one, 0, source)  # its namespace was deleted under it: nobody reaches it
    with cluster.exclusive():
        one.save()
        credentials = certificates.ensure_member(config, one, source)
        specs = components.member(one, credentials)
        await ups.start(cluster, specs, Progress(io.StringIO()), restart=restart)
        await ups.wait_node(one, config.admin_kubeconfig, source)


def _lives_elsewhere(cluster: Cluster, namespace: int) -> bool:
    running = cluster.state.supervisor
    found = processes.netns(running.pid) if running and running.is_alive else None
    return found not in (None, namespace)


async def _remove(config: Config, gone: Iterable[Config], source: clock.Clock) -> None:
    """Nodes that are no longer wanted: their pods are ended, their Node objects deleted."""
    async with ups.administrator(config, source) as client:
        for one in gone:
            if one.emulates:
                emulation.remove(one)  # what is mounted is not deleted
            await _stop(one, 0, source, delete_data=True)
            underlay.remove_namespace(one)
            try:
                await client.delete(Node, one.node_name)
            except status.NotFound:
                continue  # somebody was quicker


async def down(
    config: Config,
    progress: Progress,
    *,
    grace_s: int,
    delete_data: bool = False,
    keep_pods: bool = False,
    source: clock.Clock = clock.SYSTEM,
) -> None:
    """Stop the cluster with all its nodes; with `delete_data` forget it.

    With `keep_pods` only its processes end: pods and all they need stay.
    """
    from motley.ops.down import down as stop  # here: gRPC takes a while to load

    preflight.require_root()
    found = members.present(config)
    if found:
        with progress.step(f"stop {_list(found)}"):
            await _each(found, lambda one: _stop(one, grace_s, source, keep_pods=keep_pods))
    if keep_pods:
        await stop(config, progress, grace_s=grace_s, keep_pods=True, source=source)
        return
    made = {one.node_name: one for one in found}
    every = {name: members.member(config, name) for name in members.names(config)} | made
    for one in every.values():
        underlay.remove_namespace(one)
        if one.emulates:
            emulation.remove(one)
    # Another namespace than ours is gone with all that was in it, or it is not ours to touch.
    if config.nodes and config.netns in (0, current_netns()):
        underlay.remove_uplink(config)
    if config.nodes:
        underlay.remove_switch(config)
    await stop(config, progress, grace_s=grace_s, delete_data=delete_data, source=source)


async def _stop(
    one: Config,
    grace_s: int,
    source: clock.Clock,
    *,
    delete_data: bool = False,
    keep_pods: bool = False,
) -> None:
    from motley.ops.down import down as stop  # here: gRPC takes a while to load

    quiet = Progress(io.StringIO())
    await stop(
        one, quiet, grace_s=grace_s, delete_data=delete_data, keep_pods=keep_pods, source=source
    )


async def _each(found: Iterable[Config], act: Callable[[Config], Awaitable[None]]) -> None:
    """Do it to all nodes at once; the first failure, with its node's name, once all are done."""
    failures: list[Failure] = []

    async def one(config: Config) -> None:
        try:
            await act(config)
        except Failure as failure:
            failures.append(Failure(f"{config.node_name}: {failure.message}", failure.advice))

    async with asyncio.TaskGroup() as tasks:
        for config in found:
            tasks.create_task(one(config))
    if failures:
        raise failures[0]


def _list(found: Iterable[Config]) -> str:
    return ", ".join(one.node_name for one in found)
