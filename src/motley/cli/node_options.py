"""How lost nodes are treated, for the command that runs the controllers; names and defaults are
kube-controller-manager's where it has the same."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from motley.controllers.zones import Rates

F = TypeVar("F", bound=Callable[..., Any])
_DEFAULT = Rates()
_OPTIONS = (
    click.option(
        "--node-eviction-rate",
        type=click.FloatRange(min=0.0),
        default=_DEFAULT.node_eviction_rate,
        show_default=True,
        help="Lost nodes of a zone that are emptied per second.",
    ),
    click.option(
        "--secondary-node-eviction-rate",
        type=click.FloatRange(min=0.0),
        default=_DEFAULT.secondary_node_eviction_rate,
        show_default=True,
        help="The same where too many nodes of a large zone are lost.",
    ),
    click.option(
        "--unhealthy-zone-threshold",
        type=click.FloatRange(min=0.0, max=1.0),
        default=_DEFAULT.unhealthy_zone_threshold,
        show_default=True,
        help="The share of lost nodes that is too many.",
    ),
    click.option(
        "--large-cluster-size-threshold",
        type=click.IntRange(min=0),
        default=_DEFAULT.large_cluster_size_threshold,
        show_default=True,
        help="A zone of no more nodes than this empties none where too many are lost.",
    ),
    click.option(
        "--delete-lost-nodes-after",
        "delete_lost_nodes_after_s",
        type=click.FloatRange(min=0.0),
        default=0.0,
        show_default=True,
        help="Seconds of silence after which a node is deleted; 0: never.",
    ),
)


def options(function: F) -> F:
    """The options that `chosen` reads."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def chosen(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given, as the controllers' options."""
    rates = Rates(
        node_eviction_rate=given["node_eviction_rate"],
        secondary_node_eviction_rate=given["secondary_node_eviction_rate"],
        unhealthy_zone_threshold=given["unhealthy_zone_threshold"],
        large_cluster_size_threshold=given["large_cluster_size_threshold"],
    )
    return {
        "eviction_rates": rates,
        "delete_lost_nodes_after_s": given["delete_lost_nodes_after_s"],
    }
