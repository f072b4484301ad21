"""Several nodes on one machine: what each of them is, and where its files are.

The first node is the machine itself and has the control plane. Every other is a network namespace
with a root directory of its own below the cluster's, and is otherwise like a machine that has
joined: its own containerd, node agent and proxy, under its own supervisor. All hang on a switch,
the underlay.

Everything is named after the cluster's root directory, so that two clusters never meet and whatever
a killed one left can be found.
"""

import hashlib
import ipaddress

import msgspec

from motley.ops import config as configs
from motley.ops.config import Config

_DIRECTORY = "nodes"


def names(config: Config) -> list[str]:
    """The further nodes a cluster should have."""
    return [f"node-{number}" for number in range(2, config.nodes + 1)]


def member(config: Config, name: str) -> Config:
    """A further node as a configuration of its own."""
    number = int(name.removeprefix("node-"))
    return msgspec.structs.replace(
        config,
        root=config.root / _DIRECTORY / name,
        node_name=name,
        node_ip=str(ipaddress.ip_network(config.underlay)[number]),
        server=f"https://{config.node_ip}:{config.api_port}",
        image_cache=str(config.images),
        namespace=namespace(config, name),
        host_ports=False,
        hosts=False,
        nodes=0,
        netns=0,
        emulates=architectures(config).get(name, ""),
    )


def architectures(config: Config) -> dict[str, str]:
    """Which further nodes are of another architecture than the machine."""
    pairs = (item.partition("=") for item in config.arch.split(",") if item)
    return {name: arch for name, _, arch in pairs}


def present(config: Config) -> list[Config]:
    """The further nodes that were made and not deleted, running or not."""
    directory = config.root / _DIRECTORY
    found = (configs.load(path) for path in sorted(directory.glob("node-*")) if path.is_dir())
    return [one for one in found if one is not None and one.namespace]


def namespace(config: Config, name: str) -> str:
    """The network namespace of a further node, or of the switch between all of them."""
    return f"{config.cgroup_root.strip('/')}-{name}"


def uplink(config: Config) -> str:
    """The first node's interface to the others; a machine may have several clusters."""
    return f"under-{hashlib.sha256(str(config.root).encode()).hexdigest()[:8]}"


def table(config: Config) -> str:
    """The nftables table that gives further nodes the machine's way out."""
    return f"{config.table}_nodes"
