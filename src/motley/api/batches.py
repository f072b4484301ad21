"""`motley.io/v1` BindingBatch and RequestBatch: many writes in one request.

Like reviews they are answered and not kept. Their rows are what discovery tells clients by: where
the group has a resource `bindings`, bindings may be sent together, and with `batches` other writes.
"""

from motley.api import scheme
from motley.api.structural import shapes
from motley.api.structural.definition import Definition

GROUP = "motley.io"
VERSION = "v1"

_STRING = {"type": "string"}
_BINDINGS = shapes.record(
    {
        "items": shapes.list_of(
            shapes.record(
                {
                    "metadata": shapes.free("Namespace, name and uid of the pod."),
                    "target": shapes.record(
                        {"apiVersion": _STRING, "kind": _STRING, "name": _STRING}, "name"
                    ),
                    "event": shapes.record(
                        {
                            "reason": _STRING,
                            "message": _STRING,
                            "component": shapes.text("Who says so."),
                        }
                    ),
                },
                "metadata",
                "target",
            ),
            "Bindings as `pods/binding` takes them, each with the event that tells of it.",
        )
    },
    "items",
)
_REQUESTS = shapes.record(
    {
        "items": shapes.list_of(
            shapes.record(
                {
                    "method": shapes.text("What to do.", enum=["POST", "PATCH", "DELETE"]),
                    "path": shapes.text("Path and query of the request."),
                    "contentType": shapes.text("Of the body.", default="application/json"),
                    "body": shapes.free("Its body."),
                },
                "method",
                "path",
            ),
            "Requests that each could be made alone; they run side by side.",
        )
    },
    "items",
)


def rows() -> list[scheme.Kind]:
    """The rows, ready for the table."""
    return [
        _row("BindingBatch", "bindings", _BINDINGS),
        _row("RequestBatch", "batches", _REQUESTS),
    ]


def _row(kind: str, plural: str, schema: shapes.Schema) -> scheme.Kind:
    return scheme.Kind(
        group=GROUP,
        version=VERSION,
        kind=kind,
        plural=plural,
        singular=kind.lower(),
        namespaced=False,
        verbs=("create",),
        is_stored=False,
        definition=Definition(kind=kind, list_kind=f"{kind}List", schema=schema, is_custom=False),
    )
