"""Rules for fair queueing of requests: FlowSchema and PriorityLevelConfiguration."""

import math

from motley.api import names
from motley.api.validation.errors import (
    Document,
    Errors,
    forbidden,
    invalid,
    named,
    required,
    unsupported,
)

_PRECEDENCE_MAX = 10000
_QUEUES_MAX = 10_000_000
_HASH_BITS_MAX = 60
_DISTINGUISHERS = ("ByNamespace", "ByUser")
_SUBJECTS = {"Group": "group", "ServiceAccount": "serviceAccount", "User": "user"}
_VERBS = (
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "proxy",
    "update",
    "watch",
)


def flow_schema(obj: Document) -> Errors:
    """A FlowSchema."""
    spec = obj.get("spec") or {}
    name = (obj.get("metadata") or {}).get("name", "")
    precedence = spec.get("matchingPrecedence", 0)
    field = "spec.matchingPrecedence"
    if precedence <= 0:
        yield invalid(field, precedence, "must be a positive value")
    if precedence > _PRECEDENCE_MAX:
        yield invalid(field, precedence, f"must not be greater than {_PRECEDENCE_MAX}")
    if precedence == 1 and name != "exempt":
        detail = "only the schema named 'exempt' may have matchingPrecedence 1"
        yield invalid(field, precedence, detail)
    method = spec.get("distinguisherMethod")
    if method is not None and method.get("type") not in _DISTINGUISHERS:
        shown = {"Type": method.get("type", "")}
        yield unsupported("spec.distinguisherMethod.type", shown, _DISTINGUISHERS)
    level = (spec.get("priorityLevelConfiguration") or {}).get("name", "")
    if level:
        wrong = names.check_dns_subdomain(level)
        yield from named("spec.priorityLevelConfiguration.name", level, wrong)
    else:
        detail = "must reference a priority level"
        yield required("spec.priorityLevelConfiguration.name", detail)
    for index, rule in enumerate(spec.get("rules") or ()):
        yield from _rule(f"spec.rules[{index}]", rule)


def _rule(field: str, rule: Document) -> Errors:
    subjects = rule.get("subjects") or []
    if not subjects:
        yield required(f"{field}.subjects", "subjects must contain at least one value")
    for index, subject in enumerate(subjects):
        yield from _subject(f"{field}.subjects[{index}]", subject)
    resources, others = rule.get("resourceRules") or [], rule.get("nonResourceRules") or []
    if not resources and not others:
        detail = "at least one of resourceRules and nonResourceRules has to be non-empty"
        yield required(field, detail)
    for index, given in enumerate(resources):
        yield from _resource_rule(f"{field}.resourceRules[{index}]", given)
    for index, given in enumerate(others):
        yield from _url_rule(f"{field}.nonResourceRules[{index}]", given)


def _subject(field: str, subject: Document) -> Errors:
    kind = subject.get("kind", "")
    expected = _SUBJECTS.get(kind)
    if expected is None:
        yield unsupported(f"{field}.kind", kind, tuple(_SUBJECTS))
        return
    given = subject.get(expected)
    if given is None:
        yield required(
            f"{field}.{expected}", f"{expected} is required when subject kind is '{kind}'"
        )
    else:
        name = given.get("name", "")
        if not name:
            yield required(f"{field}.{expected}.name")
        elif kind == "ServiceAccount" and name != "*":
            wrong = names.check_dns_subdomain(name)
            yield from named(f"{field}.{expected}.name", name, wrong)
        if kind == "ServiceAccount" and not given.get("namespace"):
            detail = "must specify namespace for service account"
            yield required(f"{field}.{expected}.namespace", detail)
    for other, part in _SUBJECTS.items():
        if part != expected and subject.get(part) is not None:
            detail = f"{part} is forbidden when subject kind is not '{other}'"
            yield forbidden(f"{field}.{part}", detail)


def _verbs(field: str, rule: Document) -> Errors:
    verbs = rule.get("verbs") or []
    if not verbs:
        yield required(f"{field}.verbs", "verbs must contain at least one value")
    elif "*" in verbs:
        if len(verbs) > 1:
            detail = "if '*' is present, must not specify other verbs"
            yield invalid(f"{field}.verbs", verbs, detail)
    elif not set(verbs) <= set(_VERBS):
        yield unsupported(f"{field}.verbs", verbs, _VERBS)


def _resource_rule(field: str, rule: Document) -> Errors:
    yield from _verbs(field, rule)
    for part, one, many in (
        ("apiGroups", "api group", "api groups"),
        ("resources", "resource", "resources"),
    ):
        values = rule.get(part) or []
        if not values:
            yield required(f"{field}.{part}", f"resource rules must supply at least one {one}")
        elif len(values) > 1 and "*" in values:
            detail = f"if '*' is present, must not specify other {many}"
            yield invalid(f"{field}.{part}", values, detail)
    namespaces = rule.get("namespaces") or []
    if not namespaces and not rule.get("clusterScope"):
        detail = "resource rules that are not cluster scoped must supply at least one namespace"
        yield required(f"{field}.namespaces", detail)
    elif "*" in namespaces:
        if len(namespaces) > 1:
            detail = "if '*' is present, must not specify other namespaces"
            yield invalid(f"{field}.namespaces", namespaces, detail)
        return
    for index, namespace in enumerate(namespaces):
        for words in names.check_dns_label(namespace):
            detail = f"each member of this list must be '*' or a DNS-1123 label; {words}"
            yield invalid(f"{field}.namespaces[{index}]", namespace, detail)


