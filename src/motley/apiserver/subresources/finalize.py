"""`namespaces/finalize`: the only way to take a namespace's own finalizers away.

The namespace controller calls it when everything in the namespace is gone; the namespace then
goes with the last finalizer.
"""

from typing import Any

from motley.apiserver import body
from motley.apiserver.answer import Answer
from motley.apiserver.core import Core
from motley.apiserver.options import write_options
from motley.apiserver.verbs import update
from motley.apiserver.verbs.call import Call

Document = dict[str, Any]


async def put(core: Core, call: Call) -> Answer:
    """200 with the namespace as it is, or last was."""
    options = write_options(call.info.query, "UpdateOptions")
    raw = await call.body()
    new, warnings = body.read(call.kind, call.content_type, raw, options.field_validation)
    update.check_identity(call, new)
    finalizers = (new.get("spec") or {}).get("finalizers") or []
    pinned = new["metadata"].get("resourceVersion")

    def modify(stored: Document) -> Document:
        changed = {**stored, "metadata": dict(stored["metadata"])}
        changed["spec"] = {**(stored.get("spec") or {}), "finalizers": finalizers}
        if not finalizers:
            del changed["spec"]["finalizers"]
        if pinned:
            changed["metadata"]["resourceVersion"] = pinned
        else:
            changed["metadata"].pop("resourceVersion", None)
        return changed

    written = await core.writer.update(
        call.kind,
        "",
        call.info.name,
        modify,
        subresource="finalize",
        manager=call.manager(options),
        dry_run=options.dry_run,
    )
    return call.answer_written(written, warnings)
