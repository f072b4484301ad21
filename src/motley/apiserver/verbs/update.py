"""PUT on an object: replace it, or for a few kinds create it."""

from typing import Any

from motley.api import scheme, status
from motley.apiserver import body
from motley.apiserver.answer import Answer
from motley.apiserver.core import Core
from motley.apiserver.options import write_options
from motley.apiserver.verbs.call import Call
from motley.apiserver.writer import check_namespace, metadata_of

Document = dict[str, Any]


_RBAC = "rbac.authorization.k8s.io"
# Those that Kubernetes creates when they are put and not there.
_CREATED_BY_PUT = frozenset(
    {
        ("", "endpoints"),
        ("", "events"),
        ("", "limitranges"),
        ("", "services"),
        ("coordination.k8s.io", "leases"),
        ("events.k8s.io", "events"),
        (_RBAC, "clusterrolebindings"),
        (_RBAC, "clusterroles"),
        (_RBAC, "rolebindings"),
        (_RBAC, "roles"),
    }
)
# Those replaced only by who says which version they have seen; custom resources are, too.
_PINNED = frozenset(
    {
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("apiregistration.k8s.io", "apiservices"),
        ("certificates.k8s.io", "clustertrustbundles"),
        ("certificates.k8s.io", "podcertificaterequests"),
        ("coordination.k8s.io", "leases"),
        ("node.k8s.io", "runtimeclasses"),
        ("policy", "poddisruptionbudgets"),
    }
)


async def handle(core: Core, call: Call) -> Answer:
    """200 with the object as stored, 201 where that created it; 409 when the body's
    resourceVersion is stale."""
    options = write_options(call.info.query, "UpdateOptions")
    raw = await call.body()
    new, warnings = body.read(call.kind, call.content_type, raw, options.field_validation)
    check_identity(call, new)

    def replace(stored: Document) -> Document:
        if is_pinned(call.kind) and not new["metadata"].get("resourceVersion"):
            raise unpinned(call)
        return document_copy(new)

    def document_copy(source: Document) -> Document:
        # One attempt changes what it is given; a second one must start from the request again.
        return {**source, "metadata": dict(source["metadata"])}

    if await _is_to_be_created(core, call, new):
        made = await core.writer.create(
            call.kind,
            call.namespace,
            document_copy(new),
            manager=call.manager(options),
            dry_run=options.dry_run,
        )
        return call.answer_written(made, warnings, 201)
    written = await core.writer.update(
        call.kind,
        call.namespace,
        call.info.name,
        replace,
        subresource=call.info.subresource,
        manager=call.manager(options),
        is_fresh=True,
        dry_run=options.dry_run,
    )
    return call.answer_written(written, warnings)


async def _is_to_be_created(core: Core, call: Call, new: Document) -> bool:
    kind, info = call.kind, call.info
    if (kind.group, kind.plural) not in _CREATED_BY_PUT or info.subresource:
        return False
    if new["metadata"].get("resourceVersion") or new["metadata"].get("uid"):
        return False  # whoever names a version has seen the object
    return await core.store.get(kind.key(call.namespace, info.name)) is None


def is_pinned(kind: scheme.Kind) -> bool:
    """Whether a replacement must name the version it replaces."""
    return kind.definition is not None or (kind.group, kind.plural) in _PINNED


def unpinned(call: Call) -> status.Invalid:
    """The refusal of a replacement that does not name the version it replaces."""
    message = "Invalid value: 0: must be specified for an update"
    error = status.FieldError("metadata.resourceVersion", "FieldValueInvalid", message)
    return status.invalid(call.kind.group, call.kind.plural, call.info.name, [error])


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
