"""Which pods tell something about their node, and what becomes of it."""

import math
from types import SimpleNamespace

import pytest

from motley.api.views.base import Key
from motley.api.views.core import Node, Service
from motley.api.views.pod import Pod
from motley.controllers import nodespeed
from motley.controllers.nodespeed import ALWAYS, NEVER, UNSET, Estimate, Use
from motley.lib.clock import parse_rfc3339
from motley.scheduler.plugins import speed as scheduled

STARTED = "2026-01-01T00:00:00Z"
LATER = parse_rfc3339(STARTED) + 60
USE = Use(200_000_000, "t")


def pod(name="p", node="n", *, owner="rs", phase="Running", limit=None, ready="True", **metadata):
    owners = [{"kind": "ReplicaSet", "name": owner, "uid": "u", "controller": True}]
    resources = {"limits": {"cpu": limit}} if limit else {}
    return Pod.of(
        {
            "metadata": {
                "name": name,
                "namespace": "d",
                "labels": {"app": "web"},
                "ownerReferences": owners if owner else [],
                **metadata,
            },
            "spec": {"nodeName": node, "containers": [{"name": "c", "resources": resources}]},
            "status": {
                "phase": phase,
                "startTime": STARTED,
                "conditions": [{"type": "Ready", "status": ready}],
            },
        }
    )


def service(annotations=(), **spec):
    return Service.of(
        {
            "metadata": {"name": "s", "namespace": "d", "annotations": dict(annotations)},
            "spec": {"selector": {"app": "web"}, **spec},
        }
    )


def test_a_busy_replica_of_a_controller_counts():
    assert nodespeed.counts(pod(), USE, LATER)


@pytest.mark.parametrize(
    ("of", "use"),
    [
        (pod(owner=""), USE),
        (pod(phase="Succeeded"), USE),
        (pod(node=""), USE),
        (pod(ready="False"), USE),
        (pod(deletionTimestamp=STARTED), USE),
        (pod(), Use(1_000_000, "t")),  # idle
        (pod(limit="200m"), USE),  # held back by its limit
    ],
)
def test_what_tells_nothing_of_its_node_does_not(of, use):
    assert not nodespeed.counts(of, use, LATER)


def test_a_replica_that_just_started_does_not_count():
    assert not nodespeed.counts(pod(), USE, LATER - 120)


@pytest.mark.parametrize(
    ("found", "even"),
    [
        (service(), True),
        (service(sessionAffinity="ClientIP"), False),
        (service(internalTrafficPolicy="Local"), False),
        (service({"service.kubernetes.io/topology-aware-hints": "auto"}), False),
        (service({"service.kubernetes.io/topology-mode": "Auto"}), False),
        (service({"motley.io/endpoint-weights": "speed"}), False),
        (service(selector={}), False),
        (service(type="ExternalName"), False),
    ],
)
def test_only_services_that_spread_evenly_compare_their_replicas(found, even):
    assert nodespeed.is_even(found) is even
    assert nodespeed.Even([found]).has(pod()) is even


def test_samples_are_means_per_controller_and_node_of_what_is_on_several_nodes():
    pods = [pod("a", "n1"), pod("b", "n1"), pod("c", "n2"), pod("d", "n1", owner="alone")]
    uses = {one.key: Use(100 * (i + 1), "t") for i, one in enumerate(pods)}
    found = nodespeed.samples(pods, uses, 7)
    group = ("d", "ReplicaSet", "rs", 7)
    assert found == [(group, "n1", 150.0, 2), (group, "n2", 300.0, 1)]


@pytest.mark.parametrize(
    "answer", [None, [], "text", {"items": 5}, {"items": [{}, {"metadata": {"name": 1}}, None]}]
)
def test_answers_that_are_no_measurements_are_none(answer):
    assert nodespeed.usage(answer) == {}


def test_use_is_the_sum_of_containers():
    item = {
        "metadata": {"namespace": "d", "name": "p"},
        "timestamp": "t",
        "containers": [{"usage": {"cpu": "100m"}}, {"usage": {"cpu": "5n"}}],
    }
    assert nodespeed.usage({"items": [item]}) == {Key("d", "p"): Use(100_000_005, "t")}


def node(label=None, **annotations):
    return Node.of(
        {
            "metadata": {
                "name": "n",
                "labels": {"hice.kj": label} if label else {},
                "annotations": {
                    f"motley.io/{k.replace('_', '-')}": v for k, v in annotations.items()
                },
            }
        }
    )


SURE, UNSURE = Estimate(0.5, 0.48, 0.52, 90), Estimate(0.5, 0.3, 0.8, 9)
WORDS = {"motley.io/estimated-speed": "0.500", "motley.io/estimated-speed-interval": "0.480-0.520"}
SET = {**WORDS, "motley.io/labelled-speed": "0.500"}


