"""`motley down`: stop the cluster; its data stays unless told otherwise."""

import asyncio
from pathlib import Path

import click

from motley.cli import cluster
from motley.ops.failure import Failure
from motley.ops.progress import Progress

_GRACE_S = 5


@click.command("down")
@cluster.root_option
@click.option(
    "--pods", "with_pods", is_flag=True, help="Stop the pods too; leave nothing on the machine."
)
@click.option(
    "--grace",
    "grace_s",
    type=click.IntRange(0, 3600),
    help="Stop the pods too; seconds a container gets to end by itself.  [default: 5]",
)
@click.option("--delete-data", is_flag=True, help="Also delete every object, image and log.")
@click.option("--yes", is_flag=True, help="Do not ask before data is deleted.")
def command(root: Path, with_pods: bool, grace_s: int | None, delete_data: bool, yes: bool) -> None:
    """Stop the cluster; its data stays, and its pods go on running.

    Pods answer as before, also through their Services, and the next `motley up` takes them over;
    until then nothing is restarted, and nothing new is started.

    With --pods (or --grace, or --delete-data) they are stopped, and no process, namespace, mount,
    bridge or firewall table of the cluster is left. Objects and images stay, and the pods run again
    after the next `motley up`.
    """
    keep_pods = not (with_pods or delete_data or grace_s is not None)
    grace_s = _GRACE_S if grace_s is None else grace_s
    from motley.ops.nodes import down  # here: it takes a while to load

    config = cluster.find(root)
    if config is None:
        click.echo(f"There is no cluster in {root}.")
        return
    if delete_data and not yes:
        click.confirm(f"Delete the cluster in {root} with all its objects?", abort=True)
    progress = Progress()
    try:
        work = down(config, progress, grace_s=grace_s, delete_data=delete_data, keep_pods=keep_pods)
        asyncio.run(work)
        if keep_pods:
            click.echo("Pods go on running; stop them too with: motley down --pods")
    except Failure as failure:
        progress.blame(failure)
        raise SystemExit(1) from None
