"""Who is tried when."""

import pytest

from motley.scheduler import events, profiles
from motley.scheduler.columns import Columns
from motley.scheduler.contract import Handle
from motley.scheduler.images import ImageTable
from motley.scheduler.podinfo import PodInfos
from motley.scheduler.queue import Place, Queue


@pytest.fixture
def nodes():
    return Columns()


@pytest.fixture
def queue(clock, nodes):
    return Queue(profiles.default(Handle(nodes, clock, ImageTable())), clock=clock)


@pytest.fixture
def infos():
    return PodInfos()


def _names(queue):
    names = []
    while (queued := queue.pop()) is not None:
        names.append(queued.info.key.name)
    return names


def test_higher_priority_comes_first_then_who_came_first(queue, infos, pod):
    queue.add(infos.of(pod("a")))
    queue.add(infos.of(pod("b", priority=10)))
    queue.add(infos.of(pod("c")))
    queue.add(infos.of(pod("d", priority=-5)))
    assert _names(queue) == ["b", "a", "c", "d"]


def test_older_pods_come_before_younger_ones_that_were_seen_earlier(queue, infos, pod):
    young = pod("young")
    young.metadata.creation_timestamp = "2026-01-01T00:01:00Z"
    queue.add(infos.of(young))
    queue.add(infos.of(pod("old")))
    assert _names(queue) == ["old", "young"]


def test_a_removed_pod_is_not_tried(queue, infos, pod):
    queue.add(infos.of(pod("a")))
    queue.remove("a")
    assert queue.pop() is None
    assert len(queue) == 0


def test_a_pod_seen_twice_is_tried_once(queue, infos, pod):
    queue.add(infos.of(pod("a")))
    queue.add(infos.of(pod("a")))
    assert _names(queue) == ["a"]


def test_a_failed_pod_rests_longer_each_time(queue, infos, pod, clock):
    queue.add(infos.of(pod("a")))
    for rest in (1, 2, 4, 8, 10, 10):
        queued = queue.pop()
        queue.retry(queued)
        clock.time += rest - 0.01
        queue.flush()
        assert queue.pop() is None
        clock.time += 0.01
        queue.flush()
        assert queue.get("a").place is Place.ACTIVE


def test_an_unschedulable_pod_waits_for_an_event_that_helps(queue, infos, pod, node, clock):
    queue.add(infos.of(pod("a")))
    queue.reject(queue.pop(), frozenset({"TaintToleration"}))
    clock.time += 60
    assert queue.event(events.NodeLabelsChanged(node("n"))) == 0
    assert queue.event(events.PodDeleted(infos.of(pod("x")), "n")) == 0
    assert queue.pop() is None
    assert queue.event(events.NodeTaintsChanged(node("n"))) == 1
    assert _names(queue) == ["a"]


def test_an_event_that_comes_before_the_rest_is_over_does_not_shorten_it(
    queue, infos, pod, node, clock
):
    queue.add(infos.of(pod("a")))
    queue.reject(queue.pop(), frozenset({"TaintToleration"}))
    assert queue.event(events.NodeTaintsChanged(node("n"))) == 1
    assert queue.get("a").place is Place.BACKOFF
    clock.time += 1
    queue.flush()
    assert _names(queue) == ["a"]


def test_a_node_that_is_too_small_does_not_wake_the_pod(queue, nodes, infos, pod, node, clock):
    queue.add(infos.of(pod("a", requests={"cpu": "8"})))
    queue.reject(queue.pop(), frozenset({"NodeResourcesFit"}))
    clock.time += 60
    for name, cpu in (("small", "4"), ("big", "16")):
        nodes.set_node(node(name, cpu=cpu))
    nodes.add_pod(infos.of(pod("there", requests={"cpu": "9"})), "big")
    assert queue.event(events.NodeAdded(node("small"))) == 0
    assert queue.event(events.NodeAdded(node("big"))) == 0
    freed = nodes.remove_pod("there")
    assert queue.event(events.PodDeleted(freed.info, "small")) == 0
    assert queue.event(events.PodDeleted(freed.info, "big")) == 1


