"""A custom kind as OpenAPI publishes it, for `kubectl explain` and validating clients.

The schema is the author's with the frame that every object has; what OpenAPI version 2 cannot
say (oneOf, nullable, …) is left out there, as Kubernetes leaves it out.
"""

from collections.abc import Mapping
from typing import Any

from motley.api import scheme

_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_TEXTS = {
    "apiVersion": "APIVersion defines the versioned schema of this representation of an object.",
    "kind": "Kind is a string value representing the REST resource this object represents.",
    "metadata": "Standard object's metadata.",
}
_PRESERVE = "x-kubernetes-preserve-unknown-fields"
# Version 2 has no words for these; clients of it would refuse the whole document.
_ONLY_V3 = ("anyOf", "oneOf", "not", "nullable", "allOf")


def definition_name(kind: scheme.Kind) -> str:
    """The name under which the schema is published: the group backwards, as in Java."""
    return ".".join([*reversed(kind.group.split(".")), kind.version, kind.kind])


def published(kind: scheme.Kind, ref_prefix: str) -> dict[str, Any]:
    """The schema of the kind, with references below `ref_prefix`."""
    assert kind.definition is not None
    v3 = "components" in ref_prefix
    if not v3 and kind.definition.schema.get(_PRESERVE):
        return {"type": "object"}  # with any property named, kubectl would refuse all others
    shown = _rewritten(kind.definition.schema, v3)
    properties = dict(shown.get("properties") or {})
    for name in ("apiVersion", "kind"):
        properties[name] = {"description": _TEXTS[name], "type": "string"}
    metadata = {"$ref": f"{ref_prefix}{_META}.ObjectMeta"}
    described = {"description": _TEXTS["metadata"]}
    properties["metadata"] = {"allOf": [metadata], **described} if v3 else {**described, **metadata}
    return {**shown, "type": "object", "properties": dict(sorted(properties.items()))}


def _rewritten(schema: Mapping[str, Any], v3: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    preserves = schema.get(_PRESERVE)
    for key, value in schema.items():
        if not v3 and (key in _ONLY_V3 or (preserves and key in ("properties", "items"))):
            continue
        if key == "properties":
            found[key] = {n: _rewritten(s, v3) for n, s in value.items()}
        elif key in ("items", "additionalProperties", "not") and isinstance(value, Mapping):
            found[key] = _rewritten(value, v3)
        else:
            found[key] = value
    if not v3 and schema.get("x-kubernetes-int-or-string"):
        found.pop("type", None)
    return found
