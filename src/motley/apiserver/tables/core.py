"""Rows of everything that is neither a pod nor makes pods."""

from collections.abc import Callable
from typing import Any

from motley.api import selectors
from motley.apiserver.tables.age import UNKNOWN, age

Document = dict[str, Any]
NONE, UNSET = "<none>", "<unset>"
_ROLE_PREFIX = "node-role.kubernetes.io/"
_ROLE_LABEL = "kubernetes.io/role"
# As many as kubectl's columns hold before they say how many more there are.
_SHOWN_ENDPOINTS = 3
_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def _name(shown: Document) -> str:
    return str(shown["metadata"].get("name", ""))


def _age(shown: Document, now: float) -> str:
    return age(shown["metadata"].get("creationTimestamp"), now)


def _part(shown: Document, name: str) -> Document:
    part: Document = shown.get(name) or {}
    return part


def _namespace(shown: Document, now: float) -> list[Any]:
    return [_name(shown), _part(shown, "status").get("phase", ""), _age(shown, now)]


def _node(shown: Document, now: float) -> list[Any]:
    state = _part(shown, "status")
    info = state.get("nodeInfo") or {}
    by_type = {a.get("type"): a.get("address") for a in state.get("addresses") or ()}
    return [
        _name(shown),
        _node_status(shown),
        _node_roles(shown),
        _age(shown, now),
        info.get("kubeletVersion", ""),
        by_type.get("InternalIP") or NONE,
        by_type.get("ExternalIP") or NONE,
        info.get("osImage") or UNKNOWN,
        _kernel(info),
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _kernel(info: Document) -> str:
    version = info.get("kernelVersion")
    if not version:
        return UNKNOWN
    return f"{version} ({info['architecture']})" if info.get("architecture") else str(version)


def _node_status(shown: Document) -> str:
    found = next(
        (c for c in _part(shown, "status").get("conditions") or () if c.get("type") == "Ready"),
        None,
    )
    if found is None:
        words = ["Unknown"]
    else:
        words = ["Ready" if found.get("status") == "True" else "NotReady"]
    if _part(shown, "spec").get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _node_roles(shown: Document) -> str:
    labels = shown["metadata"].get("labels") or {}
    roles = {k.removeprefix(_ROLE_PREFIX) for k in labels if k.startswith(_ROLE_PREFIX)}
    roles |= {v for k, v in labels.items() if k == _ROLE_LABEL}
    return ",".join(sorted(r for r in roles if r)) or NONE


def _config_map(shown: Document, now: float) -> list[Any]:
    count = len(_part(shown, "data")) + len(_part(shown, "binaryData"))
    return [_name(shown), count, _age(shown, now)]


def _secret(shown: Document, now: float) -> list[Any]:
    return [_name(shown), shown.get("type", ""), len(_part(shown, "data")), _age(shown, now)]


def _named(shown: Document, now: float) -> list[Any]:
    return [_name(shown), _age(shown, now)]


def _service(shown: Document, now: float) -> list[Any]:
    spec = _part(shown, "spec")
    selector = ",".join(f"{k}={v}" for k, v in sorted((spec.get("selector") or {}).items()))
    return [
        _name(shown),
        spec.get("type", ""),
        spec.get("clusterIP") or NONE,
        _external_address(shown, spec),
        ",".join(_service_port(p) for p in spec.get("ports") or ()) or NONE,
        _age(shown, now),
        selector or NONE,
    ]


def _service_port(port: Document) -> str:
    shown = f"{port.get('port')}"
    if port.get("nodePort"):
        shown += f":{port['nodePort']}"
    return f"{shown}/{port.get('protocol', 'TCP')}"


def _external_address(shown: Document, spec: Document) -> str:
    given = list(spec.get("externalIPs") or ())
    kind = spec.get("type")
    if kind == "ExternalName":
        return str(spec.get("externalName") or NONE)
    if kind == "LoadBalancer":
        balancer = _part(shown, "status").get("loadBalancer") or {}
        found = [i.get("ip") or i.get("hostname") for i in balancer.get("ingress") or ()]
        return ",".join([*(str(f) for f in found if f), *given]) or "<pending>"
    return ",".join(given) or NONE


def _endpoints(shown: Document, now: float) -> list[Any]:
    found = [
        f"{address.get('ip')}:{port.get('port')}"
        for subset in shown.get("subsets") or ()
        for port in subset.get("ports") or ()
        for address in subset.get("addresses") or ()
    ]
    return [_name(shown), _few(found, NONE), _age(shown, now)]


def _few(found: list[str], nothing: str) -> str:
    if not found:
        return nothing
    more = len(found) - _SHOWN_ENDPOINTS
    text = ",".join(found[:_SHOWN_ENDPOINTS])
    return f"{text} + {more} more..." if more > 0 else text


def _endpoint_slice(shown: Document, now: float) -> list[Any]:
    ports = [str(p["port"]) if p.get("port") else "*" for p in shown.get("ports") or ()]
    addresses = [a for e in shown.get("endpoints") or () for a in e.get("addresses") or ()]
    return [
        _name(shown),
        shown.get("addressType", ""),
        _few(ports, UNSET),
        _few(addresses, UNSET),
        _age(shown, now),
    ]


def _event(shown: Document, now: float) -> list[Any]:
    # The same object has other names for some fields in events.k8s.io.
    about = shown.get("involvedObject") or _part(shown, "regarding")
    source = shown.get("source") or _part(shown, "deprecatedSource")
    series = _part(shown, "series")
    times = [shown.get(f) or shown.get(f"deprecated{f[0].upper()}{f[1:]}") for f in _TIMES]
    first = times[0] or shown.get("eventTime")
    last = series.get("lastObservedTime") or times[1] or first
    names = [source.get("component"), source.get("host")]
    if not names[0]:
        reporter = shown.get("reportingComponent") or shown.get("reportingController")
        names = [reporter, shown.get("reportingInstance")]
    count = series.get("count") or shown.get("count") or shown.get("deprecatedCount") or 1
    return [
        age(last, now),
        shown.get("type", ""),
        shown.get("reason", ""),
        f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}",
        about.get("fieldPath", ""),
        ", ".join(str(n) for n in names if n),
        str(shown.get("message") or shown.get("note") or "").strip(),
        age(first, now),
        count,
        _name(shown),
    ]


