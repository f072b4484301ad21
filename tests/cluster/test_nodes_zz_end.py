"""The end of the three nodes: one too many is removed, and then all of them with what they were.

The last file of those that share the cluster: what it leaves is nothing.
"""

import os
import signal

import pytest

from motley.ops import config as configs
from motley.ops import members, processes, underlay
from motley.ops.testbed import eventually

from .threenodes import NODES, addresses, call

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def cluster(three):
    """The three nodes that these files share."""
    return three


def test_a_node_too_many_is_removed_with_its_routes_and_its_object(cluster):
    routes = ("ip", "route", "show", "proto", "77")
    assert len(cluster.run(*routes).splitlines()) == 2
    cluster.up_nodes(2)
    assert {one["metadata"]["name"] for one in cluster.get("nodes")["items"]} == set(NODES[:2])
    eventually(lambda: len(cluster.run(*routes).splitlines()) == 1)
    assert call(cluster, "web-1", (addresses(cluster)["web-2"], 8080))[0][0] == "web-2"


def test_down_leaves_nothing_even_after_everything_of_a_node_was_killed(cluster):
    config = configs.load(cluster.root)
    (other,) = members.present(config)
    for process in processes.of_cluster(other.root):
        processes.send(process, signal.SIGKILL)
    assert cluster.status()["unsupervised"] == ["node-2"]
    cluster.motley("down", "--grace", 0)
    assert cluster.leftovers() == {}
    assert not os.path.exists(f"/run/netns/{other.namespace}")
    underlay.remove_namespace(other)  # once more: nothing to do is no failure
    cluster.motley("down", "--delete-data", "--yes")
    assert not cluster.root.exists()
