"""What an object is before anybody has said anything, and what is nobody's to own.

In Kubernetes' own types some parts are always there: a Deployment without a template still has an
empty one. Whoever creates the object therefore owns what is in such a part, but not the part
itself, which would show as a `.` in its set. The published schemas do not say which parts these
are; this table does.

`ignored` names what a request cannot change whatever it sends: status on the main resource, the
rest on the status subresource, and the metadata that belongs to the server.
"""

from typing import Any, NamedTuple

from motley.api import scheme
from motley.api.fields.pathset import LEAF, MEMBER, PathSet, is_member, without_below

_SCALED: dict[str, Any] = {"replicas": 0}
_TEMPLATE: dict[str, Any] = {"metadata": {}, "spec": {"containers": None}}
_ROLE_REF = {"apiGroup": "", "kind": "", "name": ""}
_NAMES = {"plural": "", "kind": ""}
_EMPTY: dict[tuple[str, str], dict[str, Any]] = {
    ("", "Event"): {
        "involvedObject": {},
        "source": {},
        "firstTimestamp": None,
        "lastTimestamp": None,
        "eventTime": None,
        "reportingComponent": "",
        "reportingInstance": "",
    },
    ("", "Node"): {"spec": {}, "status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 0}}}},
    ("", "PersistentVolumeClaim"): {"spec": {"resources": {}}, "status": {}},
    ("", "Pod"): {"spec": {"containers": None}, "status": {}},
    ("", "PodTemplate"): {"template": _TEMPLATE},
    ("", "ReplicationController"): {"spec": {}, "status": _SCALED},
    ("", "Service"): {"spec": {}, "status": {"loadBalancer": {}}},
    ("apiregistration.k8s.io", "APIService"): {
        "spec": {"groupPriorityMinimum": 0, "versionPriority": 0},
        "status": {},
    },
    ("apps", "ControllerRevision"): {"data": None, "revision": 0},
    ("apps", "DaemonSet"): {
        "spec": {"selector": None, "template": _TEMPLATE, "updateStrategy": {}},
        "status": {
            "currentNumberScheduled": 0,
            "numberMisscheduled": 0,
            "desiredNumberScheduled": 0,
            "numberReady": 0,
        },
    },
    ("apps", "Deployment"): {
        "spec": {"selector": None, "template": _TEMPLATE, "strategy": {}},
        "status": {},
    },
    ("apps", "ReplicaSet"): {
        "spec": {"selector": None, "template": _TEMPLATE},
        "status": _SCALED,
    },
    ("apps", "StatefulSet"): {
        "spec": {"selector": None, "template": _TEMPLATE, "serviceName": "", "updateStrategy": {}},
        "status": {"replicas": 0, "availableReplicas": 0},
    },
    ("autoscaling", "HorizontalPodAutoscaler"): {
        "spec": {"scaleTargetRef": {"kind": "", "name": ""}, "maxReplicas": 0},
        "status": {"desiredReplicas": 0, "currentMetrics": None},
    },
    ("autoscaling", "Scale"): {"spec": {}, "status": _SCALED},
    ("batch", "CronJob"): {
        "spec": {
            "schedule": "",
            "jobTemplate": {"metadata": {}, "spec": {"template": _TEMPLATE}},
        },
        "status": {},
    },
    ("batch", "Job"): {"spec": {"template": _TEMPLATE}, "status": {}},
    ("certificates.k8s.io", "CertificateSigningRequest"): {
        "spec": {"request": None, "signerName": ""},
        "status": {},
    },
    ("networking.k8s.io", "Ingress"): {"spec": {}, "status": {"loadBalancer": {}}},
    ("networking.k8s.io", "NetworkPolicy"): {"spec": {"podSelector": {}}},
    ("policy", "PodDisruptionBudget"): {
        "spec": {},
        "status": {
            "disruptionsAllowed": 0,
            "currentHealthy": 0,
            "desiredHealthy": 0,
            "expectedPods": 0,
        },
    },
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): {"roleRef": _ROLE_REF},
    ("rbac.authorization.k8s.io", "ClusterRole"): {"rules": None},
    ("rbac.authorization.k8s.io", "RoleBinding"): {"roleRef": _ROLE_REF},
    ("rbac.authorization.k8s.io", "Role"): {"rules": None},
    ("storage.k8s.io", "CSINode"): {"spec": {"drivers": None}, "status": {}},
    ("storage.k8s.io", "CSIStorageCapacity"): {"storageClassName": ""},
    ("storage.k8s.io", "StorageClass"): {"provisioner": ""},
    ("storage.k8s.io", "VolumeAttachment"): {
        "spec": {"attacher": "", "source": {}, "nodeName": ""},
        "status": {"attached": False},
    },
    ("storage.k8s.io", "VolumeAttributesClass"): {"driverName": ""},
    ("apiextensions.k8s.io", "CustomResourceDefinition"): {
        "spec": {"group": "", "names": _NAMES, "scope": "", "versions": None},
        "status": {"conditions": None, "acceptedNames": _NAMES, "storedVersions": None},
    },
    ("storagemigration.k8s.io", "StorageVersionMigration"): {
        "spec": {"resource": {}},
        "status": {},
    },
    ("authentication.k8s.io", "TokenRequest"): {
        "spec": {"audiences": None, "expirationSeconds": None, "boundObjectRef": None},
        "status": {"token": "", "expirationTimestamp": None},
    },
    ("scheduling.k8s.io", "PriorityClass"): {"value": 0},
    ("node.k8s.io", "RuntimeClass"): {"handler": ""},
    ("discovery.k8s.io", "EndpointSlice"): {"addressType": "", "ports": None},
    ("events.k8s.io", "Event"): {
        "eventTime": None,
        "regarding": {},
        "deprecatedSource": {},
        "deprecatedFirstTimestamp": None,
        "deprecatedLastTimestamp": None,
    },
    ("resource.k8s.io", "DeviceTaintRule"): {
        "spec": {"taint": {"key": "", "effect": ""}},
        "status": {},
    },
    ("resource.k8s.io", "ResourceClaim"): {"spec": {"devices": {"requests": None}}, "status": {}},
    ("resource.k8s.io", "ResourceClaimTemplate"): {
        "spec": {"metadata": {}, "spec": {"devices": {"requests": None}}}
    },
    ("resource.k8s.io", "ResourceSlice"): {
        "spec": {"driver": "", "pool": {"name": "", "generation": 0, "resourceSliceCount": 0}}
    },
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"): {
        "spec": {"priorityLevelConfiguration": {"name": ""}, "matchingPrecedence": 0},
        "status": {},
    },
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"): {
        "spec": {"type": ""},
        "status": {},
    },
}
_USUAL: dict[str, Any] = {"spec": {}, "status": {}}


