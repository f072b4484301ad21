"""DELETE of one object: mark it or remove it, as `deletion.plan` decides."""

from typing import Any

from motley.api import advice, scheme, status
from motley.apiserver import answer, deletion, document, versions
from motley.apiserver.admission import Change
from motley.apiserver.answer import Answer
from motley.apiserver.core import Core
from motley.apiserver.options import DeleteOptions, delete_options
from motley.apiserver.verbs.call import Call
from motley.apiserver.writer import Written, modified
from motley.store.contract import Delete, Mismatch, Record

_RACES = 12


async def handle(core: Core, call: Call) -> Answer:
    """200 with a Status, or with the object where it lives on (or its kind shows it)."""
    options = delete_options(call.info.query, await call.options_body())
    if call.kind.kind == "Job" and options.says_nothing_of_dependents:
        answer.warn([advice.KEPT_PODS])
    written, uid = await remove(core, call.kind, call.namespace, call.info.name, options)
    if written.removed and not deletion.answers_whole(call.kind):
        return answer.of(success(call.kind, call.info.name, uid), 200, written.warnings)
    await core.writer.conversions.prime(call.kind, [written.value])
    return call.answer_written(written, [])


async def remove(
    core: Core, kind: scheme.Kind, namespace: str, name: str, options: DeleteOptions
) -> tuple[Written, str]:
    """Delete one object; the outcome and the uid of what was deleted."""
    record = await core.store.get(kind.key(namespace, name))
    if record is None:
        raise status.not_found(kind.group, kind.plural, name)
    kind = versions.tabled(kind)
    for _ in range(_RACES):
        if record is None:
            raise status.not_found(kind.group, kind.plural, name)
        stored = document.decode(record.value)
        deletion.check_preconditions(kind, stored, options)
        uid = str(stored["metadata"].get("uid", ""))
        try:
            return await _remove(core, kind, namespace, name, record, stored, options), uid
        except Mismatch as mismatch:
            if mismatch.key != record.key:  # what goes along with it: try again
                record = await core.store.get(record.key)
                continue
            if options.resource_version is not None:
                raise modified(kind, name) from None
            record = mismatch.current
    raise modified(kind, name)


async def _remove(
    core: Core,
    kind: scheme.Kind,
    namespace: str,
    name: str,
    record: Record,
    stored: dict[str, Any],
    options: DeleteOptions,
) -> Written:
    plan = deletion.plan(kind, stored, options, core.clock.now())
    dry_run = bool(options.dry_run)
    new = None if plan.remove else plan.document
    change = Change("delete", kind, namespace, name, new, stored, "", dry_run)
    async with core.writer.admission.admitted(change) as validate:
        await validate()
        if plan.remove:
            shown = plan.document if kind.plural == "pods" else stored
            value = document.encode(kind, shown)
            if dry_run:
                return Written(document.stamp(value, record.revision), removed=True)
            done = await core.writer.commit([Delete(record.key, record.revision), *change.also])
            return Written(document.stamp(value, done.revision), removed=True)
        if not plan.changed:
            return Written(record.value)
        if dry_run:
            value = document.encode(kind, plan.document)
            return Written(document.stamp(value, record.revision))
        done = await core.writer.put(kind, record, plan.document)
        return Written(done.records[0].value)


def success(kind: scheme.Kind, name: str, uid: str) -> dict[str, Any]:
    """The `Status` of a deletion that is done."""
    details = {"name": name, "group": kind.group, "kind": kind.plural, "uid": uid}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {k: v for k, v in details.items() if v},
    }
