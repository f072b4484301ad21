"""Why a pod is where it is: records of decisions, and questions about the present."""

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.core import Namespace
from motley.api.views.decisions import Decision as DecisionObject
from motley.api.views.pod import Pod
from motley.client.decoding import Listing, ListMeta
from motley.scheduler import explaining, present, publishing, recordpage, records, timing
from motley.scheduler.columns import Columns
from motley.scheduler.cycle import Cycle
from motley.scheduler.plugins.scorelog import PerNode
from motley.scheduler.profiles import Configuration
from motley.scheduler.publishing import Publish, Publisher
from motley.scheduler.records import Records

GPU = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}


def decided(world, pod, **more):
    """A pod's decision, taken down."""
    info = world.info(pod)
    book = Records({world.profile.name: world.profile})
    return info, book, book.take(info, world.cycle.schedule(info), **more)


# -- records --------------------------------------------------------------------------------


def test_a_record_says_what_each_filter_cost_and_how_the_best_nodes_scored(cluster, node, pod):
    world = cluster(node("a"), node("b", cpu="8"), node("c", taints=[GPU]))
    _, _, record = decided(world, pod(requests={"cpu": "1"}), attempts=2)
    spec = record.spec()
    assert spec["node"] == "b"
    assert (spec["nodes"], spec["feasible"], spec["attempts"]) == (3, 2, 2)
    assert spec["filters"] == [
        {"plugin": "TaintToleration", "rejected": 1, "reason": "node(s) had untolerated taint(s)"}
    ]
    assert [one["node"] for one in spec["scores"]] == ["b", "a"]
    assert spec["scores"][0]["total"] == sum(spec["scores"][0]["plugins"].values())
    assert spec["weights"]["TaintToleration"] == 3
    assert "metrics" not in spec
    assert "nominatedNode" not in spec


def test_a_record_of_a_preemption_names_node_and_victims(cluster, node, pod):
    world = cluster(node("a", cpu="1"))
    world.place(pod("low", requests={"cpu": "1"}, priority=1), "a")
    _, _, record = decided(world, pod("high", requests={"cpu": "1"}, priority=10))
    spec = record.spec()
    assert spec["nominatedNode"] == "a"
    assert spec["victims"] == ["default/low"]
    assert "node" not in spec


def test_a_record_says_how_old_measurements_were(cluster, node, pod):
    world = cluster(node("a"), node("b"))
    plugin = SimpleNamespace(name="Load", ages=lambda pod: {"cpu": 12.5, "memory": 3.0})
    profile = replace(world.profile, plugins={**world.profile.plugins, "Load": plugin})
    info = world.info(pod())
    spec = Records({profile.name: profile}).take(info, world.cycle.schedule(info)).spec()
    assert {"plugin": "Load", "metric": "cpu", "ageSeconds": 12.5} in spec["metrics"]
    assert spec["metricsAgeSeconds"] == 12.5


def test_only_the_last_decisions_of_a_pod_and_of_all_pods_are_kept(cluster, node, pod, monkeypatch):
    monkeypatch.setattr(records, "PODS", 2)
    world = cluster(node("a"))
    book = Records({world.profile.name: world.profile})
    for attempt in range(5):
        info = world.info(pod("p"))
        book.take(info, world.cycle.schedule(info), attempt)
    assert [record.attempts for record in book.of(Key("default", "p"))] == [2, 3, 4]
    for name in ("q", "r"):
        info = world.info(pod(name))
        book.take(info, world.cycle.schedule(info))
    assert [record.decision.pod.name for record in book.latest()] == ["r", "q"]
    assert book.of(Key("default", "p")) == ()


def test_another_pod_of_the_same_name_starts_afresh(cluster, node, pod):
    world = cluster(node("a"))
    _, book, _ = decided(world, pod("p", uid="1"))
    info = world.info(pod("p", uid="2"))
    book.take(info, world.cycle.schedule(info))
    assert [record.uid for record in book.of(Key("default", "p"))] == ["2"]


# -- times ----------------------------------------------------------------------------------


