"""How autoscalers behave, for the command that runs them; names and defaults are
kube-controller-manager's, times in seconds."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from motley.autoscale.calculator import Settings

F = TypeVar("F", bound=Callable[..., Any])
_PREFIX = "horizontal-pod-autoscaler"
_DEFAULT = Settings()
_OPTIONS = (
    ("sync-period-s", "hpa_sync_s", _DEFAULT.sync_s, "How often each autoscaler is looked at."),
    (
        "downscale-stabilization-s",
        "hpa_downscale_s",
        _DEFAULT.downscale_stabilization_s,
        "How long a higher recommendation keeps pods, unless the autoscaler says.",
    ),
    (
        "tolerance",
        "hpa_tolerance",
        _DEFAULT.tolerance,
        "How far from its target a metric may be without a change, as a share.",
    ),
    (
        "cpu-initialization-period-s",
        "hpa_cpu_initialization_s",
        _DEFAULT.cpu_initialization_s,
        "How long CPU use of a starting pod is judged by its readiness.",
    ),
    (
        "initial-readiness-delay-s",
        "hpa_initial_readiness_s",
        _DEFAULT.initial_readiness_s,
        "How long a pod that turns unready counts as never having been ready.",
    ),
)


def options(function: F) -> F:
    """The options that `settings` reads."""
    for name, parameter, default, about in reversed(_OPTIONS):
        function = click.option(
            f"--{_PREFIX}-{name}",
            parameter,
            type=click.FloatRange(min=0.0),
            default=default,
            show_default=True,
            help=about,
        )(function)
    return function


def settings(given: Mapping[str, float]) -> Settings:
    """What the options say."""
    if given["hpa_sync_s"] <= 0:
        raise click.BadParameter("must be more than zero", param_hint=f"--{_PREFIX}-sync-period-s")
    return Settings(
        sync_s=given["hpa_sync_s"],
        downscale_stabilization_s=given["hpa_downscale_s"],
        tolerance=given["hpa_tolerance"],
        cpu_initialization_s=given["hpa_cpu_initialization_s"],
        initial_readiness_s=given["hpa_initial_readiness_s"],
    )