_TIMES = ("firstTimestamp", "lastTimestamp")


def _lease(shown: Document, now: float) -> list[Any]:
    return [_name(shown), _part(shown, "spec").get("holderIdentity", ""), _age(shown, now)]


def _modes(modes: list[str] | None) -> str:
    return ",".join(_MODES[m] for m in _MODES if m in (modes or ()))


def _volume(shown: Document, now: float) -> list[Any]:
    spec, state = _part(shown, "spec"), _part(shown, "status")
    claim = spec.get("claimRef") or {}
    return [
        _name(shown),
        (spec.get("capacity") or {}).get("storage", ""),
        _modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        "Terminating" if shown["metadata"].get("deletionTimestamp") else state.get("phase", ""),
        f"{claim.get('namespace')}/{claim.get('name')}" if claim.get("name") else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName") or UNSET,
        state.get("reason", ""),
        _age(shown, now),
        spec.get("volumeMode") or UNSET,
    ]


def _claim(shown: Document, now: float) -> list[Any]:
    spec, state = _part(shown, "spec"), _part(shown, "status")
    volume = spec.get("volumeName", "")
    return [
        _name(shown),
        "Terminating" if shown["metadata"].get("deletionTimestamp") else state.get("phase", ""),
        volume,
        (state.get("capacity") or {}).get("storage", "0") if volume else "",
        _modes(state.get("accessModes")) if volume else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName") or UNSET,
        _age(shown, now),
        spec.get("volumeMode") or UNSET,
    ]


def _storage_class(shown: Document, now: float) -> list[Any]:
    annotations = shown["metadata"].get("annotations") or {}
    default = annotations.get("storageclass.kubernetes.io/is-default-class") == "true"
    return [
        f"{_name(shown)} (default)" if default else _name(shown),
        shown.get("provisioner", ""),
        shown.get("reclaimPolicy", "Delete"),
        shown.get("volumeBindingMode") or UNSET,
        bool(shown.get("allowVolumeExpansion")),
        _age(shown, now),
    ]