def test_a_deleted_pod_without_the_wanted_port_does_not_wake(queue, infos, pod, clock):
    queue.add(infos.of(pod("a", host_port=80)))
    queue.reject(queue.pop(), frozenset({"NodePorts"}))
    assert queue.event(events.PodDeleted(infos.of(pod("x", host_port=81)), "n")) == 0
    assert queue.event(events.PodDeleted(infos.of(pod("y", host_port=80)), "n")) == 1


def test_one_convinced_plugin_of_several_is_enough(queue, infos, pod, node):
    queue.add(infos.of(pod("a")))
    queue.reject(queue.pop(), frozenset({"TaintToleration", "NodeAffinity"}))
    assert queue.event(events.NodeLabelsChanged(node("n"))) == 1


def test_a_pod_nobody_in_particular_rejected_wakes_on_anything(queue, infos, pod, node):
    queue.add(infos.of(pod("a")))
    queue.reject(queue.pop(), frozenset())
    assert queue.event(events.NodeAdded(node("n"))) == 1


def test_after_five_minutes_an_unschedulable_pod_is_tried_anyway(queue, infos, pod, clock):
    queue.add(infos.of(pod("a")))
    queue.reject(queue.pop(), frozenset({"TaintToleration"}))
    clock.time += 299
    queue.flush()
    assert queue.pop() is None
    clock.time += 1
    queue.flush()
    assert _names(queue) == ["a"]


def test_a_changed_pod_is_tried_again_but_not_for_a_new_status(queue, infos, pod, clock):
    queue.add(infos.of(pod("a")))
    queue.reject(queue.pop(), frozenset({"TaintToleration"}))
    clock.time += 60
    renewed = pod("a")
    renewed.status.message = "something"
    queue.add(infos.of(renewed))
    assert queue.pop() is None
    queue.add(infos.of(pod("a", tolerations=[{"operator": "Exists"}])))
    assert _names(queue) == ["a"]


def test_a_gated_pod_enters_when_its_gates_are_gone(queue, infos, pod):
    queue.add(infos.of(pod("a", schedulingGates=[{"name": "g"}])))
    assert queue.get("a").place is Place.GATED
    assert queue.get("a").gate == "waiting for scheduling gates: [g]"
    assert queue.pop() is None
    queue.add(infos.of(pod("a")))
    assert _names(queue) == ["a"]


def test_a_pod_removed_in_flight_does_not_come_back(queue, infos, pod, clock):
    queue.add(infos.of(pod("a")))
    queued = queue.pop()
    queue.remove("a")
    queue.retry(queued)
    queue.reject(queued, frozenset())
    clock.time += 3600
    queue.flush()
    assert queue.pop() is None


def test_counts_say_who_is_where(queue, infos, pod):
    for name in ("a", "b", "c"):
        queue.add(infos.of(pod(name)))
    queue.reject(queue.pop(), frozenset({"NodePorts"}))
    queue.pop()
    counts = queue.counts()
    assert (counts["active"], counts["unschedulable"], counts["in flight"]) == (1, 1, 1)


def test_a_pod_that_room_is_made_for_is_woken_by_who_makes_it_and_no_event(
    queue, infos, pod, node, clock
):
    queue.is_held = {"a", "b"}.__contains__
    for name in ("a", "b"):
        queue.add(infos.of(pod(name)))
        queue.reject(queue.pop(), frozenset({"TaintToleration"}))
    clock.time += 60
    assert queue.event(events.NodeTaintsChanged(node("n"))) == 0
    assert queue.event(events.PodsActivated(frozenset({"a"}))) == 1
    assert _names(queue) == ["a"]
    queue.release("b")
    assert queue.event(events.NodeTaintsChanged(node("n"))) == 1
    assert _names(queue) == ["b"]


def test_it_is_told_which_queue_a_pod_came_into_and_why(queue, infos, pod, node, clock):
    told = []
    queue.entered = lambda place, why: told.append((place, why))
    queue.add(infos.of(pod("a")))
    queue.add(infos.of(pod("g", schedulingGates=[{"name": "wait"}])))
    queue.reject(queue.pop(), frozenset({"TaintToleration"}))
    queue.event(events.NodeTaintsChanged(node("n")))
    clock.time += 1
    queue.flush()
    assert told == [
        ("active", "PodAdd"),
        ("gated", "PodAdd"),
        ("unschedulable", "ScheduleAttemptFailure"),
        ("backoff", "NodeTaintsChanged"),
        ("active", "BackoffComplete"),
    ]
