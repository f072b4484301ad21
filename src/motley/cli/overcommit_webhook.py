"""`motley overcommit-webhook`: over-commitment for stock kubelets, in the foreground."""

import asyncio
import socket
from pathlib import Path

import click

from motley.api.views.registration import MutatingWebhookConfiguration
from motley.cli import component_options, serving_options
from motley.cli.serving_options import Certificate
from motley.client import kubeconfig, servingca
from motley.client.events import Recorder
from motley.client.rest import Client
from motley.lib import journal, tasks
from motley.node.amplifier import Amplifier
from motley.node.webhook import Webhook

NAME = "motley-overcommit"

_BUNDLES = "/webhooks/*/clientConfig/caBundle"


@click.command("overcommit-webhook")
@click.option(
    "--kubeconfig",
    "path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="How to reach the API server; $KUBECONFIG, ~/.kube/config or the pod's own by default.",
)
@click.option("--bind-address", "host", help="Where to listen.  [default: every address]")
@click.option("--port", type=click.IntRange(1, 65535), default=9443, show_default=True)
@click.option(
    "--webhook-configuration",
    "configuration",
    default=NAME,
    show_default=True,
    help="The MutatingWebhookConfiguration whose CA bundle is kept true.",
)
@serving_options.options(NAME)
@component_options.log_level
def command(
    path: Path | None,
    host: str | None,
    port: int,
    configuration: str,
    serving: Certificate,
    log_level: str,
) -> None:
    """Raise what nodes say is allocatable by their labels, for kubelets that do not know these.

    An admission webhook for the status of nodes that are labelled motley.io/overcommit-cpu or
    motley.io/overcommit-memory. On nodes that run Motley's own agent it is not needed.

    \b
    kubectl apply -f deploy/overcommit
    kubectl label node NODE motley.io/overcommit-cpu=2
    """
    journal.configure(log_level)
    try:
        config = kubeconfig.load(path)
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    try:
        tasks.run(_main(config, host, port, configuration, serving))
    except* OSError as failures:
        raise serving_options.failure(failures) from None


async def _main(
    config: kubeconfig.Config,
    host: str | None,
    port: int,
    configuration: str,
    serving: Certificate,
) -> None:
    async with Client(config, user_agent=NAME) as client:
        recorder = Recorder(client, NAME, socket.gethostname())
        amplifier = Amplifier(client, recorder)
        webhook = Webhook(lambda: amplifier.has_synced)
        async with asyncio.TaskGroup() as group:
            group.create_task(serving.run())
            group.create_task(webhook.run(host, port, serving.context))
            group.create_task(recorder.run())
            group.create_task(amplifier.run())
            if isinstance(serving, servingca.Serving):
                group.create_task(
                    servingca.keep_told(
                        client, MutatingWebhookConfiguration, configuration, _BUNDLES, serving
                    )
                )
