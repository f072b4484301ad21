"""What kube-apiserver fills in where a client says nothing.

One function per kind; each expects an object that `schema.check` has accepted and changes it in
place. What depends on other objects or on the cluster (addresses, service accounts, priorities)
is not a default but admission, and lives in the API server.

Invariant: applying defaults twice is the same as applying them once.
"""

from collections.abc import Callable
from typing import Any

from motley.api import codec, scheme
from motley.api.defaults import (
    cluster,
    control,
    extension,
    pod,
    service,
    shown,
    storage,
    workload,
)
from motley.lib.memo import Memo

__all__ = ["apply", "complete"]

_ADMISSION = "admissionregistration.k8s.io"
_FLOW = "flowcontrol.apiserver.k8s.io"

_DEFAULTS: dict[tuple[str, str], Callable[[dict[str, Any]], None]] = {
    ("", "Endpoints"): service.endpoints,
    ("", "Event"): cluster.event,
    ("", "LimitRange"): cluster.limit_range,
    ("", "Namespace"): cluster.namespace,
    ("", "Node"): cluster.node,
    ("", "PersistentVolume"): storage.persistent_volume,
    ("", "PersistentVolumeClaim"): storage.persistent_volume_claim,
    ("", "Pod"): pod.pod,
    ("", "PodTemplate"): workload.pod_template,
    ("", "ReplicationController"): workload.replication_controller,
    ("", "ResourceQuota"): cluster.framed,
    ("", "Secret"): cluster.secret,
    ("", "Service"): service.service,
    (_ADMISSION, "MutatingAdmissionPolicy"): extension.admission_policy,
    (_ADMISSION, "MutatingAdmissionPolicyBinding"): extension.admission_policy_binding,
    (_ADMISSION, "MutatingWebhookConfiguration"): extension.mutating_webhooks,
    (_ADMISSION, "ValidatingAdmissionPolicy"): extension.admission_policy,
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"): extension.admission_policy_binding,
    (_ADMISSION, "ValidatingWebhookConfiguration"): extension.validating_webhooks,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): extension.custom_resource_definition,
    ("apiregistration.k8s.io", "APIService"): extension.api_service,
    ("apps", "DaemonSet"): workload.daemon_set,
    ("apps", "Deployment"): workload.deployment,
    ("apps", "ReplicaSet"): workload.replica_set,
    ("apps", "StatefulSet"): workload.stateful_set,
    ("autoscaling", "HorizontalPodAutoscaler"): workload.autoscaler,
    ("batch", "CronJob"): workload.cron_job,
    ("batch", "Job"): workload.job,
    ("certificates.k8s.io", "PodCertificateRequest"): cluster.pod_certificate_request,
    ("coordination.k8s.io", "Lease"): cluster.framed,
    ("discovery.k8s.io", "EndpointSlice"): service.endpoint_slice,
    (_FLOW, "FlowSchema"): control.flow_schema,
    (_FLOW, "PriorityLevelConfiguration"): control.priority_level,
    ("networking.k8s.io", "Ingress"): cluster.framed,
    ("networking.k8s.io", "IngressClass"): service.ingress_class,
    ("networking.k8s.io", "NetworkPolicy"): service.network_policy,
    ("policy", "PodDisruptionBudget"): cluster.framed,
    ("rbac.authorization.k8s.io", "ClusterRole"): cluster.role,
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): cluster.role_binding,
    ("rbac.authorization.k8s.io", "Role"): cluster.role,
    ("rbac.authorization.k8s.io", "RoleBinding"): cluster.role_binding,
    ("resource.k8s.io", "ResourceClaim"): control.resource_claim,
    ("resource.k8s.io", "ResourceClaimTemplate"): control.resource_claim_template,
    ("scheduling.k8s.io", "PriorityClass"): cluster.priority_class,
    ("storage.k8s.io", "CSIDriver"): storage.csi_driver,
    ("storage.k8s.io", "StorageClass"): storage.storage_class,
}


def apply(kind: scheme.Kind, obj: dict[str, Any]) -> None:
    """Fill in the defaults of the kind, in place."""
    obj.setdefault("metadata", {})
    if kind.definition is not None:
        kind.definition.default(obj)
        return
    if kind.kind == "Pod" and not kind.group and isinstance(obj.get("spec"), dict):
        _pod(kind, obj)
        return
    default = _DEFAULTS.get((kind.group, kind.kind))
    if default is not None:
        default(obj)
    complete(kind, obj)


# The defaults of a pod are those of its spec, and pods of one template have the same: they are
# looked up by the bytes of the spec.
_SPEC = frozenset({"spec"})
_defaulted = Memo[bytes](8 * 2**20)


def _pod(kind: scheme.Kind, obj: dict[str, Any]) -> None:
    said = codec.encode(obj["spec"])
    known = _defaulted.get(said)
    if known is None:
        pod.pod(obj)
        complete(kind, obj)
        known = codec.encode(obj["spec"])
        # What has its defaults keeps them: usually one entry serves creations and updates.
        known = said if known == said else known
        _defaulted.put(said, known, len(known))
        return
    if known is not said and known != said:
        obj["spec"] = codec.decode_own(known)
    shown.of_kind(kind.api_version, kind.kind, obj, complete_parts=_SPEC)


def complete(kind: scheme.Kind, obj: dict[str, Any]) -> None:
    """Fill in only what always shows; of a custom resource nothing does."""
    if kind.definition is None:
        shown.of_kind(kind.api_version, kind.kind, obj)
