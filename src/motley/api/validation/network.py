"""Rules for the networking group: Ingress, IngressClass, NetworkPolicy, IPAddress, ServiceCIDR."""

import ipaddress
from typing import Any

from motley.api import names
from motley.api.validation import selector
from motley.api.validation.container import port_or_name
from motley.api.validation.errors import (
    Document,
    Errors,
    cidr,
    forbidden,
    immutable,
    invalid,
    named,
    parse_ip,
    port_number,
    required,
    unsupported,
)

_CLASS = "kubernetes.io/ingress.class"
_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
_PROTOCOLS = ("TCP", "UDP", "SCTP")
_BAD_IN_PATHS = ("//", "/./", "/../", "%2f", "%2F")
_BAD_PATH_ENDS = ("/..", "/.")
_ONE_OF_EACH_FAMILY = 2


def ingress_create(obj: Document) -> Errors:
    """A new Ingress says its class in one way only."""
    yield from ingress(obj)
    spec = obj.get("spec") or {}
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    named_, old = spec.get("ingressClassName"), annotations.get(_CLASS)
    if named_ and old and named_ != old:
        detail = "must match `ingressClassName` when both are specified"
        yield invalid(f"annotations.{_CLASS}", old, detail)


def ingress(obj: Document) -> Errors:
    """An Ingress."""
    spec = obj.get("spec") or {}
    rules = spec.get("rules") or []
    if not rules and spec.get("defaultBackend") is None:
        yield invalid("spec", None, "either `defaultBackend` or `rules` must be specified")
    if spec.get("defaultBackend") is not None:
        yield from _backend("spec.defaultBackend", spec["defaultBackend"])
    for index, rule in enumerate(rules):
        yield from _rule(f"spec.rules[{index}]", rule)
    for index, tls in enumerate(spec.get("tls") or ()):
        for at, host in enumerate(tls.get("hosts") or ()):
            yield from _host_name(f"spec.tls[{index}].hosts[{at}]", host)
        name = tls.get("secretName", "")
        if name:
            yield from named(f"spec.tls[{index}].secretName", name, names.check_dns_subdomain(name))
    if spec.get("ingressClassName") is not None:
        name = spec["ingressClassName"]
        yield from named("spec.ingressClassName", name, names.check_dns_subdomain(name))


def _rule(field: str, rule: Document) -> Errors:
    host = rule.get("host", "")
    if host:
        if parse_ip(host) is not None:
            yield invalid(f"{field}.host", host, "must be a DNS name, not an IP address")
        else:
            yield from _host_name(f"{field}.host", host)
    if rule.get("http") is None:
        return
    paths = rule["http"].get("paths") or []
    if not paths:
        yield required(f"{field}.http.paths")
    for index, path in enumerate(paths):
        at = f"{field}.http.paths[{index}]"
        yield from _path(at, path)
        yield from _backend(f"{at}.backend", path.get("backend") or {})


def _host_name(field: str, host: str) -> Errors:
    check = names.check_wildcard_subdomain if "*" in host else names.check_dns_subdomain
    yield from named(field, host, check(host))


def _path(field: str, path: Document) -> Errors:
    kind, text = path.get("pathType"), path.get("path", "")
    if not kind:
        yield required(f"{field}.pathType", "pathType must be specified")
    elif kind in ("Exact", "Prefix"):
        if not text.startswith("/"):
            yield invalid(f"{field}.path", text, "must be an absolute path")
        for bad in _BAD_IN_PATHS:
            if bad in text:
                yield invalid(f"{field}.path", text, f"must not contain '{bad}'")
        for bad in _BAD_PATH_ENDS:
            if text.endswith(bad):
                yield invalid(f"{field}.path", text, f"cannot end with '{bad}'")
    elif kind == "ImplementationSpecific":
        if text and not text.startswith("/"):
            yield invalid(f"{field}.path", text, "must be an absolute path")
    else:
        yield unsupported(f"{field}.pathType", kind, _PATH_TYPES)


def _backend(field: str, backend: Document) -> Errors:
    resource, service = backend.get("resource"), backend.get("service")
    if resource is not None and service is not None:
        yield invalid(field, "", "cannot set both resource and service backends")
    elif resource is not None:
        for part in ("kind", "name"):
            if not resource.get(part):
                yield required(f"{field}.resource.{part}")
    elif service is not None:
        yield from _service_backend(field, service)
    else:
        yield invalid(field, "", "resource or service backend is required")


def _service_backend(field: str, service: Document) -> Errors:
    name = service.get("name", "")
    if not name:
        yield required(f"{field}.service.name")
    else:
        yield from named(f"{field}.service.name", name, names.check_dns_label(name))
    port = service.get("port") or {}
    if port.get("name") and port.get("number"):
        yield invalid(field, "", "cannot set both port name & port number")
    elif port.get("name"):
        yield from named(
            f"{field}.service.port.name", port["name"], names.check_port_name(port["name"])
        )
    elif port.get("number"):
        yield from port_number(f"{field}.service.port.number", port["number"])
    else:
        yield required(field, "port name or number is required")


def ingress_class(obj: Document) -> Errors:
    """An IngressClass."""
    spec = obj.get("spec") or {}
    controller = spec.get("controller", "")
    if not controller:
        yield required("spec.controller")
    else:
        yield from named("spec.controller", controller, names.check_domain_path(controller))
    parameters = spec.get("parameters")
    if parameters is None:
        return
    for part in ("kind", "name"):
        if not parameters.get(part):
            yield required(f"spec.parameters.{part}")
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    if scope not in ("Cluster", "Namespace"):
        yield unsupported("spec.parameters.scope", scope, ("Cluster", "Namespace"))
    elif scope == "Namespace" and not namespace:
        yield required("spec.parameters.namespace")
    elif scope == "Cluster" and namespace is not None:
        yield forbidden("spec.parameters.namespace", "parameters.scope is set to 'Cluster'")


