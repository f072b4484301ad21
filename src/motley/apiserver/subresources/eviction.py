"""`pods/eviction`: a polite delete, which a disruption budget may refuse.

A budget is charged before its pod goes: `disruptionsAllowed` is taken down and the pod noted in
`disruptedPods` in one write, so that two evictions at the same moment cannot both have the last
one. The disruption controller counts again when the pod is gone.

Pods that have not started or have ended disturb nobody; their budgets are not asked.
"""

from collections.abc import Mapping
from typing import Any

from motley.api import scheme, selectors, status
from motley.apiserver import answer, body, deletion, document
from motley.apiserver.answer import Answer
from motley.apiserver.core import Core
from motley.apiserver.options import DeleteOptions, delete_options
from motley.apiserver.request import Query
from motley.apiserver.verbs import delete
from motley.apiserver.verbs.call import Call
from motley.apiserver.writer import SERVER

Document = dict[str, Any]

_REFUSED = "Cannot evict pod as it would violate the pod's disruption budget."
# Kubernetes' bound: beyond it the controller is not confirming evictions any more.
_MAX_DISRUPTED = 2000
_RETRY_AFTER_S = 10
_VERSIONS = ("policy/v1", "policy/v1beta1")  # kubectl before 1.22 drains with the older one


class SeveralBudgets(status.InternalError):
    """Two budgets cannot be charged as one; 500 as in Kubernetes, which gives no reason either."""

    reason = ""


async def create(core: Core, call: Call) -> Answer:
    """201 when the pod's deletion has begun, 429 when its budget does not allow it now."""
    eviction = await call.document("Eviction", "policy/v1")
    body.check_is("Eviction", _VERSIONS, eviction)
    name = call.info.name
    if (eviction.get("metadata") or {}).get("name") != name:
        raise status.BadRequest("name in URL does not match name in Eviction object")
    options = delete_options(Query(), eviction.get("deleteOptions") or {})
    options.dry_run = options.dry_run or call.info.query.get("dryRun")
    record = await core.store.get(call.kind.key(call.namespace, name))
    if record is None:
        raise status.not_found("", "pods", name)
    pod = document.decode(record.value)
    deletion.check_preconditions(call.kind, pod, options)
    if not disturbs_nobody(pod):
        await _charge(core, call.namespace, pod, bool(options.dry_run))
    await _evict(core, call.kind, call.namespace, name, options)
    success = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "code": 201,
    }
    return answer.of(success, 201)


def disturbs_nobody(pod: Document) -> bool:
    """Whether the pod has not begun to serve, has ended, or is going already."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Pending", "Succeeded", "Failed") or bool(
        pod["metadata"].get("deletionTimestamp")
    )


async def _charge(core: Core, namespace: str, pod: Document, dry_run: bool) -> None:
    """Take the eviction out of the pod's budget; nothing to do where it has none."""
    kind = scheme.resource("policy", "v1", "poddisruptionbudgets")
    assert kind is not None
    cache = await core.caches.fresh(kind)
    stored = (
        document.decode(cached.record.value) for cached in cache.list(kind.prefix(namespace)).items
    )
    labels = pod["metadata"].get("labels") or {}
    budgets = [b for b in stored if covers(b, labels)]
    if not budgets:
        return
    if len(budgets) > 1:
        raise SeveralBudgets(
            "This pod has more than one PodDisruptionBudget, "
            "which the eviction subresource does not support."
        )
    name, now = budgets[0]["metadata"]["name"], core.writer.timestamp()
    if not is_ready(pod) and is_free(budgets[0]):
        return

    def modify(budget: Document) -> Document:
        changed = charged(budget, pod["metadata"]["name"], now)
        changed["metadata"] = dict(budget["metadata"])
        del changed["metadata"]["resourceVersion"]  # a race is lost and tried again
        return changed

    try:
        await core.writer.update(
            kind, namespace, name, modify, subresource="status", manager=SERVER, dry_run=dry_run
        )
    except status.NotFound:
        return  # the budget went meanwhile, and its say with it


def covers(budget: Document, labels: Mapping[str, str]) -> bool:
    """Whether a budget is about pods with these labels; one without a selector is about none."""
    selector = (budget.get("spec") or {}).get("selector")
    return selector is not None and selectors.Selector.of(selector).matches(labels)


