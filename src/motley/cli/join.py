"""`motley join`: make this machine a node of a cluster that runs elsewhere."""

import asyncio
import os
from pathlib import Path
from typing import Any

import click

from motley.cli import cluster, minik8s_environment
from motley.ops.failure import Failure
from motley.ops.progress import Progress


@click.command("join")
@click.argument("server", required=False, default="", metavar="[https://HOST:PORT]")
@cluster.root_option
@click.option("--token", default="", help="From `motley token create`.", envvar="MOTLEY_JOIN_TOKEN")
@click.option(
    "--ca-hash",
    "ca_hashes",
    multiple=True,
    metavar="sha256:HEX",
    help="Hash of the public key of the cluster's authority, may be repeated.",
)
@click.option("--node-name", default=None, help="The node's name; the host's name unless given.")
@click.option(
    "--node-ip",
    default=None,
    help="The node's address; unless given, that by which the control plane sees this machine.",
)
@click.option("--labels", "node_labels", default=None, help="Labels of the node: k=v,….")
@click.option(
    "--compat",
    type=click.Choice(["minik8s"]),
    help="Read $API_SERVER, $PORT and $NODE_CONFIG where options say nothing.",
)
@click.option("--port-base", type=click.IntRange(1024, 65000), default=None)
@click.option("--bridge", default=None, help="Name of the pod network's bridge.")
@click.option("--table", default=None, help="Name of the nftables table of Services.")
@click.option("--log-level", default=None, help="Log level of the components.")
@click.option(
    "--image-cache",
    type=click.Path(file_okay=False, resolve_path=True),
    envvar="MOTLEY_IMAGE_CACHE",
    help="Where image archives are kept; ROOT/images unless given.",
)
@click.option("--restart", is_flag=True, help="Replace running components; pods keep running.")
@click.option("--dry-run", is_flag=True, help="Check everything and say what would be done.")
def command(
    server: str,
    root: Path,
    token: str,
    ca_hashes: tuple[str, ...],
    compat: str | None,
    restart: bool,
    dry_run: bool,
    **options: Any,
) -> None:
    """Make this machine a node of a cluster that runs elsewhere.

    The whole command is printed by `motley token create --print-join-command` on the control
    plane. On a machine that has joined, `motley join` alone starts what does not run.
    """
    from motley.ops import joining

    progress = Progress()
    asked: joining.Invitation | None = None
    found: joining.Discovered | None = None
    try:
        if compat:
            server = minik8s_environment.for_join(server, options, os.environ)
        if options["node_labels"]:
            joining.check_labels(options["node_labels"])
        before = cluster.find(root)
        if server:
            asked = joining.invitation(server, token, ca_hashes)
            joining.refuse_other(before, asked.server)
            with progress.step(f"cluster at {asked.server}"):
                found = asyncio.run(joining.discover(asked))
            config = joining.resolve(root, asked.server, found.settings, options)
        elif before is None:
            raise Failure(
                f"nothing has joined a cluster in {root}",
                "On the control plane: motley token create --print-join-command",
            )
        else:
            joining.refuse_other(before)
            config = joining.resolve(root, before.server, None, options)
        if dry_run:
            click.echo(joining.plan(config))
            return
        asyncio.run(joining.join(config, asked, found, progress, restart=restart))
    except Failure as failure:
        progress.blame(failure)
        raise SystemExit(1) from None
    click.echo(f"\n{config.node_name} is a node of the cluster at {config.server}.")
    click.echo("  On the control plane:   kubectl get nodes")
    click.echo(f"  Here, to undo it:       motley leave --drain --root {config.root}")
