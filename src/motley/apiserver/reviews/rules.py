"""SelfSubjectRulesReview: everything I may in a namespace (`kubectl auth can-i --list`)."""

from collections.abc import Iterable
from typing import Any

from motley.api import status
from motley.apiserver.answer import Answer
from motley.apiserver.authz.rules import Rule
from motley.apiserver.core import Core
from motley.apiserver.reviews import review
from motley.apiserver.verbs.call import Call

_OF_RESOURCES = ("verbs", "apiGroups", "resources", "resourceNames")
_OF_PATHS = ("verbs", "nonResourceURLs")


async def create(core: Core, call: Call) -> Answer:
    """201 with the rules; the namespace asked about is not repeated, as in Kubernetes."""
    found, warnings = await review.read(core, call)
    namespace = str(found["spec"].get("namespace") or "")
    if not namespace:
        raise status.BadRequest("no namespace on request")
    authorizer = core.access.authorizer
    await authorizer.refresh(call.user)
    rules, problem = authorizer.rules_for(call.user, namespace)
    outcome = {
        "resourceRules": _shown((r for r in rules if r.resources), _OF_RESOURCES),
        "nonResourceRules": _shown((r for r in rules if r.urls), _OF_PATHS),
        "incomplete": bool(problem),
    }
    if problem:
        outcome["evaluationError"] = problem
    return review.answer(call, {}, {"spec": {}, "status": outcome}, warnings)


def _shown(rules: Iterable[Rule], fields: tuple[str, ...]) -> list[dict[str, Any]]:
    return [{f: list(r.shown[f]) for f in fields if r.shown.get(f)} for r in rules]
