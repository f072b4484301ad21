"""Options that every component has, said once: leading, health and logs."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])
LEVELS = ("debug", "info", "warning", "error")

log_level = click.option(
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="info",
    show_default=True,
    help="How much is written to standard error.",
)


def health_port(default: int) -> Callable[[F], F]:
    """Where to ask a component how it is."""
    return click.option(
        "--health-port",
        type=click.IntRange(0, 65535),
        default=default,
        show_default=True,
        help="Loopback port of /healthz and /metrics; 0 for none.",
    )


def leader_elect(help: str) -> Callable[[F], F]:
    """Whether one of several works, and under which lease."""
    return click.option(
        "--leader-elect/--no-leader-elect", default=True, show_default=True, help=help
    )
