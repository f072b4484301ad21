"""Rules for ConfigMaps, Secrets, Leases and Events."""

import base64
import json

from motley.api import names
from motley.api.validation.errors import (
    IMMUTABLE,
    Document,
    Errors,
    forbidden,
    invalid,
    named,
    not_negative,
    required,
    too_long,
)

_MAX = 1024 * 1024
_FROZEN = "field is immutable when `immutable` is set"
_SECRET_KEYS = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}
_DOCKER = frozenset({".dockercfg", ".dockerconfigjson"})
_ACCOUNT = "kubernetes.io/service-account.name"


def config_map(obj: Document) -> Errors:
    """A ConfigMap: keys may become file names, and all of it must fit."""
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    size = 0
    for key, text in data.items():
        yield from named(f"data[{key}]", key, names.check_config_key(key))
        if key in binary:
            yield invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
        size += len(text.encode())
    for key, text in binary.items():
        yield from named(f"binaryData[{key}]", key, names.check_config_key(key))
        size += _decoded_size(text)
    if size > _MAX:
        yield too_long("[]", _MAX)


def secret(obj: Document) -> Errors:
    """A Secret; some types promise certain keys."""
    data = obj.get("data") or {}
    size = 0
    for key, text in data.items():
        yield from named(f"data[{key}]", key, names.check_config_key(key))
        size += _decoded_size(text)
    if size > _MAX:
        yield too_long("data", _MAX)
    kind = obj.get("type", "")
    for key in _SECRET_KEYS.get(kind, ()):
        if key not in data:
            yield required(f"data[{key}]")
        elif key in _DOCKER:
            yield from _docker(key, data[key])
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & data.keys():
        yield required("data[username]")
        yield required("data[password]")
    if kind == "kubernetes.io/service-account-token":
        annotations = (obj.get("metadata") or {}).get("annotations") or {}
        if not annotations.get(_ACCOUNT):
            yield required(f"metadata.annotations[{_ACCOUNT}]")


def _docker(key: str, text: str) -> Errors:
    try:
        json.loads(base64.b64decode(text))
    except ValueError:
        yield invalid(f"data[{key}]", "<secret contents redacted>", "unexpected end of JSON input")


def _decoded_size(text: str) -> int:
    return len(text) * 3 // 4 - text[-2:].count("=")


def config_map_update(new: Document, old: Document) -> Errors:
    """A changed ConfigMap; one that called itself immutable stays as it is."""
    yield from _frozen(new, old, ("data", "binaryData"))
    yield from config_map(new)


def secret_update(new: Document, old: Document) -> Errors:
    """A changed Secret keeps its type."""
    if new.get("type") != old.get("type"):
        yield invalid("type", new.get("type"), IMMUTABLE)
    yield from _frozen(new, old, ("data",))
    yield from secret(new)


def _frozen(new: Document, old: Document, parts: tuple[str, ...]) -> Errors:
    if not old.get("immutable"):
        return
    if not new.get("immutable"):
        yield forbidden("immutable", _FROZEN)
    for part in parts:
        if (new.get(part) or {}) != (old.get(part) or {}):
            yield forbidden(part, _FROZEN)


def lease(obj: Document) -> Errors:
    """A Lease."""
    spec = obj.get("spec") or {}
    duration = spec.get("leaseDurationSeconds")
    if duration is not None and duration <= 0:
        yield invalid("spec.leaseDurationSeconds", duration, "must be greater than 0")
    yield from not_negative("spec.leaseTransitions", spec.get("leaseTransitions"))


def event(obj: Document) -> Errors:
    """An Event lives where the object lives that it is about, or in `default` if that has none."""
    namespace = (obj.get("metadata") or {}).get("namespace", "")
    about = (obj.get("involvedObject") or {}).get("namespace", "")
    if namespace != about and not (not about and namespace in ("default", "kube-system")):
        yield invalid("involvedObject.namespace", about, "does not match event.namespace")
