"""What a cluster on this machine is like, remembered in ROOT/config.json.

Options given once to `motley up` hold until others are given, so every later command needs only
the root directory. What a cluster's objects already contain (address ranges, the node's name)
cannot change under them.
"""

import hashlib
import ipaddress
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from motley.ops import statefile, storechoice
from motley.ops.failure import Failure
from motley.ops.planes import Plane

DEFAULT_ROOT = Path("/var/lib/motley")
MINIK8S_PORT = 8080  # where the document's scripts call functions
# An address that is never reached: only the kernel's choice of a source address is asked for.
_ELSEWHERE = ("192.0.2.1", 9)
_FIXED = ("node_name", "pod_cidr", "service_cidr", "cluster_dns", "cluster_domain")
FIRST = "node-1"  # of several nodes on one machine


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """One cluster; every field but `root` has an option of `motley up`."""

    root: Path = DEFAULT_ROOT
    node_name: str = ""
    node_ip: str = ""
    api_port: int = 6443
    port_base: int = 10240
    pod_cidr: str = "10.244.0.0/16"
    service_cidr: str = "10.96.0.0/16"
    cluster_dns: str = "10.96.0.10"
    cluster_domain: str = "cluster.local"
    bridge: str = "motley0"
    service_interface: str = ""  # holds the addresses of Services; empty: no such interface
    table: str = "motley"
    log_level: str = "info"
    compat: str = ""  # another system whose spellings the API server reads, too
    image_cache: str = ""  # where image archives are kept; empty: below the root
    is_node_ip_found: bool = False  # found, not given: found again when it is gone
    netns: int = 0  # inode of the network namespace the cluster lives in
    server: str = ""  # where the API server is, on a machine that has joined; empty: here
    node_labels: str = ""  # k=v,…: of a node that has joined
    host_ports: bool = False  # paths also at ports 80 and 443 of this machine
    hosts: bool = False  # names of paths in this machine's hosts file
    functions: bool = True  # is the component that runs functions started?
    slurm: bool = True  # and the one that runs jobs on Slurm clusters?
    pod_network: str = "auto"  # how pods of other nodes are reached
    nodes: int = 0  # several nodes on this machine, in namespaces; 0: the machine is the node
    underlay: str = "10.77.0.0/24"  # addresses of several nodes on this machine
    namespace: str = ""  # of such a node but the first: the network namespace it is
    arch: str = ""  # NODE=ARCH,…: which of several nodes emulate another architecture
    emulates: str = ""  # of such a node: the architecture
    speed: float = 0.0  # of a core, where nodes are unlike: measured when the cluster was made
    registries: str = ""  # a file that says how registries are reached
    controllers: str = "*"  # which run, with commas; -NAME: not this one
    store: str = ""  # where objects are kept: sqlite unless etcd
    etcd_servers: str = ""  # URLs, with commas, of an etcd that exists; empty: one is started here
    etcd_cafile: str = ""  # its authority, and who we are to it
    etcd_certfile: str = ""
    etcd_keyfile: str = ""
    etcd_prefix: str = "/motley"  # before every key
    control_planes: int = 1  # how many of each component of the control plane run here
    servers: str = ""  # every API server, with commas, where other machines have some as well

    # Ports are Kubernetes' own (10248 … 10259) when the base is 10240.

    @property
    def node_health_port(self) -> int:
        """The node agent's health endpoint."""
        return self.port_base + 8

    @property
    def node_port(self) -> int:
        """The node agent's HTTPS port, for logs and exec."""
        return self.port_base + 10

    @property
    def proxy_health_port(self) -> int:
        """The service proxy's health endpoint."""
        return self.port_base + 16

    @property
    def controllers_health_port(self) -> int:
        """The controllers' health endpoint."""
        return self.port_base + 17

    @property
    def scheduler_health_port(self) -> int:
        """The scheduler's health endpoint."""
        return self.port_base + 19

    @property
    def gateway(self) -> Path:
        """Where the gateway's nginx works."""
        return self.root / "gateway"

    @property
    def gateway_http_port(self) -> int:
        """The gateway's nginx, behind its Service's port 80."""
        return self.port_base + 40

    @property
    def gateway_https_port(self) -> int:
        """The gateway's nginx, behind its Service's port 443."""
        return self.port_base + 41

    @property
    def gateway_health_port(self) -> int:
        """The gateway's health endpoint."""
        return self.port_base + 42

    @property
    def functions_port(self) -> int:
        """Where functions are called."""
        return self.port_base + 45

    @property
    def functions_health_port(self) -> int:
        """The health endpoint of the component that runs functions."""
        return self.port_base + 46

    @property
    def functions_ports(self) -> tuple[int, ...]:
        """All of that component's, with the one of the Minik8s document where that counts."""
        own = (self.functions_port, self.functions_health_port)
        return (*own, MINIK8S_PORT) if self.compat else own

    @property
    def slurm_health_port(self) -> int:
        """The Slurm bridge's health endpoint."""
        return self.port_base + 47

    @property
    def slurm_port(self) -> int:
        """Where the bridge serves the logs of pods on Slurm clusters."""
        return self.port_base + 48

    @property
    def gateway_ports(self) -> tuple[int, ...]:
        """Where the gateway's nginx listens when there is something to serve."""
        own = (self.gateway_http_port, self.gateway_https_port)
        return (*own, 80, 443) if self.host_ports else own

    @property
    def ports(self) -> dict[int, str]:
        """Every TCP port the cluster listens on here, and who does."""
        of_node = {
            self.node_health_port: "node",
            self.node_port: "node",
            self.proxy_health_port: "proxy",
        }
        if self.is_joined:
            return of_node
        return {
            **of_node,
            **{
                port: name
                for plane in self.planes
                for port, name in plane.ports(with_etcd=self.has_own_etcd)
            },
            self.gateway_health_port: "gateway",
            **dict.fromkeys(self.gateway_ports, "gateway"),
            **dict.fromkeys(self.functions_ports if self.functions else (), "functions"),
            **dict.fromkeys(
                (self.slurm_health_port, self.slurm_port) if self.slurm else (), "slurm"
            ),
        }

    @property
    def is_joined(self) -> bool:
        """Is the control plane on another machine?"""
        return bool(self.server)

    @property
    def planes(self) -> tuple[Plane, ...]:
        """The control planes on this machine."""
        count = range(1, self.control_planes + 1)
        return tuple(Plane(number, self.api_port, self.port_base) for number in count)

    @property
    def is_shared(self) -> bool:
        """Are there control planes beside the first, here or elsewhere?"""
        return self.control_planes > 1 or bool(self.servers)

    @property
    def has_own_etcd(self) -> bool:
        """Is etcd the store, and ours to start?"""
        return self.store == "etcd" and not self.etcd_servers and not self.is_joined

    def api_servers(self, host: str = "127.0.0.1") -> tuple[str, ...]:
        """Every API server, those of this machine first, by an address it has for the asker."""
        here = [f"https://{host}:{plane.api_port}" for plane in self.planes]
        own = {f"https://{self.node_ip}:{plane.api_port}" for plane in self.planes}
        elsewhere = [url for url in self.servers.split(",") if url and url not in own]
        return (*here, *elsewhere)

    @property
    def cgroup_root(self) -> str:
        """The cgroup of all pods; its name is the cluster's own."""
        if self.root == DEFAULT_ROOT:
            return "/motley"
        return f"/motley-{hashlib.sha256(str(self.root).encode()).hexdigest()[:8]}"

    @property
    def service_address(self) -> str:
        """The `kubernetes` Service: first address of the service range."""
        return str(ipaddress.ip_network(self.service_cidr)[1])

    @property
    def run(self) -> Path:
        """The supervisor's files."""
        return self.root / "run"

    @property
    def logs(self) -> Path:
        """One log per component."""
        return self.root / "logs"

    @property
    def images(self) -> Path:
        """Archives of the images Motley makes."""
        return Path(self.image_cache) if self.image_cache else self.root / "images"

    @property
    def node_kubeconfig(self) -> Path:
        """The node agent's kubeconfig."""
        return self.root / "pki" / "node.kubeconfig"

    @property
    def admin_kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.root / "apiserver" / "admin.kubeconfig"

    def save(self) -> None:
        """Remember it."""
        self.root.mkdir(parents=True, exist_ok=True, mode=0o755)
        statefile.write(_file(self.root), self)


