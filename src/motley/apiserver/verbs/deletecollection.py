"""DELETE on a collection: delete everything a list with the same selectors would show."""

from motley.api import status
from motley.apiserver.answer import Answer
from motley.apiserver.core import Core
from motley.apiserver.options import delete_options, list_options
from motley.apiserver.verbs import delete
from motley.apiserver.verbs import list as list_verb
from motley.apiserver.verbs.call import Call


async def handle(core: Core, call: Call) -> Answer:
    """200 with the list of what was there; objects that vanish meanwhile are no error."""
    options = list_options(call.info.query, watching=False)
    how = delete_options(call.info.query, await call.options_body())
    page = await list_verb.select(core, call, options)
    for record in page.records:
        rest, _, name = record.key.rpartition("/")
        namespace = rest.rpartition("/")[2] if call.kind.namespaced else ""
        try:
            await delete.remove(core, call.kind, namespace, name, how)
        except status.NotFound:
            continue
    await core.writer.conversions.prime(call.kind, (r.value for r in page.records))
    return list_verb.render(call, page)
