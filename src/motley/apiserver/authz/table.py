"""What Motley's own components may do: a fixed table, one row per identity.

These are the system roles of Kubernetes cut down to what each component here really calls, so
that a stolen scheduler key cannot read Secrets. A row is `(verbs, group, resources)`; a resource
may name a subresource. Nodes are judged further by `node.py`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

READ = frozenset({"get", "list", "watch"})
WRITE = frozenset({"create", "update", "patch", "delete", "deletecollection"})
ALL = READ | WRITE
CHANGE = frozenset({"create", "update", "patch"})
EDIT = frozenset({"update", "patch"})
COORDINATION = "coordination.k8s.io"
DISCOVERY = "discovery.k8s.io"


@dataclass(frozen=True, slots=True)
class Rule:
    """Verbs on resources of one group."""

    verbs: frozenset[str]
    group: str
    resources: frozenset[str]

    def allows(self, verb: str, group: str, resource: str) -> bool:
        """Whether this rule covers the request."""
        return (
            verb in self.verbs
            and (group == self.group or self.group == "*")
            and (resource in self.resources or "*" in self.resources)
        )


def _rule(verbs: Iterable[str], group: str, resources: str) -> Rule:
    return Rule(frozenset(verbs), group, frozenset(resources.split()))


_EVENTS = _rule(CHANGE, "", "events")
_LEASES = _rule(ALL, COORDINATION, "leases")

SCHEDULER = (
    _rule(READ, "", "nodes namespaces persistentvolumeclaims persistentvolumes services"),
    _rule(READ, "", "replicationcontrollers configmaps"),
    # Patch: the image for the chosen node's architecture is written before the binding.
    _rule({*READ, "patch", "delete"}, "", "pods"),
    _rule({"create"}, "", "pods/binding bindings"),
    _rule(EDIT, "", "pods/status pods/resize"),
    _rule(READ, "apps", "replicasets statefulsets deployments daemonsets"),
    _rule(READ, "policy", "poddisruptionbudgets"),
    _rule(READ, "storage.k8s.io", "*"),
    _rule(READ, "scheduling.k8s.io", "priorityclasses"),
    _LEASES,
    _EVENTS,
)

# The controllers own what users declare: they read and clean up every kind (garbage collection
# and namespace deletion know no exceptions), which is as far as a table can narrow them.
CONTROLLERS = (_rule(ALL, "*", "*"),)

PROXY = (
    _rule(READ, "", "services endpoints nodes namespaces"),
    _rule(READ, DISCOVERY, "endpointslices"),
    # Cluster DNS answers names of pods, too, and runs in the same process.
    _rule(READ, "", "pods"),
    _EVENTS,
)

NODE = (
    _rule(READ, "", "services endpoints namespaces"),
    _rule({*READ, *CHANGE}, "", "nodes"),
    _rule(EDIT, "", "nodes/status"),
    _rule({*READ, "create", "delete"}, "", "pods"),
    _rule({"get", *EDIT}, "", "pods/status"),
    _rule({"create"}, "", "pods/eviction serviceaccounts/token"),
    _rule(READ, "", "configmaps secrets serviceaccounts"),
    _rule(READ, "", "persistentvolumeclaims persistentvolumes"),
    _rule(READ, "node.k8s.io", "runtimeclasses"),
    _rule(READ, DISCOVERY, "endpointslices"),
    _rule(ALL - {"deletecollection"}, COORDINATION, "leases"),
    _EVENTS,
)

COMPONENTS: dict[str, tuple[Rule, ...]] = {
    "system:kube-scheduler": SCHEDULER,
    "system:kube-controller-manager": CONTROLLERS,
    "system:kube-proxy": PROXY,
}
