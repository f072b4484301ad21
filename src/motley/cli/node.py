"""`motley node`: the agent of one machine."""

import ipaddress
import socket
from pathlib import Path
from typing import Any

import click

from motley.cli import component_options, emulation_options, identity_options
from motley.cli.eviction_options import eviction_options, image_limits, policy
from motley.cli.pod_options import chosen, pod_options
from motley.lib import journal, tasks
from motley.network.peers import Mode, pod_mtu


def _pairs(ctx: click.Context, param: click.Parameter, value: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for item in filter(None, value.split(",")):
        key, equals, text = item.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{item!r} is not of the form key=value")
        pairs[key.strip()] = text.strip()
    return pairs


def _reserved(ctx: click.Context, param: click.Parameter, value: str) -> dict[str, str]:
    from motley.api import quantity

    pairs = _pairs(ctx, param, value)
    for name, amount in pairs.items():
        if name not in ("cpu", "memory", "ephemeral-storage"):
            raise click.BadParameter(f"{name!r} cannot be reserved")
        try:
            quantity.parse(amount)
        except ValueError as error:
            raise click.BadParameter(f"{name}={amount}: {error}") from error
    return pairs


def _taints(
    ctx: click.Context, param: click.Parameter, value: tuple[str, ...]
) -> tuple[dict[str, str], ...]:
    found = []
    for text in value:
        head, _, effect = text.rpartition(":")
        key, _, word = head.partition("=")
        if not key or effect not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
            raise click.BadParameter(f"{text!r} is not of the form key[=value]:effect")
        found.append({"key": key, "value": word, "effect": effect})
    return tuple(found)


def _own_address() -> str:
    """The address this machine would use to reach others; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


@click.command("node")
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False),
    help="How to reach the API server.  [default: $KUBECONFIG, ~/.kube/config, in-cluster]",
)
@identity_options.node_options
@click.option("--name", help="Name of this node.  [default: the host name]")
@click.option("--node-ip", help="Address of this node.  [default: that of the default route]")
@click.option(
    "--runtime-endpoint",
    default="unix:///run/containerd/containerd.sock",
    show_default=True,
    help="CRI socket of the container runtime.",
)
@click.option(
    "--root",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("/var/lib/motley/node"),
    show_default=True,
    help="Where pods' volumes and logs are kept.",
)
@click.option("--port", type=click.IntRange(1, 65535), default=10250, show_default=True)
@click.option("--bind", default="0.0.0.0", show_default=True, help="Address to listen on.")
@click.option("--client-ca", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--tls-cert", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--tls-key", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--cluster-dns", default="10.96.0.10", show_default=True)
@click.option("--cluster-domain", default="cluster.local", show_default=True)
@click.option(
    "--cni-conf-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("/etc/cni/net.d"),
    show_default=True,
    help="Where the runtime looks for the pod network's configuration.",
)
@click.option("--bridge", default="motley0", show_default=True, help="Bridge of the pods.")
@click.option("--service-cidr", default="10.96.0.0/16", show_default=True)
@click.option("--cluster-cidr", default="10.244.0.0/16", show_default=True)
@click.option("--mtu", type=click.IntRange(576, 65535), help="MTU of the pod network.")
@click.option(
    "--pod-network",
    type=click.Choice([mode.value for mode in Mode]),
    default=Mode.NONE.value,
    show_default=True,
    help="How the proxy reaches other nodes' pods; the MTU leaves room for a tunnel.",
)
@click.option("--max-pods", type=click.IntRange(1), default=110, show_default=True)
@click.option(
    "--system-reserved",
    callback=_reserved,
    default="cpu=100m,memory=256Mi",
    show_default=True,
    help="What pods may not have.",
)
@click.option(
    "--pod-manifest-path",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of static pods.  [default: static below --root]",
)
@click.option(
    "--cpu-manager-policy",
    type=click.Choice(["none", "static"]),
    default="none",
    show_default=True,
    help="static: Guaranteed containers with whole CPUs get them for themselves.",
)
@click.option("--reserved-cpus", default="", help="CPUs never given away, such as 0-1.")
@click.option("--cgroup-root", default="motley", show_default=True, help="Control group of pods.")
@click.option("--node-labels", callback=_pairs, default="", help="Labels to add: k=v,….")
@click.option(
    "--measure-speed",
    is_flag=True,
    help="Measure how fast a core is, and say so in the annotation motley.io/measured-speed.",
)
@click.option(
    "--register-with-taint",
    "taints",
    multiple=True,
    callback=_taints,
    metavar="KEY[=VALUE]:EFFECT",
    help="Taint for a new node, may be repeated.",
)
@component_options.health_port(10248)
@component_options.log_level
@emulation_options.options
@pod_options
@eviction_options
def command(
    kubeconfig: str | None,
    name: str | None,
    node_ip: str | None,
    runtime_endpoint: str,
    root: Path,
    port: int,
    bind: str,
    client_ca: Path | None,
    tls_cert: Path | None,
    tls_key: Path | None,
    cluster_dns: str,
    cluster_domain: str,
    cni_conf_dir: Path,
    bridge: str,
    service_cidr: str,
    cluster_cidr: str,
    mtu: int | None,
    pod_network: str,
    max_pods: int,
    system_reserved: dict[str, str],
    pod_manifest_path: Path | None,
    cpu_manager_policy: str,
    reserved_cpus: str,
    cgroup_root: str,
    node_labels: dict[str, str],
    taints: tuple[dict[str, str], ...],
    health_port: int,
    log_level: str,
    **eviction: Any,
) -> None:
    """Run the node agent in the foreground.

    Pods bound to this node become containers of the runtime. When this process stops they go on;
    when it starts again it finds them. Without --client-ca, --tls-cert and --tls-key, or
    --rotate-server-certificates, the agent serves no logs and no exec.
    """
    import asyncio

    from motley.client.rest import Client
    from motley.lib import health
    from motley.network import podnet, podroutes
    from motley.node import cpus
    from motley.node.access import tls_context
    from motley.node.agent import Agent
    from motley.node.context import Settings
    from motley.node.cri.runtime import Runtime
    from motley.node.csr import BootstrapError
    from motley.node.registration import RefusedError

    try:
        identities = identity_options.Identities(kubeconfig, eviction)
        address = str(ipaddress.ip_address(node_ip or _own_address()))
        servers = tuple(str(ipaddress.ip_address(s)) for s in cluster_dns.split(",") if s)
        containers = emulation_options.runtime(runtime_endpoint, root.absolute(), eviction)
    except (ValueError, OSError) as error:
        raise click.UsageError(str(error)) from error
    tls = None
    if client_ca and tls_cert and tls_key:
        tls = tls_context(tls_cert, tls_key, client_ca)
    elif client_ca or tls_cert or tls_key:
        raise click.UsageError("--client-ca, --tls-cert and --tls-key go together")
    if tls is not None and identities.serves:
        raise click.UsageError("--rotate-server-certificates goes without --tls-cert")
    settings = Settings(
        name=(name or socket.gethostname()).lower(),
        node_ip=address,
        root=root.absolute(),
        cluster_dns=servers,
        cluster_domain=cluster_domain.strip("."),
        cgroup_root=cgroup_root,
        max_pods=max_pods,
        system_reserved=system_reserved,
        node_labels=node_labels,
        node_annotations=emulation_options.annotations(eviction),
        architecture=eviction["architecture"],
        register_taints=taints,
        port=port,
        static_pods=pod_manifest_path.absolute() if pod_manifest_path else None,
        cpu_manager_policy=cpu_manager_policy,
        reserved_cpus=reserved_cpus,
        eviction=policy(eviction),
        image_limits=image_limits(eviction),
        **chosen(eviction),
    )
    if cpu_manager_policy == "static":
        try:
            cpus.reserved(reserved_cpus, system_reserved, cpus.topology())
        except ValueError as error:
            raise click.UsageError(str(error)) from error
    journal.configure(log_level)

    async def setup_network(pod_cidr: str) -> None:
        underlay = await podroutes.find_underlay(address, bridge)
        await podnet.ensure(
            pod_cidr=pod_cidr,
            bridge=bridge,
            service_cidr=service_cidr,
            dns_address=servers[0] if servers else "",
            cni_conf_dir=cni_conf_dir,
            cluster_cidr=cluster_cidr,
            mtu=mtu or pod_mtu(Mode(pod_network), underlay),
        )

    refusals: list[str] = []
    running: list[Agent] = []

    async def live(runtime: Runtime) -> None:
        config = await identities.node(settings.name)
        serving = tls
        if identities.serves:
            directory = eviction["cert_dir"] or settings.root / "pki"
            serving = identities.serving(settings.name, [address], directory, config.ca or b"")
        async with (
            Client(config, user_agent="motley-node") as client,
            identities.kept(client),
        ):
            agent = Agent(
                settings, client, runtime, setup_network=setup_network, tls=serving, bind=bind
            )
            running.append(agent)
            try:
                await agent.run()
            except RefusedError as error:
                refusals.append(str(error))

    async def main() -> None:
        runtime = containers()
        try:
            async with asyncio.TaskGroup() as group:
                # From the first moment: waiting for a certificate is not being dead.
                health_task = group.create_task(
                    health.serve(health_port, lambda: bool(running) and running[0].is_ready)
                )
                try:
                    await live(runtime)
                except BootstrapError as error:
                    refusals.append(str(error))
                health_task.cancel()
        finally:
            await runtime.close()

    tasks.run(main())
    if refusals:
        raise click.ClickException(refusals[0])
