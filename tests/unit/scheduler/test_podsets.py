"""Counts of pods per node stay true, whatever was asked and forgotten meanwhile."""

from collections import Counter

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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


def _keep_away() -> dict[str, object]:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "x"}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


_PODS, _ZONES = [f"p{i}" for i in range(6)], ["a", "b", None]
_EVENTS = st.one_of(
    st.tuples(
        st.just("add"), st.sampled_from(_PODS), st.integers(0, 4), st.sampled_from(["x", "y"])
    ),
    st.tuples(st.just("remove"), st.sampled_from(_PODS), st.just(0), st.just("")),
    st.tuples(st.just("node"), st.sampled_from(_ZONES), st.integers(0, 4), st.just("")),
    st.tuples(st.just("no node"), st.just(""), st.integers(0, 4), st.just("")),
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(history=st.lists(_EVENTS, max_size=25))
def test_sums_by_domain_stay_true_as_pods_and_nodes_come_and_go(node, pod, history):
    nodes, infos = Columns(), PodInfos()
    zones: dict[str, str | None] = {}
    for kind, what, number, app in history:
        name = f"n{number}"
        match kind:
            case "add":
                labels = {"app": app}
                info = infos.of(pod(what, labels=labels, affinity=_keep_away(), priority=number))
                nodes.add_pod(info, name)
            case "remove":
                nodes.remove_pod(what)
            case "node":
                zones[name] = what
                nodes.set_node(node(name, labels={"zone": what} if what else {}))
            case "no node":
                zones.pop(name, None)
                nodes.remove_node(name)
        seated = [p for p in nodes.placed.values() if zones.get(p.node)]
        domains, size = nodes.domains("zone"), nodes.size

        def by_zone(sums, domains=domains, seated=zones):
            rows = {z: nodes.rows[n] for n, z in seated.items() if z}
            return {z: sums[domains.of_row[r]] for z, r in rows.items() if sums[domains.of_row[r]]}

        counted = nodes.tallies.tally(_set("x"), size).by_domain(domains, size)
        xs = Counter(zones[p.node] for p in seated if dict(p.info.group.labels)["app"] == "x")
        assert by_zone(counted) == xs
        assert counted.sum() == xs.total()
        below = domains.sums(nodes.tallies.below(_set("x"), 3, size))
        assert by_zone(below) == Counter(
            zones[p.node]
            for p in seated
            if dict(p.info.group.labels)["app"] == "x" and p.info.priority < 3
        )
        for term, column in nodes.standing.away.items():
            assert by_zone(column.by_domain(domains, size)) == Counter(
                zones[p.node] for p in seated
            )
            assert by_zone(domains.sums(nodes.standing.away_below(term, 3, size))) == Counter(
                zones[p.node] for p in seated if p.info.priority < 3
            )
