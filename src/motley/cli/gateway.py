"""`motley gateway`: nginx for Routes and Ingresses, on one machine."""

import asyncio
import ipaddress
import os
import pwd
import socket
from pathlib import Path

import click

from motley.cli import component_options
from motley.lib import journal, tasks

_WORKER_USER = "www-data"  # Debian's, in every installation
_MOST_WORKERS = 4


def _address(ctx: click.Context, param: click.Parameter, value: str) -> str:
    try:
        return str(ipaddress.IPv4Address(value))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def worker_user() -> str:
    """Who nginx' workers are: not root, where the machine has somebody else for it."""
    try:
        return pwd.getpwnam(_WORKER_USER).pw_name
    except KeyError:
        return ""


@click.command("gateway")
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False),
    help="How to reach the API server.  [default: $KUBECONFIG, ~/.kube/config, in-cluster]",
)
@click.option("--node-name", help="Name of this node.  [default: the host name]")
@click.option(
    "--directory",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("/var/lib/motley/gateway"),
    show_default=True,
    callback=lambda _context, _parameter, value: value.absolute(),
    help="Where nginx' configuration and certificates are.",
)
@click.option(
    "--address",
    callback=_address,
    default="127.0.0.1",
    show_default=True,
    help="Address of this machine, by which the other nodes reach it.",
)
@click.option("--http-port", type=click.IntRange(1, 65535), default=10280, show_default=True)
@click.option("--https-port", type=click.IntRange(1, 65535), default=10281, show_default=True)
@click.option("--host-ports", is_flag=True, help="Also listen at ports 80 and 443 of the machine.")
@click.option("--cluster-domain", default="cluster.local", show_default=True)
@click.option(
    "--hosts-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A hosts file to keep the names in, such as /etc/hosts.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=min(_MOST_WORKERS, os.cpu_count() or 1),
    show_default=f"one per core, {_MOST_WORKERS} at most",
    help="Processes of nginx that answer.",
)
@click.option("--no-leader-elect", is_flag=True, help="This is the only gateway.")
@component_options.health_port(10282)
@click.option("--stop", is_flag=True, help="End the nginx of the directory, and do nothing else.")
@component_options.log_level
def command(
    kubeconfig: str | None,
    node_name: str | None,
    directory: Path,
    address: str,
    http_port: int,
    https_port: int,
    host_ports: bool,
    cluster_domain: str,
    hosts_file: Path | None,
    workers: int,
    no_leader_elect: bool,
    health_port: int,
    stop: bool,
    log_level: str,
) -> None:
    """Serve Routes and Ingresses by nginx, in the foreground.

    When this process stops, nginx goes on with what it has; --stop ends it.
    """
    from motley.client import kubeconfig as kubeconfigs
    from motley.client.rest import Client
    from motley.network.paths import nginx, service

    journal.configure(log_level)
    if stop:
        was_running = asyncio.run(nginx.stop(directory))
        click.echo("nginx ended" if was_running else "no nginx runs there")
        return
    options = service.Options(
        node_name=node_name or socket.gethostname(),
        directory=directory,
        address=address,
        http_port=http_port,
        https_port=https_port,
        host_ports=host_ports,
        cluster_domain=cluster_domain.strip("."),
        hosts_file=hosts_file,
        workers=workers,
        user=worker_user(),
        health_port=health_port,
        leader_elect=not no_leader_elect,
    )
    try:
        config = kubeconfigs.load(kubeconfig)
    except kubeconfigs.ConfigError as error:
        raise click.UsageError(str(error)) from error

    async def main() -> None:
        async with Client(config, user_agent="motley-gateway") as client:
            await service.run(client, options)

    tasks.run(main())
