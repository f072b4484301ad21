"""Minik8s' profile: turns among nodes and anti-affinity as a wish, against a plain queue."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.lib.clock import SYSTEM
from motley.scheduler import images, profiles
from motley.scheduler.columns import Columns
from motley.scheduler.contract import Handle
from motley.scheduler.cycle import Cycle
from motley.scheduler.plugins import minik8s_profile
from motley.scheduler.podinfo import PodInfos
from motley.scheduler.profiles import Configuration

EXAMPLE = Path(__file__).parents[3] / "examples/minik8s/scheduler-config.yaml"
HOSTNAME = "kubernetes.io/hostname"
MASTER = [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]


def make_node(name, *, ready=True, taints=()):
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    return Node.of(
        {
            "metadata": {"name": name, "labels": {HOSTNAME: name}},
            "spec": {"taints": list(taints)},
            "status": {
                "allocatable": allocatable,
                "conditions": [{"type": "Ready", "status": str(ready)}],
            },
        }
    )


def make_pod(name, app="", away=(), *, to="", node=""):
    affinity = {}
    if away:
        terms = [
            {"labelSelector": {"matchLabels": {"app": a}}, "topologyKey": HOSTNAME} for a in away
        ]
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    if to:
        fields = [{"key": "metadata.name", "operator": "In", "values": [to]}]
        term = {"nodeSelectorTerms": [{"matchFields": fields}]}
        affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": term}
    return Pod.of(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "labels": {"app": app} if app else {},
            },
            "spec": {
                "containers": [{"name": "c", "image": "i"}],
                "affinity": affinity,
                "schedulerName": "minik8s-scheduler",
                **({"nodeName": node} if node else {}),
            },
        }
    )


class World:
    """The profile over columns, with what the scheduler does after a decision."""

    def __init__(self, *nodes):
        self.nodes, self.infos = Columns(), PodInfos()
        self.handle = Handle(self.nodes, SYSTEM, images.ImageTable())
        self.profile = profiles.build(profiles.parse(EXAMPLE.read_text()), self.handle)[
            "minik8s-scheduler"
        ]
        self.plugin = self.profile.plugins["Minik8s"]
        self.cycle = Cycle(self.profile, self.nodes)
        for node in nodes:
            self.nodes.set_node(node)

    def schedule(self, pod):
        """The node the pod is assumed on."""
        info = self.infos.of(pod)
        decision = self.cycle.schedule(info)
        if decision.node is not None:
            self.nodes.add_pod(info, decision.node, assumed=True)
            for plugin in self.profile.reserve:
                assert plugin.reserve(info, decision.node) is None
        return decision.node

    def bound(self, pod, node):
        for plugin in self.profile.post_bind:
            plugin.post_bind(self.infos.of(pod), node)

    def failed(self, pod, node):
        for plugin in self.profile.reserve:
            plugin.unreserve(self.infos.of(pod), node)
        self.nodes.remove_pod(pod.metadata.uid)

    def run(self, *pods):
        return "".join(self.schedule(p) or "-" for p in pods)


def test_nodes_take_turns():
    world = World(*(make_node(n) for n in "abc"))
    assert world.run(*(make_pod(f"p{i}") for i in range(7))) == "abcabca"


def test_the_control_plane_and_nodes_that_do_not_run_get_no_pods():
    world = World(make_node("m", taints=MASTER), *(make_node(n) for n in "abc"))
    world.nodes.set_node(make_node("b", ready=False))
    assert world.run(*(make_pod(f"p{i}") for i in range(4))) == "acac"
    world.nodes.set_node(make_node("b"))
    assert world.run(make_pod("q1"), make_pod("q2")) == "ba", "it has kept its place"


def test_without_a_node_that_runs_the_pod_waits_and_says_why():
    world = World(make_node("m", taints=MASTER), make_node("a", ready=False))
    decision = world.cycle.schedule(world.infos.of(make_pod("p")))
    assert decision.node is None
    assert "1 node(s) were not running" in decision.message
    assert "untolerated taint" in decision.message


def test_anti_affinity_chooses_the_next_node_without_such_a_pod_and_moves_it_to_the_end():
    world = World(*(make_node(n) for n in "abc"))
    assert world.run(make_pod("t", "tiny")) == "a"
    assert world.run(make_pod("q"), make_pod("r")) == "bc"
    assert world.run(make_pod("l", "large", ["tiny"])) == "b", "it was a's turn"
    assert world.run(make_pod("p1"), make_pod("p2"), make_pod("p3")) == "acb"


def test_anti_affinity_that_no_node_can_satisfy_is_ignored():
    world = World(*(make_node(n) for n in "ab"))
    assert world.run(make_pod("t1", "tiny"), make_pod("t2", "tiny")) == "ab"
    assert world.run(make_pod("l1", "", ["tiny"]), make_pod("l2", "", ["tiny"])) == "ab"


def test_anti_affinity_is_not_mutual():
    world = World(*(make_node(n) for n in "ab"))
    assert world.run(make_pod("l", "large", ["tiny"]), make_pod("p")) == "ab"
    assert world.run(make_pod("t", "tiny")) == "a"


def test_pods_that_name_their_node_do_not_move_the_queue():
    world = World(*(make_node(n) for n in "abc"))
    world.nodes.add_pod(world.infos.of(make_pod("n", node="a")), "a")
    assert world.run(make_pod("p1"), make_pod("p2", to="c"), make_pod("p3", to="b")) == "acb"
    assert world.run(make_pod("p4"), make_pod("p5")) == "bc"


def test_a_binding_that_fails_gives_the_turn_back():
    world = World(*(make_node(n) for n in "abc"))
    first = make_pod("p1")
    assert world.schedule(first) == "a"
    assert world.schedule(make_pod("p2")) == "b"
    world.failed(first, "a")
    assert world.run(make_pod("p3"), make_pod("p4"), make_pod("p5")) == "acb"


def test_resources_still_count():
    world = World(*(make_node(n) for n in "ab"))
    hog = Pod.of(
        {"metadata": {"name": "hog", "uid": "hog"},
         "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]}}
    )  # fmt: skip
    world.nodes.add_pod(world.infos.of(hog), "a")
    wants = Pod.of(
        {"metadata": {"name": "w", "uid": "w"},
         "spec": {"schedulerName": "minik8s-scheduler",
                  "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}}
    )  # fmt: skip
    assert world.schedule(wants) == "b"


# -- against a plain queue ------------------------------------------------------------------


class PlainScheduler:
    """The rules as the document has them, with a list."""

    def __init__(self):
        self.queue, self.running, self.pods = [], {}, {}

    def choose(self, away):
        usable = [n for n in self.queue if self.running[n]]
        apps = {n: {app for where, app in self.pods.values() if where == n} for n in usable}
        allowed = [n for n in usable if not apps[n] & set(away)] or usable
        return allowed[0] if allowed else None

    def schedule(self, name, app, away):
        node = self.choose(away)
        if node is not None:
            self.queue.remove(node)
            self.queue.append(node)
            self.pods[name] = (node, app)
        return node


APPS = st.sampled_from(["", "tiny", "large"])


class Turns(RuleBasedStateMachine):
    """Any sequence of what can happen leads to the same nodes."""

    def __init__(self):
        super().__init__()
        self.world, self.plain, self.made = World(), PlainScheduler(), 0

    def name(self, prefix):
        self.made += 1
        return f"{prefix}{self.made}"

    @initialize(count=st.integers(0, 4))
    def begin(self, count):
        for _ in range(count):
            self.add_node()

    @rule()
    def add_node(self):
        # Seen by a decision at once, as by the informer of a scheduler that has work.
        name = self.name("n")
        self.world.nodes.set_node(make_node(name))
        self.plain.queue.append(name)
        self.plain.running[name] = True

    @precondition(lambda self: self.plain.queue)
    @rule(data=st.data())
    def remove_node(self, data):
        name = data.draw(st.sampled_from(self.plain.queue))
        self.world.nodes.remove_node(name)
        self.plain.queue.remove(name)

    @precondition(lambda self: self.plain.queue)
    @rule(data=st.data(), runs=st.booleans())
    def change_node(self, data, runs):
        name = data.draw(st.sampled_from(self.plain.queue))
        self.world.nodes.set_node(make_node(name, ready=runs))
        self.plain.running[name] = runs

    @rule(app=APPS, away=st.lists(st.sampled_from(["tiny", "large"]), unique=True))
    def schedule(self, app, away):
        pod = make_pod(self.name("p"), app, away)
        node = self.world.schedule(pod)
        assert node == self.plain.schedule(pod.metadata.name, app, away)
        if node is not None:
            self.world.bound(pod, node)

    @rule(app=APPS, away=st.lists(st.sampled_from(["tiny", "large"]), unique=True))
    def schedule_in_vain(self, app, away):
        pod = make_pod(self.name("p"), app, away)
        node = self.world.schedule(pod)
        assert node == self.plain.choose(away)
        if node is not None:
            self.world.failed(pod, node)

    @precondition(lambda self: self.plain.queue)
    @rule(data=st.data(), app=APPS)
    def place_by_name(self, data, app):
        name, node = self.name("p"), data.draw(st.sampled_from(self.plain.queue))
        self.world.nodes.add_pod(self.world.infos.of(make_pod(name, app, node=node)), node)
        self.plain.pods[name] = (node, app)

    @precondition(lambda self: self.plain.pods)
    @rule(data=st.data())
    def delete_pod(self, data):
        name = data.draw(st.sampled_from(sorted(self.plain.pods)))
        self.world.nodes.remove_pod(name)
        del self.plain.pods[name]


TestTurns = Turns.TestCase
TestTurns.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


# -- the profile ----------------------------------------------------------------------------


def test_the_example_is_the_profile_that_comes_with_the_scheduler():
    _, _, rest = EXAMPLE.read_text().partition("\n")
    assert rest == minik8s_profile.CONFIGURATION


def test_nobody_else_scores_and_anti_affinity_is_nobody_elses_matter():
    profile = World().profile
    assert [plugin.name for plugin, _ in profile.score] == ["Minik8s"]
    assert "InterPodAffinity" not in profile.plugins
    assert {"TaintToleration", "NodeResourcesFit", "Minik8s"} <= {p.name for p in profile.filter}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ([], ["default-scheduler", "minik8s-scheduler"]),
        (["mine"], ["mine", "minik8s-scheduler"]),
        (["minik8s-scheduler"], ["minik8s-scheduler"]),
    ],
)
def test_the_profile_comes_beside_those_of_a_file(before, after):
    configuration = Configuration()
    kind = type(profiles.parse(minik8s_profile.CONFIGURATION).profiles[0])
    configuration.profiles.extend(kind(scheduler_name=name) for name in before)
    minik8s_profile.add(configuration)
    assert [p.scheduler_name for p in configuration.profiles] == after
    built = profiles.build(configuration, Handle(Columns(), SYSTEM, images.ImageTable()))
    assert list(built) == after


def test_turns_are_numbers_that_follow_rows():
    world = World(*(make_node(n) for n in "abc"))
    assert world.run(make_pod("p")) == "a"
    world.nodes.remove_node("a")
    world.nodes.set_node(make_node("d"))
    assert world.nodes.rows["d"] == 0
    assert world.run(*(make_pod(f"q{i}") for i in range(4))) == "bcdb"
    assert len(np.unique(world.plugin._turns)) == 3
