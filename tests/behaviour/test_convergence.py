"""Whatever users do and whatever fails: in the end there is what was asked for, and only that.

A sequence of random actions and faults is played in a world of its own; then faults end, all nodes
come back, and the cluster must become what the model says. The examples are the same in every
run; `CONVERGENCE_EXAMPLES=500 pytest …` looks further.
"""

import os
from dataclasses import dataclass, field
from random import Random

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from world import After, Before, Behaviour, World, run
from world.workloads import deployment, set_image

from motley.api import status
from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.client import transport
from motley.controllers.workload import Deployment, ReplicaSet

EXAMPLES = int(os.environ.get("CONVERGENCE_EXAMPLES", "20"))
NODES = 3
CONVERGED_WITHIN_S = 1200.0  # a lost node's pods leave after 40 + 300 s, back-offs reach a minute

names = st.sampled_from(["web", "api"])
images = st.sampled_from(["one", "two", "three"])
policies = st.sampled_from(["Background", "Foreground", "Orphan"])
nodes = st.integers(0, NODES - 1).map(lambda n: f"node-{n}")
actions = st.one_of(
    st.tuples(st.just("create"), names, st.integers(0, 5), images),
    st.tuples(st.just("scale"), names, st.integers(0, 7)),
    st.tuples(st.just("image"), names, images),
    st.tuples(st.just("pause"), names),
    st.tuples(st.just("resume"), names),
    st.tuples(st.just("undo"), names),
    st.tuples(st.just("delete"), names, policies),
    st.tuples(st.just("delete_pod"), st.integers(0, 9)),
    st.tuples(st.just("crash_pod"), st.integers(0, 9)),
    st.tuples(st.just("cordon"), nodes),
    st.tuples(st.just("uncordon"), nodes),
    st.tuples(st.just("lose_node"), nodes),
    st.tuples(st.just("find_node"), nodes),
    st.tuples(st.just("restart_manager"), st.floats(0.0, 5.0)),
    st.tuples(st.just("restart_server"), st.floats(0.0, 5.0)),
    st.tuples(st.just("fail"), st.floats(0.05, 0.6), st.integers(1, 30)),
    st.tuples(st.just("cut_watches")),
    st.tuples(st.just("wait"), st.floats(0.0, 60.0)),
)


@dataclass
class Wanted:
    """What the user asked of one Deployment."""

    replicas: int
    image: str
    paused: bool = False
    history: list[str] = field(default_factory=list)


