"""Defaults of what is neither pod, workload nor network: nodes, storage, access, data."""

import base64
from typing import Any

Document = dict[str, Any]

_RBAC = "rbac.authorization.k8s.io"


def namespace(obj: Document) -> None:
    """A Namespace carries its own name as a label, so that selectors can name it."""
    obj.setdefault("spec", {})
    name = (obj.get("metadata") or {}).get("name")
    if name:
        labels = obj["metadata"].setdefault("labels", {})
        labels.setdefault("kubernetes.io/metadata.name", name)


def node(obj: Document) -> None:
    """A Node can give out all it has, unless it says less; its parts always show."""
    spec = obj.setdefault("spec", {})
    if spec.get("podCIDR"):  # the old single field mirrors the head of the list
        spec.setdefault("podCIDRs", [spec["podCIDR"]])
    elif spec.get("podCIDRs"):
        spec["podCIDR"] = spec["podCIDRs"][0]
    status = obj.setdefault("status", {})
    if "capacity" in status:
        status.setdefault("allocatable", dict(status["capacity"]))
    status.setdefault("daemonEndpoints", {}).setdefault("kubeletEndpoint", {"Port": 0})
    info = status.setdefault("nodeInfo", {})
    for name in (
        "machineID",
        "systemUUID",
        "bootID",
        "kernelVersion",
        "osImage",
        "containerRuntimeVersion",
        "kubeletVersion",
        "kubeProxyVersion",
        "operatingSystem",
        "architecture",
    ):
        info.setdefault(name, "")


def pod_certificate_request(obj: Document) -> None:
    """A certificate of a pod is good for a day, unless more or less is asked for."""
    obj.setdefault("spec", {}).setdefault("maxExpirationSeconds", 24 * 3600)


def secret(obj: Document) -> None:
    """A Secret: `stringData` is a convenience for writers and is never stored."""
    obj.setdefault("type", "Opaque")
    for key, text in (obj.pop("stringData", None) or {}).items():
        obj.setdefault("data", {})[key] = base64.b64encode(str(text).encode()).decode()


def event(obj: Document) -> None:
    """An Event always shows who reported it and when, even when that is nobody and never."""
    obj.setdefault("source", {})
    obj.setdefault("reportingComponent", "")
    obj.setdefault("reportingInstance", "")
    for name in ("firstTimestamp", "lastTimestamp", "eventTime"):
        obj.setdefault(name, None)


def framed(obj: Document) -> None:
    """Kinds without defaults whose spec always shows."""
    obj.setdefault("spec", {})


def limit_range(obj: Document) -> None:
    """A LimitRange of containers: who gives a maximum means it as the default limit, and so on."""
    spec = obj.setdefault("spec", {})
    spec["limits"] = spec.get("limits") or None
    for item in spec["limits"] or ():
        if item.get("type") != "Container":
            continue
        for source, target in (("max", "default"), ("default", "defaultRequest")):
            for name, amount in (item.get(source) or {}).items():
                item.setdefault(target, {}).setdefault(name, amount)
        for name, amount in (item.get("min") or {}).items():
            item.setdefault("defaultRequest", {}).setdefault(name, amount)


def priority_class(obj: Document) -> None:
    """A PriorityClass."""
    obj.setdefault("value", 0)
    obj.setdefault("preemptionPolicy", "PreemptLowerPriority")


def role(obj: Document) -> None:
    """A Role or ClusterRole always shows its rules."""
    obj["rules"] = obj.get("rules") or None


def role_binding(obj: Document) -> None:
    """A RoleBinding or ClusterRoleBinding: users and groups belong to the RBAC group."""
    obj.setdefault("roleRef", {}).setdefault("apiGroup", _RBAC)
    for subject in obj.get("subjects") or ():
        if subject.get("kind") in ("User", "Group"):
            subject.setdefault("apiGroup", _RBAC)
