"""What all reviews share: reading the question and giving the answer."""

from typing import Any

from motley.api import status
from motley.api.fields import tracking
from motley.api.status import FieldError
from motley.apiserver import body, tables
from motley.apiserver.answer import Answer
from motley.apiserver.core import Core
from motley.apiserver.options import write_options
from motley.apiserver.verbs.call import Call, in_media_type

Document = dict[str, Any]


async def read(core: Core, call: Call) -> tuple[Document, list[str]]:
    """The review in the body, and warnings about what else was in it."""
    options = write_options(call.info.query, "CreateOptions")
    found, warnings = body.read(
        call.kind, call.content_type, await call.body(), options.field_validation
    )
    if not isinstance(found.get("metadata"), dict):
        found["metadata"] = {}
    tracking.created(call.kind, found, call.manager(options), core.writer.timestamp())
    if not isinstance(found.get("spec"), dict):
        found["spec"] = {}
    return found, warnings


def answer(
    call: Call,
    metadata: Document | None,
    fields: Document,
    warnings: list[str] | None = None,
) -> Answer:
    """201 with the review and its status."""
    kept = ("name", "namespace", "labels", "annotations", "creationTimestamp", "managedFields")
    shown = {
        "kind": call.kind.kind,
        "apiVersion": call.kind.api_version,
        "metadata": {k: v for k, v in (metadata or {}).items() if k in kept},
        **fields,
    }
    form = tables.transformed(call.kind, shown, call.wanted, "")
    return in_media_type(form, call.wanted.media_type, 201, warnings)


def invalid(group: str, errors: list[FieldError]) -> status.Invalid:
    """A review that cannot be answered; Kubernetes names no kind in these."""
    return status.invalid(group, "", "", errors)