@pytest.mark.parametrize(
    ("of", "estimate", "auto", "label", "annotations"),
    [
        (node(), SURE, NEVER, None, WORDS),
        (node(), SURE, UNSET, "0.500", SET),
        (node("0.9"), SURE, UNSET, None, WORDS),  # a person's
        (node("0.9"), SURE, ALWAYS, "0.500", SET),
        (node("0.9", labelled_speed="0.9"), SURE, UNSET, "0.500", SET),  # set here before
        (node("0.51", labelled_speed="0.51"), SURE, UNSET, None, WORDS),  # no matter
        (node("fast"), SURE, UNSET, None, WORDS),
        (node("fast"), SURE, ALWAYS, "0.500", SET),
    ],
)
def test_annotations_always_and_labels_where_they_may(of, estimate, auto, label, annotations):
    body = nodespeed.changes(of, estimate, auto)
    assert body.get("labels", {}).get("hice.kj") == label
    assert body["annotations"] == annotations


def test_an_unsure_estimate_is_told_and_not_obeyed():
    body = nodespeed.changes(node(), UNSURE, ALWAYS)
    assert list(body) == ["annotations"]
    assert nodespeed.changes(node(), Estimate(0.5, 0.0, math.inf, 2), ALWAYS) == {}


def test_what_is_said_already_is_not_written_again():
    said = node(estimated_speed="0.502", estimated_speed_interval="0.48-0.52")
    assert nodespeed.changes(said, SURE, NEVER) == {}


def test_what_people_set_sets_the_scale():
    assert nodespeed.set_by_hand(node("0.8")) == 0.8
    assert nodespeed.set_by_hand(node("0.8", labelled_speed="0.8")) is None
    assert nodespeed.set_by_hand(node("nan")) is None
    assert nodespeed.set_by_hand(node("-1")) is None


def test_without_that_what_agents_measured_does():
    assert nodespeed.scale([node(measured_speed="0.7")]) == {"n": 0.7}
    assert nodespeed.scale([node("0.8", measured_speed="0.7")]) == {"n": 0.8}
    assert nodespeed.scale([node(measured_speed="odd"), node()]) == {}


def measured(name="n", **labels):
    annotations = {nodespeed.MEASURED: "0.104"}
    return Node.of({"metadata": {"name": name, "annotations": annotations, "labels": labels}})


def test_before_there_is_a_load_a_node_is_as_fast_as_it_measured():
    body = nodespeed.first_label(measured(), [measured()], UNSET)
    assert body == {"labels": {"hice.kj": "0.104"}, "annotations": {nodespeed.LABELLED: "0.104"}}


@pytest.mark.parametrize(
    ("node", "others", "auto_label"),
    [
        (measured(), [], NEVER),
        (measured(**{"hice.kj": "2"}), [], ALWAYS),  # it has one already
        (measured(), [measured("m", **{"hice.kj": "2"})], UNSET),  # people set the scale
        (measured(), [Node.of({"metadata": {"name": "m"}})], UNSET),  # that one counts as 1
        (Node.of({"metadata": {"name": "n"}}), [], ALWAYS),
    ],
)
def test_what_a_node_measured_is_not_its_label_where(node, others, auto_label):
    assert nodespeed.first_label(node, [node, *others], auto_label) == {}


async def test_reckoning_that_takes_long_is_done_seldom(monkeypatch):
    """A tenth of a core at most, however many nodes there are."""
    moment, begun = [100.0], []

    def estimator(samples, known):
        begun.append(moment[0])
        moment[0] += 10.0
        return {}

    async def raw(method, path):
        return {"items": []}

    informer = SimpleNamespace(add_handler=lambda _: None, items=list)
    context = SimpleNamespace(
        client=SimpleNamespace(raw=raw),
        clock=SimpleNamespace(monotonic=lambda: moment[0], now=lambda: moment[0]),
        informers=SimpleNamespace(of=lambda _: informer),
    )
    monkeypatch.setattr(nodespeed, "samples", lambda *_: [nodespeed.Sample("g", "n", 1.0, 1)])
    controller = nodespeed.NodeSpeedController(context, estimator)
    for after in (100.0, 140.0, 190.0, 200.0, 230.0):
        moment[0] = max(moment[0], after)
        await controller._measure(estimator)
    assert begun == [100.0, 200.0]


@pytest.mark.parametrize("text", ["5e-1", "1_0", "nan", "inf", "-1", "0", "0.", ".", " 0.8 ", ""])
def test_what_the_scheduler_takes_for_no_speed_sets_no_scale(text):
    assert scheduled.speed(text) is None
    assert nodespeed.speed(text) is None
    node = Node.of({"metadata": {"name": "n", "labels": {nodespeed.LABEL: text}}})
    assert nodespeed.scale([node]) == {}
    assert nodespeed.known(node) == 1.0


@pytest.mark.parametrize("text", ["0.8", ".8", "00.80", "1.", "2"])
def test_what_it_takes_for_one_does(text):
    node = Node.of({"metadata": {"name": "n", "labels": {nodespeed.LABEL: text}}})
    assert nodespeed.scale([node]) == {"n": float(scheduled.speed(text))}


ABSURD = "999999999999999999e300"


def test_absurd_amounts_are_nobodys_trouble():
    assert nodespeed.counts(pod(limit=ABSURD), USE, LATER)
    item = {
        "metadata": {"namespace": "d", "name": "p"},
        "containers": [{"usage": {"cpu": ABSURD}}],
    }
    assert nodespeed.usage({"items": [item]}) == {}
