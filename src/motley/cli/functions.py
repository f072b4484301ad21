"""`motley functions`: the router and the controller of functions."""

from pathlib import Path

import click

from motley.cli import component_options
from motley.client.lease import LostLeadership
from motley.lib import journal, tasks

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("functions")
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False),
    help="How to reach the API server.  [default: $KUBECONFIG, ~/.kube/config, in-cluster]",
)
@click.option(
    "--listen", default="127.0.0.1", show_default=True, help="Address the router listens at."
)
@click.option("--port", type=click.IntRange(0, 65535), default=10290, show_default=True)
@click.option(
    "--url",
    default="",
    help="How callers and functions reach the router.  [default: from --listen and --port]",
)
@click.option("--tls-cert", type=_FILE, help="Certificate of the router; plain HTTP without one.")
@click.option("--tls-key", type=_FILE, help="Its key.")
@click.option(
    "--ca", type=_FILE, help="Authority by which functions know the router, if they call others."
)
@click.option(
    "--client-ca", type=_FILE, help="Authority of client certificates; tokens work without."
)
@click.option(
    "--cache-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Where what requirements and preRun made is kept for the next instances.",
)
@click.option(
    "--image",
    default="localhost/motley/python:1",
    show_default=True,
    help="Image of instances: any with python3 (3.9 or later) in it.",
)
@click.option(
    "--pool-size",
    type=click.IntRange(0, 100),
    default=1,
    show_default=True,
    help="Warm pods per namespace and class of resources where functions are in use.",
)
@click.option(
    "--pool-limit",
    type=click.IntRange(0, 1000),
    default=20,
    show_default=True,
    help="Warm pods altogether, at most.",
)
@click.option(
    "--max-body",
    type=click.IntRange(min=1),
    default=10_000_000,
    show_default=True,
    help="Bytes of an argument; more is answered with 413.",
)
@click.option(
    "--sync-wait-s",
    type=click.FloatRange(min=0.0),
    default=10.0,
    show_default=True,
    help="How long a caller waits for a result before it gets an id.",
)
@click.option(
    "--callback-local",
    is_flag=True,
    help="Callback URLs may lead to this machine's own loopback addresses.",
)
@click.option(
    "--legacy-listen",
    default="127.0.0.1",
    show_default=True,
    help="Address of the Minik8s document's URLs: plain HTTP, nobody is asked who they are.",
)
@click.option(
    "--legacy-port",
    type=click.IntRange(0, 65535),
    default=0,
    show_default=True,
    help="Their port (the document's is 8080); 0: they are not served.",
)
@component_options.leader_elect(
    "Make instances only while holding the lease motley-functions; routers always serve."
)
@component_options.health_port(10291)
@component_options.log_level
def command(
    kubeconfig: str | None,
    listen: str,
    port: int,
    url: str,
    tls_cert: Path | None,
    tls_key: Path | None,
    ca: Path | None,
    client_ca: Path | None,
    cache_dir: Path | None,
    image: str,
    pool_size: int,
    pool_limit: int,
    max_body: int,
    sync_wait_s: float,
    callback_local: bool,
    legacy_listen: str,
    legacy_port: int,
    leader_elect: bool,
    health_port: int,
    log_level: str,
) -> None:
    """Run functions on any Kubernetes cluster, in the foreground."""
    from motley.client import kubeconfig as kubeconfigs
    from motley.client.rest import Client
    from motley.serverless import service

    journal.configure(log_level)
    if bool(tls_cert) != bool(tls_key):
        raise click.UsageError("--tls-cert and --tls-key go together")
    scheme = "https" if tls_cert else "http"
    options = service.Options(
        listen=listen,
        port=port,
        url=(url or f"{scheme}://{listen}:{port}").rstrip("/"),
        tls_cert=tls_cert,
        tls_key=tls_key,
        ca=ca,
        client_ca=client_ca,
        cache_dir=cache_dir,
        image=image,
        pool_size=pool_size,
        pool_limit=pool_limit,
        max_body=max_body,
        sync_wait_s=sync_wait_s,
        callback_local=callback_local,
        legacy_listen=legacy_listen,
        legacy_port=legacy_port,
        leader_elect=leader_elect,
        health_port=health_port,
    )
    try:
        config = kubeconfigs.load(kubeconfig)
    except kubeconfigs.ConfigError as error:
        raise click.UsageError(str(error)) from error

    async def main() -> None:
        async with Client(config, user_agent="motley-functions") as client:
            await service.run(client, options)

    try:
        tasks.run(main())
    except ExceptionGroup as failures:
        known, other = failures.split((LostLeadership, OSError))
        if known is None or other is not None:
            raise
        first: BaseException = known
        while isinstance(first, ExceptionGroup):
            first = first.exceptions[0]
        raise click.ClickException(str(first)) from None
