"""The bridge as a process: sessions, controllers and leadership put together.

SlurmJob, SlurmCluster ─ informers ─► queues ─► workers ─► one SSH connection per cluster
"""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from motley.api.views.base import Key
from motley.client.delegation import Delegation
from motley.client.lease import LeaderElection
from motley.client.rest import Client
from motley.controllers.manager import Context, Controller, Manager
from motley.lib.clock import SYSTEM, Clock
from motley.slurm.bridge import JobController
from motley.slurm.clusters import ClusterController, Poller
from motley.slurm.localpaths import Root
from motley.slurm.nodeserver import NodeServer, Serving
from motley.slurm.results import Kept
from motley.slurm.sessions import Sessions
from motley.slurm.virtualnode import NodeController, PodController

LEASE = "motley-slurm"


@dataclass(frozen=True)
class Options:
    """How a bridge is set up."""

    directory: Path = Path("/var/lib/motley/slurm")
    roots: tuple[Root, ...] = ()
    poll_s: float | None = None
    leader_elect: bool = True
    most_bytes: int = 10 << 30
    serving: Serving | None = None  # where logs of pods are asked for; nowhere without


class Bridge:
    """Run it until it is cancelled."""

    def __init__(
        self, client: Client, options: Options, *, clock: Clock = SYSTEM, rng: Random | None = None
    ) -> None:
        random = rng or Random()
        election = LeaderElection(client, LEASE, clock=clock) if options.leader_elect else None
        self.manager = Manager(client, clock=clock, election=election)
        self.sessions = Sessions(client, clock=clock, rng=random, changed=self._reconnected)
        context = self.manager.context
        kept = Kept(options.directory, options.roots, options.most_bytes)
        self.poller = Poller(context, self.sessions, self._wake_job, random, options.poll_s)
        self.jobs = JobController(context, self.sessions, self.poller, kept, random)
        self.clusters = ClusterController(context, self.sessions, self._reachable, random)
        pods = PodController(context, self.sessions, random)
        serving = options.serving
        served_at = (serving.address, serving.port) if serving else None
        self.nodes = NodeController(context, self.sessions, pods, random, served_at)
        controllers: list[Controller] = [self.clusters, self.poller, self.jobs, self.nodes, pods]
        for controller in controllers:
            self.manager.add(partial(_made, controller))
        if serving is not None:
            asks = Delegation(client, client, clock=clock)
            server = NodeServer(serving, pods, self.sessions, kept, asks, clock)
            self.manager.serve(server)  # by the leader only: nodes name its address

    def _wake_job(self, key: Key) -> None:
        self.jobs.queue.add(key)

    def _reachable(self, cluster: str) -> None:
        self.jobs.wake_all(cluster)
        self.poller.look(cluster)
        self.nodes.queue.add(Key("", cluster))

    def _reconnected(self, cluster: str) -> None:
        self.clusters.queue.add(Key("", cluster))
        self.nodes.queue.add(Key("", cluster))

    @property
    def is_ready(self) -> bool:
        """Are the informers synced?"""
        return self.manager.is_ready()

    async def run(self) -> None:
        """Run until cancelled; raises LostLeadership when another process took over."""
        try:
            await self.manager.run()
        finally:
            await self.sessions.close_all()


def _made(controller: Controller, context: Context) -> Controller:
    """A controller that is there already, for a manager that would make its own."""
    return controller