def test_a_measured_cycle_decides_the_same_and_says_who_took_how_long(cluster, node, pod):
    world = cluster(node("a"), node("b", cpu="8"), node("c", taints=[GPU]))
    info = world.info(pod(requests={"cpu": "1"}))
    stopwatch = timing.Stopwatch()
    measured = Cycle(timing.timed(world.profile, stopwatch), world.nodes)
    plain = world.cycle.schedule(info)
    found = measured.schedule(info)
    assert replace(found, took_s=0.0) == replace(plain, took_s=0.0)
    assert stopwatch.took_s["NodeResourcesFit"] > 0
    assert sum(stopwatch.took_s.values()) <= found.took_s


def test_a_measured_preemption_counts_no_time_twice(cluster, node, pod):
    world = cluster(node("a", cpu="1"))
    world.place(pod("low", requests={"cpu": "1"}, priority=1), "a")
    stopwatch = timing.Stopwatch()
    cycle = Cycle(timing.timed(world.profile, stopwatch), world.nodes)
    found = cycle.schedule(world.info(pod("high", requests={"cpu": "1"}, priority=10)))
    assert found.nomination is not None
    assert sum(stopwatch.took_s.values()) <= found.took_s


def test_one_decision_in_so_many_is_measured():
    sampling = timing.Sampling(every=3)
    assert [sampling.is_due() for _ in range(7)] == [False, False, True] * 2 + [False]


# -- one node -------------------------------------------------------------------------------


def why_not(world, pod, name, chosen=""):
    info = world.info(pod)
    return explaining.why_not(world.cycle, world.handle.nominations, info, name, chosen)


def test_everything_that_is_against_a_node_is_named_first_things_first(cluster, node, pod):
    world = cluster(node("a", cpu="1", taints=[GPU], unschedulable=True), node("b"))
    answer = why_not(world, pod(requests={"cpu": "2"}, nodeSelector={"x": "y"}), "a")
    assert [objection.plugin for objection in answer.objections] == [
        "NodeUnschedulable",
        "TaintToleration",
        "NodeAffinity",
        "NodeResourcesFit",
    ]
    assert answer.objections[-1].reasons == ("Insufficient cpu",)
    assert answer.comparison is None


def test_the_first_objection_is_the_one_the_cycle_counts(cluster, node, pod):
    world = cluster(node("a", cpu="1", taints=[GPU]))
    wanted = pod(requests={"cpu": "2"})
    first = why_not(world, wanted, "a").objections[0].plugin
    assert list(world.cycle.schedule(world.info(wanted)).rejections) == [first]


def test_a_node_that_would_do_is_compared_with_the_best(cluster, node, pod):
    world = cluster(node("a"), node("b", cpu="16", memory="64Gi"), node("c", cpu="1"))
    answer = why_not(world, pod(requests={"cpu": "2"}), "a")
    found = answer.comparison
    assert found is not None
    assert (found.place, found.feasible, found.best_node) == (2, 2, "b")
    assert found.scores["NodeResourcesFit"] < found.best_scores["NodeResourcesFit"]
    assert why_not(world, pod(requests={"cpu": "2"}), "b").comparison.place == 1


