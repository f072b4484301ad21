"""LimitRanger: a namespace's LimitRanges complete what pods leave open and bound what they ask.

Defaults are filled in first (and noted in an annotation); bounds are checked on the finished
object, so that they also hold for what webhooks made of it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from motley.api import amounts
from motley.api.quantity import Quantity
from motley.apiserver.admission.change import Change, interest
from motley.apiserver.admission.lookup import Lookup, kind_of

Document = dict[str, Any]
Amounts = Mapping[str, Quantity]
Check = Callable[[str, str, Quantity, Amounts, Amounts], str]

ANNOTATION = "kubernetes.io/limit-ranger"
_PARTS = (("containers", "container"), ("initContainers", "init container"))


class LimitRanger:
    """Applies LimitRanges to pods and claims."""

    name = "LimitRanger"
    interests = (
        interest("create", "pods"),
        interest("update", "pods", subresources="resize"),
        interest("create update", "persistentvolumeclaims"),
    )

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup
        self._kind = kind_of("", "limitranges")

    async def mutate(self, change: Change) -> None:
        """Fill in default requests and limits."""
        if change.kind.plural != "pods" or change.new is None or change.spec is None:
            return
        for limit_range in await self._lookup.list(self._kind, change.namespace):
            fill_in(change.new, limit_range)

    async def validate(self, change: Change) -> None:
        """403 with every bound that is broken."""
        spec = change.spec
        if spec is None:
            return
        problems: list[str] = []
        for limit_range in await self._lookup.list(self._kind, change.namespace):
            if change.kind.plural == "pods":
                problems += pod_problems(spec, limit_range)
            else:
                problems += claim_problems(spec, limit_range)
        if problems:
            problems = list(dict.fromkeys(problems))
            text = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
            raise change.forbidden(text)


def _limits(limit_range: Document, type_: str) -> list[Document]:
    every = (limit_range.get("spec") or {}).get("limits") or ()
    return [limit for limit in every if limit.get("type") == type_]


def fill_in(pod: Document, limit_range: Document) -> None:
    """Give containers the defaults they lack, and say so in the annotation."""
    limits: dict[str, Any] = {}
    requests: dict[str, Any] = {}
    for limit in _limits(limit_range, "Container"):
        limits |= limit.get("default") or {}
        requests |= limit.get("defaultRequest") or {}
    if not limits and not requests:
        return
    notes = []
    for field, what in _PARTS:
        for container in pod["spec"].get(field) or ():
            resources = container.get("resources") or {}
            for part, wanted in (("requests", requests), ("limits", limits)):
                have = resources.get(part) or {}
                missing = sorted(wanted.keys() - have.keys())
                if missing:
                    resources = {**resources, part: {**have, **{n: wanted[n] for n in missing}}}
                    noun = part.removesuffix("s")
                    notes.append(
                        f"{', '.join(missing)} {noun} for {what} {container.get('name', '')}"
                    )
            container["resources"] = resources
    if notes:
        annotations = pod["metadata"].get("annotations") or {}
        text = f"LimitRanger plugin set: {'; '.join(notes)}"
        pod["metadata"]["annotations"] = {**annotations, ANNOTATION: text}


def pod_problems(spec: Document, limit_range: Document) -> list[str]:
    """Bounds a pod breaks, its containers' first."""
    problems: list[str] = []
    for limit in (limit_range.get("spec") or {}).get("limits") or ():
        type_ = str(limit.get("type"))
        if type_ == "Container":
            for field, _ in _PARTS:
                for container in spec.get(field) or ():
                    resources = container.get("resources") or {}
                    requests = amounts.read(resources.get("requests"))
                    problems += _check(
                        limit, type_, requests, amounts.read(resources.get("limits"))
                    )
        elif type_ == "Pod":
            requests = amounts.of_pod(spec, "requests", overhead=False)
            problems += _check(
                limit, type_, requests, amounts.of_pod(spec, "limits", overhead=False)
            )
    return problems


def claim_problems(spec: Document, limit_range: Document) -> list[str]:
    """Bounds a claim breaks."""
    requests = amounts.read((spec.get("resources") or {}).get("requests"))
    problems: list[str] = []
    for limit in _limits(limit_range, "PersistentVolumeClaim"):
        problems += _each(limit.get("min"), "PersistentVolumeClaim", _minimum, requests, {})
        problems += _each(limit.get("max"), "PersistentVolumeClaim", _at_most, requests, {})
    return problems


def _check(limit: Document, type_: str, requests: Amounts, limits: Amounts) -> list[str]:
    return [
        *_each(limit.get("min"), type_, _minimum, requests, limits),
        *_each(limit.get("max"), type_, _maximum, requests, limits),
        *_each(limit.get("maxLimitRequestRatio"), type_, _ratio, requests, limits),
    ]


def _each(
    bounds: Mapping[str, Any] | None, type_: str, check: Check, requests: Amounts, limits: Amounts
) -> list[str]:
    found = []
    for name, bound in sorted(amounts.read(bounds).items()):
        if problem := check(type_, name, bound, requests, limits):
            found.append(problem)
    return found


def _minimum(type_: str, name: str, bound: Quantity, requests: Amounts, limits: Amounts) -> str:
    rule = f"minimum {name} usage per {type_} is {bound}"
    request, limit = requests.get(name), limits.get(name)
    if request is None:
        return f"{rule}.  No request is specified"
    if request.nano < bound.nano:
        return f"{rule}, but request is {request}"
    if limit is not None and limit.nano < bound.nano:
        return f"{rule}, but limit is {limit}"
    return ""


def _maximum(type_: str, name: str, bound: Quantity, requests: Amounts, limits: Amounts) -> str:
    rule = f"maximum {name} usage per {type_} is {bound}"
    request, limit = requests.get(name), limits.get(name)
    if limit is None:
        return f"{rule}.  No limit is specified"
    if limit.nano > bound.nano:
        return f"{rule}, but limit is {limit}"
    if request is not None and request.nano > bound.nano:
        return f"{rule}, but request is {request}"
    return ""


def _at_most(type_: str, name: str, bound: Quantity, requests: Amounts, limits: Amounts) -> str:
    rule = f"maximum {name} usage per {type_} is {bound}"
    request = requests.get(name)
    if request is None:
        return f"{rule}.  No request is specified"
    return f"{rule}, but request is {request}" if request.nano > bound.nano else ""


def _ratio(type_: str, name: str, bound: Quantity, requests: Amounts, limits: Amounts) -> str:
    rule = f"{name} max limit to request ratio per {type_} is {bound}, but"
    request, limit = requests.get(name), limits.get(name)
    if request is None or not request.nano:
        return f"{rule} no request is specified or request is 0"
    if limit is None or not limit.nano:
        return f"{rule} no limit is specified or limit is 0"
    if limit.nano * 10**9 > bound.nano * request.nano:  # both sides in nano², exact
        return f"{rule} provided ratio is {limit.nano / request.nano:f}"
    return ""
