"""Overcommit: requests discounted by measured use, within what nodes agree to."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.api import overcommit as labels
from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.scheduler import images
from motley.scheduler.columns import CPU_ROW, MEMORY_ROW, Columns
from motley.scheduler.contract import Handle
from motley.scheduler.plugins.load import LoadMeasured
from motley.scheduler.plugins.node_resources_fit import NodeResourcesFit, NodeResourcesFitArgs
from motley.scheduler.plugins.overcommit import Overcommit
from motley.scheduler.podinfo import PodInfos

PROMETHEUS = {"prometheusApiAddr": "http://127.0.0.1:9"}
AGREES = {"motley.io/overcommit-cpu": "2", "motley.io/overcommit-memory": "1.5"}


class World:
    """Nodes of 4 cores and 8 Gi that agree to overcommit, unless they are told not to."""

    def __init__(self, node, clock, names, *, agree=AGREES, **args):
        self.nodes, self.clock, self.infos = Columns(), clock, PodInfos()
        for name in names:
            self.nodes.set_node(node(name, labels=agree))
        self.handle = Handle(self.nodes, clock, images.ImageTable())
        args = msgspec.convert({**PROMETHEUS, **args}, Overcommit.Args)
        self.plugin = Overcommit(args, self.handle)

    def fill(self, pod, name, cpu, memory="1Gi", *, guaranteed=False):
        amounts = {"cpu": cpu, "memory": memory}
        placed = pod(f"{name}-{len(self.nodes.placed)}", requests=amounts)
        if guaranteed:
            placed.spec.containers[0].resources.limits.update(amounts)
        self.nodes.add_pod(self.infos.of(placed), name)

    def settle(self, cpu, memory):
        """Measure for as long as it takes that nothing is news."""
        for _ in range(3):
            self.clock.time += 60
            self.plugin.load.take("cpu", dict(zip(self.nodes.names, cpu, strict=True)))
            self.plugin.load.take("memory", dict(zip(self.nodes.names, memory, strict=True)))

    def allowed(self, pod):
        mask = self.plugin.filter(self.infos.of(pod), self.nodes) & self.nodes.live
        return "".join(np.array(self.nodes.names)[mask])

    def why(self, pod):
        info = self.infos.of(pod)
        rejected = ~self.plugin.filter(info, self.nodes)
        return self.plugin.explain(info, self.nodes, rejected)


def test_a_node_that_is_requested_for_four_fifths_and_idle_counts_for_less(node, pod, clock):
    world = World(node, clock, "ab", minRequestShare={"cpu": 50})
    for name in "ab":
        world.fill(pod, name, "3200m")
    wants = pod(requests={"cpu": "1500m"})
    assert world.allowed(wants) == "", "nothing is known yet: requests count"
    assert world.why(wants) == {"Insufficient cpu": 2}
    world.settle(cpu=[10, 70], memory=[10, 10])
    assert world.plugin.counted("cpu", world.nodes).tolist() == [
        1600,
        pytest.approx(0.7 * 4000 * 1.2),
    ], "half of the requests at least; 70 % and a fifth more are 84 %, which is above them"
    assert world.allowed(wants) == "a"
    assert world.why(wants) == {"Insufficient cpu (measured use counted)": 1}
    scores = world.plugin.score(world.infos.of(wants), world.nodes)
    assert scores[0] > scores[1]


def test_memory_is_discounted_less_than_cpu(node, pod, clock):
    world = World(node, clock, "a")
    world.fill(pod, "a", "2", "4Gi")
    world.settle(cpu=[1], memory=[1])
    assert world.plugin.counted("cpu", world.nodes)[0] == 0.4 * 2000
    assert world.plugin.counted("memory", world.nodes)[0] == pytest.approx(0.6 * 4 * 2**30)


def test_guaranteed_pods_count_in_full(node, pod, clock):
    world = World(node, clock, "ab")
    world.fill(pod, "a", "3", guaranteed=True)
    world.fill(pod, "b", "3")
    world.settle(cpu=[5, 5], memory=[5, 5])
    assert world.plugin.counted("cpu", world.nodes).tolist() == [3000, 1200]
    assert world.allowed(pod(requests={"cpu": "2"})) == "b"
    world.nodes.remove_pod("a-0")
    assert world.allowed(pod(requests={"cpu": "2"})) == "ab"


def test_the_ratio_holds_whatever_is_measured(node, pod, clock):
    world = World(node, clock, "a", minRequestShare={"cpu": 0})
    for _ in range(7):
        world.fill(pod, "a", "1", "100Mi")
    world.settle(cpu=[0], memory=[0])
    assert world.allowed(pod(requests={"cpu": "1"})) == "a"
    world.fill(pod, "a", "1", "100Mi")
    world.settle(cpu=[0], memory=[0])
    assert world.allowed(pod(requests={"cpu": "1"})) == ""
    assert world.why(pod(requests={"cpu": "1"})) == {
        "Insufficient cpu (overcommit ratio reached)": 1
    }


def test_the_profile_bounds_what_labels_allow(node, pod, clock):
    world = World(node, clock, "a", maxOvercommitRatio={"cpu": 1.25}, minRequestShare={"cpu": 0})
    world.fill(pod, "a", "4")
    world.settle(cpu=[0], memory=[0])
    assert world.allowed(pod(requests={"cpu": "1"})) == "a"
    assert world.allowed(pod(requests={"cpu": "1001m"})) == ""


def test_only_nodes_that_agree_are_overcommitted(node, pod, clock):
    world = World(node, clock, "a", agree={})
    world.fill(pod, "a", "3")
    world.settle(cpu=[1], memory=[1])
    wants = pod(requests={"cpu": "2"})
    assert world.allowed(wants) == ""
    assert world.why(wants) == {"Insufficient cpu": 1}
    world.nodes.set_node(node("a", labels=AGREES))
    assert world.allowed(wants) == "a", "a label acts at once"

    asked = World(node, clock, "a", agree={}, requireNodeLabel=False)
    asked.fill(pod, "a", "3")
    asked.settle(cpu=[1], memory=[1])
    assert asked.allowed(wants) == "a"


def raised(name, ratio="2"):
    """A stock kubelet's node of 4 cores as the webhook leaves it; its label may be newer."""
    note = {"cpu": {"raw": "4", "raised": "8", "capacity": "4"}}
    return Node.of({
        "metadata": {"name": name, "labels": {"motley.io/overcommit-cpu": ratio},
                     "annotations": {labels.RAISED: msgspec.json.encode(note).decode()}},
        "status": {"capacity": {"cpu": "4", "memory": "8Gi"},
                   "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}},
    })  # fmt: skip


def test_what_a_webhook_raised_is_not_overcommitted_again(node, pod, clock):
    world = World(node, clock, "a", minRequestShare={"cpu": 0})
    world.nodes.set_node(raised("b"))
    for name in "ab":
        world.fill(pod, name, "6", "100Mi")
    world.settle(cpu=[40, 40], memory=[0, 0])
    counted = world.plugin.counted("cpu", world.nodes)
    assert counted.tolist() == [pytest.approx(0.4 * 4000 * 1.2)] * 2, "of four cores on both"
    assert world.allowed(pod(requests={"cpu": "2"})) == "ab"
    assert world.allowed(pod(requests={"cpu": "2001m"})) == "", "twice four, not twice eight"
    scores = world.plugin.score(world.infos.of(pod(requests={"cpu": "1"})), world.nodes)
    assert scores[0] == scores[1]
    five = world.infos.of(pod(requests={"cpu": "5"}))
    assert world.plugin.hopeless(five, world.nodes, world.nodes.live).all(), "as on any four cores"


def test_a_kubelet_is_given_no_more_than_it_was_told_to_admit(node, pod, clock):
    """The label says 10 by now, or 1.5; the kubelet still goes by what was written for 2."""
    world = World(node, clock, "", minRequestShare={"cpu": 0}, maxOvercommitRatio={"cpu": 10})
    world.nodes.set_node(raised("a", "10"))
    world.fill(pod, "a", "7", "100Mi")
    world.settle(cpu=[0], memory=[0])
    assert world.allowed(pod(requests={"cpu": "1"})) == "a"
    assert world.allowed(pod(requests={"cpu": "1001m"})) == ""
    world.nodes.set_node(raised("a", "1.5"))
    assert world.allowed(pod(requests={"cpu": "1"})) == ""


def test_a_note_that_is_no_longer_true_counts_for_nothing(node, pod, clock):
    world = World(node, clock, "", minRequestShare={"cpu": 0})
    world.nodes.set_node(raised("a"))
    assert world.nodes.reported[CPU_ROW, 0] == 4000
    grown = msgspec.structs.replace(
        raised("a"),
        status=msgspec.structs.replace(raised("a").status, capacity={"cpu": "8"}),
    )
    change = world.nodes.set_node(grown)
    assert world.nodes.reported[CPU_ROW, 0] == 8000
    assert change.allocatable


def test_a_label_that_is_no_ratio_allows_nothing_and_is_told_once(node, pod, clock):
    told = []
    world = World(node, clock, "ab", agree={"motley.io/overcommit-cpu": "lots"})
    world.handle.notices.listener = lambda about, reason, _: told.append(
        (about.metadata.name, reason)
    )
    world.fill(pod, "a", "3")
    world.settle(cpu=[1, 1], memory=[1, 1])
    assert world.allowed(pod(requests={"cpu": "2"})) == "b"
    world.nodes.set_node(node("c"))
    assert world.allowed(pod(requests={"cpu": "2"})) == "bc"
    assert told == [("a", "InvalidOvercommit"), ("b", "InvalidOvercommit")]


def test_stale_measurements_discount_nothing(node, pod, clock):
    world = World(node, clock, "a")
    world.fill(pod, "a", "3")
    world.settle(cpu=[1], memory=[1])
    wants = pod(requests={"cpu": "2"})
    assert world.allowed(wants) == "a"
    assert world.plugin.ages(None) == {"cpu": 0, "memory": 0}
    clock.time += 181
    assert world.allowed(wants) == ""
    assert world.plugin.ages(None) == {}


def test_a_burst_is_counted_in_full_until_it_is_measured(node, pod, clock):
    world = World(node, clock, "a")
    world.settle(cpu=[1], memory=[1])
    placed = 0
    while world.allowed(pod(requests={"cpu": "500m"})):
        world.fill(pod, "a", "500m", "10Mi")
        placed += 1
    assert placed == 7, "four cores less what is used already"
    world.settle(cpu=[2], memory=[1])
    assert world.allowed(pod(requests={"cpu": "500m"})) == "a"


def test_what_is_really_used_counts_even_without_requests(node, pod, clock):
    world = World(node, clock, "a")
    world.settle(cpu=[1], memory=[85])
    wants = pod(requests={"memory": "1Gi"})
    assert world.allowed(wants) == ""
    assert world.why(wants) == {"Insufficient memory (measured use counted)": 1}


def test_a_lull_does_not_open_a_node_that_was_busy_a_moment_ago(node, pod, clock):
    world = World(node, clock, "a")
    world.fill(pod, "a", "3")
    world.settle(cpu=[75], memory=[1])
    world.settle(cpu=[1], memory=[1])
    assert world.allowed(pod(requests={"cpu": "2"})) == ""


def test_other_resources_are_counted_as_ever(node, pod, clock):
    world = World(node, clock, "a")
    world.nodes.set_node(node("b", labels=AGREES, example_org__gpu="1", pods="1"))
    world.settle(cpu=[0, 0], memory=[0, 0])
    gpu = pod(requests={"example.org/gpu": "1"})
    assert world.allowed(gpu) == "b"
    world.fill(pod, "b", "1m", "1Mi")
    assert world.why(gpu) == {"Too many pods": 1, "Insufficient example.org/gpu": 1}
    assert world.plugin.hopeless(
        world.infos.of(pod(requests={"cpu": "5"})), world.nodes, world.nodes.live
    ).all()


def test_pods_wait_for_a_measurement_that_helps(node, pod, clock):
    world = World(node, clock, "a")
    world.fill(pod, "a", "3")
    info = world.infos.of(pod(requests={"cpu": "2"}))
    assert not world.plugin.may_help(info, LoadMeasured())
    world.settle(cpu=[1], memory=[1])
    assert world.plugin.may_help(info, LoadMeasured())
    assert LoadMeasured in Overcommit.wakes_on


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 30), st.booleans()), max_size=12),
    st.integers(1, 30),
    st.one_of(st.none(), st.lists(st.integers(0, 100), min_size=3, max_size=3)),
    st.booleans(),
)
def test_requests_are_only_ever_exceeded_within_bounds(placed, wanted, used, agrees):
    """Against sums made plainly; without consent or figures it is NodeResourcesFit."""

    class Clock:
        @staticmethod
        def monotonic():
            return 0.0

        @staticmethod
        def now():
            return 1_900_000_000.0

    nodes, infos = Columns(), PodInfos()
    marks = AGREES if agrees else {}
    for name in "abc":
        allocatable = {"cpu": "4", "memory": "8Gi", "pods": "110"}
        nodes.set_node(
            Node.of({"metadata": {"name": name, "labels": marks},
                      "status": {"allocatable": allocatable}})
        )  # fmt: skip
    handle = Handle(nodes, Clock, images.ImageTable())
    plugin = Overcommit(msgspec.convert(PROMETHEUS, Overcommit.Args), handle)
    requested, reserved = [0, 0, 0], [0, 0, 0]
    for i, (row, deci, guaranteed) in enumerate(placed):
        nodes.add_pod(infos.of(_pod(f"p{i}", deci, guaranteed)), nodes.names[row])
        requested[row] += deci * 100
        reserved[row] += deci * 100 if guaranteed else 0
    if used is not None:
        for resource in ("cpu", "memory"):
            plugin.load.take(resource, dict(zip("abc", map(float, used), strict=True)))
    info = infos.of(_pod("new", wanted, False))
    mask = plugin.filter(info, nodes).tolist()
    if used is None or not agrees:
        fit = NodeResourcesFit(NodeResourcesFitArgs(), handle)
        assert mask == fit.filter(info, nodes).tolist()
        return
    for row, fits in enumerate(mask):
        measured = used[row] * 40 * 1.2
        others = requested[row] - reserved[row]
        counted = max(reserved[row] + min(others, max(measured, 0.4 * others)), measured)
        room = counted + wanted * 100 <= 4000 and requested[row] + wanted * 100 <= 8000
        memory = used[row] / 100 * 1.3 * 8 * 2**30 + len(placed) < 8 * 2**30
        assert fits == (room and memory)


