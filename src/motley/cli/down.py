"""`motley down`: stop the cluster; its data stays unless told otherwise."""

import asyncio
from pathlib import Path

import click

from motley.cli import cluster
from motley.ops.failure import Failure
from motley.ops.progress import Progress


@click.command("down")
@cluster.root_option
@click.option("--delete-data", is_flag=True, help="Also delete every object, image and log.")
@click.option("--yes", is_flag=True, help="Do not ask before data is deleted.")
@click.option(
    "--grace",
    "grace_s",
    type=click.IntRange(0, 3600),
    default=5,
    show_default=True,
    help="Seconds a container gets to end by itself.",
)
def command(root: Path, delete_data: bool, yes: bool, grace_s: int) -> None:
    """Stop the cluster; its data stays.

    No process, namespace, mount, bridge or firewall table of the cluster is left. Objects and
    images stay, and the pods run again after the next `motley up`.
    """
    from motley.ops.nodes import down  # here: it takes a while to load

    config = cluster.find(root)
    if config is None:
        click.echo(f"There is no cluster in {root}.")
        return
    if delete_data and not yes:
        click.confirm(f"Delete the cluster in {root} with all its objects?", abort=True)
    progress = Progress()
    try:
        asyncio.run(down(config, progress, grace_s=grace_s, delete_data=delete_data))
    except Failure as failure:
        progress.blame(failure)
        raise SystemExit(1) from None
