"""`motley up`: start a cluster on this machine and wait until it is ready."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from motley.cli import cluster
from motley.network.peers import Mode
from motley.ops import config as configs
from motley.ops.config import Config
from motley.ops.failure import Failure
from motley.ops.nodes import up
from motley.ops.progress import Progress

_DEFAULTS = Config()
F = TypeVar("F", bound=Callable[..., Any])


def _option(name: str, field: str, kind: Any, text: str) -> Callable[[F], F]:
    default = getattr(_DEFAULTS, field)
    shown = f"  [default: {default}]" if default else ""
    return click.option(f"--{name}", field, type=kind, default=None, help=text + shown)


@click.command("up")
@cluster.root_option
@_option("node-name", "node_name", str, "The node's name; the host's name unless given.")
@_option("node-ip", "node_ip", str, "The node's address; found unless given.")
@_option("port", "api_port", click.IntRange(1, 65535), "Port of the API server.")
@_option("port-base", "port_base", click.IntRange(1024, 65000), "Base of the components' ports.")
@_option("pod-cidr", "pod_cidr", str, "Addresses of pods.")
@_option("service-cidr", "service_cidr", str, "Addresses of Services.")
@_option("cluster-dns", "cluster_dns", str, "Address of cluster DNS.")
@_option("cluster-domain", "cluster_domain", str, "Domain of cluster DNS.")
@_option("bridge", "bridge", str, "Name of the pod network's bridge.")
@_option("table", "table", str, "Name of the nftables table of Services.")
@_option("nodes", "nodes", click.IntRange(1), "Several nodes on this machine, in namespaces.")
@_option("underlay", "underlay", str, "Addresses of several nodes on this machine.")
@_option(
    "pod-network",
    "pod_network",
    click.Choice([mode.value for mode in Mode]),
    "How nodes reach each other's pods.",
)
@_option("compat", "compat", click.Choice(["minik8s"]), "Also read another system's spellings.")
@click.option(
    "--host-ports/--no-host-ports",
    default=None,
    help="Serve paths also at ports 80 and 443 of this machine.",
)
@click.option(
    "--hosts/--no-hosts",
    default=None,
    help="Keep the names of paths in this machine's /etc/hosts.",
)
@_option("log-level", "log_level", str, "Log level of the components.")
@click.option(
    "--image-cache",
    type=click.Path(file_okay=False, resolve_path=True),
    envvar="MOTLEY_IMAGE_CACHE",
    help="Where image archives are kept; ROOT/images unless given.",
)
@click.option("--restart", is_flag=True, help="Replace running components; pods keep running.")
def command(root: Path, restart: bool, **options: Any) -> None:
    """Start a cluster on this machine and wait until it is ready.

    Options are remembered: a later `motley up` with the same --root needs none of them. When the
    cluster is up already, nothing happens.
    """
    progress = Progress()
    try:
        cluster.find(root)
        config = configs.resolve(root, options)
        asyncio.run(up(config, progress, restart=restart))
    except Failure as failure:
        progress.blame(failure)
        raise SystemExit(1) from None
    click.echo(f"\nThe cluster is up: https://{config.node_ip}:{config.api_port}")
    click.echo(f"  export KUBECONFIG={config.admin_kubeconfig}")
