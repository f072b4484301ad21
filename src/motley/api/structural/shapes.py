"""Writing schemas by hand: the few shapes from which those of Motley's own kinds are made."""

from collections.abc import Mapping
from typing import Any

Schema = dict[str, Any]


def record(properties: Mapping[str, Schema], *required: str, **more: Any) -> Schema:
    """An object with these fields."""
    found: Schema = {"type": "object", "properties": dict(properties), **more}
    return found | ({"required": list(required)} if required else {})


def text(description: str, **more: Any) -> Schema:
    """A string."""
    return {"type": "string", "description": description, **more}


def count(description: str, **more: Any) -> Schema:
    """A number from zero up."""
    return {"type": "integer", "description": description, "minimum": 0, **more}


def list_of(items: Schema, description: str, **more: Any) -> Schema:
    """A list."""
    return {"type": "array", "description": description, "items": items, **more}


def keyed(items: Schema, description: str, *keys: str) -> Schema:
    """A list whose items have a key."""
    marks = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": list(keys)}
    return list_of(items, description, **marks)


def free(description: str) -> Schema:
    """Anything at all: what the author of an object knows and this server does not."""
    return {"description": description, "x-kubernetes-preserve-unknown-fields": True}


STRING: Schema = {"type": "string"}
TIME: Schema = {"type": "string", "format": "date-time"}
CONDITIONS = keyed(
    record(
        {
            "type": STRING,
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "lastTransitionTime": TIME,
            "reason": STRING,
            "message": STRING,
        },
        "type",
        "status",
    ),
    "The latest observations of the object's state.",
    "type",
)
