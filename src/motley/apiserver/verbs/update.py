"""PUT on an object: replace it.

Kubernetes lets a PUT create a few kinds (Lease, Service, Event, …); here every PUT needs the
object to exist, which is what every client does.
"""

from typing import Any

from motley.api import status
from motley.apiserver import body
from motley.apiserver.answer import Answer
from motley.apiserver.core import Core
from motley.apiserver.options import write_options
from motley.apiserver.verbs.call import Call
from motley.apiserver.writer import check_namespace, metadata_of

Document = dict[str, Any]


async def handle(core: Core, call: Call) -> Answer:
    """200 with the object as stored; 409 when the body's resourceVersion is stale."""
    options = write_options(call.info.query, "UpdateOptions")
    raw = await call.body()
    new, warnings = body.read(call.kind, call.content_type, raw, options.field_validation)
    check_identity(call, new)

    def replace(stored: Document) -> Document:
        return document_copy(new)

    def document_copy(source: Document) -> Document:
        # One attempt changes what it is given; a second one must start from the request again.
        return {**source, "metadata": dict(source["metadata"])}

    written = await core.writer.update(
        call.kind,
        call.namespace,
        call.info.name,
        replace,
        subresource=call.info.subresource,
        dry_run=options.dry_run,
    )
    return call.answer_written(written, warnings)


def check_identity(call: Call, new: Document) -> None:
    """The body must name the object of the path."""
    metadata = metadata_of(new)
    named, name = metadata.get("name"), call.info.name
    if not named:
        raise status.BadRequest(
            f"the name of the object ({name} based on URL) was undeterminable: "
            "name must be provided"
        )
    if named != name:
        raise status.BadRequest(
            f"the name of the object ({named}) does not match the name on the URL ({name})"
        )
    check_namespace(call.kind, metadata, call.namespace)
