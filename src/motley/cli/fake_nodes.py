"""`motley fake-nodes`: nodes without machines."""

import asyncio
from pathlib import Path

import click

from motley.cli import component_options
from motley.client import kubeconfig
from motley.client.rest import Client
from motley.controllers.fakenodes import FakeNodes, Shape
from motley.lib import health, journal, tasks


@click.command(name="fake-nodes")
@click.option(
    "--kubeconfig",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="How to reach the API server; $KUBECONFIG, ~/.kube/config or the pod's own by default.",
)
@click.option("--count", type=click.IntRange(1, 8192), required=True, help="How many nodes.")
@click.option("--prefix", default="fake-", show_default=True, help="Names are prefix0, prefix1, …")
@click.option("--cpu", default="4", show_default=True)
@click.option("--memory", default="32Gi", show_default=True)
@click.option("--pods", type=click.IntRange(1), default=110, show_default=True)
@click.option("--label", "labels", multiple=True, metavar="KEY=VALUE", help="May be repeated.")
@component_options.health_port(0)
@component_options.log_level
def command(
    path: Path | None,
    count: int,
    prefix: str,
    cpu: str,
    memory: str,
    pods: int,
    labels: tuple[str, ...],
    health_port: int,
    log_level: str,
) -> None:
    """Register nodes that run bound pods at once, until stopped."""
    journal.configure(log_level)
    pairs = {}
    for label in labels:
        key, equals, value = label.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{label!r} is not KEY=VALUE", param_hint="--label")
        pairs[key] = value
    shape = Shape(cpu=cpu, memory=memory, pods=pods, labels=pairs)
    try:
        config = kubeconfig.load(path)
    except kubeconfig.ConfigError as error:
        raise click.ClickException(str(error)) from None
    tasks.run(_main(config, count, prefix, shape, health_port))


async def _main(
    config: kubeconfig.Config, count: int, prefix: str, shape: Shape, health_port: int
) -> None:
    async with Client(config, user_agent="motley-fake-nodes") as client:
        nodes = FakeNodes(client, count, prefix=prefix, shape=shape)
        async with asyncio.TaskGroup() as group:
            group.create_task(health.serve(health_port, nodes.is_ready))
            group.create_task(nodes.run())
