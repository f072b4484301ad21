"""One valid object of every kind a client may create: what typed tests write and fuzzing damages.

Each is minimal but for one or two fields that tests change or compare. Names are left to the
caller; every specimen stands alone and refers to nothing that must exist.
"""

import copy
from typing import Any

Document = dict[str, Any]

_LABELS = {"app": "web"}
_CONTAINER = {"name": "c", "image": "nginx:1"}
_POD = {"containers": [_CONTAINER]}
_TEMPLATE = {"metadata": {"labels": _LABELS}, "spec": _POD}
_SELECTOR = {"matchLabels": _LABELS}
_JOB = {"template": {"spec": {**_POD, "restartPolicy": "Never"}}}
_RULE = {
    "apiGroups": ["example.org"],
    "apiVersions": ["v1"],
    "operations": ["CREATE"],
    "resources": ["nothing"],
}
_WEBHOOK = {
    "name": "hook.example.org",
    "admissionReviewVersions": ["v1"],
    "sideEffects": "None",
    "clientConfig": {"url": "https://hook.example.org/"},
    "rules": [_RULE],
}
# (apiVersion, kind): plural, is it namespaced, the object without metadata
_TABLE: dict[tuple[str, str], tuple[str, bool, Document]] = {
    ("v1", "ConfigMap"): ("configmaps", True, {"data": {"k": "v"}}),
    ("v1", "Secret"): ("secrets", True, {"data": {"k": "dg=="}, "type": "Opaque"}),
    ("v1", "Pod"): ("pods", True, {"spec": _POD}),
    ("v1", "PodTemplate"): ("podtemplates", True, {"template": _TEMPLATE}),
    ("v1", "Service"): (
        "services",
        True,
        {"spec": {"selector": _LABELS, "ports": [{"port": 80, "targetPort": "http"}]}},
    ),
    ("v1", "Endpoints"): (
        "endpoints",
        True,
        {"subsets": [{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 80}]}]},
    ),
    ("v1", "ServiceAccount"): ("serviceaccounts", True, {"automountServiceAccountToken": False}),
    ("v1", "LimitRange"): (
        "limitranges",
        True,
        {"spec": {"limits": [{"type": "PersistentVolumeClaim", "max": {"storage": "1Ti"}}]}},
    ),
    ("v1", "ResourceQuota"): (
        "resourcequotas",
        True,
        {"spec": {"hard": {"services.nodeports": "5"}}},
    ),
    ("v1", "ReplicationController"): (
        "replicationcontrollers",
        True,
        {"spec": {"replicas": 1, "selector": _LABELS, "template": _TEMPLATE}},
    ),
    ("v1", "PersistentVolumeClaim"): (
        "persistentvolumeclaims",
        True,
        {
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
                "storageClassName": "slow",
            }
        },
    ),
    ("v1", "PersistentVolume"): (
        "persistentvolumes",
        False,
        {
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "hostPath": {"path": "/data"},
                "persistentVolumeReclaimPolicy": "Retain",
            }
        },
    ),
    ("v1", "Event"): (
        "events",
        True,
        {
            "involvedObject": {"kind": "Pod", "name": "a", "namespace": "fuzz"},
            "reason": "Tested",
            "message": "it was tested",
            "type": "Normal",
        },
    ),
    ("v1", "Namespace"): ("namespaces", False, {}),
    ("v1", "Node"): ("nodes", False, {"spec": {"unschedulable": True}}),
    ("apps/v1", "Deployment"): (
        "deployments",
        True,
        {"spec": {"replicas": 1, "selector": _SELECTOR, "template": _TEMPLATE}},
    ),
    ("apps/v1", "ReplicaSet"): (
        "replicasets",
        True,
        {"spec": {"replicas": 1, "selector": _SELECTOR, "template": _TEMPLATE}},
    ),
    ("apps/v1", "StatefulSet"): (
        "statefulsets",
        True,
        {
            "spec": {
                "replicas": 1,
                "serviceName": "web",
                "selector": _SELECTOR,
                "template": _TEMPLATE,
            }
        },
    ),
    ("apps/v1", "DaemonSet"): (
        "daemonsets",
        True,
        {"spec": {"selector": _SELECTOR, "template": _TEMPLATE}},
    ),
    ("apps/v1", "ControllerRevision"): (
        "controllerrevisions",
        True,
        {"revision": 1, "data": {"spec": {"a": 1}}},
    ),
    ("batch/v1", "Job"): ("jobs", True, {"spec": {"parallelism": 1, **_JOB}}),
    ("batch/v1", "CronJob"): (
        "cronjobs",
        True,
        {"spec": {"schedule": "@daily", "jobTemplate": {"spec": _JOB}}},
    ),
    ("autoscaling/v2", "HorizontalPodAutoscaler"): (
        "horizontalpodautoscalers",
        True,
        {
            "spec": {
                "maxReplicas": 3,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            }
        },
    ),
    ("policy/v1", "PodDisruptionBudget"): (
        "poddisruptionbudgets",
        True,
        {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "other"}}}},
    ),
    ("networking.k8s.io/v1", "Ingress"): (
        "ingresses",
        True,
        {
            "spec": {
                "rules": [
                    {
                        "host": "web.example.org",
                        "http": {
                            "paths": [
                                {
                                    "path": "/",
                                    "pathType": "Prefix",
                                    "backend": {"service": {"name": "web", "port": {"number": 80}}},
                                }
                            ]
                        },
                    }
                ]
            }
        },
    ),
    ("networking.k8s.io/v1", "IngressClass"): (
        "ingressclasses",
        False,
        {"spec": {"controller": "example.org/controller"}},
    ),
    ("networking.k8s.io/v1", "NetworkPolicy"): (
        "networkpolicies",
        True,
        {"spec": {"podSelector": _SELECTOR, "policyTypes": ["Ingress"]}},
    ),
    ("discovery.k8s.io/v1", "EndpointSlice"): (
        "endpointslices",
        True,
        {
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["10.1.2.3"]}],
            "ports": [{"name": "http", "port": 80}],
        },
    ),
    ("events.k8s.io/v1", "Event"): (
        "events",
        True,
        {
            "regarding": {"kind": "Pod", "name": "a", "namespace": "fuzz"},
            "reason": "Tested",
            "action": "Testing",
            "type": "Normal",
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "example.org/tests",
            "reportingInstance": "tests-1",
            "note": "it was tested",
        },
    ),
    ("coordination.k8s.io/v1", "Lease"): (
        "leases",
        True,
        {"spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}},
    ),
    ("scheduling.k8s.io/v1", "PriorityClass"): (
        "priorityclasses",
        False,
        {"value": 10, "description": "higher"},
    ),
    ("node.k8s.io/v1", "RuntimeClass"): ("runtimeclasses", False, {"handler": "runc"}),
    ("storage.k8s.io/v1", "StorageClass"): (
        "storageclasses",
        False,
        {"provisioner": "example.org/disks", "reclaimPolicy": "Delete"},
    ),
    ("storage.k8s.io/v1", "CSIDriver"): ("csidrivers", False, {"spec": {"attachRequired": False}}),
    ("storage.k8s.io/v1", "VolumeAttachment"): (
        "volumeattachments",
        False,
        {
            "spec": {
                "attacher": "example.org",
                "nodeName": "a",
                "source": {"persistentVolumeName": "a"},
            }
        },
    ),
    ("rbac.authorization.k8s.io/v1", "Role"): (
        "roles",
        True,
        {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
    ),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): (
        "rolebindings",
        True,
        {
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "view",
            },
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "somebody"}
            ],
        },
    ),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): (
        "clusterroles",
        False,
        {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
    ),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): (
        "clusterrolebindings",
        False,
        {
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "view",
            },
            "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}],
        },
    ),
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"): (
        "validatingwebhookconfigurations",
        False,
        {"webhooks": [_WEBHOOK]},
    ),
    ("admissionregistration.k8s.io/v1", "MutatingWebhookConfiguration"): (
        "mutatingwebhookconfigurations",
        False,
        {"webhooks": [_WEBHOOK]},
    ),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"): (
        "validatingadmissionpolicies",
        False,
        {
            "spec": {
                "matchConstraints": {"resourceRules": [_RULE]},
                "validations": [{"expression": "object.metadata.name != 'x'"}],
            }
        },
    ),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"): (
        "validatingadmissionpolicybindings",
        False,
        {"spec": {"policyName": "nothing", "validationActions": ["Deny"]}},
    ),
    ("flowcontrol.apiserver.k8s.io/v1", "PriorityLevelConfiguration"): (
        "prioritylevelconfigurations",
        False,
        {
            "spec": {
                "type": "Limited",
                "limited": {"nominalConcurrencyShares": 5, "limitResponse": {"type": "Reject"}},
            }
        },
    ),
    ("flowcontrol.apiserver.k8s.io/v1", "FlowSchema"): (
        "flowschemas",
        False,
        {
            "spec": {
                "priorityLevelConfiguration": {"name": "exempt"},
                "matchingPrecedence": 1000,
                "rules": [
                    {
                        "subjects": [{"kind": "User", "user": {"name": "somebody"}}],
                        "resourceRules": [
                            {
                                "verbs": ["get"],
                                "apiGroups": [""],
                                "resources": ["pods"],
                                "namespaces": ["*"],
                            }
                        ],
                    }
                ],
            }
        },
    ),
    ("resource.k8s.io/v1", "DeviceClass"): (
        "deviceclasses",
        False,
        {"spec": {"selectors": [{"cel": {"expression": "true"}}]}},
    ),
    ("resource.k8s.io/v1", "ResourceClaim"): (
        "resourceclaims",
        True,
        {
            "spec": {
                "devices": {
                    "requests": [{"name": "one", "exactly": {"deviceClassName": "example.org"}}]
                }
            }
        },
    ),
    ("fuzz.example.org/v1", "Odd"): (
        "odds",
        True,
        {"spec": {"size": 3, "parts": [{"name": "x", "weight": 0.5}]}},
    ),
}


def kinds() -> list[tuple[str, str]]:
    """The kinds there are specimens of."""
    return list(_TABLE)


def plural(api_version: str, kind: str) -> str:
    """The name of the resource in paths."""
    return _TABLE[api_version, kind][0]


def is_namespaced(api_version: str, kind: str) -> bool:
    """Whether objects of the kind live in a namespace."""
    return _TABLE[api_version, kind][1]


def path(api_version: str, kind: str, namespace: str) -> str:
    """The path of the collection."""
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    inner = f"/namespaces/{namespace}" if is_namespaced(api_version, kind) else ""
    return f"{root}{inner}/{plural(api_version, kind)}"


def make(api_version: str, kind: str, name: str, namespace: str = "") -> Document:
    """A specimen with this name; the caller's to change."""
    document = copy.deepcopy(_TABLE[api_version, kind][2])
    metadata: Document = {"name": name}
    if namespace and is_namespaced(api_version, kind):
        metadata["namespace"] = namespace
    if kind == "Event" and namespace:
        for reference in ("involvedObject", "regarding"):
            if reference in document:
                document[reference]["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **document}
