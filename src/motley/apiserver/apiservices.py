"""APIService objects, judged: where one leads, and what its status says. Pure.

Every group and version has one. Those of this server are "local"; others name a Service, and
requests for their group go there.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from motley.api import scheme
from motley.apiserver.crds import naming

Document = dict[str, Any]

AUTOMANAGED = "kube-aggregator.kubernetes.io/automanaged"
SERVICE_NAME = "kubernetes.io/service-name"
_LOCAL = ("Available", "True", "Local", "Local APIServices are always available")
_PASSED = ("Available", "True", "Passed", "all checks passed")
# Kubernetes' own order of groups, by (group priority, version priority).
_PRIORITIES = {
    "": (18000, 1),
    "apps": (17800, 15),
    "events.k8s.io": (17750, 15),
    "authentication.k8s.io": (17700, 15),
    "authorization.k8s.io": (17600, 15),
    "autoscaling": (17500, 15),
    "batch": (17400, 15),
    "certificates.k8s.io": (17300, 15),
    "networking.k8s.io": (17200, 15),
    "policy": (17100, 15),
    "rbac.authorization.k8s.io": (17000, 15),
    "storage.k8s.io": (16800, 15),
    "apiextensions.k8s.io": (16700, 15),
    "admissionregistration.k8s.io": (16700, 15),
    "scheduling.k8s.io": (16600, 15),
    "coordination.k8s.io": (16500, 15),
    "node.k8s.io": (16300, 15),
    "discovery.k8s.io": (16200, 12),
    "resource.k8s.io": (16200, 15),
    "flowcontrol.apiserver.k8s.io": (16100, 21),
    "storagemigration.k8s.io": (15900, 15),
}
_CUSTOM = (1000, 100)
_NOT_LISTED = frozenset({"apiregistration.k8s.io"})


class Target(NamedTuple):
    """Where a remote API is served, and how it is to be trusted."""

    host: str
    port: int
    server_name: str
    ca_bundle: str  # base64 of PEM
    insecure: bool


def kind() -> scheme.Kind:
    """The kind of APIServices."""
    found = scheme.resource("apiregistration.k8s.io", "v1", "apiservices")
    assert found is not None
    return found


def name_of(group: str, version: str) -> str:
    """The name an APIService must have."""
    return f"{version}.{group}"


def local_ones(now: str) -> dict[str, Document]:
    """The APIServices of everything this server serves itself, by name."""
    custom = {k.group for k in scheme.kinds() if k.definition is not None}
    found: dict[str, Document] = {}
    for group, versions in scheme.groups().items():
        if group in _NOT_LISTED:
            continue
        for version in versions:
            found[name_of(group, version)] = local(group, version, group in custom, now)
    return found


def local(group: str, version: str, is_custom: bool, now: str) -> Document:
    """The APIService of a group and version that is served here."""
    group_priority, version_priority = _PRIORITIES.get(group, _CUSTOM)
    spec: Document = {"group": group} if group else {}
    spec |= {
        "version": version,
        "groupPriorityMinimum": group_priority,
        "versionPriority": version_priority,
    }
    return {
        "metadata": {
            "name": name_of(group, version),
            "labels": {AUTOMANAGED: "true" if is_custom else "onstart"},
        },
        "spec": spec,
        "status": {"conditions": naming.with_conditions([], [_LOCAL], now)},
    }


def is_defined(obj: Document, definitions: Iterable[Document]) -> bool:
    """Whether a definition serves this group and version: another server over the same store may
    have heard of it sooner than this one."""
    spec = obj["spec"]
    for crd in definitions:
        served = {one["name"] for one in crd["spec"]["versions"] if one.get("served")}
        is_same = crd["spec"]["group"] == spec.get("group") and spec["version"] in served
        if is_same and not crd["metadata"].get("deletionTimestamp"):
            return True
    return False


def is_automanaged(obj: Document) -> bool:
    """Whether this server made the object, and may take it away."""
    return AUTOMANAGED in (obj["metadata"].get("labels") or {})


def target(
    obj: Document, service: Document | None, slices: Iterable[Document]
) -> Target | naming.Condition:
    """Where requests go, or the condition that says why they cannot."""
    wanted = obj["spec"]["service"]
    namespace, name, port = wanted["namespace"], wanted["name"], wanted.get("port", 443)
    words = f'service/{name} in "{namespace}"'
    if service is None:
        return _unavailable("ServiceNotFound", f"{words} is not present")
    spec = service.get("spec") or {}
    trust = (f"{name}.{namespace}.svc", obj["spec"].get("caBundle") or "")
    insecure = bool(obj["spec"].get("insecureSkipTLSVerify"))
    if spec.get("type") == "ExternalName":
        return Target(spec.get("externalName", ""), port, *trust, insecure)
    listed = next((p for p in spec.get("ports") or () if p.get("port") == port), None)
    if listed is None:
        return _unavailable("ServicePortError", f"{words} is not listening on port {port}")
    found = _endpoint(listed.get("name", ""), slices)
    if found is not None:
        return Target(*found, *trust, insecure)
    port_name = listed.get("name", "")
    return _unavailable(
        "MissingEndpoints", f'endpoints for {words} have no addresses with port name "{port_name}"'
    )


def _endpoint(port_name: str, slices: Iterable[Document]) -> tuple[str, int] | None:
    for one in slices:
        port = next((p for p in one.get("ports") or () if (p.get("name") or "") == port_name), None)
        if port is None:
            continue
        for endpoint in one.get("endpoints") or ():
            if (endpoint.get("conditions") or {}).get("ready", True) and endpoint["addresses"]:
                return str(endpoint["addresses"][0]), int(port["port"])
    return None


def _unavailable(reason: str, message: str) -> naming.Condition:
    return ("Available", "False", reason, message)


def checked(url: str, problem: str) -> naming.Condition:
    """The condition after asking the server behind a target."""
    if not problem:
        return _PASSED
    message = f"failing or missing response from {url}: {problem}"
    return _unavailable("FailedDiscoveryCheck", message)


def with_condition(obj: Document, condition: naming.Condition, now: str) -> Document:
    """The object's status with this condition."""
    have = (obj.get("status") or {}).get("conditions") or []
    return {"conditions": naming.with_conditions(have, [condition], now)}
