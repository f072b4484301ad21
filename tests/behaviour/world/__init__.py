"""A cluster in one process, on virtual time, for tests of how controllers behave together.

The API server (real, called without sockets), a memory store, all controllers, the real
scheduler, and node agents that follow a script. Time is virtual: when nothing can run, the clock
jumps to the next timer, so an hour of cluster life takes as long as the work in it, and a run
gives the same result every time.

    from world import Behaviour, simulate

    @simulate(nodes=3)                      # also: seed, latency_s, options, manager, scheduler,
                                            # extensions
    async def test_a_rollout_ends(world):   # further arguments are pytest's fixtures
        world.kubelets.script = lambda pod: Behaviour(start_s=5, ready_s=10)
        await world.create(Deployment, {...})
        await world.until(lambda: len(world.living(app="web")) == 3, within_s=60)   # virtual
        await world.sleep(600)              # ten minutes pass at once
        world.kubelets.down("node-0")       # also: up, finish(pod, code), crash(pod), set_ready
        await world.kill_manager()          # as kill -9; then world.start_manager()
        world.wire.fault = lambda asked: ...    # Before(error), After() or None, for each request
        world.wire.cut_watches("controllers")

`world.wire.log` has every request and its code; `world.informer(cls)`, `pods(**labels)`,
`living(**labels)` show what is there. `Trace` writes what happens as text; the `golden` fixture
compares it with a file of `tests/behaviour/golden`, and `UPDATE_GOLDEN=1 pytest …` rewrites it.
"""

from world.inprocess import After, Asked, Before
from world.kubelet import Behaviour
from world.loop import VirtualClock, VirtualLoop, run
from world.trace import Trace, nodes, pods
from world.world import OPTIONS, World, simulate

__all__ = [
    "OPTIONS",
    "After",
    "Asked",
    "Before",
    "Behaviour",
    "Trace",
    "VirtualClock",
    "VirtualLoop",
    "World",
    "nodes",
    "pods",
    "run",
    "simulate",
]
