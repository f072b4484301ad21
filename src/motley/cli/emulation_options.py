"""A node of another architecture than its machine, for the command that runs the agent."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from motley.node.cri.runtime import Runtime

F = TypeVar("F", bound=Callable[..., Any])
_OPTIONS = (
    click.option(
        "--arch",
        "architecture",
        default="",
        help="What the containers of this node run on, where the machine emulates it (arm64).",
    ),
    click.option(
        "--registries",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="With --arch: a YAML file of registries with plain HTTP or an authority of their own.",
    ),
    click.option(
        "--measured-speed",
        type=click.FloatRange(min=0.0, min_open=True),
        help="How fast a core is here, measured before; instead of --measure-speed.",
    ),
)


def options(function: F) -> F:
    """The options that `runtime` and `annotations` read."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def runtime(endpoint: str, root: Path, given: Mapping[str, Any]) -> Callable[[], "Runtime"]:
    """What makes the agent's container runtime once there is a loop. Raises ValueError, OSError."""
    from motley.node.cri.runtime import Runtime
    from motley.node.foreign import ForeignRuntime
    from motley.registry import platforms, settings

    if not given["architecture"]:
        return partial(Runtime, endpoint)
    path: Path | None = given["registries"]
    return partial(
        ForeignRuntime,
        endpoint,
        platforms.parse(given["architecture"]),
        root / "image_variants.json",
        settings.load(path) if path else None,
    )


def annotations(given: Mapping[str, Any]) -> dict[str, str]:
    """What is known of the node's speed, by wish measured now."""
    from motley.node import speedtest

    if given["measured_speed"] is not None:
        return {speedtest.ANNOTATION: f"{given['measured_speed']:.3g}"}
    return {speedtest.ANNOTATION: f"{speedtest.measure():.3f}"} if given["measure_speed"] else {}
