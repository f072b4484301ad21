"""The annotation of client-side apply, and how its users come over to server-side apply.

kubectl keeps what it applied last in an annotation. When kubectl then applies on the server, the
fields named there are its own already: taking them over is no conflict. And the annotation is kept
current, so that going back to client-side apply loses nothing.
"""

from typing import Any

import msgspec

from motley.api import codec, status
from motley.api.fields import pathset, walk
from motley.api.fields.pathset import PathSet
from motley.api.fields.types import Type

ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
KUBECTL = "kubectl"
# 256 KiB: what all annotations of an object may hold together.
_ANNOTATIONS_MAX_BYTES = 256 * 1024

_sorted = msgspec.json.Encoder(order="sorted").encode

Document = dict[str, Any]


def allowed(type_: Type, api_version: str, live: Document) -> PathSet:
    """The fields that client-side apply set and nobody changed since."""
    text = (live["metadata"].get("annotations") or {}).get(ANNOTATION)
    if not text:
        return {}
    try:
        applied = codec.decode(text)
    except status.BadRequest:
        return {}
    if not isinstance(applied, dict) or applied.get("apiVersion") != api_version:
        return {}
    fields = walk.stated(type_, applied)
    changed, removed = walk.between(type_, applied, live)
    fields = pathset.difference(fields, changed or {})
    return pathset.difference(fields, removed or {})


def kept_current(document: Document, config: Document) -> None:
    """Write what was applied into the annotation, where the object has it."""
    annotations = document["metadata"].get("annotations") or {}
    if not annotations.get(ANNOTATION):
        return
    text = _sorted(_without_annotation(config)).decode() + "\n"
    updated = {**annotations, ANNOTATION: text}
    if sum(len(k.encode()) + len(v.encode()) for k, v in updated.items()) > _ANNOTATIONS_MAX_BYTES:
        del updated[ANNOTATION]
    document["metadata"] = {**document["metadata"], "annotations": updated}


def _without_annotation(config: Document) -> Document:
    metadata = config.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    if ANNOTATION not in annotations:
        return config
    rest = {k: v for k, v in annotations.items() if k != ANNOTATION}
    kept = {k: v for k, v in metadata.items() if k != "annotations"}
    return {**config, "metadata": {**kept, "annotations": rest} if rest else kept}
