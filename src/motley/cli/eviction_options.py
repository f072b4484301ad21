"""When a node gives pods up and removes images: the kubelet's flags, in its syntax."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from motley.lib import durations
from motley.node.eviction import pressure, thresholds
from motley.node.imagegc import Limits

F = TypeVar("F", bound=Callable[..., Any])
_IMAGES = Limits()


def _seconds(ctx: click.Context, param: click.Parameter, value: str) -> float:
    try:
        return durations.seconds(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


_OPTIONS = (
    click.option(
        "--eviction-hard",
        default=thresholds.DEFAULT_HARD,
        show_default=True,
        metavar="SIGNAL<VALUE,…",
        help="Below these, pods end at once.",
    ),
    click.option(
        "--eviction-soft",
        default="",
        metavar="SIGNAL<VALUE,…",
        help="Below these for their grace period, pods end gracefully.",
    ),
    click.option(
        "--eviction-soft-grace-period",
        "eviction_soft_grace",
        default="",
        metavar="SIGNAL=DURATION,…",
        help="How long each soft threshold must stay crossed, e.g. memory.available=1m30s.",
    ),
    click.option(
        "--eviction-minimum-reclaim",
        "eviction_reclaim",
        default="",
        metavar="SIGNAL=VALUE,…",
        help="How far above a threshold to get once it was crossed.",
    ),
    click.option(
        "--eviction-max-pod-grace-period",
        "eviction_max_grace",
        type=click.IntRange(min=0),
        default=0,
        show_default=True,
        help="Most seconds a pod has to end at a soft threshold.",
    ),
    click.option(
        "--eviction-pressure-transition-period",
        "eviction_transition_s",
        callback=_seconds,
        default="5m",
        show_default=True,
        help="How long a pressure condition stays after it was last observed.",
    ),
    click.option(
        "--image-gc-high-threshold",
        type=click.IntRange(0, 100),
        default=_IMAGES.high_percent,
        show_default=True,
        help="Percent of the images' disk above which unused images are removed …",
    ),
    click.option(
        "--image-gc-low-threshold",
        type=click.IntRange(0, 100),
        default=_IMAGES.low_percent,
        show_default=True,
        help="… until this is reached.",
    ),
    click.option(
        "--minimum-image-ttl-duration",
        "minimum_image_age_s",
        callback=_seconds,
        default="2m",
        show_default=True,
        help="An image younger than this is not removed.",
    ),
)


def eviction_options(command: F) -> F:
    """Add the options; they arrive as keyword arguments for `policy` and `image_limits`."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def policy(given: dict[str, Any]) -> pressure.Policy:
    """What the options say of evictions. Raises click.UsageError."""
    try:
        found = thresholds.parse(
            given["eviction_hard"],
            given["eviction_soft"],
            given["eviction_soft_grace"],
            given["eviction_reclaim"],
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    return pressure.Policy(
        found, float(given["eviction_max_grace"]), given["eviction_transition_s"]
    )


def image_limits(given: dict[str, Any]) -> Limits:
    """What the options say of images. Raises click.UsageError."""
    limits = Limits(
        given["image_gc_high_threshold"],
        given["image_gc_low_threshold"],
        given["minimum_image_age_s"],
    )
    if limits.low_percent >= limits.high_percent:
        raise click.UsageError("--image-gc-low-threshold must be below --image-gc-high-threshold")
    return limits
