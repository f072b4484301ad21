"""One broken rule at a time, for the kinds beyond pods, workloads and services."""

import copy
from typing import Any

import pytest

from motley.api import defaults, schema, scheme, validation

KINDS = {kind.kind: kind for kind in scheme.kinds() if kind.stored_as is None}
REQUEST = (
    "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIQQotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNU"
    "LS0tLS0K"
)
TEMPLATE = {
    "metadata": {"labels": {"app": "a"}},
    "spec": {"containers": [{"name": "c", "image": "x"}]},
}
JOB = {"template": {"spec": {**TEMPLATE["spec"], "restartPolicy": "Never"}}}
RULE = {
    "operations": ["CREATE"],
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["pods"],
}
HOOK = {
    "name": "a.example.com",
    "clientConfig": {"url": "https://example.com/x"},
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
    "rules": [RULE],
}
SOUND: dict[str, dict[str, Any]] = {
    "ClusterRole": {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]},
    "ControllerRevision": {"data": {"a": 1}, "revision": 1},
    "CSIDriver": {"spec": {}},
    "CSINode": {"spec": {"drivers": [{"name": "d.example.com", "nodeID": "n"}]}},
    "CertificateSigningRequest": {
        "spec": {"request": REQUEST, "signerName": "example.com/s", "usages": ["client auth"]}
    },
    "CronJob": {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": JOB}}},
    "DeviceClass": {"spec": {"selectors": [{"cel": {"expression": "device.driver == 'x'"}}]}},
    "FlowSchema": {"spec": {"priorityLevelConfiguration": {"name": "p"}}},
    "HorizontalPodAutoscaler": {
        "spec": {
            "maxReplicas": 3,
            "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
        }
    },
    "IPAddress": {"spec": {"parentRef": {"resource": "services", "name": "s"}}},
    "Ingress": {"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}},
    "IngressClass": {"spec": {"controller": "example.com/c"}},
    "LimitRange": {"spec": {"limits": [{"type": "Container", "max": {"cpu": "2"}}]}},
    "NetworkPolicy": {"spec": {"podSelector": {}}},
    "PersistentVolume": {
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/x"},
        }
    },
    "PersistentVolumeClaim": {
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    },
    "PodDisruptionBudget": {"spec": {"minAvailable": 1, "selector": {}}},
    "PriorityLevelConfiguration": {
        "spec": {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}
    },
    "ReplicationController": {"spec": {"template": TEMPLATE}},
    "ResourceClaim": {
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}
    },
    "ResourceQuota": {"spec": {"hard": {"pods": "1"}}},
    "Role": {"rules": [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]},
    "RoleBinding": {"roleRef": {"kind": "Role", "name": "r"}},
    "RuntimeClass": {"handler": "h"},
    "ServiceCIDR": {"spec": {"cidrs": ["10.0.0.0/24"]}},
    "StorageClass": {"provisioner": "example.com/p"},
    "ValidatingAdmissionPolicy": {
        "spec": {
            "matchConstraints": {"resourceRules": [RULE]},
            "validations": [{"expression": "object.metadata.name != 'x'"}],
        }
    },
    "ValidatingAdmissionPolicyBinding": {
        "spec": {"policyName": "p", "validationActions": ["Deny"]}
    },
    "ValidatingWebhookConfiguration": {"webhooks": [HOOK]},
    "VolumeAttachment": {
        "spec": {
            "attacher": "d.example.com",
            "nodeName": "n",
            "source": {"persistentVolumeName": "v"},
        }
    },
    "VolumeAttributesClass": {"driverName": "d.example.com", "parameters": {"a": "b"}},
}


def made(kind: str, change: dict[str, Any] | None = None) -> dict[str, Any]:
    """A sound object of the kind, with a change at `path.to.field`; None takes the field away."""
    row = KINDS[kind]
    obj = {"kind": kind, "apiVersion": row.api_version, "metadata": {"name": "a"}}
    obj |= copy.deepcopy(SOUND[kind])
    for path, value in (change or {}).items():
        *parents, last = path.split(".")
        at: Any = obj
        for part in parents:
            at = at[int(part)] if isinstance(at, list) else at.setdefault(part, {})
        if value is None:
            at.pop(last, None)
        elif isinstance(at, list):
            at[int(last)] = value
        else:
            at[last] = value
    if row.namespaced:
        obj["metadata"]["namespace"] = "n"
    if kind == "IPAddress":
        obj["metadata"]["name"] = "10.0.0.1"
    checked = schema.check(row, obj)
    assert checked == ([], [])
    defaults.apply(row, obj)
    return obj


@pytest.mark.parametrize("kind", SOUND)
def test_a_sound_object_has_no_errors(kind):
    obj = made(kind)

    assert validation.create(KINDS[kind], obj) == []
    assert validation.update(KINDS[kind], obj, copy.deepcopy(obj)) == []


