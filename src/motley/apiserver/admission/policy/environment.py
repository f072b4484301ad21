"""What an expression of a policy can see."""

from collections.abc import Callable, Mapping
from typing import Any

from motley.api.cel import Program
from motley.api.cel.values import Lazy
from motley.apiserver.admission import matching, review
from motley.apiserver.admission.change import Change
from motley.apiserver.admission.lookup import Lookup
from motley.apiserver.admission.policy.authorizer import Decides, asking

Document = dict[str, Any]

BASE = frozenset({"object", "oldObject", "request", "namespaceObject", "authorizer"})
MESSAGES = frozenset({"Object", "JSONPatch"})


def names(*, params: bool, variables: bool) -> frozenset[str]:
    """The variables a policy's expressions may use."""
    found = BASE
    if params:
        found |= {"params"}
    if variables:
        found |= {"variables"}
    return found


async def facts(change: Change, lookup: Lookup, authorizer: Decides | None = None) -> Document:
    """The values that are the same for every policy; `authorizer` only where one may be asked."""
    asked = {"authorizer": await asking(change, authorizer)} if authorizer is not None else {}
    return {
        **asked,
        "object": review.new_object(change),
        "oldObject": review.old_object(change),
        "request": review.about(change),
        "namespaceObject": await matching.namespace_object(change, lookup),
    }


def with_variables(values: Document, variables: Mapping[str, Program]) -> Document:
    """The same, with the policy's own variables, each computed when it is first used."""
    known = dict(values)

    def compute(program: Program) -> Callable[[], Any]:
        return lambda: program.evaluate(known)

    known["variables"] = Lazy({name: compute(p) for name, p in variables.items()})
    return known