def empty(kind: scheme.Kind) -> dict[str, Any]:
    """The object as its type makes it. Custom resources have no type: they begin with nothing."""
    if kind.definition is not None:
        return {}
    return _EMPTY.get((kind.group, kind.kind), _USUAL)


# What the server adds to a new object in the name of its creator.
_IMPLIED: dict[tuple[str, str], dict[str, Any]] = {
    ("apps", "DaemonSet"): {"annotations": {"deprecated.daemonset.template.generation": "0"}},
}


def implied_metadata(kind: scheme.Kind, metadata: dict[str, Any]) -> dict[str, Any]:
    """The metadata of a new object with what is taken to be the creator's wish."""
    implied = _IMPLIED.get((kind.group, kind.kind))
    if implied is None:
        return metadata
    return metadata | {k: v | (metadata.get(k) or {}) for k, v in implied.items()}


class Ignored(NamedTuple):
    """What a request on a resource or subresource cannot change."""

    top: frozenset[str]  # whole fields of the object
    metadata: frozenset[str]
    deeper: PathSet  # the same and more, as a set


# Kubernetes never records an owner for these.
_SERVERS_TOP = frozenset(("apiVersion", "kind"))
_SERVERS_METADATA = frozenset(
    (
        "name",
        "namespace",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    )
)
_CERTIFICATES = ("certificates.k8s.io", "certificatesigningrequests")
# On these a write of the status leaves all metadata alone.
_STRICT_GROUPS = frozenset(
    (
        "admissionregistration.k8s.io",
        "apiregistration.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "resource.k8s.io",
        "storage.k8s.io",
    )
)


_known: dict[tuple[str, str, bool, str], Ignored] = {}


def ignored(kind: scheme.Kind, subresource: str = "") -> Ignored:
    """What a request on this (sub)resource cannot change."""
    # Not `functools.cache`: the hash of a kind costs more than all the rest of a small write.
    has_status = "status" in kind.subresources
    name = (kind.group, kind.plural, has_status, subresource)
    found = _known.get(name)
    if found is None:
        found = _known[name] = _ignored(kind, subresource)
    return found


def _ignored(kind: scheme.Kind, subresource: str) -> Ignored:
    top, metadata = set[str](), set[str]()
    deeper: PathSet = {}
    resource = (kind.group, kind.plural)
    if subresource == "":
        if "status" in kind.subresources:
            top.add("status")
        if resource == _CERTIFICATES:
            top.add("spec")
    elif subresource in ("status", "approval"):
        top.add("spec")
        if kind.definition is not None or kind.group in _STRICT_GROUPS:
            top.add("metadata")
        elif resource == ("", "pods"):
            metadata.add("ownerReferences")
        elif resource == ("apps", "deployments"):
            metadata.add("labels")
        elif resource == _CERTIFICATES:
            kept = "conditions" if subresource == "status" else "certificate"
            deeper["f:status"] = {f"f:{kept}": LEAF}
    elif subresource == "finalize":
        top.add("status")
    deeper |= {f"f:{name}": LEAF for name in top | _SERVERS_TOP}
    if "metadata" not in top:
        deeper["f:metadata"] = {f"f:{name}": LEAF for name in metadata | _SERVERS_METADATA}
    return Ignored(frozenset(top | _SERVERS_TOP), frozenset(metadata | _SERVERS_METADATA), deeper)


def ownable(fields: PathSet, unchanged: Ignored) -> PathSet:
    """The set without what a request cannot change. Metadata as such is nobody's."""
    found = without_below(fields, unchanged.deeper)
    metadata = found.get("f:metadata")
    if metadata is not None and is_member(metadata):
        found["f:metadata"] = {k: v for k, v in metadata.items() if k != MEMBER}
        if not found["f:metadata"]:
            del found["f:metadata"]
    return found
