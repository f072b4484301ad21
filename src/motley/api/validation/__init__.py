"""What an object must hold beyond its types, with Kubernetes' fields and words.

`create` looks at an object that has its defaults and its name; `update` also at what it was.
Everything that is wrong is reported at once.

Invariant: nothing here changes an object, and an object that passed `create` passes `update`
against itself.
"""

from collections.abc import Callable, Iterable
from typing import Any

from motley.api import scheme
from motley.api.status import FieldError
from motley.api.validation import (
    approval,
    batch,
    certificate,
    cluster,
    control,
    customresource,
    data,
    device,
    ephemeral,
    meta,
    network,
    pod,
    podcertificate,
    policy,
    quota,
    rbac,
    resize,
    scaling,
    service,
    state,
    storage,
    trustbundle,
    webhook,
    workload,
)
from motley.api.validation.errors import Errors

__all__ = ["create", "update"]

Document = dict[str, Any]
Check = Callable[[Document], Errors]
UpdateCheck = Callable[[Document, Document], Errors]


def _keeping_selector(check: Check) -> UpdateCheck:
    def checked(new: Document, old: Document) -> Errors:
        yield from check(new)
        yield from workload.selector_is_kept(new, old)

    return checked


def _as_new(check: Check) -> UpdateCheck:
    """Updates of kinds whose creation obeys more rules."""
    return lambda new, old: check(new)


_ADMISSION = "admissionregistration.k8s.io"
_CERTIFICATES = "certificates.k8s.io"
_FLOW = "flowcontrol.apiserver.k8s.io"
_NET = "networking.k8s.io"
_RBAC = "rbac.authorization.k8s.io"
_RESOURCE = "resource.k8s.io"
_STORAGE = "storage.k8s.io"

_CREATE: dict[tuple[str, str], Check] = {
    ("", "ConfigMap"): data.config_map,
    ("", "Endpoints"): service.endpoints,
    ("", "Event"): data.event,
    ("", "LimitRange"): quota.limit_range,
    ("", "Namespace"): cluster.namespace,
    ("", "Node"): cluster.node,
    ("", "PersistentVolume"): storage.persistent_volume,
    ("", "PersistentVolumeClaim"): storage.claim,
    ("", "Pod"): pod.create,
    ("", "PodTemplate"): workload.pod_template,
    ("", "ReplicationController"): workload.replication_controller,
    ("", "ResourceQuota"): quota.resource_quota,
    ("", "Secret"): data.secret,
    ("", "Service"): service.create,
    (_ADMISSION, "MutatingAdmissionPolicy"): policy.mutating,
    (_ADMISSION, "MutatingAdmissionPolicyBinding"): policy.mutating_binding,
    (_ADMISSION, "MutatingWebhookConfiguration"): webhook.configuration,
    (_ADMISSION, "ValidatingAdmissionPolicy"): policy.validating,
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"): policy.validating_binding,
    (_ADMISSION, "ValidatingWebhookConfiguration"): webhook.configuration,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): customresource.definition,
    ("apiregistration.k8s.io", "APIService"): customresource.api_service,
    ("apps", "ControllerRevision"): workload.controller_revision,
    ("apps", "DaemonSet"): workload.daemon_set,
    ("apps", "Deployment"): workload.deployment,
    ("apps", "ReplicaSet"): workload.replica_set,
    ("apps", "StatefulSet"): workload.stateful_set,
    ("autoscaling", "HorizontalPodAutoscaler"): scaling.autoscaler,
    ("batch", "CronJob"): batch.cron_job_create,
    ("batch", "Job"): batch.job,
    (_CERTIFICATES, "CertificateSigningRequest"): certificate.signing_request,
    (_CERTIFICATES, "ClusterTrustBundle"): trustbundle.create,
    (_CERTIFICATES, "PodCertificateRequest"): podcertificate.create,
    ("coordination.k8s.io", "Lease"): data.lease,
    ("discovery.k8s.io", "EndpointSlice"): service.endpoint_slice,
    (_FLOW, "FlowSchema"): control.flow_schema,
    (_FLOW, "PriorityLevelConfiguration"): control.priority_level,
    (_NET, "IPAddress"): network.ip_address,
    (_NET, "Ingress"): network.ingress_create,
    (_NET, "IngressClass"): network.ingress_class,
    (_NET, "NetworkPolicy"): network.network_policy,
    (_NET, "ServiceCIDR"): network.service_cidr,
    ("node.k8s.io", "RuntimeClass"): cluster.runtime_class,
    ("policy", "PodDisruptionBudget"): scaling.disruption_budget,
    (_RBAC, "ClusterRole"): rbac.cluster_role,
    (_RBAC, "ClusterRoleBinding"): rbac.cluster_role_binding,
    (_RBAC, "Role"): rbac.role,
    (_RBAC, "RoleBinding"): rbac.role_binding,
    (_RESOURCE, "DeviceClass"): device.device_class,
    (_RESOURCE, "DeviceTaintRule"): device.taint_rule,
    (_RESOURCE, "ResourceClaim"): device.claim,
    (_RESOURCE, "ResourceClaimTemplate"): device.claim_template,
    (_RESOURCE, "ResourceSlice"): device.slice_,
    ("scheduling.k8s.io", "PriorityClass"): cluster.priority_class,
    (_STORAGE, "CSIDriver"): storage.csi_driver,
    (_STORAGE, "CSINode"): storage.csi_node,
    (_STORAGE, "CSIStorageCapacity"): storage.csi_storage_capacity,
    (_STORAGE, "StorageClass"): storage.storage_class,
    (_STORAGE, "VolumeAttachment"): storage.volume_attachment,
    (_STORAGE, "VolumeAttributesClass"): storage.volume_attributes_class,
}
# Kinds whose updates obey other rules than those for creation.
_UPDATE: dict[tuple[str, str], UpdateCheck] = {
    ("", "ConfigMap"): data.config_map_update,
    ("", "Node"): cluster.node_update,
    ("", "PersistentVolume"): storage.persistent_volume_update,
    ("", "PersistentVolumeClaim"): storage.claim_update,
    ("", "Pod"): pod.update,
    ("", "ResourceQuota"): quota.resource_quota_update,
    ("", "Secret"): data.secret_update,
    ("", "Service"): service.update,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): customresource.definition_update,
    ("apps", "ControllerRevision"): workload.controller_revision_update,
    ("apps", "DaemonSet"): _keeping_selector(workload.daemon_set),
    ("apps", "Deployment"): _keeping_selector(workload.deployment),
    ("apps", "ReplicaSet"): _keeping_selector(workload.replica_set),
    ("apps", "StatefulSet"): workload.stateful_set_update,
    ("batch", "CronJob"): _as_new(batch.cron_job),
    ("batch", "Job"): batch.job_update,
    (_CERTIFICATES, "ClusterTrustBundle"): trustbundle.update,
    (_CERTIFICATES, "PodCertificateRequest"): podcertificate.update,
    ("discovery.k8s.io", "EndpointSlice"): service.endpoint_slice_update,
    (_NET, "IPAddress"): network.ip_address_update,
    (_NET, "Ingress"): _as_new(network.ingress),
    (_NET, "IngressClass"): network.ingress_class_update,
    (_NET, "ServiceCIDR"): network.service_cidr_update,
    ("node.k8s.io", "RuntimeClass"): cluster.runtime_class_update,
    (_RBAC, "ClusterRoleBinding"): rbac.cluster_role_binding_update,
    (_RBAC, "RoleBinding"): rbac.role_binding_update,
    (_RESOURCE, "ResourceClaim"): device.claim_update,
    (_RESOURCE, "ResourceClaimTemplate"): device.claim_template_update,
    (_RESOURCE, "ResourceSlice"): device.slice_update,
    ("scheduling.k8s.io", "PriorityClass"): cluster.priority_class_update,
    (_STORAGE, "CSIDriver"): storage.csi_driver_update,
    (_STORAGE, "CSIStorageCapacity"): storage.csi_storage_capacity_update,
    (_STORAGE, "StorageClass"): storage.storage_class_update,
    (_STORAGE, "VolumeAttachment"): storage.volume_attachment_update,
    (_STORAGE, "VolumeAttributesClass"): storage.volume_attributes_class_update,
}

