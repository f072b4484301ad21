"""What the dashboard's manifests become in a cluster of ours, decided from values alone.

`deploy/dashboard` is for any Kubernetes: an image of some registry, a certificate from anywhere,
reachable from inside. Here the image is the one this machine made and gave to its own nodes, so
the pod stays on those; the certificate is the cluster's own; and the Service has a port on every
node, because there is no cloud that would give it an address.
"""

import base64
import copy
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

import motley
from motley.api.views import core
from motley.ops.failure import Failure

NAMESPACE = "motley-dashboard"
NAME = "dashboard"  # of the Deployment, the Service and who the pod is
VIEWER = "viewer"
TLS_SECRET = "dashboard-tls"
NAMES = "motley.io/names"  # annotation of the Secret: what was asked for by --name
_MADE_OF = "motley.io/made-of"  # annotation of pods: another image or certificate, another pod
_HOSTNAME = "kubernetes.io/hostname"
SERVICE_TYPES = ("NodePort", "LoadBalancer", "ClusterIP")
Document = dict[str, Any]


class Exposure(msgspec.Struct, frozen=True):
    """How the dashboard is reached."""

    type: str = SERVICE_TYPES[0]
    node_port: int = 0  # 0: the API server chooses


def manifest() -> Path:
    """The file: in the repository we run from, or where a wheel's data is installed."""
    data = Path(sysconfig.get_path("data"), "share/motley")
    places = (Path(motley.__file__).parents[2], data)
    for place in places:
        path = place / "deploy" / "dashboard" / "dashboard.yaml"
        if path.exists():
            return path
    shown = ", ".join(str(place / "deploy") for place in places)
    raise Failure(f"the dashboard's manifests are in none of {shown}")


def exposure(wanted: str | None, node_port: int, present: core.Service | None) -> Exposure:
    """What was asked for; else what there is, so that doing it again changes nothing."""
    before = present.spec if present is not None else None
    type_ = wanted or (before.type if before is not None else SERVICE_TYPES[0])
    if type_ == "ClusterIP" and node_port:
        if wanted:
            raise Failure("a Service of type ClusterIP has no port on nodes", "Leave one out.")
        type_ = SERVICE_TYPES[0]
    if type_ == "ClusterIP":
        return Exposure(type_)
    known = before.ports[0].node_port if before is not None and before.ports else 0
    return Exposure(type_, node_port or known)


def service(document: Document, how: Exposure) -> Document:
    """The Service, reachable as it should be."""
    made = copy.deepcopy(document)
    made["spec"]["type"] = how.type
    if how.node_port:
        made["spec"]["ports"][0]["nodePort"] = how.node_port
    return made


def deployment(
    document: Document, image: str, made_of: Sequence[str], nodes: Sequence[str]
) -> Document:
    """The Deployment with an image that only these nodes have.

    `made_of`: what its pods are replaced for when it changes, though their manifest stays.
    """
    made = copy.deepcopy(document)
    template = made["spec"]["template"]
    template["metadata"].setdefault("annotations", {})[_MADE_OF] = "-".join(made_of)
    container = template["spec"]["containers"][0]
    container["image"], container["imagePullPolicy"] = image, "IfNotPresent"
    here = {"matchExpressions": [{"key": _HOSTNAME, "operator": "In", "values": list(nodes)}]}
    required = {"nodeSelectorTerms": [here]}
    template["spec"]["affinity"] = {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
    }
    return made


def tls_secret(cert_pem: bytes, key_pem: bytes, names: Sequence[str]) -> Document:
    """The certificate as pods mount it; `names`: those that were asked for."""
    data = {"tls.crt": cert_pem, "tls.key": key_pem}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": TLS_SECRET,
            "namespace": NAMESPACE,
            "labels": {"app.kubernetes.io/name": NAMESPACE},
            "annotations": {NAMES: ",".join(names)},
        },
        "type": "kubernetes.io/tls",
        "data": {key: base64.b64encode(pem).decode() for key, pem in data.items()},
    }


def certificate_of(secret: core.Secret | None) -> bytes:
    """The certificate in a Secret; empty without one."""
    return base64.b64decode(secret.data.get("tls.crt", "")) if secret is not None else b""


def asked_names(given: Sequence[str], secret: core.Secret | None) -> tuple[str, ...]:
    """The names people want to use: those given now, else those given before."""
    if given or secret is None:
        return tuple(dict.fromkeys(given))
    said = secret.metadata.annotations.get(NAMES, "")
    return tuple(filter(None, said.split(",")))


def serving_names(
    present: core.Service, nodes: Iterable[core.Node], asked: Sequence[str], domain: str
) -> list[str]:
    """Every name and address by which a browser may come, without repeats."""
    inside = f"{NAME}.{NAMESPACE}.svc"
    every = [*asked, "localhost", "127.0.0.1", inside, f"{inside}.{domain}"]
    every += [address for address in present.spec.cluster_ips if address != "None"]
    every += [one.ip for one in present.status.load_balancer.ingress if one.ip]
    every += [one.address for node in nodes for one in node.status.addresses]
    return list(dict.fromkeys(every))


def addresses(
    present: core.Service, nodes: Iterable[core.Node], first: str, asked: Sequence[str] = ()
) -> list[str]:
    """Where people find it, best first; `first` is the address of this machine's node."""
    port = present.spec.ports[0]
    found = [_url(one.ip, port.port) for one in present.status.load_balancer.ingress if one.ip]
    if port.node_port:
        ips = dict.fromkeys([*asked, first, *(node.internal_ip for node in nodes)])
        found += [_url(ip, port.node_port) for ip in ips if ip]
    return found or [_url(present.spec.cluster_ip, port.port)]


def _url(host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return f"https://{shown}" + ("/" if port == 443 else f":{port}/")
