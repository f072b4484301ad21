"""`motley leave`: this machine stops being a node, and nothing of it is left."""

import asyncio
from pathlib import Path

import click

from motley.cli import cluster
from motley.lib import durations
from motley.ops.failure import Failure
from motley.ops.progress import Progress


def _duration(ctx: click.Context, param: click.Parameter, value: str) -> float:
    try:
        return durations.seconds(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command("leave")
@cluster.root_option
@click.option("--drain", "is_drained", is_flag=True, help="First let its pods move elsewhere.")
@click.option(
    "--drain-timeout",
    "drain_s",
    callback=_duration,
    default="2m",
    show_default=True,
    help="How long to wait for them.",
)
@click.option(
    "--grace",
    "grace_s",
    type=click.IntRange(0, 3600),
    default=5,
    show_default=True,
    help="Seconds a container that is left gets to end by itself.",
)
@click.option(
    "--kubeconfig",
    "admin",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="An administrator's: then the Node object is deleted, too.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def command(
    root: Path, is_drained: bool, drain_s: float, grace_s: int, admin: Path | None, yes: bool
) -> None:
    """Stop being a node of a cluster that runs elsewhere.

    No process, namespace, mount, bridge, firewall table or file of the node is left.
    """
    from motley.ops.leaving import leave  # here: gRPC takes a while to load

    config = cluster.find(root)
    if config is None:
        click.echo(f"Nothing has joined a cluster in {root}.")
        return
    if not yes:
        click.confirm(f"Give up node {config.node_name} and delete {root}?", abort=True)
    progress = Progress()
    try:
        deleted = asyncio.run(
            leave(
                config,
                progress,
                is_drained=is_drained,
                drain_s=drain_s,
                grace_s=grace_s,
                admin=admin,
            )
        )
    except Failure as failure:
        progress.blame(failure)
        raise SystemExit(1) from None
    if not deleted:
        click.echo(f"On the control plane: kubectl delete node {config.node_name}")
