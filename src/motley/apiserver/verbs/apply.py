"""PATCH with a configuration: server-side apply, on an object or its status.

An object that does not exist is created, which no other patch does. Everything else happens as for
the other patches: the configuration is applied to the latest state, and again when a race is lost.
"""

from typing import Any

from motley.api import codec, scheme, status
from motley.api.patch import apply as patch
from motley.api.patch.apply import Applier
from motley.api.status import FieldError
from motley.apiserver import body
from motley.apiserver.answer import Answer
from motley.apiserver.core import Core
from motley.apiserver.options import WriteOptions, write_options
from motley.apiserver.verbs.call import Call
from motley.apiserver.writer import Written, check_namespace, metadata_of

Document = dict[str, Any]


async def handle(core: Core, call: Call) -> Answer:
    """200 with the object as stored, 201 when the apply created it."""
    options = write_options(call.info.query, "PatchOptions", applies=True)
    config, warnings = read(await call.body(), options.field_validation)
    applier = Applier(
        options.field_manager, core.writer.timestamp(), options.force, call.info.subresource
    )
    try:
        written = await _update(core, call, config, applier, options)
    except status.NotFound:
        if call.info.subresource:
            raise
        written = await _create(core, call, config, applier, options)
    return call.answer_written(written, warnings, 201 if written.created else 200)


def read(raw: bytes, field_validation: str) -> tuple[Document, list[str]]:
    """The configuration in a body (YAML, and so also JSON), and warnings about it."""
    try:
        config = codec.decode_yaml(raw) if raw.strip() else {}
    except status.BadRequest as error:
        raise status.BadRequest(f"error decoding patch: {error.message}") from None
    if config is None:
        config = {}
    if not isinstance(config, dict):
        raise status.BadRequest(
            "error decoding patch: error unmarshaling JSON: while decoding JSON: json: cannot "
            f"unmarshal {_go_name(config)} into Go value of type map[string]interface {{}}"
        )
    repeated = [] if field_validation == "Ignore" else list(codec.duplicate_yaml_keys(raw))
    if repeated and field_validation == "Strict":
        lines = "\n".join(f"  {line}" for line in repeated)
        raise status.BadRequest(
            "error strict decoding patch: error converting YAML to JSON: "
            f"yaml: unmarshal errors:\n{lines}"
        )
    return config, repeated


def _go_name(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "number"


async def _update(
    core: Core, call: Call, config: Document, applier: Applier, options: WriteOptions
) -> Written:
    kind, name = call.kind, call.info.name

    def modify(stored: Document) -> Document:
        applied = patch.apply(kind, stored, config, applier)
        check_applied(kind, applied, call)
        metadata = applied["metadata"]
        uid = stored["metadata"].get("uid")
        if metadata.get("uid") != uid:
            message = f'Invalid value: "{metadata.get("uid")}": field is immutable'
            error = FieldError("metadata.uid", "FieldValueInvalid", message)
            raise status.invalid(kind.group, kind.kind, name, [error])
        if not (config.get("metadata") or {}).get("resourceVersion"):
            del metadata["resourceVersion"]  # the configuration named none: a lost race is retried
        return applied

    return await core.writer.update(
        kind,
        call.namespace,
        name,
        modify,
        subresource=call.info.subresource,
        is_fresh=kind.definition is None,  # custom resources are read in place
        dry_run=options.dry_run,
    )


async def _create(
    core: Core, call: Call, config: Document, applier: Applier, options: WriteOptions
) -> Written:
    applied = patch.apply(call.kind, None, config, applier)
    applied["metadata"].setdefault("name", call.info.name)
    check_applied(call.kind, applied, call)
    for field in ("resourceVersion", "uid", "creationTimestamp"):
        applied["metadata"].pop(field, None)
    try:
        return await core.writer.create(
            call.kind, call.namespace, applied, manager=None, dry_run=options.dry_run
        )
    except status.AlreadyExists:
        # Somebody was quicker: apply to what they made.
        return await _update(core, call, config, applier, options)


def check_applied(kind: scheme.Kind, applied: Document, call: Call) -> None:
    """What came of it must fit the kind, and must not have become another object."""
    body.conform(kind, applied)
    metadata = metadata_of(applied)
    name = call.info.name
    if metadata.get("name") != name:
        raise status.BadRequest(
            f"the name of the object ({metadata.get('name')}) does not match the name on the URL "
            f"({name})"
        )
    check_namespace(kind, metadata, call.namespace)
