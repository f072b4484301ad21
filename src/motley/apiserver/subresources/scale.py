"""`scale`: the replica count of a workload, without knowing the rest of it.

A Scale is made from the object and turned back into a change of `spec.replicas`, so kubectl and
autoscalers treat Deployments, ReplicaSets and StatefulSets alike.
"""

from typing import Any

from motley.api import selectors, status
from motley.api.status import FieldError
from motley.apiserver import document, negotiate
from motley.apiserver.answer import Answer
from motley.apiserver.core import Core
from motley.apiserver.options import parse_version, write_options
from motley.apiserver.verbs import patch, update
from motley.apiserver.verbs.call import Call, in_media_type
from motley.apiserver.writer import metadata_of, modified

Document = dict[str, Any]


async def get(core: Core, call: Call) -> Answer:
    """200 with the Scale of the object."""
    kind, name = call.kind, call.info.name
    record = await core.store.get(kind.key(call.namespace, name))
    if record is None:
        raise status.not_found(kind.group, kind.plural, name)
    return in_media_type(scale_of(document.decode(record.value)), call.wanted.media_type)


async def put(core: Core, call: Call) -> Answer:
    """Set the replica count from a Scale."""
    options = write_options(call.info.query, "UpdateOptions")
    wanted = await call.document("Scale", "autoscaling/v1")
    check_scale_kind(wanted)
    update.check_identity(call, wanted)
    return await _write(core, call, lambda _: wanted, options.dry_run)


async def patch_scale(core: Core, call: Call) -> Answer:
    """Patch the Scale, then set the replica count from it."""
    media_type = negotiate.content_type(call.content_type)
    patch.check_media_type(media_type)
    options = write_options(call.info.query, "PatchOptions")
    if media_type == patch.STRATEGIC_PATCH:
        media_type = patch.MERGE_PATCH  # a Scale has no lists: both are the same
    apply = patch.decode(call.kind, media_type, await call.body())
    return await _write(core, call, apply, options.dry_run)


async def _write(core: Core, call: Call, make: patch.Apply, dry_run: bool) -> Answer:
    def modify(stored: Document) -> Document:
        current = scale_of(stored)
        wanted = make(current)
        check_scale_kind(wanted)
        version = parse_version(str(metadata_of(wanted).get("resourceVersion") or ""))
        if version is not None and str(version) != stored["metadata"]["resourceVersion"]:
            raise modified(call.kind, call.info.name)
        replicas = (wanted.get("spec") or {}).get("replicas") or 0
        check_replicas(call.info.name, replicas)
        changed = {**stored, "spec": {**(stored.get("spec") or {}), "replicas": replicas}}
        changed["metadata"] = {
            k: v for k, v in stored["metadata"].items() if k != "resourceVersion"
        }
        return changed

    written = await core.writer.update(
        call.kind, call.namespace, call.info.name, modify, dry_run=dry_run
    )
    shown = scale_of(document.decode(written.value))
    return in_media_type(shown, call.wanted.media_type)


def scale_of(stored: Document) -> Document:
    """The Scale of a workload."""
    metadata, spec = stored["metadata"], stored.get("spec") or {}
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    replicas = spec.get("replicas") or 0
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {k: metadata[k] for k in kept if k in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": {
            "replicas": (stored.get("status") or {}).get("replicas") or 0,
            "selector": str(selectors.Selector.of(spec.get("selector") or {})),
        },
    }


def check_scale_kind(wanted: Document) -> None:
    """The body must be a Scale, or not say what it is."""
    kind = wanted.get("kind") or "Scale"
    version = wanted.get("apiVersion") or "autoscaling/v1"
    if (kind, version) != ("Scale", "autoscaling/v1"):
        raise status.BadRequest(
            f'{kind} in version "{version}" cannot be handled as a Scale: '
            f"converting ({version}.{kind}) to (autoscaling.Scale): unknown conversion"
        )


def check_replicas(name: str, replicas: Any) -> None:
    """Replicas are counted in whole numbers from zero."""
    if not isinstance(replicas, int) or isinstance(replicas, bool):
        raise status.BadRequest(
            'Scale in version "v1" cannot be handled as a Scale: spec.replicas must be an integer'
        )
    if replicas < 0:
        message = f"Invalid value: {replicas}: must be greater than or equal to 0"
        error = FieldError("spec.replicas", "FieldValueInvalid", message)
        raise status.invalid("autoscaling", "Scale", name, [error])