def _file(root: Path) -> Path:
    return root / "config.json"


def load(root: Path) -> Config | None:
    """The cluster remembered under a root directory; None when there is none."""
    try:
        document = msgspec.json.decode(_file(root).read_bytes())
        return msgspec.convert({**document, "root": str(root)}, Config, dec_hook=_decode)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise Failure(f"{_file(root)} cannot be read: {error}") from None


def _decode(kind: type, value: Any) -> Any:
    return kind(value)


def resolve(root: Path, given: Mapping[str, Any]) -> Config:
    """The remembered cluster with the given options, or a new one."""
    remembered = load(root)
    options = {name: value for name, value in given.items() if value is not None}
    if options.get("etcd_servers") or options.get("control_planes", 1) > 1:
        options.setdefault("store", "etcd")
    if remembered is not None:
        _refuse_changes(remembered, options)
    config = msgspec.structs.replace(remembered or Config(root=root), **options)
    config = _with_architectures(config, is_given="arch" in options)
    if config.nodes:
        config = _first_of_several(remembered, options, config)
    if not config.node_name:
        config = msgspec.structs.replace(config, node_name=host_name())
    if "node_ip" in options:
        config = msgspec.structs.replace(config, is_node_ip_found=False)
    elif not config.node_ip or (config.is_node_ip_found and not is_local(config.node_ip)):
        config = msgspec.structs.replace(
            config, node_ip=host_address(config.pod_cidr), is_node_ip_found=True
        )
    config = msgspec.structs.replace(config, netns=current_netns())
    check(config)
    return config


