"""Plugins that look at what nodes have left: resources, ports, images."""

import msgspec
import numpy as np
import pytest

from motley.scheduler.contract import NoArgs
from motley.scheduler.plugins.image_locality import ImageLocality
from motley.scheduler.plugins.node_ports import NodePorts
from motley.scheduler.plugins.node_resources_balanced_allocation import (
    NodeResourcesBalancedAllocation,
    NodeResourcesBalancedAllocationArgs,
)
from motley.scheduler.plugins.node_resources_fit import NodeResourcesFit, NodeResourcesFitArgs


def _fit(world, **args):
    return NodeResourcesFit(msgspec.convert(args, NodeResourcesFitArgs), world.handle)


@pytest.mark.parametrize(
    ("requests", "allowed"),
    [
        ({}, ["big", "gpu", "small"]),
        ({"cpu": "500m"}, ["big", "gpu", "small"]),
        ({"cpu": "501m"}, ["big", "gpu"]),
        ({"memory": "6Gi"}, ["big"]),
        ({"example.com/gpu": "1"}, ["gpu"]),
        ({"example.com/other": "1"}, []),
        ({"cpu": "100"}, []),
    ],
)
def test_nodes_with_room_are_kept(cluster, node, pod, requests, allowed):
    world = cluster(
        node("small", cpu="1"),
        node("big", cpu="8"),
        node("gpu", cpu="2", memory="4Gi", example_com__gpu="1"),
    )
    world.place(pod("there", requests={"cpu": "500m", "memory": "3Gi"}), "small")
    assert world.allowed(_fit(world), pod(requests=requests)) == allowed


def test_a_node_that_is_overcommitted_still_takes_pods_that_ask_for_nothing(cluster, node, pod):
    world = cluster(node("a", cpu="1"))
    world.place(pod("there", requests={"cpu": "2"}), "a")
    assert world.allowed(_fit(world), pod()) == ["a"]


def test_the_number_of_pods_is_limited(cluster, node, pod):
    world = cluster(node("a", pods="1"), node("b", pods="2"))
    world.place(pod("x"), "a")
    world.place(pod("y"), "b")
    assert world.allowed(_fit(world), pod()) == ["b"]


def test_every_lacking_resource_is_a_reason(cluster, node, pod):
    world = cluster(node("a", cpu="1", memory="1Gi"), node("b", cpu="1", memory="64Gi"))
    plugin = _fit(world)
    info = world.info(pod(requests={"cpu": "2", "memory": "2Gi"}))
    rejected = ~plugin.filter(info, world.nodes)
    assert plugin.explain(info, world.nodes, rejected) == {
        "Insufficient cpu": 2,
        "Insufficient memory": 1,
    }


def test_ignored_resources_are_not_checked(cluster, node, pod):
    world = cluster(node("a"))
    wanting = pod(requests={"example.com/fpga": "1"})
    assert world.allowed(_fit(world, ignoredResources=["example.com/fpga"]), wanting) == ["a"]
    assert world.allowed(_fit(world, ignoredResourceGroups=["example.com"]), wanting) == ["a"]


def test_least_and_most_allocated_are_opposites(cluster, node, pod):
    world = cluster(node("full"), node("half"), node("empty"))
    world.place(pod("x", requests={"cpu": "3", "memory": "6Gi"}), "full")
    world.place(pod("y", requests={"cpu": "1", "memory": "2Gi"}), "half")
    wanting = pod(requests={"cpu": "1", "memory": "2Gi"})
    assert world.scores(_fit(world), wanting) == {"full": 0, "half": 50, "empty": 75}
    packing = _fit(world, scoringStrategy={"type": "MostAllocated"})
    assert world.scores(packing, wanting) == {"full": 100, "half": 50, "empty": 25}


def test_weights_of_resources_shift_the_mean(cluster, node, pod):
    world = cluster(node("a", cpu="4", memory="8Gi"))
    strategy = {
        "type": "LeastAllocated",
        "resources": [{"name": "cpu", "weight": 3}, {"name": "memory", "weight": 1}],
    }
    wanting = pod(requests={"cpu": "1", "memory": "4Gi"})
    assert world.scores(_fit(world, scoringStrategy=strategy), wanting) == {"a": 68}