def _pod(name, deci, guaranteed):
    amounts = {"cpu": f"{deci * 100}m", "memory": "1"}
    resources = {"requests": amounts, **({"limits": amounts} if guaranteed else {})}
    container = {"name": "c", "image": "i", "resources": resources}
    return Pod.of({"metadata": {"name": name, "uid": name}, "spec": {"containers": [container]}})


@pytest.mark.parametrize(
    ("text", "ratio"),
    [("2", 2), ("1.25", 1.25), ("1", 1), ("10", 10), ("0.5", None), ("11", None), ("2x", None),
     ("", None), ("-2", None), ("1e3", None)],
)  # fmt: skip
def test_a_label_is_a_decimal_number_from_one_to_ten(text, ratio):
    assert labels.ratio(text) == ratio


def test_labels_that_allow_nothing_are_left_out():
    assert labels.ratios({"motley.io/overcommit-cpu": "1", "x": "2"}) == {}
    assert labels.ratios(AGREES) == {"cpu": 2, "memory": 1.5}


def test_rows_of_the_resources_are_those_of_the_columns():
    assert (CPU_ROW, MEMORY_ROW) == (0, 1), "the book of Guaranteed pods goes by them"


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("metrics", {"httpRequests": "node_http_requests_percent"}),
        ("safetyMargin", {"httpRequests": 5}),
        ("minRequestShare", {"httpRequests": 5}),
        ("maxOvercommitRatio", {"httpRequests": 2}),
    ],
)
def test_only_what_pods_request_can_be_overcommitted(argument, value):
    complaint = f"{argument}: 'httpRequests' is not cpu or memory"
    with pytest.raises(msgspec.ValidationError, match=complaint):
        msgspec.convert({**PROMETHEUS, argument: value}, Overcommit.Args)
