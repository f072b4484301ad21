"""`motley dashboard`: the cluster in a browser, served from here or by pods of its own.

Alone it serves on loopback with the rights of a kubeconfig's user, of any Kubernetes cluster; the
subcommands put the dashboard into the cluster of this machine, where everybody brings a token.
"""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from motley.cli import cluster, printers
from motley.lib import durations
from motley.ops import config as configs

if TYPE_CHECKING:
    from motley.client.rest import Client
    from motley.ops.config import Config

T = TypeVar("T")
SERVICE_TYPES = ("NodePort", "LoadBalancer", "ClusterIP")
_SHORTEST_S = 600.0  # Kubernetes refuses tokens for less


@click.group("dashboard", invoke_without_command=True)
@click.option(
    "--kubeconfig",
    "path",
    type=click.Path(path_type=Path),
    help="By default $KUBECONFIG or ~/.kube/config.",
)
@click.option("--context", "context_", help="One of its contexts.  [default: the current one]")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8443, show_default=True, help="0: any."
)
@click.pass_context
def command(ctx: click.Context, path: Path | None, context_: str | None, port: int) -> None:
    """See the cluster in a browser: nodes, pods, what they use, events, logs.

    Without a subcommand it is served here, on loopback alone, with the rights of the kubeconfig's
    user and for as long as the command runs; the address that is printed has a key, without which
    nothing is shown. That works with every Kubernetes cluster.

    \b
      motley dashboard            here, for me
      motley dashboard install    in the cluster, for everybody with a token
      motley dashboard token      a token to log in there: to look, not at Secrets
      kubectl create token NAME   one of somebody with other rights
      motley dashboard remove     out of the cluster

    In the cluster it has no rights of its own: each user sees what RBAC lets their token see.
    """
    if ctx.invoked_subcommand is not None:
        return
    _serve(path, context_, port)


def _serve(path: Path | None, context_: str | None, port: int) -> None:
    from motley.client import kubeconfig
    from motley.client.execplugin import PluginError
    from motley.dashboard import local

    try:
        server = local.server(kubeconfig.load(path, context_), port)
    except kubeconfig.ConfigError as error:
        advice = "For the cluster on this machine: export KUBECONFIG=$(motley kubeconfig --path)"
        raise printers.fail(str(error), advice) from None
    except PluginError as error:
        raise printers.fail(str(error)) from None
    except OSError as error:
        raise printers.fail(f"port {port}: {error}", "Choose another: --port 0") from None
    click.echo(local.opening(server))
    click.echo("Open it in a browser of this machine; Ctrl-C ends it.", err=True)
    server.serve_until_told()


def _as_administrator(root: Path, work: "Callable[[Client, Config], Awaitable[T]]") -> T:
    return cluster.as_administrator(
        root, work, "The dashboard is installed where the control plane is."
    )


@command.command("install")
@click.option(
    "--service-type",
    type=click.Choice(SERVICE_TYPES),
    help="How it is reached: on a port of every node, by an address some load balancer gives, or "
    "from inside alone.  [default: what it is, at first NodePort]",
)
@click.option(
    "--node-port",
    type=click.IntRange(1, 65535),
    help="That port.  [default: what it is, at first any of 30000-32767]",
)
@click.option(
    "--name",
    "names",
    multiple=True,
    help="A name or address people use for it, for the certificate; may be given several times.",
)
@click.option("-o", "--output", type=click.Choice(printers.FORMATS), default="table")
@cluster.root_option
def install_command(
    root: Path, service_type: str | None, node_port: int | None, names: tuple[str, ...], output: str
) -> None:
    """Run the dashboard in the cluster, as a pod, and wait until it answers.

    Makes its image where that is missing and gives it to this machine's nodes, applies
    deploy/dashboard, and has the cluster's authority sign its certificate. Doing it again brings
    all of this up to date: after an upgrade, with a new node, before the certificate ends.

    \b
      motley dashboard install --node-port 30443 --name dashboard.example.com
    """
    from motley.ops import dashboard
    from motley.ops.progress import Progress

    is_for_people = output in ("table", "wide")
    progress = Progress(sys.stdout if is_for_people else sys.stderr)
    wish = dashboard.Wish(service_type, node_port or 0, names)

    async def work(client: "Client", config: "Config") -> dashboard.Installed:
        return await dashboard.install(config, client, wish, progress)

    found = _as_administrator(root, work)
    if not is_for_people:
        click.echo(printers.document(found, output))
        return
    shown = found.addresses if output == "wide" else found.addresses[:1]
    click.echo("\n" + "\n".join(f"The dashboard is at {address}" for address in shown))
    click.echo(f"Its certificate is signed by {found.certificate_authority}")
    elsewhere = "" if root == configs.DEFAULT_ROOT else f" --root {root}"
    click.echo(f"Log in with a token:  motley dashboard token{elsewhere}")


@command.command("remove")
@cluster.root_option
def remove_command(root: Path) -> None:
    """Take the dashboard out of the cluster, with everything that `install` made."""
    from motley.ops import dashboard
    from motley.ops.progress import Progress

    async def work(client: "Client", config: "Config") -> None:
        await dashboard.remove(config, client, Progress())

    _as_administrator(root, work)


def _duration(ctx: click.Context, param: click.Parameter, value: str) -> float:
    try:
        seconds = durations.seconds(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if seconds < _SHORTEST_S:
        raise click.BadParameter("10m is the shortest there is")
    return seconds


@command.command("token")
@click.option(
    "--duration",
    "duration_s",
    callback=_duration,
    default="1h",
    show_default=True,
    help="How long it is good, such as 30m or 8h.",
)
@click.option("-o", "--output", type=click.Choice(printers.FORMATS), default="table")
@cluster.root_option
def token_command(root: Path, duration_s: float, output: str) -> None:
    """Print a token for the dashboard's login page, and nothing else.

    It is one of the service account `viewer`, which may look at nearly everything, but neither at
    Secrets nor at who may do what, and change nothing.

    \b
      motley dashboard token --duration 8h | xclip
    """
    from motley.ops import dashboard

    made, ends = _as_administrator(root, lambda client, _: dashboard.token(client, duration_s))
    if output in ("json", "yaml"):
        click.echo(printers.document({"token": made, "expires": ends}, output))
    else:
        click.echo(made)
