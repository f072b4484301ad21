"""`motley scheduler`: schedule pods of any Kubernetes cluster, in the foreground."""

import asyncio
import gc
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import click

from motley.cli import component_options, new_plugin, scheduler_options
from motley.cli.scheduler_options import Kube
from motley.client import kubeconfig as kubeconfigs
from motley.client.delegation import Delegation
from motley.client.lease import LeaderElection, LostLeadership
from motley.client.rest import Client
from motley.lib import durations, health, journal, tasks
from motley.scheduler import metrics, profiles, recordpage, userplugins
from motley.scheduler.plugins import minik8s_profile
from motley.scheduler.plugins.registry import PLUGINS
from motley.scheduler.profiles import ConfigError, Configuration
from motley.scheduler.profiles import LeaderElection as LeaderElectionSettings
from motley.scheduler.publishing import Publish
from motley.scheduler.service import Scheduler
from motley.scheduler.userplugins import Sources

log = journal.get(__name__)

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
# Nodes and pods live long: collect young objects rarely, and never walk what is read at the start.
_GC_THRESHOLDS = (50_000, 20, 50)
_DEBUG_V = 4  # kube-scheduler's level for what a developer wants to know


@click.group("scheduler", invoke_without_command=True)
@click.option("--config", type=_FILE, help="A KubeSchedulerConfiguration file (v1beta1 to v1).")
@scheduler_options.options
@click.option(
    "--record-decisions",
    default=Publish.UNSCHEDULABLE.value,
    show_default=True,
    type=click.Choice([which.value for which in Publish]),
    help="Which decisions to write as Decision objects, where the server knows that kind.",
)
@click.option(
    "--compat",
    type=click.Choice(["minik8s"]),
    help="Also serve the profile of another system: minik8s-scheduler.",
)
@click.option("--seed", default=0, help="Where the rotation among equal nodes starts.")
@component_options.log_level
@click.pass_context
def command(
    ctx: click.Context,
    kube: Kube,
    config: Path | None,
    record_decisions: str,
    compat: str | None,
    seed: int,
    log_level: str,
) -> None:
    """Run the scheduler against any Kubernetes cluster.

    It takes pods whose spec.schedulerName is one of its profiles and that have no node yet.
    kube-scheduler's configuration files and the flags of its manifests work as they are.

    Health is served in the clear on loopback. With --authentication-kubeconfig or
    --authorization-kubeconfig it is served with HTTPS as kube-scheduler does: /healthz, /livez and
    /readyz to everybody, /metrics and /decisions (what was decided lately, which
    `motley explain` reads) to those the API server allows a GET of that path.

    \b
    motley scheduler --kubeconfig ~/.kube/config --config my-scheduler.yaml
    motley scheduler new-plugin RackFirst     # begin a plugin of your own
    """
    if ctx.invoked_subcommand is not None:
        return
    journal.configure("debug" if kube.v is not None and kube.v >= _DEBUG_V else log_level)
    try:
        configuration = profiles.parse(config.read_text()) if config else Configuration()
        if compat:
            minik8s_profile.add(configuration)
        scheduler_options.elect(kube, configuration)
        sources = Sources(
            configuration.plugin_sources,
            base=config.parent if config else None,
            named=configuration.named,
        )
        registry = sources.load(PLUGINS)
        client = Client(
            scheduler_options.connection(kube, configuration), user_agent="motley-scheduler"
        )
        scheduler = Scheduler(
            client,
            configuration,
            registry=registry,
            meter=metrics.make(),
            publish=Publish(record_decisions),
            seed=seed,
        )
        serving = _Serving(kube, configuration, scheduler)
    except ConfigError as e:
        raise click.ClickException(f"{config}: {e}") from e
    except (OSError, ValueError) as e:
        raise click.ClickException(str(e)) from e
    try:
        tasks.run(_main(client, scheduler, configuration, sources, serving))
    except* (LostLeadership, OSError) as failures:
        raise click.ClickException(_first(failures)) from failures


command.add_command(new_plugin.new_plugin)


class _Serving:
    """Health and figures, in the clear, with HTTPS, or both."""

    def __init__(self, kube: Kube, configuration: Configuration, scheduler: Scheduler) -> None:
        self._plain = scheduler_options.plain(kube, configuration)
        self._secure = scheduler_options.secure(kube)
        self._tls = scheduler_options.tls(kube) if self._secure[1] else None
        self._reviewers = [
            kubeconfigs.load(path) if path else None
            for path in (kube.authentication_kubeconfig, kube.authorization_kubeconfig)
        ]
        self._scheduler = scheduler

    async def run(self, client: Client) -> None:
        """Serve until cancelled."""
        scheduler = self._scheduler
        pages = {"/decisions": partial(recordpage.answer, scheduler.records)}
        serve = partial(health.serve, ready=lambda: scheduler.ready, pages=pages)
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            host, port = self._plain
            group.create_task(serve(port, host=host))
            host, port = self._secure
            if port:
                reviewers = [
                    await stack.enter_async_context(Client(each, user_agent="motley-scheduler"))
                    if each
                    else client
                    for each in self._reviewers
                ]
                guard = Delegation(*reviewers).code
                group.create_task(serve(port, host=host, tls=self._tls, guard=guard))


async def _main(
    client: Client,
    scheduler: Scheduler,
    configuration: Configuration,
    sources: Sources,
    serving: _Serving,
) -> None:
    gc.set_threshold(*_GC_THRESHOLDS)
    scheduler.on_known = gc.freeze
    refused = partial(scheduler.announce, "Warning", "PluginNotReloaded")
    async with client, asyncio.TaskGroup() as group:
        group.create_task(serving.run(client))
        group.create_task(userplugins.follow(sources, PLUGINS, scheduler.reload, refused))
        await scheduler.run(_election(client, configuration.leader_election))


def _election(client: Client, wanted: LeaderElectionSettings) -> LeaderElection | None:
    if not wanted.leader_elect:
        return None
    return LeaderElection(
        client,
        wanted.resource_name,
        namespace=wanted.resource_namespace,
        duration_s=durations.seconds(wanted.lease_duration),
        renew_deadline_s=durations.seconds(wanted.renew_deadline),
        retry_s=durations.seconds(wanted.retry_period),
    )


def _first(failures: BaseExceptionGroup[Exception]) -> str:
    error: BaseException = failures
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
