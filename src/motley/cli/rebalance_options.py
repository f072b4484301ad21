"""How autoscaling by the past and rebalancing behave, for the commands that do it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from motley.autoscale import rebalance, vpa
from motley.cli import history_options

if TYPE_CHECKING:
    from motley.autoscale.past import Pasts
    from motley.controllers.manager import Context

F = TypeVar("F", bound=Callable[..., Any])
_DEFAULT = rebalance.Settings()
_PERCENT = click.IntRange(1, 100)
_SERIES = 1000


def _percent(prefix: str, name: str, resource: str, of: Mapping[str, float], about: str) -> Any:
    return click.option(
        f"--{prefix}{name}-{resource}",
        f"{name}_{resource}",
        type=_PERCENT,
        default=round(of[resource] * 100),
        show_default=True,
        help=f"{about} {resource}, in percent.",
    )


def thresholds(prefix: str = "") -> Callable[[F], F]:
    """The options that say what a hot node is and how much is done about it."""
    hot, cool = "A node is hot above this share of its", "Pods leave until it is at this share of"
    listed = (
        *(_percent(prefix, "high", r, _DEFAULT.high, hot) for r in rebalance.RESOURCES),
        *(_percent(prefix, "middle", r, _DEFAULT.middle, cool) for r in rebalance.RESOURCES),
        click.option(
            f"--{prefix}max-moves",
            "max_moves",
            type=click.IntRange(min=1),
            default=_DEFAULT.per_round,
            show_default=True,
            help="Pods moved per round.",
        ),
        click.option(
            f"--{prefix}max-moves-per-node",
            "max_moves_per_node",
            type=click.IntRange(min=1),
            default=_DEFAULT.per_node,
            show_default=True,
            help="Pods moved off one node per round.",
        ),
    )

    def decorate(function: F) -> F:
        for option in reversed(listed):
            function = option(function)
        return function

    return decorate


_OPTIONS = (
    click.option(
        "--vertical-pod-autoscaler-sync-period-s",
        "vpa_sync_s",
        type=click.FloatRange(min=1.0),
        default=vpa.Settings().every_s,
        show_default=True,
        help="How often each VerticalPodAutoscaler is looked at.",
    ),
    click.option(
        "--history-file",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Keep the past of workloads here, from metrics.k8s.io: where the API server does not"
        " serve history.motley.io.",
    ),
    history_options.every_s,
    click.option("--rebalance", is_flag=True, help="Move pods off hot nodes, by evicting them."),
    click.option(
        "--rebalance-every-s",
        type=click.FloatRange(min=1.0),
        default=_DEFAULT.every_s,
        show_default=True,
        help="How often; a node must be hot twice in a row.",
    ),
    click.option(
        "--rebalance-rest-s",
        type=click.FloatRange(min=0.0),
        default=_DEFAULT.rest_s,
        show_default=True,
        help="How long a node and a workload are left alone after a move.",
    ),
)


def options(function: F) -> F:
    """The options that `chosen` reads."""
    function = thresholds("rebalance-")(function)
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def settings(
    given: Mapping[str, Any],
    every_s: float = _DEFAULT.every_s,
    rest_s: float = _DEFAULT.rest_s,
) -> rebalance.Settings:
    """When a node is hot, and how much may be done about it. Raises BadParameter."""
    try:
        return rebalance.Settings(
            high={r: given[f"high_{r}"] / 100 for r in rebalance.RESOURCES},
            middle={r: given[f"middle_{r}"] / 100 for r in rebalance.RESOURCES},
            per_round=given["max_moves"],
            per_node=given["max_moves_per_node"],
            every_s=every_s,
            rest_s=rest_s,
        )
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def chosen(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given, as the controllers' options."""
    moving = settings(given, every_s=given["rebalance_every_s"], rest_s=given["rebalance_rest_s"])
    path, every_s = given["history_file"], given["history_every_s"]
    return {
        "vertical": vpa.Settings(every_s=given["vpa_sync_s"]),
        "rebalance": moving if given["rebalance"] else None,
        "pasts": (lambda context: _follower(context, path, every_s)) if path else None,
    }


def _follower(context: "Context", path: Path, every_s: float) -> "Pasts":
    """Somebody who keeps the past, over the informers of the controllers."""
    from motley.metrics.follower import Follower
    from motley.metrics.history_keeper import Keeper

    known = history_options.known(context.informers)
    return Follower(context.client, context.clock, Keeper(path, _SERIES), every_s, known)