class Play:
    """Performs actions on a world and keeps the model of what should come of them."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.rng = Random(seed)
        self.model: dict[str, Wanted] = {}
        self.lost_answers = 0
        self.orphaned = False
        self.failing_until = 0.0
        self.failing = 0.0
        self.most: dict[str, int] = {}
        self.surplus = ""
        world.wire.fault = self._fault
        world.informer(ReplicaSet)
        world.loop.before_advance.append(self._count)

    async def perform(self, action) -> None:
        kind, *arguments = action
        is_about_one = kind != "create" and bool(arguments) and arguments[0] in ("web", "api")
        if is_about_one and arguments[0] not in self.model:
            return
        await getattr(self, kind)(*arguments)

    async def create(self, name, replicas, image):
        if name in self.model:
            return
        try:
            await self.world.create(Deployment, deployment(name, replicas, image))
        except status.AlreadyExists:
            return  # still being deleted in the foreground
        self.model[name] = Wanted(replicas, image)

    async def scale(self, name, replicas):
        await self.world.patch(Deployment, name, {"spec": {"replicas": replicas}})
        self.model[name].replicas = replicas

    async def image(self, name, image):
        wanted = self.model[name]
        await set_image(self.world, image, name)
        wanted.history.append(wanted.image)
        wanted.image = image

    async def undo(self, name):
        if self.model[name].history:
            await self.image(name, self.model[name].history[-1])

    async def pause(self, name):
        await self.world.patch(Deployment, name, {"spec": {"paused": True}})
        self.model[name].paused = True

    async def resume(self, name):
        await self.world.patch(Deployment, name, {"spec": {"paused": False}})
        self.model[name].paused = False

    async def delete(self, name, policy):
        await self.world.delete(Deployment, name, propagation=policy)
        del self.model[name]
        self.orphaned |= policy == "Orphan"

    async def delete_pod(self, number):
        if pods := self.world.living():
            pod = pods[number % len(pods)]
            await self.world.delete(Pod, pod.metadata.name)

    async def crash_pod(self, number):
        running = [p for p in self.world.living() if p.status.phase == "Running"]
        if running:
            self.world.kubelets.crash(running[number % len(running)])

    async def cordon(self, node, unschedulable=True):
        await self.world.patch(Node, node, {"spec": {"unschedulable": unschedulable}})

    async def uncordon(self, node):
        await self.cordon(node, False)

    async def lose_node(self, node):
        self.world.kubelets.down(node)

    async def find_node(self, node):
        self.world.kubelets.up(node)

    async def restart_manager(self, pause_s):
        await self.world.kill_manager()
        await self.world.sleep(pause_s)
        self.world.start_manager()

    async def restart_server(self, pause_s):
        await self.world.stop_server()
        await self.world.sleep(pause_s)
        await self.world.start_server()

    async def fail(self, rate, seconds):
        self.failing, self.failing_until = rate, self.world.time + seconds

    async def cut_watches(self):
        self.world.wire.cut_watches("controllers")

    async def wait(self, seconds):
        await self.world.sleep(seconds)

    def _fault(self, asked):
        if asked.who != "controllers" or self.world.time >= self.failing_until:
            return None
        if self.rng.random() >= self.failing:
            return None
        if asked.method == "WATCH":
            return Before(status.ServiceUnavailable("cut"))
        if self.rng.random() < 0.3:
            self.lost_answers += asked.method == "POST"
            return After()
        errors = [
            status.InternalError("disturbed"),
            status.TooManyRequests("later", retry_after_s=1),
            status.ServiceUnavailable("away"),
            transport._Interrupted("timed out"),
        ]
        if asked.method != "GET":
            errors.append(status.Conflict("somebody was first"))
        return Before(self.rng.choice(errors))

    def _count(self) -> None:
        """At every moment: has a ReplicaSet more pods than it was ever asked for?"""
        if self.orphaned:
            return  # pods without an owner may be adopted
        owned: dict[str, int] = {}
        for pod in self.world.living():
            owner = pod.metadata.controller()
            if owner is not None:
                owned[owner.uid] = owned.get(owner.uid, 0) + 1
        for rs in self.world.informer(ReplicaSet).items():
            uid = rs.metadata.uid
            self.most[uid] = max(self.most.get(uid, 0), rs.spec.replicas)
            if owned.get(uid, 0) > self.most[uid] + self.lost_answers and not self.surplus:
                self.surplus = f"{self.world.time}: {rs.metadata.name} has {owned[uid]} pods"

    async def settle(self) -> None:
        """End all faults and wait for what the model says."""
        self.failing_until = 0.0
        for number in range(NODES):
            self.world.kubelets.up(f"node-{number}")
            await self.uncordon(f"node-{number}")
        for name in self.model:
            await self.resume(name)
        problem = "unknown"

        async def is_right() -> bool:
            nonlocal problem
            problem = await self.problem()
            return not problem

        try:
            await self.world.until(is_right, within_s=CONVERGED_WITHIN_S)
        except AssertionError:
            raise AssertionError(problem) from None
        assert not self.surplus, self.surplus

    async def problem(self) -> str:
        """What is not as it should be; empty when all is."""
        sets = {rs.metadata.uid: rs for rs in await self.world.list(ReplicaSet)}
        deployments = {d.metadata.uid: d for d in await self.world.list(Deployment)}
        pods: dict[str, list[Pod]] = {uid: [] for uid in sets}
        if {d.metadata.name for d in deployments.values()} != set(self.model):
            return f"deployments {[d.metadata.name for d in deployments.values()]}"
        for pod in await self.world.list(Pod):
            owner = pod.metadata.controller()
            if pod.metadata.deletion_timestamp or owner is None or owner.uid not in sets:
                return f"pod {pod.metadata.name} is ending or has no owner"
            if not pod.is_ready:
                return f"pod {pod.metadata.name} is not ready"
            pods[owner.uid].append(pod)
        for uid, rs in sets.items():
            owner = rs.metadata.controller()
            if owner is None and not self.orphaned:
                return f"replica set {rs.metadata.name} has no owner"
            if owner is not None and owner.uid not in deployments:
                return f"replica set {rs.metadata.name} has a lost owner"
            if len(pods[uid]) != rs.spec.replicas:
                return f"{rs.metadata.name}: {len(pods[uid])} pods of {rs.spec.replicas}"
        for uid, d in deployments.items():
            if wrong := self._wrong(d, sets, pods, uid):
                return wrong
        return ""

    def _wrong(self, d, sets, pods, uid) -> str:
        wanted = self.model[d.metadata.name]
        mine = [rs for rs in sets.values() if (o := rs.metadata.controller()) and o.uid == uid]
        running = [p for rs in mine for p in pods[rs.metadata.uid]]
        images = {p.spec.containers[0].image for p in running}
        if len(running) != wanted.replicas or images - {wanted.image}:
            return f"{d.metadata.name}: {len(running)} pods of {images}, wanted {wanted}"
        if d.status.available_replicas != wanted.replicas:
            return f"{d.metadata.name}: status says {d.status.available_replicas}"
        return ""


async def play(steps, seed: int) -> None:
    latency_s = (0.0, 0.004, 0.1)[seed % 3]
    async with World.open(nodes=NODES, seed=seed, latency_s=latency_s) as world:
        world.kubelets.script = lambda _: Behaviour(start_s=1, ready_s=2, stop_s=2)
        game = Play(world, seed)
        await game.create("web", 3, "one")
        for step in steps:
            await game.perform(step)
        await game.settle()


@settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    # A failure is shrunk only when asked for (CONVERGENCE_SHRINK=1): that takes minutes.
    phases=[Phase.generate, *([Phase.shrink] if "CONVERGENCE_SHRINK" in os.environ else [])],
    suppress_health_check=list(HealthCheck),
)
@given(steps=st.lists(actions, min_size=3, max_size=14), seed=st.integers(0, 1000))
def test_any_sequence_of_actions_and_faults_converges(steps, seed):
    run(play(steps, seed))
