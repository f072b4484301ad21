"""What a node lets one pod have: processes, kernel parameters, log files, images pulled at once.

The names are those of the kubelet's flags (and, for the interval, of its configuration file).
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from motley.api import quantity
from motley.lib import durations
from motley.node import images, logrotate, sysctls

F = TypeVar("F", bound=Callable[..., Any])


def _patterns(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
    patterns = tuple(filter(None, (word.strip() for word in value.split(","))))
    try:
        sysctls.check_allowed(patterns)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    return patterns


def _size(ctx: click.Context, param: click.Parameter, value: str) -> int:
    try:
        size = quantity.to_int(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if size < logrotate.LEAST_BYTES:  # 100m is a tenth of a byte, whoever means megabytes
        raise click.BadParameter(f"{value!r} is too small; mebibytes are written 100Mi")
    return size


def _interval(ctx: click.Context, param: click.Parameter, value: str) -> float:
    try:
        return max(0.1, durations.seconds(value))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


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
    click.option(
        "--container-log-max-size",
        "log_max_bytes",
        callback=_size,
        default="10Mi",
        show_default=True,
        help="A container's log file is rotated when it has grown to this.",
    ),
    click.option(
        "--container-log-max-files",
        "log_max_files",
        type=click.IntRange(2),
        default=5,
        show_default=True,
        help="Log files kept of one container, the current one among them.",
    ),
    click.option(
        "--container-log-monitor-interval",
        "log_look_every_s",
        callback=_interval,
        default="10s",
        show_default=True,
        help="How often the sizes of log files are looked at.",
    ),
)


def pod_options(command: F) -> F:
    """Add the options; they arrive as keyword arguments for `chosen`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def chosen(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given, as the agent's settings."""
    names = (
        "pod_max_pids",
        "max_parallel_image_pulls",
        "allowed_unsafe_sysctls",
        "log_max_bytes",
        "log_max_files",
        "log_look_every_s",
    )
    return {name: given[name] for name in names}