def _url_rule(field: str, rule: Document) -> Errors:
    yield from _verbs(field, rule)
    urls = rule.get("nonResourceURLs") or []
    if not urls:
        detail = "nonResourceURLs must contain at least one value"
        yield required(f"{field}.nonResourceURLs", detail)
    elif "*" in urls and len(urls) > 1:
        detail = "if '*' is present, must not specify other non-resource URLs"
        yield invalid(f"{field}.nonResourceURLs", urls, detail)
    elif "*" not in urls:
        for index, url in enumerate(urls):
            at = f"{field}.nonResourceURLs[{index}]"
            if not url.startswith("/"):
                yield invalid(at, url, "must start with slash")
            elif " " in url:
                yield invalid(at, url, "must not contain white-space")
            elif "*" in url[:-1] or (url.endswith("*") and not url.endswith("/*")):
                yield invalid(at, url, "wildcard can only do suffix matching")


def priority_level(obj: Document) -> Errors:
    """A PriorityLevelConfiguration."""
    spec = obj.get("spec") or {}
    name, kind = (obj.get("metadata") or {}).get("name", ""), spec.get("type", "")
    if (name == "exempt") != (kind == "Exempt"):
        detail = "must be 'Exempt' if and only if `name` is 'exempt'"
        yield invalid("spec.type", kind, detail)
    limited, exempt = spec.get("limited"), spec.get("exempt")
    if kind == "Exempt":
        if limited is not None:
            yield forbidden("spec.limited", "must be nil if the type is not Limited")
        if exempt is not None:
            yield from _shares("spec.exempt", exempt)
    elif kind == "Limited":
        if exempt is not None:
            yield forbidden("spec.exempt", "must be nil if the type is Limited")
        if limited is None:
            yield required("spec.limited", "must not be empty when type is Limited")
        else:
            yield from _limited("spec.limited", limited)
    elif not kind:
        yield required("spec.type")
    else:
        yield unsupported("spec.type", kind, ("Exempt", "Limited"))


def _shares(field: str, level: Document) -> Errors:
    shares, lendable = level.get("nominalConcurrencyShares", 0), level.get("lendablePercent")
    if shares < 0:
        detail = "must be a non-negative integer"
        yield invalid(f"{field}.nominalConcurrencyShares", shares, detail)
    if lendable is not None and not 0 <= lendable <= 100:
        detail = "must be between 0 and 100, inclusive"
        yield invalid(f"{field}.lendablePercent", lendable, detail)


def _limited(field: str, level: Document) -> Errors:
    yield from _shares(field, level)
    response = level.get("limitResponse") or {}
    kind, queuing = response.get("type", ""), response.get("queuing")
    at = f"{field}.limitResponse"
    if kind == "Reject":
        if queuing is not None:
            detail = "must be nil if limited.limitResponse.type is not Limited"
            yield forbidden(f"{at}.queuing", detail)
    elif kind == "Queue":
        if queuing is None:
            detail = "must not be empty if limited.limitResponse.type is Limited"
            yield required(f"{at}.queuing", detail)
        else:
            yield from _queuing(f"{at}.queuing", queuing)
    elif not kind:
        yield required(f"{at}.type")
    else:
        yield unsupported(f"{at}.type", kind, ("Queue", "Reject"))
    borrowing = level.get("borrowingLimitPercent")
    if borrowing is not None and borrowing < 0:
        detail = "if specified, must be a non-negative integer"
        yield invalid(f"{field}.borrowingLimitPercent", borrowing, detail)


def _queuing(field: str, queuing: Document) -> Errors:
    length, queues, hand = (
        queuing.get(part, 0) for part in ("queueLengthLimit", "queues", "handSize")
    )
    if length <= 0:
        yield invalid(f"{field}.queueLengthLimit", length, "must be positive")
    if queues <= 0:
        yield invalid(f"{field}.queues", queues, "must be positive")
    elif queues > _QUEUES_MAX:
        yield invalid(f"{field}.queues", queues, f"must not be greater than {_QUEUES_MAX}")
    if hand <= 0:
        yield invalid(f"{field}.handSize", hand, "must be positive")
    elif hand > queues:
        yield invalid(f"{field}.handSize", hand, f"should not be greater than queues ({queues})")
    elif math.ceil(math.log2(queues) * hand) > _HASH_BITS_MAX:
        yield invalid(
            f"{field}.handSize",
            hand,
            f"required entropy bits of deckSize {queues} and handSize {hand} should not be greater "
            f"than {_HASH_BITS_MAX}",
        )
