"""Rules for Services, Endpoints and EndpointSlices."""

from typing import Any

from motley.api import names
from motley.api.validation import meta
from motley.api.validation.container import PROTOCOLS, port_or_name
from motley.api.validation.errors import (
    IMMUTABLE,
    Document,
    Errors,
    cidr,
    duplicate,
    endpoint_address,
    forbidden,
    invalid,
    ip_address,
    named,
    one_of,
    parse_ip,
    port_number,
    required,
)

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_OUTSIDE = ("NodePort", "LoadBalancer")
_POLICIES = ("Cluster", "Local")
_DISTRIBUTIONS = ("PreferClose", "PreferSameZone", "PreferSameNode")
_AFFINITY_MAX_S = 86400
_ADDRESS_TYPES = ("FQDN", "IPv4", "IPv6")
_ENDPOINTS_MAX = 1000
_ADDRESSES_MAX = 100


def create(obj: Document) -> Errors:
    """A Service, after its addresses and ports were given out."""
    spec = obj.get("spec") or {}
    type_ = spec.get("type")
    is_headless = "None" in (spec.get("clusterIP"), *(spec.get("clusterIPs") or ()))
    if not spec.get("ports") and not is_headless and type_ != "ExternalName":
        yield required("spec.ports")
    if type_ in _OUTSIDE and is_headless:
        yield invalid(
            "spec.clusterIPs[0]", "None", f"may not be set to 'None' for {type_} services"
        )
    if type_ == "ExternalName":
        yield from _external_name(spec)
    yield from _ports(spec, required_names=len(spec.get("ports") or ()) > 1)
    yield from meta.labels("spec.selector", spec.get("selector"))
    yield from one_of("spec.sessionAffinity", spec.get("sessionAffinity"), ("ClientIP", "None"))
    yield from _affinity(spec)
    yield from _cluster_ips(spec)
    for index, address in enumerate(spec.get("externalIPs") or ()):
        yield from endpoint_address(f"spec.externalIPs[{index}]", address)
    yield from one_of("spec.type", type_, _TYPES)
    yield from _load_balancer(spec)
    yield from _traffic(spec)


def update(new: Document, old: Document) -> Errors:
    """A changed Service keeps its addresses while it keeps having any."""
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if before.get("type") != "ExternalName" and spec.get("type") != "ExternalName":
        had, has = before.get("clusterIPs") or [], spec.get("clusterIPs") or []
        if had and had[:1] != has[:1]:
            yield invalid("spec.clusterIPs[0]", has, "may not change once set")
    if before.get("type") == spec.get("type") == "LoadBalancer":
        yield from _unchanged_class(spec, before)
        had, has = before.get("healthCheckNodePort"), spec.get("healthCheckNodePort")
        if had and has and had != has:
            yield forbidden("spec.healthCheckNodePort", "field is immutable")
    yield from create(new)


def _unchanged_class(spec: Document, before: Document) -> Errors:
    if spec.get("loadBalancerClass") != before.get("loadBalancerClass"):
        yield invalid(
            "spec.loadBalancerClass", spec.get("loadBalancerClass"), "may not change once set"
        )


def _external_name(spec: Document) -> Errors:
    if spec.get("clusterIPs") or spec.get("clusterIP"):
        yield forbidden("spec.clusterIPs", "may not be set for ExternalName services")
    name = (spec.get("externalName") or "").removesuffix(".")
    if not name:
        yield required("spec.externalName")
    else:
        yield from named("spec.externalName", name, names.check_dns_subdomain(name))


