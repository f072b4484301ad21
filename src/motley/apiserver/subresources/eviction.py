"""`pods/eviction`: a polite delete. Disruption budgets will have their say here."""

from motley.api import status
from motley.apiserver import answer
from motley.apiserver.answer import Answer
from motley.apiserver.core import Core
from motley.apiserver.options import delete_options
from motley.apiserver.request import Query
from motley.apiserver.verbs import delete
from motley.apiserver.verbs.call import Call


async def create(core: Core, call: Call) -> Answer:
    """201 when the pod's deletion has begun."""
    eviction = await call.document("Eviction", "policy/v1")
    named = (eviction.get("metadata") or {}).get("name")
    if named != call.info.name:
        raise status.BadRequest("name in URL does not match name in Eviction object")
    options = delete_options(Query(), eviction.get("deleteOptions") or {})
    options.dry_run = options.dry_run or call.info.query.get("dryRun")
    await delete.remove(core, call.kind, call.namespace, call.info.name, options)
    success = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "code": 201,
    }
    return answer.of(success, 201)
