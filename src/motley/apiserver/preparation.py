"""What the server decides about new objects of one kind: the strategy functions of the table.

A kind needs none of this. Where Kubernetes counts generations, starts with a certain status or
completes an object from its own name and uid, a row here says so; `strategy` applies the rows.

Invariant: functions here change only the new document, and read neither store nor clock.
"""

from collections.abc import Callable
from typing import Any

from motley.api import names
from motley.api.defaults import pod as pod_defaults
from motley.api.defaults import storage
from motley.apiserver.subresources import approval

Document = dict[str, Any]
Prepare = Callable[[Document, str], None]
"""Completes a new object; the text is the moment of its creation."""

_ADMISSION = "admissionregistration.k8s.io"
_FLOW = "flowcontrol.apiserver.k8s.io"
_NET = "networking.k8s.io"
_RESOURCE = "resource.k8s.io"

# Kinds whose spec changes are counted in metadata.generation, as in Kubernetes.
COUNTED = frozenset(
    {
        ("", "pods"),
        ("", "podtemplates"),
        ("", "replicationcontrollers"),
        (_ADMISSION, "mutatingadmissionpolicies"),
        (_ADMISSION, "mutatingadmissionpolicybindings"),
        (_ADMISSION, "mutatingwebhookconfigurations"),
        (_ADMISSION, "validatingadmissionpolicies"),
        (_ADMISSION, "validatingadmissionpolicybindings"),
        (_ADMISSION, "validatingwebhookconfigurations"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("apps", "daemonsets"),
        ("apps", "deployments"),
        ("apps", "replicasets"),
        ("apps", "statefulsets"),
        ("autoscaling", "horizontalpodautoscalers"),
        ("batch", "cronjobs"),
        ("batch", "jobs"),
        ("discovery.k8s.io", "endpointslices"),
        (_FLOW, "flowschemas"),
        (_FLOW, "prioritylevelconfigurations"),
        (_NET, "ingressclasses"),
        (_NET, "ingresses"),
        (_NET, "networkpolicies"),
        ("policy", "poddisruptionbudgets"),
        (_RESOURCE, "deviceclasses"),
        (_RESOURCE, "devicetaintrules"),
        (_RESOURCE, "resourceslices"),
        ("storage.k8s.io", "csidrivers"),
    }
)
# Kinds that have a generation from the start: those, but for one that begins with its first
# change, and one that never gets to a second.
NUMBERED = COUNTED - {("storage.k8s.io", "csidrivers")} | {("scheduling.k8s.io", "priorityclasses")}
INITIAL_STATUS: dict[tuple[str, str], Document] = {
    ("", "namespaces"): {"phase": "Active"},
    ("", "persistentvolumeclaims"): {"phase": "Pending"},
    ("", "persistentvolumes"): {"phase": "Pending"},
    ("", "pods"): {"phase": "Pending"},
    ("", "replicationcontrollers"): {"replicas": 0},
    ("", "services"): {"loadBalancer": {}},
    ("apps", "daemonsets"): {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    },
    ("apps", "replicasets"): {"replicas": 0},
    ("apps", "statefulsets"): {"replicas": 0, "availableReplicas": 0},
    ("autoscaling", "horizontalpodautoscalers"): {"desiredReplicas": 0, "currentMetrics": None},
    (_NET, "ingresses"): {"loadBalancer": {}},
    ("policy", "poddisruptionbudgets"): {
        "disruptionsAllowed": 0,
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "expectedPods": 0,
    },
    ("storage.k8s.io", "volumeattachments"): {"attached": False},
}
# A node registers itself with its status; a claim for devices may be made as allocated.
OWN_STATUS = frozenset({("", "nodes")})


def _pod(obj: Document, created: str) -> None:
    """The pod's own resources; one behind a gate says from the start why nobody schedules it."""
    pod_defaults.request_pod_level(obj.get("spec") or {})
    if (obj.get("spec") or {}).get("schedulingGates"):
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": None,
            "lastTransitionTime": created,
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
        }
        obj["status"]["conditions"] = [condition]


def _persistent_volume(obj: Document, created: str) -> None:
    obj["status"]["lastPhaseTransitionTime"] = created


def _persistent_volume_claim(obj: Document, created: str) -> None:
    storage.align_sources(obj.get("spec") or {})


