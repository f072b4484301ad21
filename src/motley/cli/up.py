"""`motley up`: start a cluster on this machine and wait until it is ready."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from motley.cli import cluster, minik8s_environment
from motley.network.peers import Mode
from motley.ops import config as configs
from motley.ops import storechoice
from motley.ops.config import Config
from motley.ops.failure import Failure
from motley.ops.nodes import up
from motley.ops.progress import Progress

_DEFAULTS = Config()
_FILE = click.Path(exists=True, dir_okay=False, resolve_path=True)
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
@_option("service-interface", "service_interface", str, "An interface to hold Services' addresses.")
@_option("table", "table", str, "Name of the nftables table of Services.")
@_option("nodes", "nodes", click.IntRange(1), "Several nodes on this machine, in namespaces.")
@_option("arch", "arch", str, "[NODE=]ARCH,…: emulate it there; the last node unless named.")
@_option(
    "store", "store", click.Choice(storechoice.KINDS), "Where objects are kept.  [default: sqlite]"
)
@_option("etcd-servers", "etcd_servers", str, "URLs, with commas, of an etcd that exists.")
@_option("etcd-cafile", "etcd_cafile", _FILE, "The authority of that etcd.")
@_option("etcd-certfile", "etcd_certfile", _FILE, "Our certificate for that etcd.")
@_option("etcd-keyfile", "etcd_keyfile", _FILE, "Its key.")
@_option("etcd-prefix", "etcd_prefix", str, "Before every key in etcd.")
@_option(
    "control-planes",
    "control_planes",
    click.IntRange(1),
    "API servers, controllers and schedulers (and etcds, unless one exists) on this machine.",
)
@_option("servers", "servers", str, "Every API server, with commas, of control planes elsewhere.")
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
@click.option(
    "--functions/--no-functions", default=None, help="Run functions.  [default: --functions]"
)
@click.option(
    "--slurm/--no-slurm", default=None, help="Run jobs on Slurm clusters.  [default: --slurm]"
)
@click.option(
    "--registries",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True),
    help="A YAML file of registries with plain HTTP, an authority of their own, or a mirror.",
)
@_option(
    "controllers",
    "controllers",
    str,
    "Which controllers run: with commas, -NAME for all but this one.",
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
        if options["compat"]:
            minik8s_environment.for_up(options, os.environ)
        config = configs.resolve(root, options)
        asyncio.run(up(config, progress, restart=restart))
    except Failure as failure:
        progress.blame(failure)
        raise SystemExit(1) from None
    click.echo(f"\nThe cluster is up: https://{config.node_ip}:{config.api_port}")
    click.echo(f"  export KUBECONFIG={config.admin_kubeconfig}")
    root_option = "" if root == configs.DEFAULT_ROOT else f" --root {root}"
    click.echo("Try it:")
    click.echo(f"  kubectl get nodes        or: motley demo{root_option}")
