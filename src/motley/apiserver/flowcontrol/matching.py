"""Which FlowSchema a request belongs to: a pure function of the schemas, the user and the request.

Schemas are tried by `matchingPrecedence`, lowest first, then by name; within one, any rule whose
subjects hold the user and whose resource or path rules hold the request.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from motley.apiserver.authn.user import User, split_service_account
from motley.apiserver.request import RequestInfo

Document = dict[str, Any]
DEFAULT_PRECEDENCE = 1000


@dataclass(frozen=True, slots=True)
class Schema:
    """A FlowSchema, read once."""

    name: str
    uid: str
    level: str
    precedence: int
    by: str
    """What tells flows apart: `ByUser`, `ByNamespace`, or empty when all are one."""
    rules: tuple[Document, ...]

    def matches(self, user: User, info: RequestInfo) -> bool:
        """Whether a request of a user belongs here."""
        return any(_rule_matches(rule, user, info) for rule in self.rules)

    def flow(self, user: User, info: RequestInfo) -> str:
        """The name of the flow a request is part of."""
        if self.by == "ByUser":
            return user.name
        return info.namespace if self.by == "ByNamespace" else ""


def schema_of(document: Document) -> Schema:
    """Read a stored FlowSchema."""
    spec = document.get("spec") or {}
    return Schema(
        document["metadata"]["name"],
        document["metadata"].get("uid", ""),
        (spec.get("priorityLevelConfiguration") or {}).get("name", ""),
        spec.get("matchingPrecedence") or DEFAULT_PRECEDENCE,
        (spec.get("distinguisherMethod") or {}).get("type", ""),
        tuple(spec.get("rules") or ()),
    )


def in_order(schemas: Iterable[Schema]) -> list[Schema]:
    """The order in which they are tried."""
    return sorted(schemas, key=lambda s: (s.precedence, s.name))


def _rule_matches(rule: Document, user: User, info: RequestInfo) -> bool:
    if not any(_is_subject(subject, user) for subject in rule.get("subjects") or ()):
        return False
    if info.is_resource:
        return any(_resource_matches(one, info) for one in rule.get("resourceRules") or ())
    return any(_path_matches(one, info) for one in rule.get("nonResourceRules") or ())


def _is_subject(subject: Document, user: User) -> bool:
    kind = subject.get("kind")
    if kind == "User":
        return (subject.get("user") or {}).get("name") in ("*", user.name)
    if kind == "Group":
        name = (subject.get("group") or {}).get("name")
        return name == "*" or name in user.groups
    if kind == "ServiceAccount":
        account = split_service_account(user.name)
        wanted = subject.get("serviceAccount") or {}
        if account is None or wanted.get("namespace") != account[0]:
            return False
        return wanted.get("name") in ("*", account[1])
    return False


def _resource_matches(rule: Document, info: RequestInfo) -> bool:
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    if not (
        _holds(rule.get("verbs"), info.verb)
        and _holds(rule.get("resources"), resource)
        and _holds(rule.get("apiGroups"), info.group)
    ):
        return False
    if not info.namespace:
        return bool(rule.get("clusterScope"))
    return _holds(rule.get("namespaces"), info.namespace)


def _path_matches(rule: Document, info: RequestInfo) -> bool:
    return _holds(rule.get("verbs"), info.verb) and any(
        _is_below(info.path, path) for path in rule.get("nonResourceURLs") or ()
    )


def _is_below(path: str, pattern: str) -> bool:
    if pattern in ("*", path):
        return True
    prefix = pattern.removesuffix("*")
    return path.startswith(prefix if prefix.endswith("/") else f"{prefix}/")


def _holds(listed: Sequence[str] | None, value: str) -> bool:
    return listed is not None and ("*" in listed or value in listed)
