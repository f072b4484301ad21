"""A template of the document's (`kind: Func`) and the Function it stands for.

The document's names may hold underscores and capitals, Kubernetes' may not: `is_hello` becomes the
object `is-hello` and keeps its own name in an annotation, by which it is found and shown.

Invariant: two names of the document never share one object; the second is refused.
"""

import base64
import binascii
import ipaddress
import re
from collections.abc import Mapping
from typing import Any

from motley.api import status

Document = dict[str, Any]
KIND = "Func"
VERSIONS = ("v1", "v2")
RETURN = "RETURN"
NAME_ANNOTATION = "motley.io/func-name"
NAMESPACE = "default"
_COUNTS = {
    "initInstanceNum": "initialInstances",
    "minInstanceNum": "minInstances",
    "maxInstanceNum": "maxInstances",
}
_NO_ADDRESS = ("", "0.0.0.0", "None")


def object_name(name: str) -> str:
    """The name of the object that a function's name in the document stands for."""
    found = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63].rstrip("-")
    if not found:
        raise status.BadRequest(f"spec.name: {name!r} has no letter and no digit")
    return found


def to_function(template: Mapping[str, Any]) -> Document:
    """The Function that a template means."""
    version = template.get("apiVersion", "")
    if version not in VERSIONS:
        raise status.BadRequest(f"apiVersion: {version!r} is none of {', '.join(VERSIONS)}")
    if template.get("kind", KIND) != KIND:
        raise status.BadRequest(f"kind: {template.get('kind')!r} is not {KIND}")
    given = template.get("spec")
    if not isinstance(given, Mapping):
        raise status.BadRequest("spec: required")
    metadata = template.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    name = given.get("name") or metadata.get("name")
    if not isinstance(name, str) or not name:
        raise status.BadRequest("spec.name: required")
    spec: Document = {"version": version, "code": _decoded(given, "function")}
    if given.get("preRun"):
        spec["preRun"] = _decoded(given, "preRun")
    for side in ("left", "right"):
        spec[side] = branch(str(given.get(side) or ""))
    for theirs, ours in _COUNTS.items():
        if given.get(theirs) is not None:
            spec[ours] = given[theirs]
    address = str(given.get("serviceAddress") or "")
    if address not in _NO_ADDRESS:
        try:
            spec["address"] = str(ipaddress.ip_address(address))
        except ValueError:
            raise status.BadRequest(f"spec.serviceAddress: {address!r} is no IP address") from None
    return {
        "apiVersion": "motley.io/v1",
        "kind": "Function",
        "metadata": {
            "name": object_name(name),
            "namespace": metadata.get("namespace") or NAMESPACE,
            "annotations": {NAME_ANNOTATION: name},
        },
        "spec": spec,
    }


def read_func(obj: Document) -> list[str]:
    """Make a template the Function it means, in place; what was read differently, in words."""
    function = to_function(obj)
    said = [f'kind: "{KIND}" is read as motley.io/v1 Function']
    if function["metadata"]["name"] != name_of(function):
        said.append(f'metadata.name: read as "{function["metadata"]["name"]}"')
    obj.clear()
    obj.update(function)
    return said


def branch(name: str) -> str:
    """The Function that a branch leads to; the end has its own name."""
    return name if name in ("", RETURN) else object_name(name)


def to_template(function: Mapping[str, Any]) -> Document:
    """A Function as the document would write it."""
    spec = function["spec"]
    found: Document = {
        "name": name_of(function),
        "function": _encode(spec.get("code") or ""),
        "preRun": _encode(spec.get("preRun") or ""),
        "left": spec.get("left") or RETURN,
        "right": spec.get("right") or RETURN,
        "serviceAddress": (function.get("status") or {}).get("address") or spec.get("address", ""),
    }
    for theirs, ours in _COUNTS.items():
        if ours in spec:
            found[theirs] = spec[ours]
    metadata = function["metadata"]
    return {
        "apiVersion": spec.get("version", "v2"),
        "kind": KIND,
        "metadata": {
            key: metadata[key]
            for key in ("namespace", "uid", "creationTimestamp", "resourceVersion")
            if key in metadata
        }
        | {"name": name_of(function)},
        "spec": found,
        "status": function.get("status") or {},
    }


def name_of(function: Mapping[str, Any]) -> str:
    """The function's own name."""
    metadata = function["metadata"]
    name: str = (metadata.get("annotations") or {}).get(NAME_ANNOTATION) or metadata["name"]
    return name


def refuse_another(function: Mapping[str, Any], name: str) -> None:
    """The object that is there must be of the same name; Conflict when it is another's."""
    if name_of(function) != name:
        raise status.Conflict(
            f"spec.name: {name!r} and {name_of(function)!r} would be the same Function"
            f" {function['metadata']['name']!r}; choose another name"
        )


def _decoded(spec: Mapping[str, Any], field: str) -> str:
    value = spec.get(field)
    if not isinstance(value, str) or not value:
        raise status.BadRequest(f"spec.{field}: required, the file's text in base64")
    try:
        return base64.b64decode(value, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise status.BadRequest(f"spec.{field}: no text in base64: {error}") from None


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
