"""Pods of one template as a batch: what they share is what each would have been told alone.

Two clusters live through the same random story: pods of a few templates to be placed, one after
another or mixed, and between them pods that end, nodes that change, come and go, and pods that
are nominated. In one a cycle keeps what it was told, as the scheduler does; in the other every pod
meets a cycle that has never seen any. They must agree on all that is decided and said.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from motley.scheduler import contract, profiles
from motley.scheduler.columns import EVERY_ROW, Columns
from motley.scheduler.contract import Handle
from motley.scheduler.cycle import Cycle, Rotation
from motley.scheduler.decisions import Decision
from motley.scheduler.images import ImageTable
from motley.scheduler.lineup import Lower
from motley.scheduler.plugins.registry import PLUGINS
from motley.scheduler.podinfo import PodInfos

FIXTURES = [HealthCheck.function_scoped_fixture]  # they only hand out functions
ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
NODES = [f"n{i}" for i in range(24)]  # more than eight, so that few rows are asked about alone


class Neighbourly:
    """A user's plugin that knows nothing of batches: likes nodes whose neighbours have few pods."""

    name = "Neighbourly"
    Args = contract.NoArgs

    def __init__(self, args, handle): ...

    def score(self, pod, nodes):
        return np.roll(-nodes.requested[3], 1)

    def normalize(self, pod, scores, feasible):
        return np.clip(100 + scores, 0, 100)


class Roomy:
    """A user's plugin that answers by row, and is compared: raw scores change, then all do."""

    name = "Roomy"
    Args = contract.NoArgs

    def __init__(self, args, handle): ...

    def score(self, pod, nodes):
        return self.score_rows(pod, nodes, EVERY_ROW)

    def score_rows(self, pod, nodes, rows):
        return nodes.allocatable[0, rows] - nodes.requested[0, rows]

    def normalize(self, pod, scores, feasible):
        highest = float(scores[feasible].max(initial=1.0))
        return np.floor(np.clip(scores * 100 / max(highest, 1.0), 0, 100))


CONFIGURATION = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - plugins: {score: {enabled: [{name: Neighbourly, weight: 3}, {name: Roomy, weight: 2}]}}
    pluginConfig:
      - name: NodeResourcesBalancedAllocation
        args: {resources: [{name: cpu, weight: 1}, {name: memory, weight: 1}, {name: example.com/gpu, weight: 1}]}
