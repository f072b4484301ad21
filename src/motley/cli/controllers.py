"""`motley controllers`: every controller in one process."""

import asyncio
from pathlib import Path
from typing import Any

import click

from motley.cli import (
    autoscaling_options,
    component_options,
    heterogeneity_options,
    node_options,
    rebalance_options,
)
from motley.client import kubeconfig
from motley.client.lease import LostLeadership
from motley.client.rest import Client
from motley.controllers import metrics, service
from motley.lib import health, journal, tasks

log = journal.get(__name__)


@click.command(name="controllers")
@click.option(
    "--kubeconfig",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="How to reach the API server; $KUBECONFIG, ~/.kube/config or the pod's own by default.",
)
@click.option("--pod-cidr", default="10.244.0.0/16", show_default=True, help="The pod network.")
@click.option(
    "--node-cidr-mask-size",
    "node_prefix",
    default=24,
    show_default=True,
    help="Prefix length of a node's part of the pod network.",
)
@click.option(
    "--node-monitor-grace-s",
    type=click.FloatRange(min=1.0),
    default=40.0,
    show_default=True,
    help="Silence after which a node counts as unreachable.",
)
@click.option(
    "--controllers",
    "chosen",
    default="*",
    show_default=True,
    help="Which to run, by name and comma-separated: * is all, -NAME all but this one.",
)
@component_options.leader_elect("Work only while holding the lease that the next two name.")
@click.option(
    "--leader-elect-resource-name",
    "lease_name",
    default=service.LEASE,
    show_default=True,
    help="The lease's name; on a cluster whose controllers these are not, one of their own.",
)
@click.option(
    "--leader-elect-resource-namespace",
    "lease_namespace",
    default=service.LEASE_NAMESPACE,
    show_default=True,
    help="The lease's namespace.",
)
@click.option(
    "--cluster-signing-cert-file",
    "signing_cert",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The authority that signs certificate requests; with its key, see below.",
)
@click.option(
    "--cluster-signing-key-file",
    "signing_key",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The authority's key. Without the two no certificate is signed here.",
)
@node_options.options
@autoscaling_options.options
@heterogeneity_options.options
@rebalance_options.options
@component_options.health_port(10257)
@component_options.log_level
def command(
    path: Path | None,
    pod_cidr: str,
    node_prefix: int,
    node_monitor_grace_s: float,
    chosen: str,
    leader_elect: bool,
    lease_name: str,
    lease_namespace: str,
    signing_cert: Path | None,
    signing_key: Path | None,
    health_port: int,
    log_level: str,
    **others: Any,
) -> None:
    """Run the controllers in the foreground."""
    journal.configure(log_level)
    try:
        options = service.Options(
            pod_cidr=pod_cidr,
            node_prefix=node_prefix,
            node_monitor_grace_s=node_monitor_grace_s,
            signing_cert=signing_cert,
            signing_key=signing_key,
            **node_options.chosen(others),
            autoscaling=autoscaling_options.settings(others),
            **heterogeneity_options.chosen(others),
            **rebalance_options.chosen(others),
            leader_elect=leader_elect,
            lease_name=lease_name,
            lease_namespace=lease_namespace,
            controllers=tuple(name.strip() for name in chosen.split(",")),
        )
        config = kubeconfig.load(path)
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    try:
        tasks.run(_main(config, options, health_port))
    except ExceptionGroup as failures:
        known, other = failures.split((LostLeadership, OSError))
        if known is None or other is not None:
            raise
        raise click.ClickException(_first(known)) from None


async def _main(config: kubeconfig.Config, options: service.Options, health_port: int) -> None:
    # The name under which tools know the owner of what controllers write, and leave it alone:
    # kube-controller-manager, unless that is somebody else here.
    async with Client(config, user_agent=options.lease_name) as client:
        manager = service.build(client, options, meters=metrics.make())
        async with asyncio.TaskGroup() as group:
            group.create_task(health.serve(health_port, manager.is_ready))
            group.create_task(manager.run())


def _first(errors: Exception) -> str:
    error = errors
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return str(error)
