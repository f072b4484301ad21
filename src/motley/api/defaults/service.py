"""Defaults of Service, Endpoints, EndpointSlice and the networking group."""

from typing import Any

Document = dict[str, Any]

_AFFINITY_TIMEOUT_S = 10800  # three hours, as in Kubernetes


def service(obj: Document) -> None:
    """A Service; addresses and node ports are given out by the API server."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        client = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        client.setdefault("timeoutSeconds", _AFFINITY_TIMEOUT_S)
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port.get("port", 0)
    takes_outside_traffic = spec["type"] in ("NodePort", "LoadBalancer") or (
        spec["type"] == "ClusterIP" and spec.get("externalIPs")
    )
    if takes_outside_traffic:
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] in ("ClusterIP", "NodePort", "LoadBalancer"):
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
        for ingress in ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ():
            if ingress.get("ip"):
                ingress.setdefault("ipMode", "VIP")


def endpoints(obj: Document) -> None:
    """Endpoints."""
    for subset in obj.get("subsets") or ():
        for port in subset.get("ports") or ():
            port.setdefault("protocol", "TCP")


def endpoint_slice(obj: Document) -> None:
    """An EndpointSlice."""
    obj.setdefault("endpoints", None)
    obj.setdefault("ports", None)
    for endpoint in obj["endpoints"] or ():
        endpoint.setdefault("conditions", {})
    for port in obj["ports"] or ():
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")
    for name in ("endpoints", "ports"):
        obj[name] = obj[name] or None


def ingress_class(obj: Document) -> None:
    """An IngressClass."""
    if (parameters := (obj.get("spec") or {}).get("parameters")) is not None:
        parameters.setdefault("scope", "Cluster")


def network_policy(obj: Document) -> None:
    """A NetworkPolicy: it concerns egress only when it says something about it."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("podSelector", {})
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    for direction in ("ingress", "egress"):
        for rule in spec.get(direction) or ():
            for port in rule.get("ports") or ():
                port.setdefault("protocol", "TCP")
