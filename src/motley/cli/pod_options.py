"""What a node lets one pod have, and how many images it pulls at once: the kubelet's flags."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from motley.node import images, sysctls

F = TypeVar("F", bound=Callable[..., Any])


def _patterns(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
    patterns = tuple(filter(None, (word.strip() for word in value.split(","))))
    try:
        sysctls.check_allowed(patterns)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return patterns


_OPTIONS = (
    click.option(
        "--pod-max-pids",
        type=click.IntRange(-1),
        default=-1,
        show_default=True,
        help="Processes and threads of one pod; -1 for no limit.",
    ),
    click.option(
        "--max-parallel-image-pulls",
        type=click.IntRange(1),
        default=images.PARALLEL_PULLS,
        show_default=True,
        help="Images pulled at once; 1 is the kubelet's --serialize-image-pulls.",
    ),
    click.option(
        "--allowed-unsafe-sysctls",
        callback=_patterns,
        default="",
        metavar="NAME|PREFIX*,…",
        help="Kernel parameters that pods may set beside the safe ones.",
    ),
)


def pod_options(command: F) -> F:
    """Add the options; they arrive as keyword arguments for `chosen`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def chosen(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given, as the agent's settings."""
    names = ("pod_max_pids", "max_parallel_image_pulls", "allowed_unsafe_sysctls")
    return {name: given[name] for name in names}