@pytest.mark.parametrize(
    ("kind", "change", "expected"),
    [
        (
            "ClusterRole",
            {"rules.0.verbs": []},
            "rules[0].verbs: Required value",
        ),
        (
            "Role",
            {"rules.0": {"verbs": ["get"], "nonResourceURLs": ["/x"]}},
            'rules[0].nonResourceURLs: Invalid value: ["/x"]: namespaced rules cannot apply to '
            "non-resource URLs",
        ),
        (
            "RoleBinding",
            {"roleRef.kind": "X"},
            'roleRef.kind: Unsupported value: "X": supported values: "Role", "ClusterRole"',
        ),
        (
            "RoleBinding",
            {"subjects": [{"kind": "User", "name": "u", "apiGroup": "x"}]},
            'subjects[0].apiGroup: Unsupported value: "x": supported values: '
            '"rbac.authorization.k8s.io"',
        ),
        (
            "ControllerRevision",
            {"data": None},
            "data: Required value: data is mandatory",
        ),
        (
            "CSIDriver",
            {"spec.fsGroupPolicy": "X"},
            'spec.fsGroupPolicy: Unsupported value: "X": supported values: "File", "None", '
            '"ReadWriteOnceWithFSType"',
        ),
        (
            "CSINode",
            {"spec.drivers.0.nodeID": ""},
            "spec.drivers[0].nodeID: Required value",
        ),
        (
            "CertificateSigningRequest",
            {"spec.signerName": "x"},
            'spec.signerName: Invalid value: "x": must be a fully qualified domain and path of '
            "the form 'example.com/signer-name'",
        ),
        (
            "CertificateSigningRequest",
            {"spec.request": "eA=="},
            'spec.request: Invalid value: "eA==": PEM block type must be CERTIFICATE REQUEST',
        ),
        (
            "CronJob",
            {"spec.schedule": "* * *"},
            'spec.schedule: Invalid value: "* * *": expected exactly 5 fields, found 3: [* * *]',
        ),
        (
            "CronJob",
            {"spec.timeZone": "Mars/X"},
            'spec.timeZone: Invalid value: "Mars/X": unknown time zone Mars/X',
        ),
        (
            "DeviceClass",
            {"spec.selectors.0.cel.expression": "nosuch == 1"},
            "undeclared reference to 'nosuch' (in container '')",
        ),
        (
            "FlowSchema",
            {"spec.matchingPrecedence": 20000},
            "spec.matchingPrecedence: Invalid value: 20000: must not be greater than 10000",
        ),
        (
            "HorizontalPodAutoscaler",
            {"spec.minReplicas": 5},
            "spec.maxReplicas: Invalid value: 3: must be greater than or equal to `minReplicas`",
        ),
        (
            "IPAddress",
            {"spec.parentRef.name": ""},
            "spec.parentRef.name: Required value",
        ),
        (
            "Ingress",
            {"spec.defaultBackend.service.port": {}},
            "spec.defaultBackend: Required value: port name or number is required",
        ),
        (
            "Ingress",
            {"spec.rules": [{"host": "1.2.3.4"}]},
            'spec.rules[0].host: Invalid value: "1.2.3.4": must be a DNS name, not an IP address',
        ),
        (
            "IngressClass",
            {"spec.controller": "x"},
            'spec.controller: Invalid value: "x": must be a domain-prefixed path (such as '
            '"acme.io/foo")',
        ),
        (
            "LimitRange",
            {"spec.limits.0.min": {"cpu": "3"}, "spec.limits.0.defaultRequest": {"cpu": "3"}},
            'spec.limits[0].min[cpu]: Invalid value: "3": min value 3 is greater than max value 2',
        ),
        (
            "NetworkPolicy",
            {"spec.ingress": [{"from": [{}]}]},
            "spec.ingress[0].from[0]: Required value: must specify a peer",
        ),
        (
            "PersistentVolume",
            {"spec.nfs": {"server": "s", "path": "/p"}},
            "spec.nfs: Forbidden: may not specify more than 1 volume type",
        ),
        (
            "PersistentVolumeClaim",
            {"spec.accessModes": ["ReadWriteOncePod", "ReadOnlyMany"]},
            "spec.accessModes: Forbidden: may not use ReadWriteOncePod with other access modes",
        ),
        (
            "PodDisruptionBudget",
            {"spec.minAvailable": "101%"},
            'spec.minAvailable: Invalid value: "101%": must not be greater than 100%',
        ),
        (
            "PriorityLevelConfiguration",
            {"spec.limited.limitResponse.type": "X"},
            'spec.limited.limitResponse.type: Unsupported value: "X": supported values: "Queue", '
            '"Reject"',
        ),
        (
            "ReplicationController",
            {"spec.selector": {"app": "b"}},
            "`selector` does not match template `labels`",
        ),
        (
            "ResourceClaim",
            {"spec.devices.requests.0.exactly.deviceClassName": ""},
            "spec.devices.requests[0].exactly.deviceClassName: Required value",
        ),
        (
            "ResourceQuota",
            {"spec.hard": {"pods": "1500m"}},
            'spec.hard[pods]: Invalid value: "1500m": must be an integer',
        ),
        (
            "ResourceQuota",
            {"spec.scopes": ["BestEffort", "NotBestEffort"]},
            'spec.scopes: Invalid value: ["BestEffort","NotBestEffort"]: conflicting scopes',
        ),
        (
            "RuntimeClass",
            {"handler": ""},
            "handler: Required value",
        ),
        (
            "ServiceCIDR",
            {"spec.cidrs": ["10.0.0.1/24"]},
            'spec.cidrs[0]: Invalid value: "10.0.0.1/24": must be in canonical form '
            '("10.0.0.0/24")',
        ),
        (
            "StorageClass",
            {"volumeBindingMode": "X"},
            'volumeBindingMode: Unsupported value: "X": supported values: "Immediate", '
            '"WaitForFirstConsumer"',
        ),
        (
            "ValidatingAdmissionPolicy",
            {"spec.validations.0.expression": "'a'"},
            "spec.validations[0].expression: Invalid value: \"'a'\": must evaluate to bool but "
            "got string",
        ),
        (
            "ValidatingAdmissionPolicyBinding",
            {"spec.validationActions": ["Deny", "Warn"]},
            "must not contain both Deny and Warn",
        ),
        (
            "ValidatingWebhookConfiguration",
            {"webhooks.0.clientConfig": {"url": "http://x"}},
            "webhooks[0].clientConfig.url: Invalid value: \"http\": 'https' is the only allowed "
            "URL scheme; desired format: https://host[/path]",
        ),
        (
            "ValidatingWebhookConfiguration",
            {"webhooks.0.sideEffects": "Some"},
            'webhooks[0].sideEffects: Unsupported value: "Some": supported values: "None", '
            '"NoneOnDryRun"',
        ),
        (
            "VolumeAttachment",
            {"spec.source": {}},
            "spec.source: Required value: must specify exactly one of inlineVolumeSpec and "
            "persistentVolumeName",
        ),
        (
            "VolumeAttributesClass",
            {"parameters": None},
            "parameters: Required value: must contain at least one key/value pair",
        ),
    ],
)
def test_a_broken_rule_is_told_with_its_field(kind, change, expected):
    found = validation.create(KINDS[kind], made(kind, change))

    assert any(expected in str(error) for error in found), [str(e) for e in found]


