"""What kube-apiserver fills in where a client says nothing.

One function per kind; each expects an object that `schema.check` has accepted and changes it in
place. What depends on other objects or on the cluster (addresses, service accounts, priorities)
is not a default but admission, and lives in the API server.

Invariant: applying defaults twice is the same as applying them once.
"""

from collections.abc import Callable
from typing import Any

from motley.api import scheme
from motley.api.defaults import cluster, pod, service, workload

__all__ = ["apply"]

_DEFAULTS: dict[tuple[str, str], Callable[[dict[str, Any]], None]] = {
    ("", "Endpoints"): service.endpoints,
    ("", "Event"): cluster.event,
    ("", "LimitRange"): cluster.limit_range,
    ("", "Namespace"): cluster.namespace,
    ("", "Node"): cluster.node,
    ("", "PersistentVolume"): cluster.persistent_volume,
    ("", "PersistentVolumeClaim"): cluster.persistent_volume_claim,
    ("", "Pod"): pod.pod,
    ("", "ResourceQuota"): cluster.framed,
    ("", "Secret"): cluster.secret,
    ("", "Service"): service.service,
    ("apps", "DaemonSet"): workload.daemon_set,
    ("apps", "Deployment"): workload.deployment,
    ("apps", "ReplicaSet"): workload.replica_set,
    ("apps", "StatefulSet"): workload.stateful_set,
    ("autoscaling", "HorizontalPodAutoscaler"): workload.autoscaler,
    ("batch", "CronJob"): workload.cron_job,
    ("batch", "Job"): workload.job,
    ("coordination.k8s.io", "Lease"): cluster.framed,
    ("discovery.k8s.io", "EndpointSlice"): service.endpoint_slice,
    ("networking.k8s.io", "Ingress"): cluster.framed,
    ("networking.k8s.io", "IngressClass"): service.ingress_class,
    ("networking.k8s.io", "NetworkPolicy"): service.network_policy,
    ("policy", "PodDisruptionBudget"): cluster.framed,
    ("rbac.authorization.k8s.io", "ClusterRole"): cluster.role,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): cluster.role_binding,
    ("rbac.authorization.k8s.io", "Role"): cluster.role,
    ("rbac.authorization.k8s.io", "RoleBinding"): cluster.role_binding,
    ("scheduling.k8s.io", "PriorityClass"): cluster.priority_class,
    ("storage.k8s.io", "StorageClass"): cluster.storage_class,
}


def apply(kind: scheme.Kind, obj: dict[str, Any]) -> None:
    """Fill in the defaults of the kind, in place."""
    obj.setdefault("metadata", {})
    default = _DEFAULTS.get((kind.group, kind.kind))
    if default is not None:
        default(obj)
