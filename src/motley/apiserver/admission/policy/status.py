"""Writes down that a stored policy has been looked at, and what is doubtful in it.

Kubernetes does this in a controller; here the API server does, because it is the one that knows
CEL. Expressions with certain errors never get in; `typecheck` finds those that do not fit the
kinds the policy is about.
"""

from typing import Any

from motley.api import status
from motley.apiserver import document
from motley.apiserver.admission.lookup import kind_of
from motley.apiserver.admission.matching import CONFIGURATION
from motley.apiserver.admission.policy import typecheck
from motley.apiserver.caches import Caches
from motley.apiserver.writer import Writer
from motley.lib import journal
from motley.store.contract import Compacted

Document = dict[str, Any]

log = journal.get(__name__)

_MANAGER = "validatingadmissionpolicy-status"  # as Kubernetes' controller calls itself


async def observe_forever(caches: Caches, writer: Writer) -> None:
    """Follow the policies; each new generation is noted once."""
    kind = kind_of(CONFIGURATION, "validatingadmissionpolicies")
    cache = caches[kind]
    await cache.ready()
    while True:
        try:
            cursor = cache.watch(cache.revision)
            for item in cache.list().items:
                await _observe(writer, document.decode(item.record.value))
            async for events in cursor:
                for event in events:
                    if not event.deleted:
                        await _observe(writer, document.decode(event.value))
        except Compacted:
            continue


async def _observe(writer: Writer, policy: Document) -> None:
    kind = kind_of(CONFIGURATION, "validatingadmissionpolicies")
    generation = policy["metadata"].get("generation") or 0
    if ((policy.get("status") or {}).get("observedGeneration") or 0) >= generation:
        return

    doubts = typecheck.warnings(policy)
    checked: Document = {"expressionWarnings": doubts} if doubts else {}
    own = {
        "manager": _MANAGER,
        "operation": "Apply",
        "apiVersion": kind.api_version,
        "time": writer.timestamp(),
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:status": {
                "f:observedGeneration": {},
                "f:typeChecking": {f"f:{name}": {} for name in checked},
            }
        },
        "subresource": "status",
    }

    def is_own(owner: Document) -> bool:
        return all(owner.get(k) == own[k] for k in ("manager", "operation", "subresource"))

    def note(stored: Document) -> Document:
        state = {
            **(stored.get("status") or {}),
            "observedGeneration": stored["metadata"].get("generation"),
            "typeChecking": checked,
        }
        metadata = {k: v for k, v in stored["metadata"].items() if k != "resourceVersion"}
        owners = [o for o in metadata.get("managedFields") or () if not is_own(o)]
        metadata["managedFields"] = [*owners, own]
        return {**stored, "metadata": metadata, "status": state}

    try:
        name = policy["metadata"]["name"]
        await writer.update(kind, "", name, note, subresource="status")
    except status.ApiError as error:
        log.info("policy status not written", policy=policy["metadata"]["name"], error=str(error))