def _ports(spec: Document, *, required_names: bool) -> Errors:
    seen_names: set[str] = set()
    seen_ports: set[tuple[Any, Any]] = set()
    seen_node_ports: set[tuple[Any, Any]] = set()
    for index, port in enumerate(spec.get("ports") or ()):
        at = f"spec.ports[{index}]"
        name = port.get("name", "")
        if not name:
            if required_names:
                yield required(f"{at}.name")
        else:
            yield from named(f"{at}.name", name, names.check_dns_label(name))
            if name in seen_names:
                yield duplicate(f"{at}.name", name)
            seen_names.add(name)
        yield from port_number(f"{at}.port", port.get("port", 0))
        if not port.get("protocol"):
            yield required(f"{at}.protocol")
        yield from one_of(f"{at}.protocol", port.get("protocol"), PROTOCOLS)
        yield from port_or_name(f"{at}.targetPort", port.get("targetPort", 0))
        if port.get("appProtocol") is not None:
            protocol = port["appProtocol"]
            yield from named(f"{at}.appProtocol", protocol, names.check_qualified_name(protocol))
        node_port = port.get("nodePort")
        if node_port and spec.get("type") not in _OUTSIDE:
            yield forbidden(
                f"{at}.nodePort", f"may not be used when `type` is '{spec.get('type')}'"
            )
        key = (port.get("protocol"), port.get("port"))
        if key in seen_ports:
            yield duplicate(at, _shown(port))
        seen_ports.add(key)
        if node_port and (key[0], node_port) in seen_node_ports:
            yield duplicate(f"{at}.nodePort", node_port)
        seen_node_ports.add((key[0], node_port))


def _shown(port: Document) -> Document:
    """A port as Kubernetes shows a duplicate: only what makes it one."""
    return {
        "Name": "",
        "Protocol": port.get("protocol"),
        "AppProtocol": None,
        "Port": port.get("port"),
        "TargetPort": 0,
        "NodePort": 0,
    }


def _affinity(spec: Document) -> Errors:
    config = spec.get("sessionAffinityConfig")
    if spec.get("sessionAffinity") == "ClientIP":
        timeout = ((config or {}).get("clientIP") or {}).get("timeoutSeconds")
        at = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
        if timeout is None:
            yield required(at)
        elif not 0 < timeout <= _AFFINITY_MAX_S:
            yield invalid(at, timeout, f"must be greater than 0 and less than {_AFFINITY_MAX_S}")
    elif config is not None:
        yield forbidden(
            "spec.sessionAffinityConfig",
            f"must not be set when session affinity is {spec.get('sessionAffinity')}",
        )


def _cluster_ips(spec: Document) -> Errors:
    first, addresses = spec.get("clusterIP") or "", spec.get("clusterIPs") or []
    if spec.get("type") == "ExternalName":
        return
    if addresses and first and addresses[0] != first:
        yield invalid("spec.clusterIPs", addresses, "first value must match `clusterIP`")
    for index, address in enumerate(addresses or ([first] if first else [])):
        if address not in ("", "None"):
            yield from ip_address(f"spec.clusterIPs[{index}]", address)


def _load_balancer(spec: Document) -> Errors:
    balanced = spec.get("type") == "LoadBalancer"
    ranges = spec.get("loadBalancerSourceRanges") or []
    # The capital letter is Kubernetes' own.
    field = "spec.LoadBalancerSourceRanges"
    if ranges and not balanced:
        yield forbidden(field, "may only be used when `type` is 'LoadBalancer'")
    elif balanced:
        for index, value in enumerate(ranges):
            yield from cidr(f"{field}[{index}]", value)
    for name in ("allocateLoadBalancerNodePorts", "loadBalancerClass"):
        if spec.get(name) is not None and not balanced:
            yield forbidden(f"spec.{name}", "may only be used when `type` is 'LoadBalancer'")
    if balanced and spec.get("allocateLoadBalancerNodePorts") is None:
        yield required("spec.allocateLoadBalancerNodePorts")


def _traffic(spec: Document) -> Errors:
    outside = spec.get("externalTrafficPolicy")
    accessible = spec.get("type") in _OUTSIDE or (
        spec.get("type") == "ClusterIP" and spec.get("externalIPs")
    )
    if outside is not None and not accessible:
        yield invalid(
            "spec.externalTrafficPolicy",
            outside,
            "may only be set for externally-accessible services",
        )
    else:
        yield from one_of("spec.externalTrafficPolicy", outside, _POLICIES)
    health = spec.get("healthCheckNodePort")
    if health and not (spec.get("type") == "LoadBalancer" and outside == "Local"):
        yield invalid(
            "spec.healthCheckNodePort",
            health,
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
        )
    yield from one_of("spec.internalTrafficPolicy", spec.get("internalTrafficPolicy"), _POLICIES)
    yield from one_of("spec.trafficDistribution", spec.get("trafficDistribution"), _DISTRIBUTIONS)
    yield from _families(spec)
    yield from one_of(
        "spec.ipFamilyPolicy",
        spec.get("ipFamilyPolicy"),
        ("PreferDualStack", "RequireDualStack", "SingleStack"),
    )


