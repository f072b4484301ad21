"""InterPodAffinity: near and away, required and preferred, and the other way round."""

from typing import Any

import numpy as np
import pytest

from motley.scheduler import contract, events
from motley.scheduler.plugins.inter_pod_affinity import InterPodAffinity, InterPodAffinityArgs

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def term(key: str = ZONE, app: str = "web", **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}


def near(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"podAffinity": {REQUIRED: list(terms)}}


def away(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"podAntiAffinity": {REQUIRED: list(terms)}}


def prefer(kind: str, *weighted: tuple[int, dict[str, Any]]) -> dict[str, Any]:
    return {kind: {PREFERRED: [{"weight": w, "podAffinityTerm": t} for w, t in weighted]}}


@pytest.fixture
def world(cluster, node):
    """Two nodes in zone a, one in b, one in no zone."""
    world = cluster(
        node("a1", labels={ZONE: "a"}),
        node("a2", labels={ZONE: "a"}),
        node("b1", labels={ZONE: "b"}),
        node("out"),
    )
    for name, labels in {"default": {"team": "x"}, "other": {"team": "y"}}.items():
        world.handle.directory.set_namespace(name, labels)
    return world


@pytest.fixture
def plugin(world):
    return InterPodAffinity(InterPodAffinityArgs(), world.handle)


def _scores(world: Any, plugin: Any, pod: Any) -> dict[str, float] | None:
    info = world.info(pod)
    if plugin.pre_score(info, world.nodes, world.nodes.live) is contract.SKIP:
        return None
    scores = plugin.normalize(info, plugin.score(info, world.nodes), world.nodes.live)
    return {name: float(scores[row]) for name, row in world.nodes.rows.items()}


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [
        (near(term()), ["a1", "a2"]),
        (near(term(HOST)), ["a1"]),
        (near(term(app="nobody")), []),
        (near(term(), term(HOST)), ["a1"]),
        (near(term("rack")), []),
        (away(term()), ["b1", "out"]),
        (away(term(HOST)), ["a2", "b1", "out"]),
        (away(term(HOST), term(app="db")), ["a2", "out"]),
        (away(term(namespaces=["other"])), ["a1", "a2", "b1", "out"]),
        (away(term(namespaces=["default"])), ["b1", "out"]),
        (away(term(namespaceSelector={})), ["b1", "out"]),
        (away(term(namespaceSelector={"matchLabels": {"team": "x"}})), ["b1", "out"]),
        (away(term(namespaceSelector={"matchLabels": {"team": "y"}})), ["a1", "a2", "b1", "out"]),
        (away({"topologyKey": ZONE}), ["a1", "a2", "b1", "out"]),  # no selector: nobody
        (away({"topologyKey": ZONE, "labelSelector": {}}), ["out"]),  # an empty one: everybody
    ],
)
def test_required_terms_filter(world, plugin, pod, affinity, expected):
    world.place(pod("web", labels={"app": "web"}), "a1")
    world.place(pod("db", labels={"app": "db"}), "b1")
    assert world.allowed(plugin, pod("new", affinity=affinity)) == expected


def test_the_first_of_a_group_that_wants_to_be_together_may_start_anywhere_labelled(
    world, plugin, pod
):
    first = pod("first", labels={"app": "web"}, affinity=near(term()))
    assert world.allowed(plugin, first) == ["a1", "a2", "b1"]
    world.place(first, "b1")
    second = pod("second", labels={"app": "web"}, affinity=near(term()))
    assert world.allowed(plugin, second) == ["b1"]
    world.nodes.remove_pod("first")
    assert world.allowed(plugin, second) == ["a1", "a2", "b1"]


def test_one_pod_must_meet_all_terms_of_an_affinity(world, plugin, pod):
    world.place(pod("half", labels={"app": "web"}), "a1")
    world.place(pod("whole", labels={"app": "web", "tier": "x"}), "b1")
    both = near(term(), {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"tier": "x"}}})
    assert world.allowed(plugin, pod("new", affinity=both)) == ["b1"]


def test_placed_pods_keep_away_those_they_do_not_want(world, plugin, pod):
    world.place(pod("loner", affinity=away(term())), "a1")
    assert world.allowed(plugin, pod("new", labels={"app": "web"})) == ["b1", "out"]
    assert world.allowed(plugin, pod("mail", labels={"app": "mail"})) == ["a1", "a2", "b1", "out"]
    world.nodes.remove_pod("loner")
    assert plugin.pre_filter(world.info(pod("new", labels={"app": "web"})), world.nodes) is (
        contract.SKIP
    )


def test_a_placed_pods_namespace_selector_is_read_with_todays_labels(world, plugin, pod):
    chosen = {"matchLabels": {"team": "z"}}
    world.place(pod("loner", affinity=away(term(namespaceSelector=chosen))), "a1")
    new = pod("new", labels={"app": "web"})
    assert world.allowed(plugin, new) == ["a1", "a2", "b1", "out"]
    world.handle.directory.set_namespace("default", {"team": "z"})
    assert world.allowed(plugin, new) == ["b1", "out"]


def test_match_label_keys_compare_with_the_pods_own_labels(world, plugin, pod):
    world.place(pod("v1", labels={"app": "web", "rev": "1"}), "a1")
    world.place(pod("v2", labels={"app": "web", "rev": "2"}), "b1")
    labels = {"app": "web", "rev": "2"}
    like = pod("like", labels=labels, affinity=away(term(matchLabelKeys=["rev", "none"])))
    unlike = pod("unlike", labels=labels, affinity=away(term(mismatchLabelKeys=["rev"])))
    assert world.allowed(plugin, like) == ["a1", "a2", "out"]
    assert world.allowed(plugin, unlike) == ["b1", "out"]


