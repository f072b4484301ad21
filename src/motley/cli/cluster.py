"""What commands about the local cluster share: the --root option and the cluster behind it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from motley.cli import printers
from motley.lib import clock
from motley.ops import config as configs
from motley.ops import netns
from motley.ops.config import Config
from motley.ops.failure import Failure

if TYPE_CHECKING:
    from motley.client.rest import Client

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


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


def as_administrator(
    root: Path, work: "Callable[[Client, Config], Awaitable[T]]", elsewhere: str
) -> T:
    """Do something as the administrator of the cluster on this machine, or say why that cannot be;
    `elsewhere` is the advice where the machine has only joined a cluster."""
    from motley.api import status
    from motley.ops.up import administrator

    config = require(root)
    if config.is_joined:
        raise printers.fail(f"this machine has joined the cluster at {config.server}", elsewhere)

    async def main() -> T:
        async with administrator(config, clock.SYSTEM) as client:
            return await work(client, config)

    try:
        return asyncio.run(main())
    except Failure as failure:
        raise printers.fail(failure.message, failure.advice) from None
    except status.ApiError as error:
        raise printers.fail(error.message, "Is the cluster up? motley status") from None
    except (OSError, ValueError) as error:
        raise printers.fail(str(error), "Is the cluster up? motley status") from None
