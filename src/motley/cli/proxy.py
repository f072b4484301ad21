"""`motley proxy`: the service proxy and cluster DNS of one node."""

import ipaddress
import logging
import socket
from typing import Any

import click

from motley.cli import component_options, identity_options
from motley.lib import journal, tasks
from motley.network.peers import Mode


def _network(ctx: click.Context, param: click.Parameter, value: str) -> str:
    try:
        return str(ipaddress.IPv4Network(value))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _address(ctx: click.Context, param: click.Parameter, value: str) -> str:
    try:
        return str(ipaddress.IPv4Address(value))
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command("proxy")
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False),
    help="How to reach the API server.  [default: $KUBECONFIG, ~/.kube/config, in-cluster]",
)
@identity_options.client_options
@click.option("--node-name", help="Name of this node.  [default: the host name]")
@click.option("--table", default="motley", show_default=True, help="Name of the nftables table.")
@click.option("--bridge", default="motley0", show_default=True, help="Bridge of the pods.")
@click.option("--service-cidr", callback=_network, default="10.96.0.0/16", show_default=True)
@click.option("--cluster-cidr", callback=_network, default="10.244.0.0/16", show_default=True)
@click.option(
    "--pod-network",
    type=click.Choice([mode.value for mode in Mode]),
    default=Mode.NONE.value,
    show_default=True,
    help="How pods of other nodes are reached: plain routes, a VXLAN tunnel, or both as it fits.",
)
@click.option("--vxlan-id", type=click.IntRange(1, 2**24 - 1), default=77, show_default=True)
@click.option("--vxlan-port", type=click.IntRange(1, 65535), default=4789, show_default=True)
@click.option("--cluster-domain", default="cluster.local", show_default=True)
@click.option("--dns-address", callback=_address, default="10.96.0.10", show_default=True)
@click.option("--dns-port", type=click.IntRange(1, 65535), default=53, show_default=True)
@click.option(
    "--dns-upstream",
    "dns_upstreams",
    multiple=True,
    metavar="IP[:PORT]",
    help="Name server for other names, may be repeated; `none` for none.  "
    "[default: those of /etc/resolv.conf]",
)
@click.option("--no-dns", is_flag=True, help="Serve no cluster DNS.")
@click.option(
    "--localhost-nodeports/--no-localhost-nodeports",
    default=True,
    show_default=True,
    help="Let node ports be reached at 127.0.0.1.",
)
@click.option(
    "--network-policy/--no-network-policy",
    default=True,
    show_default=True,
    help="Enforce NetworkPolicies for this node's pods.",
)
@click.option(
    "--service-interface",
    default="",
    metavar="NAME",
    help="An interface to hold Services' addresses, such as minik8s-proxy0.  [default: none]",
)
@component_options.health_port(10256)
@component_options.log_level
def command(
    kubeconfig: str | None,
    node_name: str | None,
    table: str,
    bridge: str,
    service_cidr: str,
    cluster_cidr: str,
    pod_network: str,
    vxlan_id: int,
    vxlan_port: int,
    cluster_domain: str,
    dns_address: str,
    dns_port: int,
    dns_upstreams: tuple[str, ...],
    no_dns: bool,
    localhost_nodeports: bool,
    network_policy: bool,
    service_interface: str,
    health_port: int,
    log_level: str,
    **identity: Any,
) -> None:
    """Run the service proxy and cluster DNS in the foreground.

    Services become rules of one nftables table; names of the cluster are answered on the DNS
    address. When this process stops, the rules stay and traffic goes on.
    """
    import asyncio

    from motley.client.rest import Client
    from motley.network import podroutes
    from motley.network.dns import forward
    from motley.network.proxy import service
    from motley.node.csr import BootstrapError

    try:
        identities = identity_options.Identities(kubeconfig, identity)
        upstreams = (
            None
            if not dns_upstreams
            else [forward.parse_upstream(text) for text in dns_upstreams if text != "none"]
        )
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    if not table.isidentifier():
        raise click.BadParameter(f"{table!r} is not a table name", param_hint="--table")
    if not len(service_interface) < 16 or "/" in service_interface:  # IFNAMSIZ
        text = f"{service_interface!r} is not an interface name"
        raise click.BadParameter(text, param_hint="--service-interface")
    options = service.Options(
        node_name=node_name or socket.gethostname(),
        table=table,
        bridge=bridge,
        service_cidr=service_cidr,
        cluster_cidr=cluster_cidr,
        cluster_domain=cluster_domain.strip("."),
        dns=not no_dns,
        dns_address=dns_address,
        dns_port=dns_port,
        dns_upstreams=upstreams,
        localhost_node_ports=localhost_nodeports,
        network_policy=network_policy,
        service_interface=service_interface,
        health_port=health_port,
    )
    routes = podroutes.Options(
        node_name=options.node_name,
        mode=Mode(pod_network),
        cluster_cidr=cluster_cidr,
        bridge=bridge,
        vxlan_id=vxlan_id,
        vxlan_port=vxlan_port,
    )
    journal.configure(log_level)
    logging.getLogger("pyroute2").setLevel(logging.WARNING)  # its debug is every netlink message

    refusals: list[str] = []

    async def main() -> None:
        try:
            config = await identities.proxy()
        except BootstrapError as error:
            refusals.append(str(error))
            return
        async with (
            Client(config, user_agent="motley-proxy") as client,
            identities.kept(client),
            asyncio.TaskGroup() as group,
        ):
            group.create_task(podroutes.run(client, routes), name="pod routes")
            group.create_task(service.run(client, options), name="services")

    tasks.run(main())
    if refusals:
        raise click.ClickException(refusals[0])
