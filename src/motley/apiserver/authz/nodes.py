"""The node authorizer: an agent reads what its pods need, and writes about itself.

Node agents are many and the most exposed; giving them all Secrets by a role would make one broken
machine a broken cluster. So what they may read is derived from the pods bound to them. What they
may write is only roughly cut here, because a decision does not see the object; the admission
plugin `restriction` looks at that.

Invariant: judged on stored state, never on what the request claims.
"""

from typing import NamedTuple

from motley.apiserver.authn.user import User
from motley.apiserver.authz.defaults import NODE_RULES
from motley.apiserver.authz.graph import Graph
from motley.apiserver.authz.rules import Rule
from motley.apiserver.request import RequestInfo

LEASE_NAMESPACE = "kube-node-lease"
_RULES = tuple(Rule.of(rule) for rule in NODE_RULES)
_OWN_VERBS = frozenset({"get", "create", "update", "patch", "delete"})
_READS = frozenset({"get", "list", "watch"})


class Opinion(NamedTuple):
    """Yes, or no opinion and perhaps why."""

    allowed: bool
    reason: str = ""


YES = Opinion(True)
NO = Opinion(False)


def _no(reason: str) -> Opinion:
    return Opinion(False, reason)


class NodeAuthorizer:
    """Decides on requests of node agents; has no opinion on others."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def decide(self, user: User, info: RequestInfo, name: str) -> Opinion:
        """Whether the user, as the agent of its node, may."""
        node = user.node_name
        if not node:
            return NO
        if info.is_resource:
            judge = _JUDGES.get((info.group, info.resource))
            if judge is not None:
                return judge(self, node, info, name)
            if any(_covers(rule, info) for rule in _RULES):
                return YES
            return NO
        return YES if any(r.allows_path(info.verb, info.path) for r in _RULES) else NO

    def _read(self, node: str, info: RequestInfo, name: str) -> Opinion:
        """Secrets and ConfigMaps: single ones that a pod here refers to."""
        if info.verb not in _READS:
            return _no("can only read resources of this type")
        if info.subresource:
            return _no("cannot read subresource")
        if not info.namespace:
            return _no("can only read namespaced object of this type")
        return self._related(node, info, name)

    def _get(self, node: str, info: RequestInfo, name: str) -> Opinion:
        if info.verb != "get":
            return _no("can only get individual resources of this type")
        if info.subresource:
            return _no("cannot get subresource")
        return self._related(node, info, name)

    def _claim(self, node: str, info: RequestInfo, name: str) -> Opinion:
        if info.subresource != "status":
            return self._get(node, info, name)
        if info.verb not in ("update", "patch"):
            return _no("can only get/update/patch this type")
        return self._related(node, info, name)

    def _related(self, node: str, info: RequestInfo, name: str) -> Opinion:
        if not name:
            return _no("No Object name found")
        graph, namespace, plural = self._graph, info.namespace, info.resource
        if plural == "pods":
            found = graph.has_pod(node, namespace, name)
        elif plural == "persistentvolumes":
            found = graph.is_volume_used(node, name)
        else:
            found = graph.is_referred(node, plural, namespace, name)
            if not found and plural == "secrets":
                found = graph.is_volume_secret(node, namespace, name)
        return YES if found else _no(_unrelated(node))

    def _service_account(self, node: str, info: RequestInfo, name: str) -> Opinion:
        if info.verb == "get" and not info.subresource:
            return self._related(node, info, name)
        if info.verb != "create" or not name:
            return _no("can only create tokens for individual service accounts")
        if info.subresource != "token":
            return _no("can only create token subresource of serviceaccount")
        return self._related(node, info, name)

    def _lease(self, node: str, info: RequestInfo, name: str) -> Opinion:
        if info.verb not in _OWN_VERBS:
            return _no("can only get, create, update, patch, or delete a node lease")
        if info.namespace != LEASE_NAMESPACE:
            return _no(f'can only access leases in the "{LEASE_NAMESPACE}" system namespace')
        if info.verb != "create" and name != node:
            return _no("can only access node lease with the same name as the requesting node")
        return YES

    def _csi_node(self, node: str, info: RequestInfo, name: str) -> Opinion:
        if info.verb not in _OWN_VERBS:
            return _no("can only get, create, update, patch, or delete a CSINode")
        if info.subresource:
            return _no("cannot authorize CSINode subresources")
        if info.verb != "create" and name != node:
            return _no("can only access CSINode with the same name as the requesting node")
        return YES

    def _node(self, node: str, info: RequestInfo, name: str) -> Opinion:
        if info.subresource == "status":
            return YES if info.verb in ("update", "patch") else NO
        if info.subresource:
            return NO
        if info.verb in ("create", "update", "patch"):
            return YES
        if info.verb not in _READS:
            return NO
        if name == node:
            return YES
        what = f"'{name}'" if name else "all nodes"
        return _no(f"node '{node}' cannot read {what}, only its own Node object")

    def _pod(self, node: str, info: RequestInfo, name: str) -> Opinion:
        if info.subresource == "status":
            return YES if info.verb in ("update", "patch") else NO
        if info.subresource == "eviction":
            return YES if info.verb == "create" else NO
        if info.subresource:
            return NO
        if info.verb == "get":
            return self._get(node, info, name)
        if info.verb in ("list", "watch"):
            if ("spec.nodeName", node) in equal_fields(info):
                return YES
            if name:
                return self._related(node, info, name)
            return _no("can only list/watch pods with spec.nodeName field selector")
        return YES if info.verb in ("create", "delete") else NO

    def _certificate_request(self, node: str, info: RequestInfo, name: str) -> Opinion:
        """A node asks for its pods; what it may ask for is seen by `restriction`."""
        if info.subresource:
            return _no("nodes may not access the status subresource of PodCertificateRequests")
        if info.verb == "create":
            return YES
        if info.verb == "get":
            is_own = self._graph.has_request(node, info.namespace, name)
            return YES if is_own else _no(_unrelated(node))
        if info.verb in ("list", "watch"):
            if ("spec.nodeName", node) in equal_fields(info):
                return YES
            return _no("can only list/watch podcertificaterequests with nodeName field selector")
        return _no(f"nodes may not {info.verb} podcertificaterequests")


def _unrelated(node: str) -> str:
    return f"no relationship found between node '{node}' and this object"


def _covers(rule: Rule, info: RequestInfo) -> bool:
    return rule.covers_resource(info.verb, info.group, info.resource, info.subresource)


def equal_fields(info: RequestInfo) -> list[tuple[str, str]]:
    """What the field selector of a request pins down: path and value."""
    found: list[tuple[str, str]] = []
    for clause in info.query.text("fieldSelector").split(","):
        path, equals, value = clause.partition("=")
        if equals and not path.endswith("!"):
            found.append((path.strip(), value.removeprefix("=").strip()))
    return found


_JUDGES = {
    ("", "secrets"): NodeAuthorizer._read,
    ("", "configmaps"): NodeAuthorizer._read,
    ("", "persistentvolumeclaims"): NodeAuthorizer._claim,
    ("", "persistentvolumes"): NodeAuthorizer._get,
    ("resource.k8s.io", "resourceclaims"): NodeAuthorizer._get,
    ("", "serviceaccounts"): NodeAuthorizer._service_account,
    ("coordination.k8s.io", "leases"): NodeAuthorizer._lease,
    ("storage.k8s.io", "csinodes"): NodeAuthorizer._csi_node,
    ("certificates.k8s.io", "podcertificaterequests"): NodeAuthorizer._certificate_request,
    ("", "nodes"): NodeAuthorizer._node,
    ("", "pods"): NodeAuthorizer._pod,
}