"""  # noqa: E501
DEFAULT = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


class World:
    """A cluster; `keeps`: does its cycle keep what it was told?"""

    def __init__(self, text: str, *, keeps: bool) -> None:
        self.nodes = Columns()
        self.infos = PodInfos()
        self.handle = Handle(self.nodes, _Still(), ImageTable())
        registry = {**PLUGINS, "Neighbourly": Neighbourly, "Roomy": Roomy}
        self.profile = profiles.build(profiles.parse(text), self.handle, registry)[
            "default-scheduler"
        ]
        self.rotation = Rotation()
        self.keeps = keeps
        self.cycle = self._new_cycle()

    def _new_cycle(self) -> Cycle:
        return Cycle(
            self.profile,
            self.nodes,
            rotation=self.rotation,
            nominations=self.handle.nominations,
            clock=self.handle.clock,
        )

    def schedule(self, pod: Any) -> Decision:
        if not self.keeps:
            self.cycle = self._new_cycle()
        info = self.infos.of(pod)
        decision = self.cycle.schedule(info)
        if decision.node is not None:
            self.handle.nominations.drop(info.uid)
            self.nodes.add_pod(info, decision.node, assumed=True)
        return decision

    def happens(self, kind: str, what: Any) -> Any:
        """One event of the story; a decision where it is one."""
        match kind:
            case "schedule":
                return self.schedule(what)
            case "end":
                uids = sorted(self.nodes.placed)
                uids = [uid for uid in uids if not uid.startswith("nominated/")]
                if uids:
                    self.nodes.remove_pod(uids[what % len(uids)])
            case "node":
                self.nodes.set_node(what)
            case "no node":
                self.nodes.remove_node(what)
            case "place":
                self.nodes.add_pod(self.infos.of(what), what.spec.node_name)
            case "nominate":
                self.handle.nominations.set(self.infos.of(what[0]), what[1])
            case "drop":
                self.handle.nominations.drop(what)
        return None


class _Still:
    def now(self) -> float:
        return 0.0

    monotonic = now

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("nobody waits in a cycle")


# -- stories --------------------------------------------------------------------------------


def _term(color: str, key: str) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"color": color}}}


def _spread(action: str, key: str, skew: int) -> dict[str, Any]:
    return {
        "topologyKey": key,
        "whenUnsatisfiable": action,
        "maxSkew": skew,
        "labelSelector": {"matchLabels": {"color": "red"}},
    }


REQUIRED, PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
IN_A = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
ON_N1 = {"matchExpressions": [{"key": HOST, "operator": "In", "values": ["n1"]}]}
# What pods of a template have beside their requests: labels, then the rest of the pod.
KINDS: list[tuple[dict[str, str], dict[str, Any]]] = [
    ({}, {}),
    ({}, {"host_port": 80}),
    ({}, {"tolerations": [{"key": "k", "operator": "Exists"}]}),
    ({}, {"node_selector": {"disk": "ssd"}}),
    ({}, {"affinity": {"nodeAffinity": {PREFERRED: [{"weight": 5, "preference": IN_A}]}}}),
    # The one node that is liked best is full after the first pod: all others are worth more then.
    (
        {},
        {
            "host_port": 80,
            "affinity": {
                "nodeAffinity": {
                    PREFERRED: [
                        {"weight": 5, "preference": IN_A},
                        {"weight": 90, "preference": ON_N1},
                    ]
                }
            },
        },
    ),
    ({"color": "red"}, {"spread": [_spread("DoNotSchedule", ZONE, 1)]}),
    ({"color": "red"}, {"spread": [_spread("ScheduleAnyway", ZONE, 2)]}),
    ({"color": "red"}, {"spread": [_spread("ScheduleAnyway", HOST, 1)]}),
    ({"color": "red"}, {"affinity": {"podAffinity": {REQUIRED: [_term("red", ZONE)]}}}),
    ({"color": "green"}, {"affinity": {"podAntiAffinity": {REQUIRED: [_term("green", HOST)]}}}),
    ({"color": "green"}, {"affinity": {"podAntiAffinity": {REQUIRED: [_term("red", ZONE)]}}}),
    (
        {"color": "green"},
        {
            "affinity": {
                "podAffinity": {
                    PREFERRED: [{"weight": 7, "podAffinityTerm": _term("green", ZONE)}]
                },
                "podAntiAffinity": {
                    PREFERRED: [{"weight": 3, "podAffinityTerm": _term("red", HOST)}]
                },
            }
        },
    ),
]
REQUESTS = [
    {},
    {"cpu": "100m"},
    {"cpu": "1", "memory": "1Gi"},
    {"memory": "3Gi"},
    {"cpu": "500m", "example.com/gpu": "1"},
]
TAINTS = [
    [],
    [{"key": "k", "value": "v", "effect": "NoSchedule"}],
    [{"key": "s", "value": "v", "effect": "PreferNoSchedule"}],
]


def _pod(make: Any, name: str, template: tuple[int, int, int], node: str = "") -> Any:
    kind, requests, priority = template
    labels, extra = KINDS[kind]
    extra = dict(extra)
    spec: dict[str, Any] = {"priority": priority}
    if "spread" in extra:
        spec["topologySpreadConstraints"] = extra.pop("spread")
    if "node_selector" in extra:
        spec["nodeSelector"] = extra.pop("node_selector")
    return make(name, labels=labels, requests=REQUESTS[requests], node=node, **spec, **extra)


templates = st.tuples(
    st.integers(0, len(KINDS) - 1), st.integers(0, len(REQUESTS) - 1), st.sampled_from([0, 0, 0, 5])
)
node_facts = st.tuples(
    st.sampled_from(NODES),
    st.sampled_from(["1", "2", "4"]),
    st.sampled_from(["a", "b", "c", None]),
    st.sampled_from(["ssd", "hdd", None]),
    st.sampled_from(TAINTS),
    st.booleans(),
)
steps = st.one_of(
    st.tuples(st.just("batch"), st.integers(0, 3), st.integers(1, 6)),
    st.tuples(st.just("batch"), st.integers(0, 3), st.integers(1, 6)),
    st.tuples(st.just("batch"), st.integers(0, 3), st.integers(1, 6)),
    st.tuples(st.just("end"), st.integers(0, 99), st.none()),
    st.tuples(st.just("node"), node_facts, st.none()),
    st.tuples(st.just("no node"), st.sampled_from(NODES), st.none()),
    st.tuples(st.just("place"), st.integers(0, 3), st.sampled_from(NODES)),
    st.tuples(st.just("nominate"), st.integers(0, 3), st.sampled_from(NODES)),
    st.tuples(st.just("drop"), st.integers(0, 30), st.none()),
)


def _node(make: Any, facts: tuple[Any, ...]) -> Any:
    name, cpu, zone, disk, taints, has_gpu = facts
    labels = {ZONE: zone, "disk": disk}
    return make(
        name,
        cpu=cpu,
        memory="4Gi",
        pods="8",
        labels={key: value for key, value in labels.items() if value},
        taints=taints,
        images={"app:1": 300 << 20} if disk == "ssd" else None,
        **({"example_com__gpu": "4"} if has_gpu else {}),
    )


def _told(story: Any, kinds: Any, node: Any, pod: Any) -> Any:
    """The events of a story, with objects that both worlds can be given."""
    for i, name in enumerate(NODES):
        taints = TAINTS[2] if i % 7 == 0 else []
        facts = (name, "124"[i % 3], "abc"[i % 3], "ssd" if i % 2 else None, taints, i % 4 == 0)
        yield "node", _node(node, facts)
    number = 0
    for kind, what, more in story:
        match kind:
            case "batch":
                for _ in range(more):
                    number += 1
                    yield "schedule", _pod(pod, f"p{number}", kinds[what % len(kinds)])
            case "node":
                yield "node", _node(node, what)
            case "place":
                number += 1
                yield "place", _pod(pod, f"p{number}", kinds[what % len(kinds)], more)
            case "nominate":
                number += 1
                yield "nominate", (_pod(pod, f"p{number}", kinds[what % len(kinds)]), more)
                yield "schedule", _pod(pod, f"p{number}", kinds[what % len(kinds)])
            case "drop":
                yield "drop", f"p{what}"
            case _:
                yield kind, what


def _comparable(decision: Decision | None) -> Any:
    if decision is None:
        return None
    post = decision.post_filter
    if isinstance(post, contract.Nomination):
        post = (post.node, [v.uid for v in post.victims], post.message)
    return replace(decision, took_s=0.0, post_filter=None), post


@pytest.mark.parametrize("text", [DEFAULT, CONFIGURATION], ids=["default", "with user plugins"])
@settings(max_examples=60, deadline=None, suppress_health_check=FIXTURES)
@given(kinds=st.lists(templates, min_size=1, max_size=3), story=st.lists(steps, max_size=14))
def test_a_batch_is_decided_like_its_pods_one_by_one(text, node, pod, kinds, story):
    kept, fresh = World(text, keeps=True), World(text, keeps=False)
    for kind, what in _told(story, kinds, node, pod):
        mine, plain = kept.happens(kind, what), fresh.happens(kind, what)
        assert _comparable(mine) == _comparable(plain)
        if mine is not None:
            event("placed" if mine.node else "unschedulable")


def test_only_rows_whose_pods_changed_are_asked_about_again(cluster, node, pod):
    world = cluster(*(node(f"n{i}") for i in range(40)))
    fit = world.profile.plugins["NodeResourcesFit"]
    asked: list[int] = []
    answer = fit.score_rows

    def spy(pod, nodes, rows):
        asked.append(len(nodes.live[rows]))
        return answer(pod, nodes, rows)

    fit.score_rows = spy
    for i in range(5):
        info = world.info(pod(f"p{i}", requests={"cpu": "100m"}))
        world.nodes.add_pod(info, world.cycle.schedule(info).node, assumed=True)
    assert asked == [40, 1, 1, 1, 1]
    world.nodes.set_node(node("n3", cpu="8"))
    world.cycle.schedule(world.info(pod("last", requests={"cpu": "100m"})))
    assert asked[-1] == 40


def test_an_answer_that_a_plugin_keeps_for_itself_is_not_written_to(cluster, node, pod):
    world = cluster(*(node(f"n{i}") for i in range(40)))
    fit = world.profile.plugins["NodeResourcesFit"]
    own = fit.score(world.info(pod("p", requests={"cpu": "1"})), world.nodes)
    before = own.copy()
    fit.score = lambda pod, nodes: own
    for i in range(3):
        info = world.info(pod(f"p{i}", requests={"cpu": "1"}))
        world.nodes.add_pod(info, world.cycle.schedule(info).node, assumed=True)
    assert own.tolist() == before.tolist()


# -- preemption in columns ------------------------------------------------------------------


@settings(max_examples=80, deadline=None, suppress_health_check=FIXTURES)
@given(
    template=templates.filter(lambda t: "host_port" not in KINDS[t[0]][1]),
    placed=st.lists(
        st.tuples(templates, st.integers(0, 9), st.sampled_from([0, 1, 9])), max_size=30
    ),
)
def test_pods_thought_away_count_like_pods_taken_out(cluster, node, pod, template, placed):
    world = cluster(*(node(f"n{i}", labels={ZONE: "abc"[i % 3]}) for i in range(10)))
    for number, ((kind, requests, _), where, priority) in enumerate(placed):
        world.place(_pod(pod, f"p{number}", (kind, requests, priority)), f"n{where}")
    info = world.info(_pod(pod, "new", (*template[:2], 5)))
    gone = Lower(world.nodes, info.priority)
    for name in ("PodTopologySpread", "InterPodAffinity"):
        plugin = world.profile.plugins[name]
        answer = plugin.filter_vacated(info, world.nodes, gone)
        reasons = plugin.explain_vacated(info, world.nodes, ~answer, gone)
        said: dict[str, int] = {}
        for row in range(world.nodes.size):
            there = [p for p in world.nodes.pods_on(f"n{row}").values() if p.info.priority < 5]
            for one in there:
                world.nodes.remove_pod(one.info.uid)
            assert answer[row] == plugin.filter(info, world.nodes)[row]
            here = np.zeros(world.nodes.size, np.bool_)
            here[row] = not answer[row]
            for reason, count in plugin.explain(info, world.nodes, here).items():
                said[reason] = said.get(reason, 0) + count
            for one in there:
                world.nodes.add_pod(one.info, one.node)
        assert reasons == said
