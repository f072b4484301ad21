"""`motley slurm bridge`: the component that brings SlurmJobs to their clusters."""

import asyncio
from pathlib import Path

import click

from motley.cli import component_options
from motley.client import kubeconfig
from motley.client.lease import LostLeadership
from motley.client.rest import Client
from motley.lib import health, journal, tasks


@click.command("bridge")
@click.option(
    "--kubeconfig",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="How to reach the API server; $KUBECONFIG, ~/.kube/config or the pod's own by default.",
)
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/var/lib/motley/slurm"),
    show_default=True,
    help="Where results are kept.",
)
@click.option(
    "--local-root",
    "roots",
    multiple=True,
    metavar="[NAME=]FOLDER",
    help="A folder of this machine whose files jobs may name, and where they may put results; NAME"
    r" is what they call it, such as D:\work. May be given several times; none by default.",
)
@click.option(
    "--poll-s",
    type=click.FloatRange(min=0.05),
    help="How often to look at the queues, whatever the clusters' pollSeconds.",
)
@component_options.leader_elect("Work only while holding the lease kube-system/motley-slurm.")
@component_options.health_port(10285)
@component_options.log_level
def bridge(
    path: Path | None,
    directory: Path,
    roots: tuple[str, ...],
    poll_s: float | None,
    leader_elect: bool,
    health_port: int,
    log_level: str,
) -> None:
    """Bring SlurmJobs to their clusters and their results back, in the foreground."""
    try:
        from motley.slurm import service
        from motley.slurm.localpaths import Root
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error}; install motley[slurm]") from None
    journal.configure(log_level)
    options = service.Options(
        directory=directory.absolute(),
        roots=tuple(Root.parse(text) for text in roots),
        poll_s=poll_s,
        leader_elect=leader_elect,
    )
    try:
        config = kubeconfig.load(path)
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None

    async def main() -> None:
        async with Client(config, user_agent="motley-slurm") as client:
            made = service.Bridge(client, options)
            async with asyncio.TaskGroup() as group:
                group.create_task(health.serve(health_port, lambda: made.is_ready))
                group.create_task(made.run())

    try:
        tasks.run(main())
    except ExceptionGroup as failures:
        known, other = failures.split((LostLeadership, OSError))
        if known is None or other is not None:
            raise
        first: BaseException = known
        while isinstance(first, BaseExceptionGroup):
            first = first.exceptions[0]
        raise click.ClickException(str(first)) from None