def _daemon_set(obj: Document, created: str) -> None:
    """Old clients read the template's generation from an annotation."""
    annotations = obj["metadata"].setdefault("annotations", {})
    annotations["deprecated.daemonset.template.generation"] = "1"


def _job(obj: Document, created: str) -> None:
    """Unless told otherwise, a Job finds its pods by its own uid."""
    spec, metadata = obj["spec"], obj["metadata"]
    if spec.get("manualSelector"):
        return
    labels = spec["template"]["metadata"].setdefault("labels", {})
    for name in ("job-name", "batch.kubernetes.io/job-name"):
        labels.setdefault(name, metadata.get("name", ""))
    for name in ("controller-uid", "batch.kubernetes.io/controller-uid"):
        labels.setdefault(name, metadata["uid"])
    matched = spec.setdefault("selector", {}).setdefault("matchLabels", {})
    matched.setdefault("batch.kubernetes.io/controller-uid", metadata["uid"])
    if not metadata.get("labels") and names.is_label_value(labels["job-name"]):
        metadata["labels"] = dict(labels)


def _definition(obj: Document, created: str) -> None:
    versions = (obj.get("spec") or {}).get("versions") or ()
    obj["status"] = {
        "conditions": None,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": [v.get("name", "") for v in versions if v.get("storage")][:1],
    }


def _taint_rule(obj: Document, now: str) -> None:
    taint = (obj.get("spec") or {}).get("taint")
    if taint is not None:
        taint.setdefault("timeAdded", now)


def _resource_slice(obj: Document, now: str) -> None:
    for device in (obj.get("spec") or {}).get("devices") or ():
        for taint in device.get("taints") or ():
            taint.setdefault("timeAdded", now)


def _kept_spec(new: Document, old: Document) -> None:
    """What was asked for stays; only a controller's answer changes."""
    new["spec"] = old.get("spec") or {}


def _pod_status(new: Document, old: Document, now: str) -> None:
    """Whoever forgets the class does not mean to change it."""
    if not new.get("qosClass") and old.get("qosClass"):
        new["qosClass"] = old["qosClass"]


def _volume_status(new: Document, old: Document, now: str) -> None:
    """A volume says since when it is in its phase."""
    since, before = new.get("lastPhaseTransitionTime"), old.get("lastPhaseTransitionTime")
    if new.get("phase") == old.get("phase"):
        if not since and before:
            new["lastPhaseTransitionTime"] = before
    elif not since or since == before:
        new["lastPhaseTransitionTime"] = now


def _signing_request_status(new: Document, old: Document, now: str) -> None:
    """Conditions are dated; a decision is kept as it was made, and comes only by `approval`."""
    before = old.get("conditions") or ()
    conditions = new.get("conditions") or []
    for decision in ("Approved", "Denied"):
        made = [c for c in before if c.get("type") == decision]
        at = [i for i, c in enumerate(conditions) if c.get("type") == decision]
        if len(made) == len(at):
            for index, condition in zip(at, made, strict=True):
                conditions[index] = condition
    if conditions:
        new["conditions"] = approval.all_dated(conditions, before, now)


STATUS: dict[tuple[str, str], Callable[[Document, Document, str], None]] = {
    ("", "persistentvolumes"): _volume_status,
    ("", "pods"): _pod_status,
    ("certificates.k8s.io", "certificatesigningrequests"): _signing_request_status,
}
"""Completes a status written through its subresource: the new one, the old one, now."""
UPDATE: dict[tuple[str, str], Callable[[Document, Document], None]] = {
    ("certificates.k8s.io", "certificatesigningrequests"): _kept_spec,
}
CREATE: dict[tuple[str, str], Prepare] = {
    ("", "persistentvolumeclaims"): _persistent_volume_claim,
    ("", "persistentvolumes"): _persistent_volume,
    ("", "pods"): _pod,
    ("apiextensions.k8s.io", "customresourcedefinitions"): _definition,
    ("apps", "daemonsets"): _daemon_set,
    ("batch", "jobs"): _job,
}
# Defaults that tell the time, which those of the type cannot: who creates the object owns them.
TIMED: dict[tuple[str, str], Prepare] = {
    (_RESOURCE, "devicetaintrules"): _taint_rule,
    (_RESOURCE, "resourceslices"): _resource_slice,
}
