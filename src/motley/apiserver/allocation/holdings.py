"""What a Service's spec holds and what it needs, field by field. Pure.

Services are several kinds of thing under one name, told apart by `type`. An update often carries
over fields of the type the Service had before; where such a field was not changed with the type,
it is dropped, as in Kubernetes.
"""

import ipaddress
from typing import Any, NamedTuple

Document = dict[str, Any]

_WITH_NODE_PORTS = ("NodePort", "LoadBalancer")
_WITH_ADDRESS = ("ClusterIP", "NodePort", "LoadBalancer")
# Fields that mean something for some types only.
_OF_TYPES = {
    "clusterIP": _WITH_ADDRESS,
    "clusterIPs": _WITH_ADDRESS,
    "ipFamilies": _WITH_ADDRESS,
    "ipFamilyPolicy": _WITH_ADDRESS,
    "internalTrafficPolicy": _WITH_ADDRESS,
    "externalTrafficPolicy": _WITH_NODE_PORTS,
    "allocateLoadBalancerNodePorts": ("LoadBalancer",),
    "loadBalancerClass": ("LoadBalancer",),
}


class Holdings(NamedTuple):
    """The addresses, as text, and the ports that belong to one Service."""

    addresses: frozenset[str] = frozenset()
    ports: frozenset[int] = frozenset()


def of(service: Document | None) -> Holdings:
    """What a Service holds."""
    spec = (service or {}).get("spec") or {}
    return Holdings(frozenset(_addresses(spec)), frozenset(node_ports(spec)))


def _addresses(spec: Document) -> list[str]:
    texts = spec.get("clusterIPs") or [spec.get("clusterIP")]
    found = []
    for text in texts:
        try:
            found.append(str(ipaddress.ip_address(text)))
        except ValueError:
            continue  # None, "None" or empty: no address
    return found


def node_ports(spec: Document) -> list[int]:
    """The node ports of a spec, that of the health check among them."""
    numbers = [p.get("nodePort") for p in spec.get("ports") or () if isinstance(p, dict)]
    numbers.append(spec.get("healthCheckNodePort"))
    return [n for n in numbers if isinstance(n, int) and n]


def takes_node_ports(spec: Document) -> bool:
    """Whether ports of this Service may have node ports."""
    return spec.get("type") in _WITH_NODE_PORTS


def gets_node_ports(spec: Document) -> bool:
    """Whether ports without a node port are given one."""
    if spec.get("type") == "LoadBalancer":
        return spec.get("allocateLoadBalancerNodePorts") is not False
    return spec.get("type") == "NodePort"


def is_health_checked(spec: Document) -> bool:
    """Whether balancers ask each node if it has a pod of this Service."""
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def drop_leftovers(spec: Document, old: Document) -> None:
    """Forget what an update carries over from the type the Service had before."""
    if not old:
        return
    wanted = spec.get("type", "ClusterIP")
    if wanted != old.get("type"):
        for field, types in _OF_TYPES.items():
            if wanted not in types and spec.get(field) == old.get(field):
                spec.pop(field, None)
    if not takes_node_ports(spec):
        held = set(node_ports(old))
        for port in spec.get("ports") or ():
            if isinstance(port, dict) and port.get("nodePort") in held:
                del port["nodePort"]
    same = spec.get("healthCheckNodePort") == old.get("healthCheckNodePort")
    if same and not is_health_checked(spec):
        spec.pop("healthCheckNodePort", None)


def align_addresses(spec: Document, old: Document) -> None:
    """Make `clusterIP` and `clusterIPs` say the same; an update that names none keeps the old."""
    if not spec.get("clusterIP") and spec.get("clusterIPs"):
        spec["clusterIP"] = spec["clusterIPs"][0]
    if not spec.get("clusterIP") and old.get("clusterIP"):
        spec["clusterIP"] = old["clusterIP"]
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]


def default_families(spec: Document) -> None:
    """The families of a Service that names none."""
    if spec.get("clusterIP") == "None" and not spec.get("selector"):
        # Nobody knows which addresses the endpoints of such a Service will have.
        spec.setdefault("ipFamilyPolicy", "RequireDualStack")
        spec.setdefault("ipFamilies", ["IPv4", "IPv6"])
        return
    spec.setdefault("ipFamilyPolicy", "SingleStack")
    spec.setdefault("ipFamilies", ["IPv4"])


def port_id(port: Document) -> tuple[Any, Any]:
    """What a port is recognised by over updates."""
    return port.get("port"), port.get("protocol", "TCP")


def twin(ports: list[Document], port: Document) -> int | None:
    """The node port of the same port in the other protocol: DNS wants one for both."""
    for other in ports:
        same = other.get("port") == port.get("port")
        if same and other is not port and other.get("protocol") != port.get("protocol"):
            number: int | None = other.get("nodePort")
            return number
    return None
