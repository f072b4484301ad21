"""The node rule: a node agent acts for its own node and for the pods bound to it.

The table in `table.py` says which resources node agents touch at all; this says which objects.
A broken node can then lie about itself, but not about its neighbours, and cannot read the
Secrets of pods that do not run on it.

Invariant: judged on stored state, never on what the request claims.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from motley.apiserver.request import RequestInfo

LEASE_NAMESPACE = "kube-node-lease"


class Pods(Protocol):
    """What the rule must know of pods."""

    def node_of(self, namespace: str, name: str) -> str | None:
        """The node a pod is bound to (empty: none yet); None when there is no such pod."""

    def on_node(self, node: str, namespace: str) -> Iterable[Mapping[str, Any]]:
        """The pods of a namespace that are bound to this node."""


def refusal(node: str, info: RequestInfo, pods: Pods) -> str:
    """Why this node may not do this; empty when it may."""
    if info.resource == "nodes":
        return _own_node(node, info)
    if info.resource == "leases":
        return _own_lease(node, info)
    if info.resource == "pods":
        return _own_pod(node, info, pods)
    if info.resource == "secrets":
        return _referenced(node, info, pods)
    return ""


def _own_node(node: str, info: RequestInfo) -> str:
    if info.verb in ("create", "list", "watch") or info.name == node:
        return ""
    if info.verb == "get":
        return f"node '{node}' cannot read '{info.name}', only its own Node object"
    return f"node '{node}' cannot modify node '{info.name}'"


def _own_lease(node: str, info: RequestInfo) -> str:
    if info.namespace != LEASE_NAMESPACE:
        return f'can only access leases in the "{LEASE_NAMESPACE}" system namespace'
    if info.name and info.name != node:
        return "can only access node lease with the same name as the requesting node"
    return ""


def _own_pod(node: str, info: RequestInfo, pods: Pods) -> str:
    if info.verb in ("list", "watch"):
        wanted = f"spec.nodeName={node}"
        if wanted in info.query.text("fieldSelector").replace("==", "=").split(","):
            return ""
        return "can only list/watch pods with spec.nodeName field selector"
    if info.verb == "create" and not info.name:
        return ""
    bound_to = pods.node_of(info.namespace, info.name)
    if bound_to is None or bound_to == node:
        return ""  # a missing pod is answered 404, not 403
    return f"node '{node}' can only access pods bound to it"


def _referenced(node: str, info: RequestInfo, pods: Pods) -> str:
    name = info.name or _name_selected(info)
    if not name:
        return "No Object name found"
    if any(name in _secrets(pod) for pod in pods.on_node(node, info.namespace)):
        return ""
    return f"no relationship found between node '{node}' and this object"


def _name_selected(info: RequestInfo) -> str:
    for clause in info.query.text("fieldSelector").split(","):
        key, _, value = clause.partition("=")
        if key == "metadata.name":
            return value.lstrip("=")
    return ""


def _secrets(pod: Mapping[str, Any]) -> set[str]:
    """Every Secret a pod mentions: volumes, environment, image pulls."""
    spec = pod.get("spec") or {}
    found = {r.get("name", "") for r in spec.get("imagePullSecrets") or ()}
    for volume in spec.get("volumes") or ():
        if secret := volume.get("secret"):
            found.add(secret.get("secretName", ""))
        for source in (volume.get("projected") or {}).get("sources") or ():
            found.add((source.get("secret") or {}).get("name", ""))
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        for source in container.get("envFrom") or ():
            found.add((source.get("secretRef") or {}).get("name", ""))
        for variable in container.get("env") or ():
            reference = (variable.get("valueFrom") or {}).get("secretKeyRef") or {}
            found.add(reference.get("name", ""))
    return found
