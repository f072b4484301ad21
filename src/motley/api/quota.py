"""What an object takes from a ResourceQuota. Pure.

The API server charges a quota when an object is written, a controller recounts it: both ask here,
so both count alike.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from motley.api import amounts, qos
from motley.api.amounts import Amounts
from motley.api.quantity import Quantity

Document = dict[str, Any]

_ONE = Quantity(10**9, "DecimalSI")
# Kinds that may be counted by their bare name, as before `count/…` was there.
_BARE_COUNTS = frozenset(
    {
        "configmaps",
        "persistentvolumeclaims",
        "pods",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "services",
    }
)
# Nobody counts these: they are many, short-lived, or not kept at all.
UNCOUNTED = frozenset({("", "events"), ("events.k8s.io", "events"), ("", "bindings")})
# Kinds whose share can change after they were created.
CHANGING = ("pods", "persistentvolumeclaims", "services")
_PLAIN = frozenset({"cpu", "memory", "ephemeral-storage"})
_MANDATORY = frozenset(
    {"cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"}
)
_CLASS_SUFFIX = ".storageclass.storage.k8s.io/"


def count_name(group: str, plural: str) -> str:
    """The object count of a kind: `count/pods`, `count/deployments.apps`."""
    return f"count/{plural}.{group}" if group else f"count/{plural}"


def usage(group: str, plural: str, found: Document) -> Amounts:
    """Everything an object counts for."""
    used: Amounts = {count_name(group, plural): _ONE}
    if group:
        return used
    if plural == "pods":
        return used | (pod_usage(found) if not is_finished(found) else {})
    if plural in _BARE_COUNTS:
        used[plural] = _ONE
    if plural == "services":
        used |= _service_usage(found.get("spec") or {})
    if plural == "persistentvolumeclaims":
        used |= _claim_usage(found)
    return used


def is_finished(pod: Document) -> bool:
    """A pod that has ended, or is being removed by force, holds nothing any more."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def pod_usage(pod: Document) -> Amounts:
    """Requests, limits and the pod itself."""
    spec = pod.get("spec") or {}
    used: Amounts = {"pods": _ONE}
    for name, amount in amounts.of_pod(spec, "requests").items():
        used[f"requests.{name}"] = amount
        if name in _PLAIN or name.startswith("hugepages-"):
            used[name] = amount
    for name, amount in amounts.of_pod(spec, "limits").items():
        if name in _PLAIN:
            used[f"limits.{name}"] = amount
    return used


def _service_usage(spec: Document) -> Amounts:
    used: Amounts = {}
    ports = spec.get("ports") or ()
    taken = 0
    if spec.get("type") == "NodePort":
        taken = len(ports)
    elif spec.get("type") == "LoadBalancer":
        used["services.loadbalancers"] = _ONE
        taken = len(ports)
        if spec.get("allocateLoadBalancerNodePorts") is False:
            taken = sum(1 for port in ports if port.get("nodePort"))
    if taken:
        used["services.nodeports"] = Quantity(taken * 10**9, "DecimalSI")
    return used


def _claim_usage(claim: Document) -> Amounts:
    spec = claim.get("spec") or {}
    annotations = (claim.get("metadata") or {}).get("annotations") or {}
    annotated = annotations.get("volume.beta.kubernetes.io/storage-class")
    storage_class = annotated or spec.get("storageClassName")
    used: Amounts = {}
    if storage_class:
        used[f"{storage_class}{_CLASS_SUFFIX}persistentvolumeclaims"] = _ONE
    size = amounts.read((spec.get("resources") or {}).get("requests")).get("storage")
    if size is not None:
        used["requests.storage"] = size
        if storage_class:
            used[f"{storage_class}{_CLASS_SUFFIX}requests.storage"] = size
    return used


def is_in_scope(quota: Document, group: str, plural: str, found: Document) -> bool:
    """Whether a quota looks at this object at all: scopes select pods."""
    spec = quota.get("spec") or {}
    wanted = [{"scopeName": s, "operator": "Exists"} for s in spec.get("scopes") or ()]
    wanted += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    if not wanted:
        return True
    if (group, plural) != ("", "pods"):
        return False
    return all(_matches(expression, found) for expression in wanted)


def _matches(expression: Mapping[str, Any], pod: Document) -> bool:
    spec = pod.get("spec") or {}
    scope = expression.get("scopeName")
    if scope == "Terminating":
        return spec.get("activeDeadlineSeconds") is not None
    if scope == "NotTerminating":
        return spec.get("activeDeadlineSeconds") is None
    if scope == "BestEffort":
        return qos.qos_class(pod) == "BestEffort"
    if scope == "NotBestEffort":
        return qos.qos_class(pod) != "BestEffort"
    if scope == "PriorityClass":
        return _matches_class(expression, str(spec.get("priorityClassName") or ""))
    if scope == "CrossNamespacePodAffinity":
        return _reaches_other_namespaces(spec)
    return False


def _matches_class(expression: Mapping[str, Any], name: str) -> bool:
    operator, values = expression.get("operator"), expression.get("values") or ()
    if operator == "In":
        return name in values
    if operator == "NotIn":
        return name not in values
    return bool(name) if operator == "Exists" else not name


def _reaches_other_namespaces(spec: Document) -> bool:
    affinity = spec.get("affinity") or {}
    for part in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(part) or {}
        terms = list(rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ())
        terms += [
            weighted.get("podAffinityTerm") or {}
            for weighted in rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        ]
        if any(t.get("namespaces") or t.get("namespaceSelector") is not None for t in terms):
            return True
    return False


def unspecified(pod: Document, names: Iterable[str]) -> dict[str, list[str]]:
    """Limited resources that containers are silent about, with those containers.

    A container that does not say what it takes cannot be counted.
    """
    spec = pod.get("spec") or {}
    whole = _said(spec)
    missing: dict[str, list[str]] = {}
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        said = _said(container) | whole
        for name in _MANDATORY.intersection(names) - said:
            missing.setdefault(name, []).append(str(container.get("name", "")))
    return missing


def _said(holder: Document) -> set[str]:
    resources = holder.get("resources") or {}
    said = {f"limits.{name}" for name in resources.get("limits") or ()}
    for name in resources.get("requests") or ():
        said |= {name, f"requests.{name}"}
    return said


def counted_kind(name: str) -> tuple[str, str] | None:
    """Group and plural of the kind whose objects a limited resource counts."""
    if name.startswith("count/"):
        plural, _, group = name.removeprefix("count/").partition(".")
        return group, plural
    if _CLASS_SUFFIX in name or name == "requests.storage":
        return "", "persistentvolumeclaims"
    if name.startswith("services."):
        return "", "services"
    if name in _BARE_COUNTS:
        return "", name
    if name in _PLAIN or name.startswith(("requests.", "limits.", "hugepages-")):
        return "", "pods"
    return None


def recount(
    quota: Document, objects: Mapping[tuple[str, str], Iterable[Document]]
) -> dict[str, Quantity]:
    """What a quota's `used` should say, from every object of the kinds it counts."""
    hard = (quota.get("spec") or {}).get("hard") or {}
    total: Amounts = {}
    for (group, plural), found in objects.items():
        for one in found:
            if is_in_scope(quota, group, plural, one):
                total = amounts.add(total, usage(group, plural, one))
    return {name: total.get(name, Quantity(0, "DecimalSI")) for name in hard}
