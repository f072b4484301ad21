"""Counts of pods per node stay true, whatever was asked and forgotten meanwhile."""

from motley.api.selectors import Selector
from motley.scheduler import podsets
from motley.scheduler.columns import Columns
from motley.scheduler.podinfo import PodInfos
from motley.scheduler.podsets import Condition, PodSet


def _set(app: str) -> PodSet:
    return PodSet((Condition(frozenset({"default"}), Selector.of_map({"app": app})),))


def test_a_set_nobody_asked_about_for_long_is_forgotten_and_counted_anew(node, pod):
    nodes, infos = Columns(), PodInfos()
    nodes.set_node(node("a"))
    nodes.set_node(node("b"))
    nodes.add_pod(infos.of(pod("first", labels={"app": "x"})), "a")
    assert nodes.tallies.of(_set("x"), nodes.size).tolist() == [1, 0]
    for i in range(podsets._SETS_KEPT + 5):
        assert nodes.tallies.of(_set(f"other-{i}"), nodes.size).sum() == 0
    nodes.add_pod(infos.of(pod("second", labels={"app": "x"})), "b")
    nodes.add_pod(infos.of(pod("third", labels={"app": "other-7"})), "b")
    assert nodes.tallies.of(_set("x"), nodes.size).tolist() == [1, 1]
    assert nodes.tallies.of(_set("other-7"), nodes.size).tolist() == [0, 1]
    nodes.remove_pod("first")
    assert nodes.tallies.of(_set("x"), nodes.size).tolist() == [0, 1]


def test_counts_follow_nodes_that_come_and_go(node, pod):
    nodes, infos = Columns(), PodInfos()
    nodes.set_node(node("a"))
    assert nodes.tallies.of(_set("x"), nodes.size).tolist() == [0]
    nodes.add_pod(infos.of(pod("early", labels={"app": "x"})), "b")
    for i in range(100):
        nodes.set_node(node(f"n{i}"))
    nodes.set_node(node("b"))
    counts = nodes.tallies.of(_set("x"), nodes.size)
    assert counts.sum() == counts[nodes.rows["b"]] == 1
    nodes.remove_node("b")
    assert nodes.tallies.of(_set("x"), nodes.size).sum() == 0
    nodes.set_node(node("c"))  # takes over the row
    assert nodes.tallies.of(_set("x"), nodes.size).sum() == 0
    nodes.set_node(node("b"))
    assert nodes.tallies.of(_set("x"), nodes.size)[nodes.rows["b"]] == 1


def test_terms_of_placed_pods_are_kept_as_long_as_somebody_has_them(node, pod):
    nodes, infos = Columns(), PodInfos()
    nodes.set_node(node("a"))
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
    anti = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    for name in ("p", "q"):
        nodes.add_pod(infos.of(pod(name, affinity=anti)), "a")
    ((kept, column),) = nodes.standing.away.items()
    assert kept.topology_key == "zone"
    assert column.dense(nodes.size).tolist() == [2]
    version = nodes.standing.version
    nodes.remove_pod("p")
    assert nodes.standing.version == version
    nodes.remove_pod("q")
    assert nodes.standing.version == version + 1
    assert not nodes.standing.away
