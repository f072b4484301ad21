"""What the controllers do about unlike machines, for the command that runs them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from motley.controllers.nodespeed import ALWAYS, EVERY_S, NEVER, UNSET
from motley.registry import settings

F = TypeVar("F", bound=Callable[..., Any])
_OPTIONS = (
    click.option(
        "--registries",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="A YAML file of registries with plain HTTP, an authority of their own, or a mirror.",
    ),
    click.option(
        "--auto-label",
        type=click.Choice([NEVER, UNSET, ALWAYS]),
        is_flag=False,
        flag_value=ALWAYS,
        default=UNSET,
        show_default=True,
        help="Set hice.kj to a node's estimated speed: where nobody has set it, or always.",
    ),
    click.option(
        "--speed-every-s",
        type=click.FloatRange(min=1.0),
        default=EVERY_S,
        show_default=True,
        help="How often the use of pods is read to estimate the speed of nodes.",
    ),
)


def options(function: F) -> F:
    """The options that `chosen` reads."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def chosen(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given, as the controllers' options. Raises ValueError, OSError."""
    path: Path | None = given["registries"]
    return {
        "registries": settings.load(path) if path else None,
        "auto_label": given["auto_label"],
        "speed_every_s": given["speed_every_s"],
        "speed_estimator": _estimate,
    }


def _estimate(samples: Sequence[Any], known: Mapping[str, float]) -> Mapping[str, Any]:
    from motley.metrics import speed  # NumPy is loaded once there is something to compute

    return speed.estimate([speed.Sample(*sample) for sample in samples], known)
