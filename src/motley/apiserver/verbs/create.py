"""POST on a collection: create an object."""

from motley.api import advice
from motley.apiserver import body
from motley.apiserver.answer import Answer
from motley.apiserver.core import Core
from motley.apiserver.options import write_options
from motley.apiserver.verbs.call import Call


async def handle(core: Core, call: Call) -> Answer:
    """201 with the object as stored, or as it would be for a dry run."""
    options = write_options(call.info.query, "CreateOptions")
    raw = await call.body()
    new, warnings = body.read(call.kind, call.content_type, raw, options.field_validation)
    written = await core.writer.create(
        call.kind, call.namespace, new, manager=call.manager(options), dry_run=options.dry_run
    )
    warnings += advice.of(call.kind, new)
    return call.answer_written(written, warnings, 201)