def ingress_class_update(new: Document, old: Document) -> Errors:
    """A changed IngressClass keeps its controller."""
    controllers = [(o.get("spec") or {}).get("controller") for o in (new, old)]
    yield from immutable("spec.controller", *controllers)
    yield from ingress_class(new)


def network_policy(obj: Document) -> Errors:
    """A NetworkPolicy."""
    spec = obj.get("spec") or {}
    yield from selector.label_selector("spec.podSelector", spec.get("podSelector"))
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(spec.get(direction) or ()):
            field = f"spec.{direction}[{index}]"
            for at, port in enumerate(rule.get("ports") or ()):
                yield from _policy_port(f"{field}.ports[{at}]", port)
            for at, peer in enumerate(rule.get(peers) or ()):
                yield from _peer(f"{field}.{peers}[{at}]", peer)
    types = spec.get("policyTypes") or []
    if len(types) > len(("Ingress", "Egress")):
        yield invalid("spec.policyTypes", types, "may not specify more than two policyTypes")
        return
    for index, kind in enumerate(types):
        if kind not in ("Ingress", "Egress"):
            yield unsupported(f"spec.policyTypes[{index}]", kind, ("Ingress", "Egress"))


def _policy_port(field: str, port: Document) -> Errors:
    if port.get("protocol") not in (None, *_PROTOCOLS):
        yield unsupported(f"{field}.protocol", port["protocol"], _PROTOCOLS)
    number, end = port.get("port"), port.get("endPort")
    if number is not None:
        yield from port_or_name(f"{field}.port", number)
    if end is None:
        return
    if isinstance(number, str):
        yield invalid(f"{field}.endPort", end, "may not be specified when `port` is non-numeric")
    elif number is None:
        yield invalid(f"{field}.endPort", end, "may not be specified when `port` is not specified")
    elif end < number:
        yield invalid(f"{field}.endPort", end, "must be greater than or equal to `port`")
    else:
        yield from port_number(f"{field}.endPort", end)


def _peer(field: str, peer: Document) -> Errors:
    given = [n for n in ("podSelector", "namespaceSelector", "ipBlock") if peer.get(n) is not None]
    for name in ("podSelector", "namespaceSelector"):
        if name in given:
            yield from selector.label_selector(f"{field}.{name}", peer[name])
    if "ipBlock" in given:
        yield from _ip_block(f"{field}.ipBlock", peer["ipBlock"])
    if not given:
        yield required(field, "must specify a peer")
    elif len(given) > 1 and "ipBlock" in given:
        yield forbidden(field, "may not specify both ipBlock and another peer")


def _network(value: Any) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(value, strict=False) if "/" in str(value) else None
    except ValueError:
        return None


def _ip_block(field: str, block: Document) -> Errors:
    whole = block.get("cidr", "")
    if not whole:
        yield required(f"{field}.cidr")
        return
    yield from cidr(f"{field}.cidr", whole)
    outer = _network(whole)
    for index, value in enumerate(block.get("except") or ()):
        at = f"{field}.except[{index}]"
        yield from cidr(at, value)
        inner = _network(value)
        if outer is None or inner is None:
            continue
        inside = inner.version == outer.version and inner != outer
        if not inside or not outer.overlaps(inner) or inner.prefixlen <= outer.prefixlen:
            yield invalid(at, value, "must be a strict subset of `cidr`")


def ip_address(obj: Document) -> Errors:
    """An IPAddress: something refers to it (that its name is an address, `meta` sees to)."""
    parent = (obj.get("spec") or {}).get("parentRef")
    if parent is None:
        yield required("spec.parentRef")
        return
    for part in ("resource", "name"):
        if not parent.get(part):
            yield required(f"spec.parentRef.{part}")


def ip_address_update(new: Document, old: Document) -> Errors:
    """An IPAddress stays with whom it was given to."""
    parents = [(o.get("spec") or {}).get("parentRef") for o in (new, old)]
    yield from immutable("spec.parentRef", *parents)


def service_cidr(obj: Document) -> Errors:
    """A ServiceCIDR: at most one range of each family."""
    ranges = (obj.get("spec") or {}).get("cidrs") or []
    if not ranges:
        yield required("spec.cidrs", "at least one CIDR required")
        return
    if len(ranges) > _ONE_OF_EACH_FAMILY:
        yield invalid("spec.cidrs", ranges, "may only hold up to 2 values")
    families: set[int] = set()
    for index, value in enumerate(ranges):
        field = f"spec.cidrs[{index}]"
        network = _network(value)
        if network is None:
            yield from cidr(field, value)
        elif str(network) != value:
            yield invalid(field, value, f'must be in canonical form ("{network}")')
        elif network.version in families:
            yield invalid(
                "spec.cidrs", ranges, "may specify no more than one IP for each IP family"
            )
        else:
            families.add(network.version)


def service_cidr_update(new: Document, old: Document) -> Errors:
    """A ServiceCIDR's ranges may gain a family, not change."""
    ranges, before = ((o.get("spec") or {}).get("cidrs") or [] for o in (new, old))
    if before and ranges[: len(before)] != before:
        yield from immutable("spec.cidrs", ranges, before)
    yield from service_cidr(new)
