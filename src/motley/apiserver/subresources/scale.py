"""`scale`: the replica count of a workload, without knowing the rest of it.

A Scale is made from the object and turned back into a change of `spec.replicas`, so kubectl and
autoscalers treat Deployments, ReplicaSets and StatefulSets alike.
"""

from typing import Any

from motley.api import scheme, selectors, status
from motley.api.fields import scaling as owners
from motley.api.fields import tracking
from motley.api.patch import apply as apply_patch
from motley.api.patch.apply import Applier
from motley.api.status import FieldError
from motley.apiserver import body, document, negotiate, tables
from motley.apiserver.answer import Answer
from motley.apiserver.core import Core
from motley.apiserver.crds import scaling
from motley.apiserver.options import WriteOptions, parse_version, write_options
from motley.apiserver.tables import columns
from motley.apiserver.verbs import apply as apply_config
from motley.apiserver.verbs import patch, update
from motley.apiserver.verbs.call import Call, in_media_type
from motley.apiserver.writer import metadata_of, modified

Document = dict[str, Any]

_VERSIONS = ("autoscaling/v1",)


async def get(core: Core, call: Call) -> Answer:
    """200 with the Scale of the object."""
    kind, name = call.kind, call.info.name
    record = await core.store.get(kind.key(call.namespace, name))
    if record is None:
        raise status.not_found(kind.group, kind.plural, name)
    return _answer(call, _scale_of(kind, document.decode(record.value)))


async def put(core: Core, call: Call) -> Answer:
    """Set the replica count from a Scale."""
    options = write_options(call.info.query, "UpdateOptions")
    wanted = await call.document("Scale", "autoscaling/v1")
    body.check_is("Scale", _VERSIONS, wanted)
    update.check_identity(call, wanted)
    return await _write(core, call, lambda _: document.copy(wanted), options)


async def patch_scale(core: Core, call: Call) -> Answer:
    """Patch the Scale, then set the replica count from it."""
    media_type = negotiate.content_type(call.content_type)
    if media_type == patch.APPLY_PATCH:
        return await _apply(core, call)
    patch.check_media_type(media_type)
    options = write_options(call.info.query, "PatchOptions")
    if media_type == patch.STRATEGIC_PATCH:
        media_type = patch.MERGE_PATCH  # a Scale has no lists: both are the same
    apply = patch.decode(call.kind, media_type, await call.body())
    return await _write(core, call, apply, options)


async def _apply(core: Core, call: Call) -> Answer:
    options = write_options(call.info.query, "PatchOptions", applies=True)
    config, warnings = apply_config.read(await call.body(), options.field_validation)
    now = core.writer.timestamp()
    applier = Applier(options.field_manager, now, options.force, "scale")

    def apply(current: Document) -> Document:
        return apply_patch.apply(owners.SCALE, current, config, applier)

    answer = await _write(core, call, apply, options, applies=True)
    answer.warnings = [*warnings, *answer.warnings]
    return answer


async def _write(
    core: Core, call: Call, make: patch.Apply, options: WriteOptions, *, applies: bool = False
) -> Answer:
    def modify(stored: Document) -> Document:
        current = _scale_of(call.kind, stored)
        recorded, path = stored["metadata"].get("managedFields"), _path(call.kind)
        if replicas_owners := owners.of_scale(recorded, path):
            current["metadata"]["managedFields"] = replicas_owners
        wanted = make(document.copy(current))
        body.conform_as("Scale", "autoscaling/v1", wanted)
        body.check_is("Scale", _VERSIONS, wanted)
        if not applies:
            metadata_of(wanted)
            now, manager = core.writer.timestamp(), call.manager(options)
            tracking.updated(owners.SCALE, current, wanted, manager, "scale", now)
        version = parse_version(str(metadata_of(wanted).get("resourceVersion") or ""))
        if version is not None and str(version) != stored["metadata"]["resourceVersion"]:
            raise modified(call.kind, call.info.name)
        replicas = (wanted.get("spec") or {}).get("replicas") or 0
        check_replicas(call.info.name, replicas)
        definition = call.kind.definition
        if definition is not None and definition.scale is not None:
            changed = scaling.with_replicas(definition.scale, stored, replicas)
        else:
            changed = {**stored, "spec": {**(stored.get("spec") or {}), "replicas": replicas}}
        changed["metadata"] = {
            k: v
            for k, v in stored["metadata"].items()
            if k not in ("resourceVersion", "managedFields")
        }
        after = wanted["metadata"].get("managedFields")
        if everybody := owners.of_parent(call.kind, recorded, after, path):
            changed["metadata"]["managedFields"] = everybody
        return changed

    written = await core.writer.update(
        call.kind, call.namespace, call.info.name, modify, dry_run=options.dry_run
    )
    return _answer(call, _scale_of(call.kind, document.decode(written.value)))


def _answer(call: Call, shown: Document) -> Answer:
    include = call.info.query.text("includeObject")
    form = tables.transformed(call.kind, shown, call.wanted, include, columns.scale())
    return in_media_type(form, call.wanted.media_type)


def _path(kind: scheme.Kind) -> owners.Path:
    """Where in the object's sets of fields the replica count is."""
    if kind.definition is None or kind.definition.scale is None:
        return owners.REPLICAS
    names = kind.definition.scale.spec_replicas.removeprefix(".").split(".")
    return tuple(f"f:{name}" for name in names)


def _scale_of(kind: scheme.Kind, stored: Document) -> Document:
    if kind.definition is None or kind.definition.scale is None:
        return scale_of(stored)
    wanted, present, selector = scaling.counts(kind.definition.scale, stored)
    shown = scale_of({"metadata": stored["metadata"], "spec": {"replicas": wanted}})
    state: Document = {"replicas": present}
    shown["status"] = state | ({"selector": selector} if selector else {})
    return shown


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