def _refuse_changes(remembered: Config, options: Mapping[str, Any]) -> None:
    storechoice.refuse_other(remembered, msgspec.structs.replace(remembered, **options))
    for name in _FIXED:
        before = getattr(remembered, name)
        if name in options and before and options[name] != before:
            raise Failure(
                f"this cluster was made with {name.replace('_', '-')} {before}; "
                f"its objects depend on it",
                f"Keep it, or start anew: motley down --delete-data --root {remembered.root}",
            )


def _with_architectures(config: Config, *, is_given: bool) -> Config:
    """Nodes keep what they are: `arm64`, which means the last node, is remembered with its name."""
    if not config.arch:
        return config
    count = config.nodes or 2
    names = [f"node-{number}" for number in range(2, count + 1)]
    found: dict[str, str] = {}
    for item in filter(None, config.arch.split(",")):
        name, _, arch = item.strip().rpartition("=")
        name = name or f"node-{count}"
        if name in names:
            found[name] = arch
        elif is_given:
            raise Failure(
                f"--arch {item}: of {count} nodes {', '.join(names) or 'none'} can be emulated",
                "The first node is the machine itself. Say --nodes N for more.",
            )
    text = ",".join(f"{name}={arch}" for name, arch in found.items())
    return msgspec.structs.replace(config, nodes=count, arch=text)


def _first_of_several(
    remembered: Config | None, options: Mapping[str, Any], config: Config
) -> Config:
    """The node that has the control plane; its Node object cannot move to another address."""
    anew = f"Start anew: motley down --delete-data --root {config.root}"
    if "node_ip" in options:
        raise Failure("of several nodes each has an address of --underlay", "Omit --node-ip.")
    if remembered is not None and not remembered.nodes:
        raise Failure(
            "this cluster was made with this machine as its node",
            f"Another machine can join it: motley token create\n{anew}",
        )
    if remembered is not None and options.get("underlay", config.underlay) != remembered.underlay:
        raise Failure(f"this cluster's nodes have addresses of {remembered.underlay}", anew)
    try:
        underlay = ipaddress.ip_network(config.underlay)
        ranges = [ipaddress.ip_network(text) for text in (config.pod_cidr, config.service_cidr)]
    except ValueError as error:
        raise Failure(str(error)) from None
    if config.nodes > underlay.num_addresses - 2:
        raise Failure(f"{config.underlay} has no room for {config.nodes} nodes")
    for other in ranges:
        if underlay.overlaps(other):
            raise Failure(f"range of nodes {underlay} and {other} overlap")
    name = config.node_name or FIRST
    return msgspec.structs.replace(
        config, node_name=name, node_ip=str(underlay[1]), is_node_ip_found=False
    )


def check(config: Config) -> None:
    """Refuse what cannot work, before anything is started."""
    try:
        pods = ipaddress.ip_network(config.pod_cidr)
        services = ipaddress.ip_network(config.service_cidr)
        dns = ipaddress.ip_address(config.cluster_dns)
        ipaddress.ip_address(config.node_ip)
    except ValueError as error:
        raise Failure(str(error)) from None
    if pods.overlaps(services):
        raise Failure(f"pod range {pods} and service range {services} overlap")
    if dns not in services:
        raise Failure(f"cluster DNS {dns} is not in the service range {services}")
    storechoice.check(config)
    for name in (config.bridge, config.service_interface):
        if len(name) > 15:
            raise Failure(f"interface name {name} is longer than the kernel's 15 characters")
    if not 1024 <= config.port_base <= 65000:
        raise Failure(f"port base {config.port_base} is not between 1024 and 65000")


def host_name() -> str:
    """The machine's name as a node's name may be: lower case letters, digits, dots, dashes."""
    name = re.sub(r"[^a-z0-9.-]+", "-", socket.gethostname().lower()).strip(".-")
    return name or "node"


def host_address(pod_cidr: str) -> str:
    """The address other machines reach this one by; else the pod network's own gateway."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(_ELSEWHERE)
            return str(probe.getsockname()[0])
        except OSError:
            # No way out of this machine. The bridge's first address always exists on it.
            return str(ipaddress.ip_network(pod_cidr)[1])


def is_local(address: str) -> bool:
    """Whether this machine, in this network namespace, has the address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def current_netns() -> int:
    """The network namespace we are in."""
    return os.stat("/proc/self/ns/net").st_ino
