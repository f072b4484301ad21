"""The network between several nodes on one machine: a switch, and a namespace for each node.

Every node has one interface to the switch. The machine itself is the first node; for the others it
is the way out, and what leaves it carries its address. The switch is a bridge in a namespace of its
own: on a bridge of the first node that node's rules would see packets between the others, and those
it sends on to where they came from (a node port whose pod is the caller's neighbour) would be lost,
because a bridge sends nothing back.

Invariant: everything may be made or removed again at any time, whatever part of it is there.
"""

import ipaddress
import os
import subprocess
from pathlib import Path

from motley.ops import members
from motley.ops.config import FIRST, Config
from motley.ops.failure import Failure

_NAMESPACES = Path("/run/netns")
_UPLINK = "eth0"
_BRIDGE = "switch0"
_SWITCH = "switch"


def ensure(config: Config) -> None:
    """Make the switch, the first node's interface and the way out, or repair them."""
    switch = _ensure_namespace(members.namespace(config, _SWITCH))
    if not _exists(_BRIDGE, *switch):
        _ip(*switch, "link", "add", _BRIDGE, "type", "bridge")
    _ip(*switch, "link", "set", _BRIDGE, "up")
    uplink = members.uplink(config)
    if not _exists(uplink):
        _plug(config, FIRST, "peer", "name", uplink, "netns", str(os.getpid()))
    _ip("link", "set", uplink, "up")
    _ip("addr", "replace", _with_prefix(config, config.node_ip), "dev", uplink)
    _nft(_way_out(config))


def ensure_namespace(config: Config, member: Config) -> int:
    """Make a further node's namespace, or repair it; which one it is."""
    inside = _ensure_namespace(member.namespace)
    if not _exists(_UPLINK, *inside):
        _plug(config, member.node_name, "peer", "name", _UPLINK, "netns", member.namespace)
    _ip(*inside, "link", "set", "lo", "up")
    _ip(*inside, "link", "set", _UPLINK, "up")
    _ip(*inside, "addr", "replace", _with_prefix(config, member.node_ip), "dev", _UPLINK)
    _ip(*inside, "route", "replace", "default", "via", config.node_ip, "dev", _UPLINK)
    return os.stat(_NAMESPACES / member.namespace).st_ino


def remove_namespace(member: Config) -> None:
    """Take a further node's namespace away with all that is in it."""
    if (_NAMESPACES / member.namespace).exists():
        if _exists(_UPLINK, "-n", member.namespace):
            _ip("-n", member.namespace, "link", "del", _UPLINK)  # the kernel would take its time
        _ip("netns", "del", member.namespace)


def remove_switch(config: Config) -> None:
    """Take the switch away; its cables go with it."""
    name = members.namespace(config, _SWITCH)
    if (_NAMESPACES / name).exists():
        _ip("netns", "del", name)


def remove_uplink(config: Config) -> None:
    """Take the first node's interface and the way out away."""
    if _exists(members.uplink(config)):
        _ip("link", "del", members.uplink(config))
    table = f"table ip {members.table(config)}"
    _nft(f"{table}\ndelete {table}\n")


def _ensure_namespace(name: str) -> tuple[str, str]:
    if not (_NAMESPACES / name).exists():
        _ip("netns", "add", name)
    return ("-n", name)


def _plug(config: Config, node: str, *peer: str) -> None:
    """A cable from the switch's port of a node's name to an interface of the node."""
    switch = ("-n", members.namespace(config, _SWITCH))
    if _exists(node, *switch):
        _ip(*switch, "link", "del", node)
    _ip(*switch, "link", "add", node, "type", "veth", *peer)
    _ip(*switch, "link", "set", node, "master", _BRIDGE, "up")


def _with_prefix(config: Config, address: str) -> str:
    return f"{address}/{ipaddress.ip_network(config.underlay).prefixlen}"


def _way_out(config: Config) -> str:
    table = f"table ip {members.table(config)}"
    here = f"{config.underlay}, {config.pod_cidr}, {config.service_cidr}"
    return "\n".join(
        [
            table,
            f"delete {table}",
            f"{table} {{",
            "  chain postrouting {",
            "    type nat hook postrouting priority 100;",
            f"    ip saddr {config.underlay} ip daddr != {{ {here} }} "
            f'oifname != "{members.uplink(config)}" masquerade',
            "  }",
            "}\n",
        ]
    )


def _exists(link: str, *inside: str) -> bool:
    command = ["ip", *inside, "link", "show", "dev", link]
    return subprocess.run(command, capture_output=True, timeout=20).returncode == 0


def _ip(*words: str) -> None:
    _run(["ip", *words])


def _nft(text: str) -> None:
    _run(["nft", "-f", "-"], text)


def _run(command: list[str], text: str = "") -> None:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=20)
    if done.returncode != 0:
        said = done.stderr.strip() or f"exit code {done.returncode}"
        raise Failure(f"the nodes' network cannot be changed: {' '.join(command)}: {said}")
