"""Can this node run pods: does the runtime answer, and is there a pod network?

The pod network is set up once the node has a podCIDR, and again if it gets another. A runtime that
is silent counts as down only after a while: one that is started again takes its containers over,
and nobody need notice.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from motley.api.views.base import Key
from motley.api.views.core import Node
from motley.client.informer import Informer
from motley.lib import journal
from motley.lib.backoff import Backoff
from motley.lib.clock import Clock
from motley.node.cri.errors import RuntimeFailure
from motley.node.cri.runtime import Runtime

log = journal.get(__name__)

SetupNetwork = Callable[[str], Awaitable[None]]

RUNTIME_GRACE_S = 30.0  # as the kubelet: silent for longer than this, it counts as down


class NodeReadiness:
    """What is missing before pods can run; `follow_network` it in a task group."""

    def __init__(
        self, runtime: Runtime, setup_network: SetupNetwork, clock: Clock, rng: Random
    ) -> None:
        self.runtime = "the container runtime has not answered yet"  # what is wrong; empty: nothing
        self.network = "waiting for the node's podCIDR"
        self._runtime = runtime
        self._setup_network = setup_network
        self._clock = clock
        self._rng = rng
        self._has_network = False
        self._seen_at = clock.monotonic()

    @property
    def missing(self) -> str:
        """Why the node cannot run pods now; empty when it can."""
        return self.runtime or self.network

    async def follow_network(self, nodes: Informer[Node], name: str) -> None:
        """Keep the pod network as the Node's podCIDR wants it, until cancelled."""
        backoff = Backoff(base_s=0.2, cap_s=10.0, rng=self._rng)
        changed = asyncio.Event()
        nodes.add_handler(lambda _: changed.set())
        done = ""
        while True:
            await changed.wait()
            changed.clear()
            node = nodes.get(Key("", name))
            if node is None or node.spec.pod_cidr in ("", done):
                continue
            try:
                await self._setup_network(node.spec.pod_cidr)
            except Exception as error:
                # Whatever the network's part raises, the node stays NotReady and says why.
                self._has_network = False
                self.network = f"pod network: {error}"
                log.warning("pod network not set up", error=error)
                await self._clock.sleep(backoff.next())
                changed.set()
                continue
            backoff.reset()
            done = node.spec.pod_cidr
            log.info("pod network set up", pod_cidr=done)
            self.network = "waiting for the runtime to see the pod network"
            self._has_network = True

    async def check(self) -> bool:
        """Ask the runtime; True when the pod network has just come up."""
        try:
            says = await self._runtime.readiness()
        except RuntimeFailure as error:
            if self._clock.monotonic() - self._seen_at > RUNTIME_GRACE_S:
                self.runtime = f"container runtime: {error}"
            return False
        self._seen_at = self._clock.monotonic()
        self.runtime = says.runtime
        if not self._has_network or says.network == self.network:
            return False
        self.network = says.network
        return not says.network
