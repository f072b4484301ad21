"""`motley slurm bridge`: the component that brings SlurmJobs to their clusters."""

import asyncio
import ssl
from pathlib import Path

import click

from motley.cli import component_options
from motley.client import kubeconfig
from motley.client.lease import LostLeadership
from motley.client.rest import Client
from motley.lib import health, journal, tasks

_FILE = click.Path(dir_okay=False, path_type=Path)


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
@click.option(
    "--tls-cert",
    type=_FILE,
    help="Serve the logs of pods on virtual nodes, with this certificate. The API server must trust"
    " its authority, and it must be for --node-ip. Without it kubectl logs does not work there.",
)
@click.option("--tls-key", type=_FILE, help="Its key.")
@click.option("--client-ca", type=_FILE, help="Authority of who asks, the API server above all.")
@click.option("--node-ip", help="Where the API server reaches the bridge; for the nodes' status.")
@click.option("--listen", help="The address to serve at; --node-ip by default.")
@click.option("--port", type=click.IntRange(1, 65535), default=10288, show_default=True)
@component_options.leader_elect("Work only while holding the lease kube-system/motley-slurm.")
@component_options.health_port(10285)
@component_options.log_level
def bridge(
    path: Path | None,
    directory: Path,
    roots: tuple[str, ...],
    poll_s: float | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    client_ca: Path | None,
    node_ip: str | None,
    listen: str | None,
    port: int,
    leader_elect: bool,
    health_port: int,
    log_level: str,
) -> None:
    """Bring SlurmJobs to their clusters and their results back, in the foreground."""
    try:
        from motley.node import access
        from motley.slurm import service
        from motley.slurm.localpaths import Root
        from motley.slurm.nodeserver import Serving
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{error}; install motley[slurm]") from None
    journal.configure(log_level)
    serving = None
    if tls_cert and tls_key and client_ca and node_ip:
        try:
            tls = access.tls_context(tls_cert, tls_key, client_ca)
        except (OSError, ssl.SSLError) as error:
            raise click.ClickException(f"--tls-cert {tls_cert}: {error}") from None
        serving = Serving(node_ip, port, listen or node_ip, tls)
    elif tls_cert or tls_key or client_ca or node_ip:
        raise click.UsageError("--tls-cert, --tls-key, --client-ca and --node-ip go together")
    options = service.Options(
        directory=directory.absolute(),
        roots=tuple(Root.parse(text) for text in roots),
        poll_s=poll_s,
        leader_elect=leader_elect,
        serving=serving,
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