def test_a_node_without_a_resource_is_scored_on_the_others(cluster, node, pod):
    world = cluster(node("none", memory="0"), node("both", memory="8Gi"))
    wanting = pod(requests={"cpu": "1"})
    assert world.scores(_fit(world), wanting)["none"] == 75


def test_requested_to_capacity_ratio_follows_its_shape(cluster, node, pod):
    world = cluster(node("a", cpu="4"), node("b", cpu="2"), node("c", cpu="1"))
    shape = [{"utilization": 0, "score": 0}, {"utilization": 100, "score": 10}]
    strategy = {
        "type": "RequestedToCapacityRatio",
        "resources": [{"name": "cpu", "weight": 1}],
        "requestedToCapacityRatio": {"shape": shape},
    }
    scores = world.scores(_fit(world, scoringStrategy=strategy), pod(requests={"cpu": "1"}))
    assert scores == {"a": 25, "b": 50, "c": 100}


@pytest.mark.parametrize(
    "strategy",
    [
        {"type": "Random"},
        {"type": "RequestedToCapacityRatio"},
        {"resources": [{"name": "cpu", "weight": 0}]},
        {"type": "RequestedToCapacityRatio", "requestedToCapacityRatio": {"shape": []}},
    ],
)
def test_wrong_scoring_strategies_are_refused(strategy):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"scoringStrategy": strategy}, NodeResourcesFitArgs)


def test_balance_rewards_what_evens_a_node_out(cluster, node, pod):
    world = cluster(node("empty"), node("cpu-heavy"), node("memory-heavy"))
    world.place(pod("x", requests={"cpu": "2"}), "cpu-heavy")
    world.place(pod("y", requests={"memory": "4Gi"}), "memory-heavy")
    plugin = NodeResourcesBalancedAllocation(NodeResourcesBalancedAllocationArgs(), world.handle)
    scores = world.scores(plugin, pod(requests={"memory": "4Gi"}))
    assert scores == {"empty": 62, "cpu-heavy": 87, "memory-heavy": 62}


def test_balance_says_nothing_about_pods_that_ask_for_nothing(cluster, node, pod):
    world = cluster(node("a"), node("b"))
    evaluation = world.cycle.evaluate(world.info(pod()))
    assert "NodeResourcesBalancedAllocation" not in evaluation.scores
    assert "NodeResourcesFit" in evaluation.scores


@pytest.mark.parametrize(
    ("held", "wanted", "free"),
    [
        (("", 80), ("", 80), False),
        (("", 80), ("", 81), True),
        (("10.0.0.1", 80), ("10.0.0.1", 80), False),
        (("10.0.0.1", 80), ("10.0.0.2", 80), True),
        (("10.0.0.1", 80), ("", 80), False),
        (("", 80), ("10.0.0.1", 80), False),
    ],
)
def test_host_ports_conflict_by_address(cluster, node, pod, held, wanted, free):
    world = cluster(node("a"), node("b"))
    world.place(pod("x", host_ip=held[0], host_port=held[1]), "a")
    plugin = NodePorts(NoArgs(), world.handle)
    allowed = world.allowed(plugin, pod(host_ip=wanted[0], host_port=wanted[1]))
    assert allowed == (["a", "b"] if free else ["b"])


def test_a_host_port_is_free_again_when_its_last_holder_is_gone(cluster, node, pod):
    world = cluster(node("a"))
    world.place(pod("x", host_port=80), "a")
    world.place(pod("y", host_port=80), "a")
    plugin = NodePorts(NoArgs(), world.handle)
    world.nodes.remove_pod("x")
    assert world.allowed(plugin, pod(host_port=80)) == []
    world.nodes.remove_pod("y")
    assert world.allowed(plugin, pod(host_port=80)) == ["a"]


def test_images_already_there_are_preferred_by_size_and_spread(cluster, node, pod):
    mib = 1 << 20
    world = cluster(
        node("a", images={"app:1": 600 * mib, "other:1": 90 * mib}),
        node("b", images={"app:1": 600 * mib}),
        node("c"),
    )
    plugin = ImageLocality(NoArgs(), world.handle)
    # 600 MiB on two of three nodes count 400 MiB: (400 - 23) / (1000 - 23).
    assert world.scores(plugin, pod(image="app:1")) == {"a": 38, "b": 38, "c": 0}
    assert world.scores(plugin, pod(image="other:1"))["a"] == 0.0
    assert np.isfinite(list(world.scores(plugin, pod(image="none")).values())).all()
