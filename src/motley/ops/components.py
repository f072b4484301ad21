"""The processes of a cluster: how each is started, what it needs, how it says that it is ready."""

from collections.abc import Mapping
from pathlib import Path

from motley import __version__
from motley.ops import containerd, spawning
from motley.ops.certificates import Credentials
from motley.ops.config import Config
from motley.ops.supervision import Spec

CONTAINERD = "containerd"
APISERVER = "apiserver"
NODE = "node"
PROXY = "proxy"
GATEWAY = "gateway"
HOSTS_FILE = Path("/etc/hosts")
# A person's disk is often nine tenths full: shares of it, the agent's default, would make that a
# broken cluster.
_WORKSTATION = (
    "memory.available<100Mi,nodefs.available<300Mi,nodefs.inodesFree<1%,imagefs.available<300Mi"
)
# One of each per cluster: after a crash nobody should wait for the lease of the dead one.
_ALONE = ("--no-leader-elect",)
SCHEDULER = Path(__file__).with_name("scheduler.yaml")
_METRICS_EVERY_S = 15  # metrics-server's --metric-resolution


def layout(config: Config) -> containerd.Layout:
    """Where the cluster's containerd keeps its files."""
    return containerd.Layout(config.root / "containerd", config.root / "cni")


def specs(config: Config, credentials: Credentials) -> list[Spec]:
    """Every component, in the order they come up."""
    return [
        runtime(config),
        _motley(
            APISERVER,
            {
                "data-dir": config.root / "apiserver",
                "bind": "0.0.0.0",
                "port": config.api_port,
                "service-cluster-ip-range": config.service_cidr,
                "advertise-address": config.node_ip,
                "metrics-every-s": _METRICS_EVERY_S,
                **({"compat": config.compat} if config.compat else {}),
            },
            config,
            probe=f"https://127.0.0.1:{config.api_port}/readyz",
        ),
        _motley(
            "controllers",
            {
                "kubeconfig": credentials.kubeconfig("controllers"),
                "pod-cidr": config.pod_cidr,
                "cluster-signing-cert-file": credentials.ca,
                "cluster-signing-key-file": credentials.ca.with_suffix(".key"),
                "health-port": config.controllers_health_port,
            },
            config,
            flags=_ALONE,
            probe=_health(config.controllers_health_port),
            after=(APISERVER,),
        ),
        _motley(
            "scheduler",
            {
                "kubeconfig": credentials.kubeconfig("scheduler"),
                "health-port": config.scheduler_health_port,
                # The profile for Minik8s stays with PrioritySort, and all share one queueSort.
                **({"compat": config.compat} if config.compat else {"config": SCHEDULER}),
            },
            config,
            flags=_ALONE,
            probe=_health(config.scheduler_health_port),
            after=(APISERVER,),
        ),
        node(config, _certified(credentials), after=(CONTAINERD, APISERVER)),
        proxy(config, {"kubeconfig": credentials.kubeconfig(PROXY)}, after=(APISERVER,)),
        gateway(config, credentials),
    ]


def member(config: Config, credentials: Credentials) -> list[Spec]:
    """The components of a further node on this machine, with credentials made for it here."""
    return [
        runtime(config),
        node(config, _certified(credentials), after=(CONTAINERD,)),
        proxy(config, {"kubeconfig": credentials.kubeconfig(PROXY)}, after=()),
    ]


def _certified(credentials: Credentials) -> dict[str, object]:
    return {
        "kubeconfig": credentials.kubeconfig(NODE),
        "client-ca": credentials.ca,
        "tls-cert": credentials.node_cert,
        "tls-key": credentials.node_key,
    }


