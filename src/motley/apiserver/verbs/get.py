"""GET of one object: the stored bytes, as they are."""

from motley.api import status
from motley.apiserver.answer import Answer
from motley.apiserver.caches import too_large_version
from motley.apiserver.core import Core
from motley.apiserver.options import list_options
from motley.apiserver.verbs.call import Call


async def handle(core: Core, call: Call) -> Answer:
    """200 with the latest state. Reading what was just written always works."""
    kind, name = call.kind, call.info.name
    version = list_options(call.info.query, watching=False).resource_version
    if version and version > (current := await core.store.revision()):
        raise too_large_version(version, current)
    record = await core.store.get(kind.key(call.namespace, name))
    if record is None:
        raise status.not_found(kind.group, kind.plural, name)
    await core.writer.conversions.prime(kind, [record.value])
    return call.answer(record.value)
