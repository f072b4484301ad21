"""`motley scheduler`: schedule pods of any Kubernetes cluster, in the foreground."""

import asyncio
from pathlib import Path

import click

from motley.client import kubeconfig as kubeconfigs
from motley.client.lease import LeaderElection, LostLeadership
from motley.client.rest import Client
from motley.lib import health, journal, tasks
from motley.scheduler import durations, metrics, profiles
from motley.scheduler.profiles import ConfigError, Configuration
from motley.scheduler.profiles import LeaderElection as LeaderElectionSettings
from motley.scheduler.service import Scheduler

log = journal.get(__name__)

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("scheduler")
@click.option("--kubeconfig", type=_FILE, help="How to reach the API server.")
@click.option("--config", type=_FILE, help="A KubeSchedulerConfiguration file (v1beta1 to v1).")
@click.option("--address", default="127.0.0.1", show_default=True, help="Where to serve health.")
@click.option("--health-port", default=10259, show_default=True, help="0 serves none.")
@click.option(
    "--leader-elect/--no-leader-elect",
    default=None,
    help="Work only while holding the Lease; the configuration decides unless given.",
)
@click.option("--authentication-kubeconfig", type=_FILE, help="Accepted; nothing needs it.")
@click.option("--authorization-kubeconfig", type=_FILE, help="Accepted; nothing needs it.")
@click.option("--seed", default=0, help="Where the rotation among equal nodes starts.")
@click.option(
    "--log-level",
    default="info",
    show_default=True,
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
)
def command(
    kubeconfig: Path | None,
    config: Path | None,
    address: str,
    health_port: int,
    leader_elect: bool | None,
    authentication_kubeconfig: Path | None,
    authorization_kubeconfig: Path | None,
    seed: int,
    log_level: str,
) -> None:
    """Run the scheduler against any Kubernetes cluster.

    It takes pods whose spec.schedulerName is one of its profiles and that have no node yet.
    The health endpoint listens in the clear and answers only "ok" and metrics, so the two
    kubeconfigs that guard kube-scheduler's secure port are accepted for its users' sake only.
    """
    journal.configure(log_level)
    try:
        configuration = profiles.parse(config.read_text()) if config else Configuration()
        path = kubeconfig or configuration.client_connection.kubeconfig or None
        connection = kubeconfigs.load(path)
        scheduler_client = Client(connection, user_agent="motley-scheduler")
        scheduler = Scheduler(scheduler_client, configuration, meter=metrics.make(), seed=seed)
    except ConfigError as e:
        raise click.ClickException(f"{config}: {e}") from e
    except (OSError, ValueError) as e:
        raise click.ClickException(str(e)) from e
    if leader_elect is not None:
        configuration.leader_election.leader_elect = leader_elect
    try:
        tasks.run(_main(scheduler_client, scheduler, configuration, address, health_port))
    except* (LostLeadership, OSError) as failures:
        raise click.ClickException(_first(failures)) from failures


async def _main(
    client: Client, scheduler: Scheduler, configuration: Configuration, host: str, port: int
) -> None:
    async with client, asyncio.TaskGroup() as group:
        group.create_task(health.serve(port, lambda: scheduler.ready, host=host))
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