def test_a_term_that_names_nodes_is_against_all_others(cluster, node, pod):
    field = {"key": "metadata.name", "operator": "In", "values": ["b"]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    world = cluster(node("a"), node("b"))
    answer = why_not(world, pod(affinity=affinity), "a")
    assert [objection.plugin for objection in answer.objections] == ["NodeAffinity"]


# -- what would help ------------------------------------------------------------------------


def advice(world, pod):
    return explaining.suggestions(world.cycle, world.handle.nominations, world.info(pod))


def test_a_pod_that_fits_needs_no_advice(cluster, node, pod):
    assert advice(cluster(node("a")), pod()) == []


def test_nodes_that_are_nearly_large_enough_are_named(cluster, node, pod):
    world = cluster(node("a", cpu="1"), node("b", cpu="1500m"), node("c", taints=[GPU]))
    assert advice(world, pod(requests={"cpu": "2"})) == [
        "2 nodes lack cpu: b only 500m cpu.",
        "1 node would do if the pod tolerated dedicated=gpu:NoSchedule.",
    ]


def test_a_cordoned_node_is_one_obstacle_though_it_is_tainted_too(cluster, node, pod):
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    world = cluster(node("a", unschedulable=True, taints=[taint]))
    assert advice(world, pod()) == ["1 node would do if uncordoned: kubectl uncordon a"]


def test_a_label_that_no_node_has_is_named(cluster, node, pod):
    world = cluster(node("a", labels={"disk": "ssd"}))
    said = advice(world, pod(nodeSelector={"disk": "nvme"}))
    assert "No node has the label disk=nvme that the pod's nodeSelector asks for." in said


def test_where_several_filters_are_against_every_node_the_nearest_is_named(cluster, node, pod):
    world = cluster(node("a", cpu="1", taints=[GPU]))
    (said,) = advice(world, pod(requests={"cpu": "2"}))
    assert said.startswith("At least 2 filters are against every node; nearest is a:")


def test_gates_and_empty_clusters_are_said_plainly(cluster, node, pod):
    assert advice(cluster(), pod()) == ["There are no nodes."]
    gated = pod(schedulingGates=[{"name": "example.com/quota"}])
    assert "example.com/quota" in advice(cluster(node("a")), gated)[0]


@pytest.mark.parametrize(
    ("resource", "value", "text"),
    [("cpu", 500, "500m"), ("cpu", 2000, "2"), ("memory", 1 << 30, "1Gi"), ("pods", 1, "1"),
     ("memory", 700 << 20, "700Mi"), ("example.com/gpu", 2, "2")],
)  # fmt: skip
def test_amounts_are_written_as_people_write_them(resource, value, text):
    assert explaining.amount(resource, value) == text


# -- objects --------------------------------------------------------------------------------


class Api:
    """Takes Decision objects."""

    def __init__(self, *, is_served=True):
        self.is_served = is_served
        self.calls = []
        self.kept = {}

    async def list(self, cls, **_):
        if not self.is_served:
            raise status.NotFound("the server could not find the requested resource")

    async def create(self, cls, body):
        assert cls is DecisionObject
        self.calls.append("create")
        if body["metadata"]["name"] in self.kept:
            raise status.AlreadyExists("it exists")
        self.kept[body["metadata"]["name"]] = body

    async def patch(self, cls, name, namespace, body, *, type):
        self.calls.append("patch")
        assert type == "json"
        self.kept[name]["spec"] = body[1]["value"]


class Over(Exception):
    """The test has seen enough."""


async def publish(api, which, *taken, clock):
    """Let a publisher write these decisions; it ends when it would wait for more."""
    publisher = Publisher(api, which, clock=clock)
    for info, record in taken:
        publisher.decided(info, record)

    async def enough():
        if not publisher._waiting:
            raise Over
        publisher._work.set()

    publisher._work.wait = enough
    with pytest.raises(Over):
        await publisher.run()


async def test_unschedulable_pods_and_those_that_ask_get_an_object(cluster, node, pod, clock):
    world = cluster(node("a", cpu="1"))
    wanted = pod("asks", annotations={"motley.io/explain": "true"})
    taken = []
    for one in (pod("fits"), pod("big", requests={"cpu": "2"}), wanted):
        info, _, record = decided(world, one)
        taken.append((info, record))
    api = Api()
    await publish(api, Publish.UNSCHEDULABLE, *taken, clock=clock)
    assert sorted(api.kept) == ["asks", "big"]
    owner = api.kept["big"]["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["uid"]) == ("Pod", "big")
    api = Api()
    await publish(api, Publish.ALL, *taken, clock=clock)
    assert sorted(api.kept) == ["asks", "big", "fits"]


async def test_what_was_said_of_a_pod_is_corrected_when_it_fits_after_all(
    cluster, node, pod, clock
):
    world = cluster(node("a", cpu="1"))
    info, _, no = decided(world, pod("p", requests={"cpu": "2"}))
    world.nodes.set_node(node("b", cpu="4"))
    _, _, yes = decided(world, pod("p", requests={"cpu": "2"}))
    api = Api()
    publisher = Publisher(api, clock=clock)
    for record in (no, no, yes):
        if publisher._is_news(info.uid, record):
            await publisher._write(record)
    assert api.calls == ["create", "create", "patch"]
    assert api.kept["p"]["spec"]["node"] == "b"
    publisher.decided(info, yes)
    assert info.uid in publisher._waiting


async def test_a_server_without_the_kind_is_left_alone(cluster, node, pod, clock):
    world = cluster(node("a", cpu="1"))
    info, _, record = decided(world, pod("p", requests={"cpu": "2"}))
    api = Api(is_served=False)
    publisher = Publisher(api, clock=clock)

    async def rest(seconds):
        assert seconds >= 60
        raise Over

    clock.sleep = rest
    publisher.decided(info, record)
    with pytest.raises(Over):
        await publisher.run()
    publisher.decided(info, record)
    assert not publisher._waiting
    assert api.calls == []


def test_the_page_lists_what_is_remembered(cluster, node, pod):
    world = cluster(node("a"))
    _, book, _ = decided(world, pod("p"))
    code, kind, body = recordpage.answer(book, "pod=default/p")
    assert (code, kind) == (200, "application/json")
    (item,) = json.loads(body)["items"]
    assert item["kind"] == "Decision"
    assert item["spec"]["node"] == "a"
    assert json.loads(recordpage.answer(book, "pod=default/q")[2])["items"] == []
    assert len(json.loads(recordpage.answer(book, "")[2])["items"]) == 1
    assert recordpage.answer(book, "pod=p")[0] == 400
    assert recordpage.answer(book, "limit=all")[0] == 400


def test_a_document_belongs_to_its_pod(cluster, node, pod):
    _, _, record = decided(cluster(node("a")), pod("p", uid="u-1"))
    assert publishing.document(record)["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u-1"}
    ]


def test_scores_before_and_after_are_text_only_when_written(node):
    nodes = Columns()
    for name in ("a", "b"):
        nodes.set_node(node(name))
    found = PerNode(nodes, nodes.live, np.array([33.0, 13.0]), np.array([0.0, 100.0]))
    assert str(found) == "a:33→0,b:13→100"


# -- the cluster as it is ---------------------------------------------------------------------


class Cluster:
    """Lists nodes and pods, and nothing else that plugins may want to know."""

    def __init__(self, *objects, hides=()):
        self.objects, self.hides = objects, hides

    async def list(self, cls, **_):
        if cls in self.hides:
            raise status.Forbidden(f"{cls.PLURAL} is forbidden")
        items = [each for each in self.objects if type(each) is cls]
        return Listing(metadata=ListMeta(resource_version="1"), items=items)

    async def watch(self, cls, *, initial_events=False, **_):
        if initial_events:
            raise status.BadRequest("streamed lists are not served here")
        await asyncio.Event().wait()
        yield


async def test_the_present_is_read_once_and_a_placed_pod_is_asked_about_as_if_it_were_new(
    node, pod
):
    placed = pod("p", node="a", requests={"cpu": "3"})
    ended = pod("done", node="b", requests={"cpu": "4"})
    ended.status.phase = "Failed"
    api = Cluster(node("a"), node("b"), placed, ended)
    now = await present.read(api, Configuration())
    assert now.nodes.requested[0].max() == 3000
    profile = now.profile_of(placed)
    info = now.pending(placed)
    assert now.nodes.requested[0].max() == 0
    answer = explaining.why_not(now.cycle(profile), now.handle.nominations, info, "b")
    assert answer.comparison is not None


async def test_what_cannot_be_read_is_named(node, pod):
    api = Cluster(node("a"), hides=(Namespace,))
    with pytest.raises(present.NotReadable, match="namespaces"):
        await present.read(api, Configuration(), reading_s=0.2)
    with pytest.raises(status.Forbidden, match="pods"):
        await present.read(Cluster(node("a"), hides=(Pod,)), Configuration())