def _priority_class(shown: Document, now: float) -> list[Any]:
    return [
        _name(shown),
        shown.get("value", 0),
        bool(shown.get("globalDefault")),
        _age(shown, now),
        shown.get("preemptionPolicy", ""),
    ]


def _ingress(shown: Document, now: float) -> list[Any]:
    spec = _part(shown, "spec")
    hosts = [r["host"] for r in spec.get("rules") or () if r.get("host")]
    more = f" + {len(hosts) - 3} more..." if len(hosts) > 3 else ""
    balancer = _part(shown, "status").get("loadBalancer") or {}
    found = [i.get("ip") or i.get("hostname") for i in balancer.get("ingress") or ()]
    return [
        _name(shown),
        spec.get("ingressClassName") or NONE,
        ",".join(hosts[:3]) + more if hosts else "*",
        ",".join(str(f) for f in found if f),
        "80, 443" if spec.get("tls") else "80",
        _age(shown, now),
    ]


def _ingress_class(shown: Document, now: float) -> list[Any]:
    spec = _part(shown, "spec")
    parameters = spec.get("parameters") or {}
    text = NONE
    if parameters:
        group = f".{parameters['apiGroup']}" if parameters.get("apiGroup") else ""
        text = f"{parameters.get('kind')}{group}/{parameters.get('name')}"
    return [_name(shown), spec.get("controller", ""), text, _age(shown, now)]


def _network_policy(shown: Document, now: float) -> list[Any]:
    selector = str(selectors.Selector.of(_part(shown, "spec").get("podSelector") or {}))
    return [_name(shown), selector or NONE, _age(shown, now)]


def _binding(shown: Document, now: float) -> list[Any]:
    role = _part(shown, "roleRef")
    by_kind: dict[str, list[str]] = {}
    for subject in shown.get("subjects") or ():
        name = subject.get("name", "")
        if subject.get("kind") == "ServiceAccount":
            name = f"{subject.get('namespace')}/{name}"
        by_kind.setdefault(subject.get("kind", ""), []).append(name)
    return [
        _name(shown),
        f"{role.get('kind')}/{role.get('name')}",
        _age(shown, now),
        *(", ".join(by_kind.get(k, ())) for k in ("User", "Group", "ServiceAccount")),
    ]


def _runtime_class(shown: Document, now: float) -> list[Any]:
    return [_name(shown), shown.get("handler", ""), _age(shown, now)]


def _quota(shown: Document, now: float) -> list[Any]:
    state = _part(shown, "status")
    hard, used = state.get("hard") or {}, state.get("used") or {}
    texts = {k: f"{k}: {used.get(k, '0')}/{hard[k]}" for k in sorted(hard)}
    limits = ", ".join(t for k, t in texts.items() if k.startswith("limits."))
    requests = ", ".join(t for k, t in texts.items() if not k.startswith("limits."))
    return [_name(shown), requests, limits, _age(shown, now)]


_RBAC = "rbac.authorization.k8s.io"

ROWS: dict[tuple[str, str], Callable[[Document, float], list[Any]]] = {
    ("", "namespaces"): _namespace,
    ("", "nodes"): _node,
    ("", "configmaps"): _config_map,
    ("", "secrets"): _secret,
    ("", "serviceaccounts"): _named,
    ("", "services"): _service,
    ("", "endpoints"): _endpoints,
    ("", "events"): _event,
    ("events.k8s.io", "events"): _event,
    ("", "persistentvolumes"): _volume,
    ("", "persistentvolumeclaims"): _claim,
    ("", "resourcequotas"): _quota,
    ("coordination.k8s.io", "leases"): _lease,
    ("discovery.k8s.io", "endpointslices"): _endpoint_slice,
    ("networking.k8s.io", "ingresses"): _ingress,
    ("networking.k8s.io", "ingressclasses"): _ingress_class,
    ("networking.k8s.io", "networkpolicies"): _network_policy,
    ("node.k8s.io", "runtimeclasses"): _runtime_class,
    (_RBAC, "clusterrolebindings"): _binding,
    (_RBAC, "rolebindings"): _binding,
    ("scheduling.k8s.io", "priorityclasses"): _priority_class,
    ("storage.k8s.io", "storageclasses"): _storage_class,
}