@pytest.mark.parametrize(
    ("kind", "change", "expected"),
    [
        (
            "ControllerRevision",
            {"data": {"z": 1}},
            'data: Invalid value: {"z":1}: field is immutable',
        ),
        ("CSIDriver", {"spec.attachRequired": False}, "field is immutable"),
        (
            "IngressClass",
            {"spec.controller": "x.y/z"},
            'spec.controller: Invalid value: "x.y/z": field is immutable',
        ),
        (
            "PersistentVolume",
            {"spec.hostPath.path": "/y"},
            "spec.persistentvolumesource: Forbidden: spec.persistentvolumesource is immutable",
        ),
        (
            "PersistentVolumeClaim",
            {"spec.accessModes": ["ReadOnlyMany"]},
            "spec: Forbidden: spec is immutable after creation",
        ),
        ("ResourceClaim", {"spec.devices.requests": []}, "spec: Invalid value: null"),
        ("ResourceQuota", {"spec.scopes": ["Terminating"]}, "field is immutable"),
        ("RoleBinding", {"roleRef.name": "z"}, "field is immutable"),
        ("RuntimeClass", {"handler": "z"}, "handler: Invalid value: null: field is immutable"),
        ("StorageClass", {"parameters": {"a": "b"}}, "parameters: Invalid value: null"),
        ("VolumeAttachment", {"spec.nodeName": "m"}, "spec: Invalid value: null"),
    ],
)
def test_what_was_said_once_stays_said(kind, change, expected):
    found = validation.update(KINDS[kind], made(kind, change), made(kind))

    assert any(expected in str(error) for error in found), [str(e) for e in found]


def test_a_bound_claim_may_ask_for_more():
    old = made("PersistentVolumeClaim", {"status.phase": "Bound"})
    new = copy.deepcopy(old)
    new["spec"]["resources"]["requests"]["storage"] = "2Gi"

    assert validation.update(KINDS["PersistentVolumeClaim"], new, old) == []


def test_an_unbound_claim_gets_its_volume_once():
    old = made("PersistentVolumeClaim")
    new = made("PersistentVolumeClaim", {"spec.volumeName": "v"})

    assert validation.update(KINDS["PersistentVolumeClaim"], new, old) == []
    assert validation.update(KINDS["PersistentVolumeClaim"], old, new) != []
