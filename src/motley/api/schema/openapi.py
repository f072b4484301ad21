"""The definitions as Kubernetes publishes them, for clients that read OpenAPI.

The package kubernetes-validate keeps them in a dialect for JSON Schema validators: optional types
carry `"null"`, quantities are a choice of types, kind and apiVersion are closed lists. Here that is
undone.
"""

from collections.abc import Mapping
from typing import Any

from motley.api.schema import model

_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"


def openapi(name: str, ref_prefix: str = "#/definitions/") -> dict[str, Any]:
    """One definition with references below `ref_prefix`.

    `#/definitions/` is OpenAPI v2's place for them, `#/components/schemas/` version 3's.
    """
    definition = model.definitions()[name]
    described = {k: v for k, v in definition.items() if k == "description"}
    if name == _QUANTITY:
        return described | {"type": "string"}
    if name == _INT_OR_STRING:
        return described | {"type": "string", "format": "int-or-string"}
    return _rewritten(definition, ref_prefix)


def _rewritten(definition: Mapping[str, Any], ref_prefix: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in definition.items():
        if key == "$ref":
            found[key] = ref_prefix + value.removeprefix(model.REF)
        elif key == "type" and isinstance(value, list):
            found[key] = next(t for t in value if t != "null")
        elif key == "properties":
            found[key] = {n: _property(n, p, ref_prefix) for n, p in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, Mapping):
            found[key] = _rewritten(value, ref_prefix)
        else:
            found[key] = value
    return found


def _property(name: str, definition: Mapping[str, Any], ref_prefix: str) -> dict[str, Any]:
    found = _rewritten(definition, ref_prefix)
    if name in ("kind", "apiVersion"):
        found.pop("enum", None)
    if "null" in found.get("enum", ()) or None in found.get("enum", ()):
        found["enum"] = [v for v in found["enum"] if v is not None]
    return found