def is_ready(pod: Document) -> bool:
    """Whether the pod serves: it counts as healthy."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def is_free(budget: Document) -> bool:
    """Whether a pod that is not ready may go without being charged."""
    state = budget.get("status") or {}
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    desired = state.get("desiredHealthy") or 0
    return desired > 0 and (state.get("currentHealthy") or 0) >= desired


def charged(budget: Document, pod_name: str, now: str) -> Document:
    """The budget after one more eviction; raises 429 where it has none to give."""
    metadata, state = budget["metadata"], dict(budget.get("status") or {})
    name = metadata["name"]
    if (state.get("observedGeneration") or 0) < (metadata.get("generation") or 0):
        raise _too_many(
            f"The disruption budget {name} is still being processed by the server.", _RETRY_AFTER_S
        )
    allowed = state.get("disruptionsAllowed") or 0
    if allowed < 0:
        raise _forbidden(name, "pdb disruptions allowed is negative")
    if len(state.get("disruptedPods") or {}) > _MAX_DISRUPTED:
        raise _forbidden(
            name,
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        )
    if allowed == 0:
        raise _too_many(_why(name, state))
    state["disruptionsAllowed"] = allowed - 1
    state["disruptedPods"] = {**(state.get("disruptedPods") or {}), pod_name: now}
    if allowed == 1:
        state["conditions"] = _exhausted(state, metadata.get("generation") or 0, now)
    return {**budget, "status": state}


def _why(name: str, state: Document) -> str:
    failed = next(
        (
            c
            for c in state.get("conditions") or ()
            if c.get("type") == "DisruptionAllowed" and c.get("reason") == "SyncFailed"
        ),
        None,
    )
    if failed is not None:
        return (
            f"The disruption budget {name} does not allow evicting pods currently because it "
            f"failed sync: {failed.get('message', '')}"
        )
    return (
        f"The disruption budget {name} needs {state.get('desiredHealthy') or 0} healthy pods "
        f"and has {state.get('currentHealthy') or 0} currently"
    )


def _exhausted(state: Document, generation: int, now: str) -> list[Document]:
    kind = "DisruptionAllowed"
    others = [c for c in state.get("conditions") or () if c.get("type") != kind]
    before: Document = next((c for c in state.get("conditions") or () if c.get("type") == kind), {})
    since = before.get("lastTransitionTime") if before.get("status") == "False" else None
    condition = {
        "type": kind,
        "status": "False",
        "observedGeneration": generation,
        "lastTransitionTime": since or now,
        "reason": "InsufficientPods",
        "message": "",
    }
    return [*others, condition]


def _too_many(message: str, retry_after_s: int | None = None) -> status.TooManyRequests:
    details: Document = {"causes": [{"reason": "DisruptionBudget", "message": message}]}
    return status.TooManyRequests(_REFUSED, details=details, retry_after_s=retry_after_s)


def _forbidden(name: str, problem: str) -> status.Forbidden:
    return status.Forbidden(
        f'poddisruptionbudgets.policy "{name}" is forbidden: {problem}',
        details={"name": name, "group": "policy", "kind": "poddisruptionbudgets"},
    )


async def _evict(
    core: Core, kind: scheme.Kind, namespace: str, name: str, options: DeleteOptions
) -> None:
    """Say in the pod's status why it goes, then delete it."""
    if not options.dry_run:
        now = core.writer.timestamp()
        await core.writer.update(
            kind, namespace, name, lambda pod: targeted(pod, now), subresource="status"
        )
    await delete.remove(core, kind, namespace, name, options)


def targeted(pod: Document, now: str) -> Document:
    """The pod with the condition that tells its owner it was evicted and did not fail."""
    state = dict(pod.get("status") or {})
    conditions = state.get("conditions") or []
    if not any(
        c.get("type") == "DisruptionTarget" and c.get("status") == "True" for c in conditions
    ):
        kept = [c for c in conditions if c.get("type") != "DisruptionTarget"]
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "lastProbeTime": None,
            "lastTransitionTime": now,
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }
        state["conditions"] = [*kept, condition]
    metadata = {k: v for k, v in pod["metadata"].items() if k != "resourceVersion"}
    return {**pod, "metadata": metadata, "status": state}
