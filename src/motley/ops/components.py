"""The processes of a cluster: how each is started, what it needs, how it says that it is ready."""

from collections.abc import Mapping
from pathlib import Path

from motley import __version__
from motley.ops import containerd, etcdmembers, spawning
from motley.ops.certificates import Credentials
from motley.ops.config import MINIK8S_PORT, Config
from motley.ops.planes import Plane
from motley.ops.supervision import Spec

CONTAINERD = "containerd"
APISERVER = "apiserver"
NODE = "node"
PROXY = "proxy"
GATEWAY = "gateway"
FUNCTIONS = "functions"
SLURM = "slurm"
EMULATED_LABEL = "motley.io/emulated=true"
HOSTS_FILE = Path("/etc/hosts")
# A person's disk is often nine tenths full: shares of it, the agent's default, would make that a
# broken cluster.
_WORKSTATION = (
    "memory.available<100Mi,nodefs.available<300Mi,nodefs.inodesFree<1%,imagefs.available<300Mi"
)
# Where there is one of each: after a crash nobody should wait for the lease of the dead one.
_ALONE = ("--no-leader-elect",)
SCHEDULER = Path(__file__).with_name("scheduler.yaml")
_METRICS_EVERY_S = 10  # the finest step of the usage history


def layout(config: Config) -> containerd.Layout:
    """Where the cluster's containerd keeps its files."""
    return containerd.Layout(config.root / "containerd", config.root / "cni")


def specs(config: Config, credentials: Credentials) -> list[Spec]:
    """Every component, in the order they come up."""
    return [
        runtime(config),
        *etcdmembers.specs(config),
        *(one for plane in config.planes for one in _control_plane(config, credentials, plane)),
        node(config, _certified(credentials), after=(CONTAINERD, APISERVER)),
        proxy(config, {"kubeconfig": credentials.kubeconfig(PROXY)}, after=(APISERVER,)),
        gateway(config, credentials),
        *([functions(config, credentials)] if config.functions else []),
        *([slurm(config, credentials)] if config.slurm else []),
    ]


def _control_plane(config: Config, credentials: Credentials, plane: Plane) -> list[Spec]:
    """An API server, controllers and a scheduler; of several, one of each kind leads."""
    server = plane.name(APISERVER)
    alone = () if config.is_shared else _ALONE
    store = etcdmembers.access(config)
    return [
        _motley(
            APISERVER,
            {
                "data-dir": config.root / server,
                "bind": "0.0.0.0",
                "port": plane.api_port,
                "service-cluster-ip-range": config.service_cidr,
                "advertise-address": config.node_ip,
                "metrics-every-s": _METRICS_EVERY_S,
                **({"compat": config.compat} if config.compat else {}),
                **({"servers": ",".join(config.api_servers())} if config.is_shared else {}),
                **(store.options(plane) if store is not None else {}),
            },
            config,
            name=server,
            probe=f"https://127.0.0.1:{plane.api_port}/readyz",
            after=(plane.name(etcdmembers.ETCD),) if config.has_own_etcd else (),
        ),
        _motley(
            "controllers",
            {
                "kubeconfig": credentials.kubeconfig("controllers"),
                "pod-cidr": config.pod_cidr,
                "cluster-signing-cert-file": credentials.ca,
                "cluster-signing-key-file": credentials.ca.with_suffix(".key"),
                "health-port": plane.controllers_health_port,
                **({"controllers": config.controllers} if config.controllers != "*" else {}),
                **_registries(config),
            },
            config,
            name=plane.name("controllers"),
            flags=alone,
            probe=_health(plane.controllers_health_port),
            after=(server,),
        ),
        _motley(
            "scheduler",
            {
                "kubeconfig": credentials.kubeconfig("scheduler"),
                "health-port": plane.scheduler_health_port,
                # The profile for Minik8s stays with PrioritySort, and all share one queueSort.
                **({"compat": config.compat} if config.compat else {"config": SCHEDULER}),
            },
            config,
            name=plane.name("scheduler"),
            flags=alone,
            probe=_health(plane.scheduler_health_port),
            after=(server,),
        ),
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
    flags = ("--rotate-server-certificates", "--measure-speed")
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
            **({"measured-speed": config.speed} if config.speed else {}),
            **(_emulated(config) if config.emulates else {}),
        },
        config,
        probe=_health(config.node_health_port),
        after=after,
        flags=flags,
    )


def _emulated(config: Config) -> dict[str, object]:
    return {
        "arch": config.emulates,
        "node-labels": EMULATED_LABEL,
        **_registries(config),
    }


def _registries(config: Config) -> dict[str, object]:
    return {"registries": config.registries} if config.registries else {}


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
            **_interface(config),
        },
        config,
        probe=_health(config.proxy_health_port),
        after=after,
    )


def _interface(config: Config) -> dict[str, object]:
    return {"service-interface": config.service_interface} if config.service_interface else {}


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
            "cluster-domain": config.cluster_domain,
            "health-port": config.gateway_health_port,
            **({"hosts-file": HOSTS_FILE} if config.hosts else {}),
        },
        config,
        # On several machines there are several gateways, and one of them serves.
        flags=(
            *(() if config.servers else _ALONE),
            *(("--host-ports",) if config.host_ports else ()),
        ),
        probe=_health(config.gateway_health_port),
        after=(APISERVER,),
    )


def functions(config: Config, credentials: Credentials) -> Spec:
    """Functions: their router, and what makes their instances."""
    return _motley(
        FUNCTIONS,
        {
            "kubeconfig": credentials.kubeconfig(FUNCTIONS),
            "listen": "0.0.0.0",
            "port": config.functions_port,
            # The node's own address: functions call each other from their pods.
            "url": f"https://{config.node_ip}:{config.functions_port}",
            "tls-cert": credentials.node_cert,
            "tls-key": credentials.node_key,
            "ca": credentials.ca,
            "client-ca": credentials.ca,
            "cache-dir": config.root / "functions",
            "health-port": config.functions_health_port,
            **({"legacy-port": MINIK8S_PORT} if config.compat else {}),
        },
        config,
        flags=() if config.is_shared else _ALONE,
        probe=_health(config.functions_health_port),
        after=(APISERVER,),
    )


def slurm(config: Config, credentials: Credentials) -> Spec:
    """The bridge to Slurm clusters; it connects to none before there is a SlurmCluster."""
    return _motley(
        f"{SLURM} bridge",
        {
            "kubeconfig": credentials.kubeconfig(SLURM),
            "directory": config.root / "slurm",
            "health-port": config.slurm_health_port,
            # It answers for nodes without a machine, in this node's place.
            "node-ip": config.node_ip,
            "port": config.slurm_port,
            "tls-cert": credentials.node_cert,
            "tls-key": credentials.node_key,
            "client-ca": credentials.ca,
        },
        config,
        name=SLURM,
        flags=() if config.is_shared else _ALONE,
        probe=_health(config.slurm_health_port),
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
    component: str,
    options: dict[str, object],
    config: Config,
    *,
    probe: str,
    name: str = "",
    after: tuple[str, ...] = (),
    flags: tuple[str, ...] = (),
) -> Spec:
    """`name`: of one of several, where it is not the component's."""
    given = [*(f"--{option}={value}" for option, value in options.items()), *flags]
    command = spawning.motley(*component.split(), *given, f"--log-level={config.log_level}")
    return Spec(
        name=name or component, command=command, probe=probe, after=after, version=__version__
    )