# Parts of an object that are changed through a subresource.
_PARTS: dict[tuple[str, str], UpdateCheck] = {
    ("CertificateSigningRequest", "approval"): approval.update,
    ("CertificateSigningRequest", "status"): state.signing_request,
    ("Deployment", "status"): state.workload,
    ("Namespace", "status"): state.namespace,
    ("Node", "status"): cluster.node_update,
    ("Pod", "ephemeralcontainers"): ephemeral.update,
    ("Pod", "resize"): resize.update,
    ("Pod", "status"): state.pod,
    ("PodCertificateRequest", "status"): podcertificate.status,
    ("ReplicaSet", "status"): state.workload,
}


def create(kind: scheme.Kind, obj: Document) -> list[FieldError]:
    """All that is wrong with a new object."""
    errors = list(meta.create(kind, obj.get("metadata") or {}))
    if kind.definition is not None:
        return errors + kind.definition.errors(obj)
    check = _CREATE.get((kind.group, kind.kind))
    return _distinct(errors, check(obj) if check is not None else ())


def update(
    kind: scheme.Kind, new: Document, old: Document, subresource: str = ""
) -> list[FieldError]:
    """All that is wrong with a changed object.

    A subresource changes what the main resource may not (a binding sets the node, a resize the
    resources): it has rules of its own, or only the metadata is checked.
    """
    metadata = new.get("metadata") or {}
    errors = list(meta.update(kind, metadata, old.get("metadata") or {}))
    if kind.definition is not None:
        return errors + kind.definition.errors(new, old, subresource)
    if subresource:
        part = _PARTS.get((kind.kind, subresource))
        return errors + list(part(new, old)) if part is not None else errors
    key = (kind.group, kind.kind)
    if key in _UPDATE:
        return _distinct(errors, _UPDATE[key](new, old))
    check = _CREATE.get(key)
    return _distinct(errors, check(new) if check is not None else ())


def _distinct(errors: list[FieldError], more: Iterable[FieldError]) -> list[FieldError]:
    """Everything that is wrong, each thing once."""
    return list(dict.fromkeys([*errors, *more]))