def joined(config: Config) -> list[Spec]:
    """The components of a machine that has joined a cluster: it has no control plane.

    Their certificates come from the cluster. The proxy's is asked for with the node's, so that the
    token is used once, by the agent.
    """
    pki = config.root / "pki"
    identity = {
        "bootstrap-kubeconfig": pki / "bootstrap.kubeconfig",
        "kubeconfig": pki / f"{NODE}.kubeconfig",
        "cert-dir": pki,
    }
    flags = ("--rotate-server-certificates",)
    labels = {"node-labels": config.node_labels} if config.node_labels else {}
    vouched = {
        "bootstrap-kubeconfig": pki / f"{NODE}.kubeconfig",
        "kubeconfig": pki / f"{PROXY}.kubeconfig",
    }
    return [
        runtime(config),
        node(config, {**identity, **labels}, after=(CONTAINERD,), flags=flags),
        proxy(config, vouched, after=(NODE,)),
    ]


def node(
    config: Config,
    identity: Mapping[str, object],
    *,
    after: tuple[str, ...],
    flags: tuple[str, ...] = (),
) -> Spec:
    """The node agent, with the options by which it proves who it is."""
    return _motley(
        NODE,
        {
            **identity,
            "name": config.node_name,
            "runtime-endpoint": f"unix://{layout(config).socket}",
            "root": config.root / "node",
            "node-ip": config.node_ip,
            "port": config.node_port,
            "cluster-dns": config.cluster_dns,
            "cluster-domain": config.cluster_domain,
            "cluster-cidr": config.pod_cidr,
            "service-cidr": config.service_cidr,
            "cni-conf-dir": layout(config).cni_conf_dir,
            "pod-network": config.pod_network,
            "bridge": config.bridge,
            "cgroup-root": config.cgroup_root,
            "health-port": config.node_health_port,
            "eviction-hard": _WORKSTATION,
            "image-gc-high-threshold": 100,
        },
        config,
        probe=_health(config.node_health_port),
        after=after,
        flags=flags,
    )


def proxy(config: Config, identity: Mapping[str, object], *, after: tuple[str, ...]) -> Spec:
    """The service proxy, with the options by which it proves who it is."""
    return _motley(
        PROXY,
        {
            **identity,
            "node-name": config.node_name,
            "table": config.table,
            "bridge": config.bridge,
            "dns-address": config.cluster_dns,
            "service-cidr": config.service_cidr,
            "cluster-cidr": config.pod_cidr,
            "pod-network": config.pod_network,
            "cluster-domain": config.cluster_domain,
            "health-port": config.proxy_health_port,
        },
        config,
        probe=_health(config.proxy_health_port),
        after=after,
    )


def gateway(config: Config, credentials: Credentials) -> Spec:
    """The paths of Routes and Ingresses; its nginx comes and goes with them."""
    return _motley(
        GATEWAY,
        {
            "kubeconfig": credentials.kubeconfig(GATEWAY),
            "node-name": config.node_name,
            "directory": config.gateway,
            "address": config.node_ip,
            "http-port": config.gateway_http_port,
            "https-port": config.gateway_https_port,
            "service-cidr": config.service_cidr,
            "cluster-cidr": config.pod_cidr,
            "cluster-domain": config.cluster_domain,
            "bridge": config.bridge,
            "health-port": config.gateway_health_port,
            **({"hosts-file": HOSTS_FILE} if config.hosts else {}),
        },
        config,
        flags=(*_ALONE, *(("--host-ports",) if config.host_ports else ())),
        probe=_health(config.gateway_health_port),
        after=(APISERVER,),
    )


def runtime(config: Config) -> Spec:
    """containerd alone: first to come, last to go."""
    files = layout(config)
    return Spec(
        name=CONTAINERD,
        command=("containerd", "--config", str(files.config)),
        probe=f"unix:{files.socket}",
    )


def _health(port: int) -> str:
    return f"http://127.0.0.1:{port}/healthz"


def _motley(
    name: str,
    options: dict[str, object],
    config: Config,
    *,
    probe: str,
    after: tuple[str, ...] = (),
    flags: tuple[str, ...] = (),
) -> Spec:
    given = [*(f"--{option}={value}" for option, value in options.items()), *flags]
    command = spawning.motley(name, *given, f"--log-level={config.log_level}")
    return Spec(name=name, command=command, probe=probe, after=after, version=__version__)
