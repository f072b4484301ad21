"""`motley history-server`: the past of nodes, pods and workloads, beside any Kubernetes."""

import asyncio
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import click

from motley.cli import component_options, history_options, serving_options
from motley.cli.history_options import HistoryOptions
from motley.cli.serving_options import Certificate
from motley.client import kubeconfig
from motley.client.rest import Client
from motley.lib import journal, tasks
from motley.lib.clock import SYSTEM

if TYPE_CHECKING:
    from motley.apiserver.extension import Extension

NAME = "motley-history"


@click.command("history-server")
@click.option(
    "--kubeconfig",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="How to reach the API server; $KUBECONFIG, ~/.kube/config or the pod's own by default.",
)
@click.option(
    "--history-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep the past here; without it, in memory.",
)
@history_options.every_s
@history_options.options
@click.option(
    "--external-metrics",
    is_flag=True,
    help="Also serve forecasts as external.metrics.k8s.io, for HorizontalPodAutoscalers.",
)
@click.option(
    "--bind-address", "host", default="0.0.0.0", show_default=True, help="Where to listen."
)
@click.option(
    "--secure-port",
    "port",
    type=click.IntRange(1, 65535),
    default=6443,
    show_default=True,
    help="Its port.",
)
@serving_options.options(NAME)
@component_options.log_level
def command(
    path: Path | None,
    history_file: Path | None,
    history_every_s: float,
    kept: HistoryOptions,
    external_metrics: bool,
    host: str,
    port: int,
    serving: Certificate,
    log_level: str,
) -> None:
    """Keep and serve the usage history (history.motley.io) of a Kubernetes with a metrics server.

    An aggregated API server: kube-apiserver passes on what is asked of the group, and says who
    asks; who may read what is decided by the cluster's roles. Motley's own API server serves the
    group by itself.

    \b
    kubectl apply -f deploy/history
    kubectl get --raw /apis/history.motley.io/v1/nodes
    motley top workloads
    """
    journal.configure(log_level)
    try:
        config = kubeconfig.load(path)
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    client = Client(config, user_agent=NAME)
    try:
        tasks.run(
            _main(
                client, history_file, history_every_s, kept, external_metrics, serving, host, port
            )
        )
    except* OSError as failures:
        raise serving_options.failure(failures) from None


async def _main(
    client: Client,
    path: Path | None,
    every_s: float,
    kept: HistoryOptions,
    external_metrics: bool,
    serving: Certificate,
    host: str,
    port: int,
) -> None:
    from motley.controllers.manager import Informers
    from motley.metrics.aggregated import AggregatedServer
    from motley.metrics.follower import Follower
    from motley.metrics.history_group import HistoryGroup
    from motley.metrics.history_keeper import Keeper
    from motley.metrics.remotewrite import RemoteWrite

    remote = RemoteWrite(kept.remote, every_s, SYSTEM, Random()) if kept.remote else None
    keeper = Keeper(path, max(kept.series, 1), remote)
    informers = Informers(client)
    follower = Follower(client, SYSTEM, keeper, every_s, history_options.known(informers))
    history = HistoryGroup(keeper, SYSTEM)
    groups: list[Extension] = [history]
    if external_metrics:
        from motley.metrics.forecast_api import ForecastMetrics

        groups.append(ForecastMetrics(follower, SYSTEM))
    server = AggregatedServer(
        client,
        groups,
        serving,
        pages={"/metrics": history.exported},
        is_ready=lambda: informers.has_synced() and keeper.history is not None,
    )
    async with client, asyncio.TaskGroup() as group:
        group.create_task(server.run(host, port), name="server")
        for informer in informers.all():
            group.create_task(informer.run(), name=f"watch {informer.cls.PLURAL}")
        for informer in informers.all():
            await informer.synced()
        await follower.follow()
