"""PATCH on an object: JSON patch, merge patch, strategic merge patch, or an apply.

The patch is applied to the latest state and written with compare-and-swap; when somebody else
was quicker it is applied again to what they left, as Kubernetes does.
"""

from collections.abc import Callable, Sequence
from typing import Any

from motley.api import codec, scheme, status
from motley.api.patch import json as json_patch
from motley.api.patch import merge as merge_patch
from motley.api.patch import strategic as strategic_patch
from motley.apiserver import body, negotiate, newerfields
from motley.apiserver.answer import Answer
from motley.apiserver.core import Core
from motley.apiserver.options import write_options
from motley.apiserver.verbs import apply as apply_config
from motley.apiserver.verbs.call import Call
from motley.apiserver.writer import immutable, metadata_of

Document = dict[str, Any]
Apply = Callable[[Document], Document]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


async def handle(core: Core, call: Call) -> Answer:
    """200 with the object as stored."""
    media_type = negotiate.content_type(call.content_type)
    if media_type == APPLY_PATCH:
        return await apply_config.handle(core, call)
    check_media_type(media_type, call.kind)
    options = write_options(call.info.query, "PatchOptions")
    raw = await call.body()
    apply = decode(call.kind, media_type, raw)
    kind, name = call.kind, call.info.name
    careless = [] if options.field_validation == "Ignore" else _careless(media_type, raw)
    warnings: list[str] = []

    def modify(stored: Document) -> Document:
        version = stored["metadata"]["resourceVersion"]
        patched = {**apply(stored)}  # a patch that changes nothing gives back what it got
        warnings[:] = check_patched(kind, patched, stored, options.field_validation, careless)
        metadata = metadata_of(patched)
        if metadata.get("uid") not in (None, "", stored["metadata"].get("uid")):
            raise immutable(kind, name, "metadata.uid", metadata["uid"])
        if metadata.get("resourceVersion") == version:
            del metadata["resourceVersion"]  # the patch named none: try again on a lost race
        return patched

    written = await core.writer.update(
        kind,
        call.namespace,
        name,
        modify,
        subresource=call.info.subresource,
        manager=call.manager(options),
        is_fresh=kind.definition is None,  # custom resources are read in place
        dry_run=options.dry_run,
    )
    return call.answer_written(written, warnings)


def check_media_type(media_type: str, kind: scheme.Kind | None = None) -> None:
    """415 for what is no patch, and for a patch whose rules the kind's schema cannot give."""
    if kind is not None and kind.definition is not None and media_type == STRATEGIC_PATCH:
        raise status.UnsupportedMediaType(
            "the body of the request was in an unknown format - accepted media types include: "
            "application/json-patch+json, application/merge-patch+json, "
            "application/apply-patch+yaml"
        )
    if media_type not in (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH):
        raise status.UnsupportedMediaType("415: Unsupported Media Type", details={})


def decode(kind: scheme.Kind, media_type: str, raw: bytes) -> Apply:
    """The function a patch body stands for; 400 when it is no patch."""
    try:
        patch = codec.decode(raw)
    except status.BadRequest:
        raise status.BadRequest("invalid JSON patch") from None

    def apply(stored: Document) -> Document:
        if media_type == JSON_PATCH:
            if not isinstance(patch, list):
                raise status.BadRequest("error decoding patch: a JSON patch is a list")
            return _object(json_patch.apply(stored, patch))
        if not isinstance(patch, dict):
            raise status.BadRequest("error decoding patch: a merge patch is an object")
        if media_type == MERGE_PATCH:
            return _object(merge_patch.apply(stored, patch))
        return _object(strategic_patch.apply(kind, stored, patch))

    return apply


def _careless(media_type: str, raw: bytes) -> list[str]:
    """What is legal in a patch but hardly meant: keys given twice, operations that say too much."""
    patch = codec.decode(raw)
    if media_type != JSON_PATCH or not isinstance(patch, list):
        return [f'duplicate field "{field}"' for field in body.repeated(raw, patch)]
    unknown = [
        f'unknown field "[{index}].{name}"'
        for index, operation in enumerate(patch)
        if isinstance(operation, dict)
        for name in operation
        if name not in ("op", "path", "from", "value")
    ]
    if not unknown and not body.repeated(raw, patch):
        return []
    found = body.in_order(raw, unknown)
    return [f"json patch {one}" for one in found]


def _object(patched: Any) -> Document:
    if not isinstance(patched, dict):
        raise status.BadRequest("the patched document is not an object")
    return patched


def check_patched(
    kind: scheme.Kind,
    patched: Document,
    stored: Document,
    field_validation: str,
    careless: Sequence[str] = (),
) -> list[str]:
    """Read the outcome of a patch like a body; warnings about it, and about the patch itself.

    What does not fit the schema is the patch's fault (422), as in Kubernetes. And a patch may
    not make another object of its target.
    """
    given = dict(patched)  # enough of a copy: reading replaces what is in the document
    try:
        body.check_kind(kind, patched)
        unknown = body.conform(kind, patched)
        if unknown and kind.definition is None:  # a definition's own schema says what is kept
            unknown = newerfields.put_back(patched, stored, unknown)
        found = [*careless, *unknown]
        warnings = body.complaints(kind, found, field_validation)
    except status.BadRequest as error:
        problem = error.message.partition(f"cannot be handled as a {kind.kind}: ")[2]
        shown = codec.encode(given).decode()
        message = f"Invalid value: {codec.encode(shown).decode()}: {problem or error.message}"
        cause = status.FieldError("patch", "FieldValueInvalid", message)
        raise status.invalid("", "", "", [cause]) from None
    metadata = metadata_of(patched)
    name, namespace = stored["metadata"].get("name"), stored["metadata"].get("namespace")
    if not metadata.get("name"):
        raise status.BadRequest(
            f"the name of the object ({name} based on URL) was undeterminable: "
            "name must be provided"
        )
    if metadata.get("name") != name:
        raise status.BadRequest(
            f"the name of the object ({metadata.get('name')}) does not match the name on the URL "
            f"({name})"
        )
    if kind.namespaced and metadata.get("namespace") != namespace:
        raise status.BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    return warnings
