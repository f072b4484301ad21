"""What commands about the local cluster share: the --root option and the cluster behind it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from motley.cli import printers
from motley.ops import config as configs
from motley.ops import netns
from motley.ops.config import Config
from motley.ops.failure import Failure

F = TypeVar("F", bound=Callable[..., Any])


def root_option(function: F) -> F:
    """`--root DIR`, or $MOTLEY_ROOT."""
    option = click.option(
        "--root",
        type=click.Path(path_type=Path, file_okay=False),
        default=configs.DEFAULT_ROOT,
        envvar="MOTLEY_ROOT",
        show_default=True,
        callback=lambda _context, _parameter, value: value.absolute(),
        help="Directory of the cluster's data.",
    )
    return option(function)


def find(root: Path) -> Config | None:
    """The cluster of a root directory, entered; None when there is none."""
    try:
        config = configs.load(root)
    except Failure as failure:
        raise printers.fail(failure.message, failure.advice) from None
    if config is not None:
        netns.enter(config)
    return config


def require(root: Path) -> Config:
    """The cluster of a root directory, or an error that says how to make one."""
    config = find(root)
    if config is None:
        raise printers.fail(f"there is no cluster in {root}", "Start one: motley up")
    return config
