"""`motley overcommit-webhook`: over-commitment for stock kubelets, in the foreground."""

import asyncio
import socket
from pathlib import Path

import click

from motley.api.views.registration import MutatingWebhookConfiguration
from motley.cli import component_options
from motley.client import kubeconfig, servingca
from motley.client.events import Recorder
from motley.client.rest import Client
from motley.lib import journal, tasks
from motley.node.amplifier import Amplifier
from motley.node.webhook import Webhook

NAME = "motley-overcommit"

_BUNDLES = "/webhooks/*/clientConfig/caBundle"
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


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
    "--serving-name",
    default=f"{NAME}.kube-system.svc",
    show_default=True,
    help="How the API server calls: SERVICE.NAMESPACE.svc, or an address.",
)
@click.option(
    "--webhook-configuration",
    "configuration",
    default=NAME,
    show_default=True,
    help="The MutatingWebhookConfiguration whose CA bundle is kept true.",
)
@click.option(
    "--tls-cert-file",
    "certificate",
    type=_FILE,
    help="A certificate to serve with; the CA bundle is then left alone.  [default: its own]",
)
@click.option("--tls-private-key-file", "key", type=_FILE, help="The certificate's key.")
@component_options.log_level
def command(
    path: Path | None,
    host: str | None,
    port: int,
    serving_name: str,
    configuration: str,
    certificate: Path | None,
    key: Path | None,
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
    if (certificate is None) != (key is None):
        raise click.UsageError("--tls-cert-file and --tls-private-key-file go together")
    try:
        config = kubeconfig.load(path)
        serving: servingca.Serving | servingca.GivenFiles
        if certificate and key:
            serving = servingca.GivenFiles(certificate, key)
        else:
            serving = servingca.authority([serving_name])
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from None
    try:
        tasks.run(_main(config, host, port, configuration, serving))
    except* OSError as failures:
        raise click.ClickException(str(failures.exceptions[0])) from None


async def _main(
    config: kubeconfig.Config,
    host: str | None,
    port: int,
    configuration: str,
    serving: servingca.Serving | servingca.GivenFiles,
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
