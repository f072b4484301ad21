"""A profile over the cluster as it is at this moment, for questions that come from outside.

`motley explain` asks what a scheduler of a given configuration would say now. Everything is read
through the API with the caller's own rights, by the same informers and plugins a running
scheduler uses, so it works on any Kubernetes cluster, whichever scheduler runs there.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import structs

from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.client.informer import Change
from motley.client.rest import Client
from motley.lib import journal
from motley.lib.clock import SYSTEM, Clock
from motley.scheduler import contract, profiles
from motley.scheduler.columns import Columns
from motley.scheduler.contract import Handle, PodInfo
from motley.scheduler.cycle import Cycle
from motley.scheduler.feed import Feed
from motley.scheduler.images import ImageTable
from motley.scheduler.plugins.registry import PLUGINS, Registry
from motley.scheduler.podinfo import PodInfos, identity
from motley.scheduler.profiles import Configuration, Profile

log = journal.get(__name__)

READING_S = 60.0
MEASURING_S = 5.0  # how long to wait for measurements that plugins fetch
_POLL_S = 0.05


@dataclass
class Present:
    """The cluster, read once, and the profiles over it."""

    handle: Handle
    profiles: dict[str, Profile]
    infos: PodInfos

    @property
    def nodes(self) -> Columns:
        """The cluster's columns."""
        return self.handle.nodes

    def profile_of(self, pod: Pod) -> Profile:
        """The pod's profile; of a pod that another scheduler is in charge of, the first."""
        found = self.profiles.get(pod.spec.scheduler_name)
        return found or next(iter(self.profiles.values()))

    def cycle(self, profile: Profile) -> Cycle:
        """The profile's cycle."""
        return Cycle(profile, self.nodes, nominations=self.handle.nominations)

    def pending(self, pod: Pod) -> PodInfo:
        """The pod as it was before it had a node; it is counted nowhere from now on."""
        self.nodes.remove_pod(identity(pod))
        if pod.spec.node_name:
            pod = structs.replace(pod, spec=structs.replace(pod.spec, node_name=""))
        return self.infos.of(pod)

    def node_changed(self, change: Change[Node]) -> None:
        """A node was read."""
        if change.new is not None:
            self.nodes.set_node(change.new)

    def pod_changed(self, change: Change[Pod]) -> None:
        """A pod was read: it is where the API says it is, or is to be."""
        pod = change.new
        if pod is None or pod.is_terminal:
            return
        info = self.infos.of(pod)
        if pod.spec.node_name:
            self.nodes.add_pod(info, pod.spec.node_name)
        elif pod.status.nominated_node_name:
            self.handle.nominations.set(info, pod.status.nominated_node_name)


class NotReadable(Exception):
    """Something that the profile decides by could not be read."""


async def read(
    client: Client,
    configuration: Configuration,
    *,
    registry: Registry = PLUGINS,
    measuring_s: float = MEASURING_S,
    reading_s: float = READING_S,
    clock: Clock = SYSTEM,
) -> Present:
    """The cluster as it is now. Raises ConfigError, ApiError and NotReadable."""
    handle = Handle(Columns(), clock, ImageTable())
    made = Present(handle, profiles.build(configuration, handle, registry), PodInfos())
    feed = Feed(client, lambda event: None, clock=clock)
    plugins = [plugin for profile in made.profiles.values() for plugin in profile.plugins.values()]
    for plugin in plugins:
        if isinstance(plugin, contract.FollowsObjects):
            plugin.follow(feed)
    feed.informer(Node).add_handler(made.node_changed)
    feed.informer(Pod).add_handler(made.pod_changed)
    # A right that lacks is said at once; an informer would try again and again.
    for cls in (Node, Pod):
        await client.list(cls, limit=1)
    missing: list[str] = []
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(informer.run()) for informer in feed.informers]
        # Only what measures: other plugins may write in the background.
        tasks += [
            group.create_task(_background(plugin, client))
            for plugin in plugins
            if isinstance(plugin, contract.KnowsAges)
            and isinstance(plugin, contract.WorksInBackground)
        ]
        try:
            async with asyncio.timeout(reading_s):
                await feed.synced()
            await _measured(plugins, made, measuring_s, clock)
        except TimeoutError:
            missing += [i.cls.PLURAL for i in feed.informers if not i.has_synced]
        for task in tasks:
            task.cancel()
    if missing:
        raise NotReadable(f"could not read {', '.join(missing)}; may you list them?")
    return made


async def _background(plugin: contract.WorksInBackground, client: Client) -> None:
    try:
        await plugin.background(client)
    except Exception as error:
        # Without its measurements the plugin is neutral, and the ages say so.
        log.warning("plugin failed", exc_info=error, point="background")


async def _measured(plugins: Sequence[object], made: Present, wait_s: float, clock: Clock) -> None:
    """Give plugins that go by measurements the time to fetch some."""
    nobody = made.infos.of(Pod())
    waiting = [plugin for plugin in plugins if isinstance(plugin, contract.KnowsAges)]
    ends = clock.monotonic() + wait_s
    while any(not plugin.ages(nobody) for plugin in waiting) and clock.monotonic() < ends:
        await clock.sleep(_POLL_S)
