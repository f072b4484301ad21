"""What is accepted and still probably not meant: warnings about an object, kind by kind.

Pure functions of the object as it was stored. They never refuse; clients print what they say.
"""

import base64
import binascii
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from motley.api import codec, names, quantity, scheme
from motley.lib.memo import Memo

Document = dict[str, Any]
Advice = Iterator[str]

_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP = "seccomp.security.alpha.kubernetes.io/pod"
_INGRESS_CLASS = "kubernetes.io/ingress.class"
_BYTES = ("memory", "storage", "ephemeral-storage")
KEPT_PODS = (
    "child pods are preserved by default when jobs are deleted; set "
    "propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress "
    "this warning"
)


def of(kind: scheme.Kind, obj: Document) -> list[str]:
    """The warnings about a new object."""
    look = _BY_KIND.get((kind.group, kind.plural))
    return list(look(obj)) if look is not None else []


def _name(obj: Document, use: str) -> Advice:
    if wrong := names.check_dns_label(str(obj["metadata"].get("name", ""))):
        yield (
            f"metadata.name: this is used in {use}, which can result in surprising behavior; "
            f"a DNS label is recommended: [{' '.join(wrong)}]"
        )


def _pod(obj: Document) -> Advice:
    yield from _name(obj, "the Pod's hostname")
    for key in obj["metadata"].get("annotations") or {}:
        where = f"metadata.annotations[{key}]"
        if key.startswith(_APP_ARMOR):
            yield f'{where}: deprecated since v1.30; use the "appArmorProfile" field instead'
        elif key == _SECCOMP:
            yield f'{where}: non-functional in v1.27+; use the "seccompProfile" field instead'
    yield from _pod_spec(obj.get("spec") or {})


# Pods of one template earn the same advice, mostly none.
_given = Memo[tuple[str, ...]](2 * 2**20)


def _pod_spec(spec: Document) -> tuple[str, ...]:
    looks = codec.encode(spec)
    advice = _given.get(looks)
    if advice is None:
        advice = tuple(_containers(spec, "spec"))
        _given.put(looks, advice, sum(map(len, advice)))
    return advice


def _containers(spec: Document, path: str) -> Advice:
    for field in ("initContainers", "containers"):
        for i, container in enumerate(spec.get(field) or ()):
            where = f"{path}.{field}[{i}]"
            yield from _ports(container.get("ports") or (), where)
            yield from _environment(container.get("env") or (), where)
            for part in ("limits", "requests"):
                amounts = (container.get("resources") or {}).get(part) or {}
                yield from _fractions(amounts, f"{where}.resources.{part}")


def _ports(ports: Sequence[Document], where: str) -> Advice:
    seen: dict[tuple[Any, ...], int] = {}
    for i, port in enumerate(ports):
        same = tuple(port.get(f) for f in ("containerPort", "protocol", "hostIP", "hostPort"))
        if same in seen:
            first = f"{where}.ports[{seen[same]}]"
            yield f"{where}.ports[{i}]: duplicate port definition with {first}"
        seen.setdefault(same, i)


def _environment(variables: Sequence[Document], where: str) -> Advice:
    seen: set[str] = set()
    for i, variable in enumerate(variables):
        name = str(variable.get("name", ""))
        if name in seen:
            yield (
                f'{where}.env[{i}]: hides previous definition of "{name}", which may be dropped '
                "when using apply"
            )
        seen.add(name)


def _fractions(amounts: Document, where: str) -> Advice:
    for name in sorted(amounts.keys() & _BYTES):
        if not quantity.quantity(amounts[name]).is_whole:
            shown = f'fractional byte value "{amounts[name]}" is invalid, must be an integer'
            yield f"{where}[{name}]: {shown}"


def _workload(obj: Document) -> Advice:
    yield from _name(obj, "Pod names and hostnames")
    template = (obj.get("spec") or {}).get("template") or {}
    yield from _containers(template.get("spec") or {}, "spec.template.spec")


def _secret(obj: Document) -> Advice:
    if obj.get("type") != "kubernetes.io/tls":
        return
    try:
        certificate = base64.b64decode((obj.get("data") or {}).get("tls.crt") or "")
    except (binascii.Error, ValueError):
        certificate = b""
    if b"-----BEGIN CERTIFICATE-----" not in certificate:
        yield "tls: failed to find any PEM data in certificate input"


def _volume(obj: Document) -> Advice:
    spec = obj.get("spec") or {}
    if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        yield (
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. "
            "Instead, the recommended approach is to use dynamic provisioning."
        )
    if "rbd" in spec:
        yield "spec.rbd: deprecated in v1.28, non-functional in v1.31+"


def _claim(obj: Document) -> Advice:
    resources = (obj.get("spec") or {}).get("resources") or {}
    for part in ("limits", "requests"):
        yield from _fractions(resources.get(part) or {}, f"spec.resources.{part}")


def _service(obj: Document) -> Advice:
    spec = obj.get("spec") or {}
    if spec.get("externalIPs"):
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    if spec.get("trafficDistribution") == "PreferClose":
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'


def _ingress(obj: Document) -> Advice:
    if _INGRESS_CLASS in (obj["metadata"].get("annotations") or {}):
        yield (
            f'annotation "{_INGRESS_CLASS}" is deprecated, please use '
            "'spec.ingressClassName' instead"
        )


def _storage_driver(obj: Document) -> Advice:
    spec = obj.get("spec") or {}
    if spec.get("tokenRequests") and "serviceAccountTokenInSecrets" not in spec:
        yield (
            "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to "
            "true to prevent possible logging of tokens in volume attributes"
        )


_BY_KIND: dict[tuple[str, str], Callable[[Document], Advice]] = {
    ("", "persistentvolumeclaims"): _claim,
    ("", "persistentvolumes"): _volume,
    ("", "pods"): _pod,
    ("", "secrets"): _secret,
    ("", "services"): _service,
    ("apps", "deployments"): _workload,
    ("networking.k8s.io", "ingresses"): _ingress,
    ("storage.k8s.io", "csidrivers"): _storage_driver,
}