def test_reasons_name_affinity_then_anti_affinity_then_that_of_others(world, plugin, pod):
    world.place(pod("db", labels={"app": "db"}), "a1")
    world.place(pod("db2", labels={"app": "db"}), "b1")
    world.place(pod("enemy", labels={"app": "x"}), "a1")
    world.place(pod("loner", affinity=away(term(HOST, app="new"))), "a2")
    world.place(pod("loner2", affinity=away(term(HOST, app="new"))), "b1")
    both = {**near(term(app="db")), **away(term(HOST, app="x"))}
    decision = world.cycle.schedule(world.info(pod("new", labels={"app": "new"}, affinity=both)))
    assert decision.message.startswith(
        "0/4 nodes are available: 1 node(s) didn't match pod affinity rules, "
        "1 node(s) didn't match pod anti-affinity rules, "
        "2 node(s) didn't satisfy existing pods anti-affinity rules."
    )


def test_only_a_missing_neighbour_is_beyond_the_help_of_evictions(world, plugin, pod):
    world.place(pod("db", labels={"app": "db"}), "a1")
    both = {**near(term(app="db")), **away(term(HOST, app="db"))}
    info = world.info(pod("new", affinity=both))
    lost = plugin.hopeless(info, world.nodes, world.nodes.live)
    assert sorted(np.flatnonzero(lost)) == sorted(world.nodes.rows[n] for n in ("b1", "out"))


def test_a_selector_that_cannot_be_read_makes_the_pod_unschedulable(world, plugin, pod):
    wrong = {"matchExpressions": [{"key": "app", "operator": "Near"}]}
    info = world.info(pod("new", affinity=away({"topologyKey": ZONE, "labelSelector": wrong})))
    answer = plugin.pre_filter(info, world.nodes)
    assert isinstance(answer, contract.Reject)
    assert '"Near" is not a valid label selector operator' in answer.reason


# -- score ----------------------------------------------------------------------------------


def test_preferences_add_up_per_domain_and_are_spread_over_0_to_100(world, plugin, pod):
    world.place(pod("w1", labels={"app": "web"}), "a1")
    world.place(pod("w2", labels={"app": "web"}), "a2")
    world.place(pod("db", labels={"app": "db"}), "b1")
    wanted = prefer("podAffinity", (10, term()), (5, term(HOST)))
    assert _scores(world, plugin, pod("new", affinity=wanted)) == {
        "a1": 100, "a2": 100, "b1": 0, "out": 0
    }  # fmt: skip
    avoided = prefer("podAntiAffinity", (10, term()), (15, term(app="db")))
    # a: -20, b: -15, outside: 0
    assert _scores(world, plugin, pod("new", affinity=avoided)) == {
        "a1": 0, "a2": 0, "b1": 25, "out": 100
    }  # fmt: skip


def test_preferences_of_placed_pods_count_both_ways(world, plugin, pod):
    world.place(pod("fan", affinity=prefer("podAffinity", (30, term(HOST)))), "a2")
    world.place(pod("foe", affinity=prefer("podAntiAffinity", (10, term()))), "b1")
    world.place(pod("bound", affinity=near(term(HOST))), "a1")  # required counts as 1
    assert _scores(world, plugin, pod("new", labels={"app": "web"})) == {
        "a1": 27, "a2": 100, "b1": 0, "out": 25
    }  # fmt: skip
    assert _scores(world, plugin, pod("mail", labels={"app": "mail"})) is None


def test_preferences_of_placed_pods_can_be_ignored(world, pod):
    args = InterPodAffinityArgs(ignore_preferred_terms_of_existing_pods=True)
    plugin = InterPodAffinity(args, world.handle)
    world.place(pod("fan", affinity=prefer("podAffinity", (30, term(HOST)))), "a2")
    assert _scores(world, plugin, pod("new", labels={"app": "web"})) is None


def test_the_weight_of_required_affinity_can_be_set_within_bounds(world, pod):
    world.place(pod("bound", affinity=near(term(HOST))), "a1")
    none = InterPodAffinity(InterPodAffinityArgs(hard_pod_affinity_weight=0), world.handle)
    assert _scores(world, none, pod("new", labels={"app": "web"})) is None
    with pytest.raises(ValueError, match=r"not in range \[0-100\]"):
        InterPodAffinityArgs(hard_pod_affinity_weight=101)


# -- what wakes a pod -----------------------------------------------------------------------


def test_only_pods_the_terms_speak_of_wake_a_rejected_pod(world, plugin, pod):
    web, mail = (world.info(pod(n, labels={"app": n})) for n in ("web", "mail"))
    lonely = world.info(pod("lonely", affinity=near(term())))
    shy = world.info(pod("shy", affinity=away(term())))
    hated = world.info(pod("hated", labels={"app": "mail"}))
    hater = world.info(pod("hater", affinity=away(term(app="mail"))))
    assert plugin.may_help(lonely, events.PodAdded(web, "a1"))
    assert not plugin.may_help(lonely, events.PodAdded(mail, "a1"))
    assert not plugin.may_help(shy, events.PodAdded(web, "a1"))
    assert plugin.may_help(shy, events.PodDeleted(web, "a1"))
    assert not plugin.may_help(shy, events.PodDeleted(mail, "a1"))
    assert plugin.may_help(hated, events.PodDeleted(hater, "a1"))
    assert plugin.may_help(shy, events.NodeRemoved("a1"))