def _families(spec: Document) -> Errors:
    """The cluster's Services have addresses of one family, IPv4."""
    open_ended = spec.get("clusterIP") == "None" and not spec.get("selector")
    if spec.get("type") == "ExternalName" or open_ended:
        return
    for index, family in enumerate(spec.get("ipFamilies") or ()):
        if family == "IPv6":
            yield invalid(f"spec.ipFamilies[{index}]", family, "not configured on this cluster")
    if spec.get("ipFamilyPolicy") == "RequireDualStack":
        detail = "this cluster is not configured for dual-stack services"
        yield invalid("spec.ipFamilyPolicy", "RequireDualStack", detail)


def endpoints(obj: Document) -> Errors:
    """Endpoints."""
    for index, subset in enumerate(obj.get("subsets") or ()):
        at = f"subsets[{index}]"
        for part in ("addresses", "notReadyAddresses"):
            for number, address in enumerate(subset.get(part) or ()):
                field = f"{at}.{part}[{number}].ip"
                yield from endpoint_address(field, address.get("ip", ""))
                if parse_ip(address.get("ip", "")) is None:  # Kubernetes says it twice
                    yield invalid(field, address.get("ip", ""), "must be a valid IP address")
        many = len(subset.get("ports") or ()) > 1
        for number, port in enumerate(subset.get("ports") or ()):
            field = f"{at}.ports[{number}]"
            if port.get("name"):
                yield from named(f"{field}.name", port["name"], names.check_dns_label(port["name"]))
            elif many:
                yield required(f"{field}.name")
            yield from port_number(f"{field}.port", port.get("port", 0))
            yield from one_of(f"{field}.protocol", port.get("protocol"), PROTOCOLS)


def endpoint_slice(obj: Document) -> Errors:
    """An EndpointSlice."""
    kind = obj.get("addressType", "")
    if not kind:
        yield required("addressType")
    else:
        yield from one_of("addressType", kind, _ADDRESS_TYPES)
    given = obj.get("endpoints") or []
    if len(given) > _ENDPOINTS_MAX:
        yield invalid("endpoints", len(given), f"must have at most {_ENDPOINTS_MAX} items")
    for index, endpoint in enumerate(given):
        yield from _endpoint(f"endpoints[{index}]", endpoint, kind)
    seen: set[str] = set()
    for index, port in enumerate(obj.get("ports") or ()):
        name = port.get("name") or ""
        if name:
            yield from named(f"ports[{index}].name", name, names.check_dns_label(name))
        if name in seen:
            yield duplicate(f"ports[{index}].name", name)
        seen.add(name)
        if port.get("port") is not None:
            yield from port_number(f"ports[{index}].port", port["port"])
        yield from one_of(f"ports[{index}].protocol", port.get("protocol"), PROTOCOLS)


def _endpoint(field: str, endpoint: Document, kind: str) -> Errors:
    addresses = endpoint.get("addresses") or []
    if not addresses:
        yield required(f"{field}.addresses")
    elif len(addresses) > _ADDRESSES_MAX:
        yield invalid(
            f"{field}.addresses", len(addresses), f"must have at most {_ADDRESSES_MAX} items"
        )
    for index, address in enumerate(addresses):
        at = f"{field}.addresses[{index}]"
        if kind == "FQDN":
            yield from named(at, address, names.check_dns_subdomain(address))
            continue
        parsed = parse_ip(address)
        if kind in ("IPv4", "IPv6") and parsed is not None and parsed.version != int(kind[-1]):
            yield invalid(f"{field}.addresses", address, f"must be an {kind} address")
        if kind in ("IPv4", "IPv6"):
            yield from endpoint_address(at, address)
    if endpoint.get("hostname"):
        name = endpoint["hostname"]
        yield from named(f"{field}.hostname", name, names.check_dns_label(name))
    if endpoint.get("nodeName") is not None:
        name = endpoint["nodeName"]
        yield from named(f"{field}.nodeName", name, names.check_dns_subdomain(name))


def endpoint_slice_update(new: Document, old: Document) -> Errors:
    """A changed EndpointSlice keeps the kind of its addresses."""
    yield from endpoint_slice(new)
    if new.get("addressType") != old.get("addressType"):
        yield invalid("addressType", None, IMMUTABLE)
