"""May a pod be on this node at all? What a scheduler checks, checked again by the node. Pure.

Whoever sets `nodeName` by hand goes past the scheduler, and a label may have changed since it
decided. The names and words are those of the plugins that would have refused: the pod is Failed
with them, and its controller makes another.
"""

from collections.abc import Iterable
from typing import NamedTuple

from motley.api import nodeselector
from motley.api.tolerations import tolerates
from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.node.resources import Rejection
from motley.node.staticpods import SOURCE

_REASONS = {
    "NodeAffinity": "node(s) didn't match Pod's node affinity/selector",
    "NodePorts": "node(s) didn't have free ports for the requested pod ports",
    "TaintToleration": "node(s) had taints that the pod didn't tolerate",
}
_ANY_ADDRESS = ("", "0.0.0.0", "::")


class _HostPort(NamedTuple):
    protocol: str
    port: int
    address: str


def refusal(pod: Pod, node: Node, present: Iterable[Pod]) -> Rejection | None:
    """Why the pod must not run on the node, beside these pods."""
    if not _is_selected(pod, node):
        return _rejection("NodeAffinity")
    held = {port for other in present for port in _host_ports(other)}
    if any(_meet(wanted, port) for wanted in _host_ports(pod) for port in held):
        return _rejection("NodePorts")
    is_static = SOURCE in pod.metadata.annotations
    for taint in node.spec.taints:
        tolerated = any(tolerates(one, taint) for one in pod.spec.tolerations)
        if taint.effect == "NoExecute" and not tolerated and not is_static:
            return _rejection("TaintToleration")
    return None


def _rejection(name: str) -> Rejection:
    return Rejection(name, f"Pod was rejected: Predicate {name} failed: {_REASONS[name]}")


def _is_selected(pod: Pod, node: Node) -> bool:
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required if affinity else None
    return required is None or nodeselector.matches_any(required.node_selector_terms, node)


def _host_ports(pod: Pod) -> list[_HostPort]:
    return [
        _HostPort(port.protocol or "TCP", port.host_port, port.host_ip)
        for container in pod.spec.containers
        for port in container.ports
        if port.host_port
    ]


def _meet(a: _HostPort, b: _HostPort) -> bool:
    if (a.protocol, a.port) != (b.protocol, b.port):
        return False
    return a.address == b.address or a.address in _ANY_ADDRESS or b.address in _ANY_ADDRESS
