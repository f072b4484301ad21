"""May they? `authorizer.group('apps').resource('deployments').namespace('a').check('create')`.

A check is put together step by step and asked at its end. Who answers is a function that the
server brings: nothing here knows users or roles.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from motley.api.cel.errors import CelError
from motley.api.cel.values import Lazy, Opaque


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about: a path, or a resource."""

    account: tuple[str, str] | None = None  # namespace and name; None: whoever made the request
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""
    label_selector: str = ""
    verb: str = ""


@dataclass(frozen=True, slots=True)
class Decision(Opaque):
    """The answer to a check."""

    cel_type: ClassVar[str] = "kubernetes.authorization.Decision"

    is_allowed: bool
    why: str = ""
    problem: str = ""


Ask = Callable[[Question], Decision]


class Authorizer(Lazy):
    """The variable `authorizer`; `requestResource` is the request's own object."""

    cel_type: ClassVar[str] = "kubernetes.authorization.Authorizer"

    def __init__(self, ask: Ask, own: Question, account: tuple[str, str] | None = None) -> None:
        super().__init__(
            {"requestResource": lambda: ResourceCheck(ask, replace(own, account=account))}
        )
        self.ask = ask
        self.own = own
        self.question = Question(account=account)


@dataclass(frozen=True, slots=True)
class _Check(Opaque):
    ask: Ask
    question: Question


class PathCheck(_Check):
    """A check of a path."""

    cel_type: ClassVar[str] = "kubernetes.authorization.PathCheck"


class GroupCheck(_Check):
    """The beginning of a check of a resource."""

    cel_type: ClassVar[str] = "kubernetes.authorization.GroupCheck"


class ResourceCheck(_Check):
    """A check of a resource."""

    cel_type: ClassVar[str] = "kubernetes.authorization.ResourceCheck"


def _is(value: Any, *kinds: type) -> None:
    if not isinstance(value, kinds):
        raise CelError("no such overload")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise CelError("no such overload")
    return value


def path(value: Any, where: Any) -> PathCheck:
    """A check of a path that is no resource."""
    _is(value, Authorizer)
    if not _text(where):
        raise CelError("path must not be empty")
    return PathCheck(value.ask, replace(value.question, path=where))


def service_account(value: Any, namespace: Any, name: Any) -> Authorizer:
    """The same questions about a service account instead of the user."""
    _is(value, Authorizer)
    return Authorizer(value.ask, value.own, (_text(namespace), _text(name)))


def group(value: Any, name: Any) -> GroupCheck:
    """A check of a resource in this group."""
    _is(value, Authorizer)
    return GroupCheck(value.ask, replace(value.question, group=_text(name)))


def resource(value: Any, name: Any) -> ResourceCheck:
    """The resource to check."""
    _is(value, GroupCheck)
    return ResourceCheck(value.ask, replace(value.question, resource=_text(name)))


def _narrowing(field: str) -> Callable[[Any, Any], ResourceCheck]:
    def narrow(value: Any, text: Any) -> ResourceCheck:
        _is(value, ResourceCheck)
        return ResourceCheck(value.ask, replace(value.question, **{field: _text(text)}))

    return narrow


def check(value: Any, verb: Any) -> Decision:
    """Ask."""
    _is(value, PathCheck, ResourceCheck)
    found: Decision = value.ask(replace(value.question, verb=_text(verb)))
    return found


def _told(read: Callable[[Decision], Any]) -> Callable[[Any], Any]:
    def tell(value: Any) -> Any:
        _is(value, Decision)
        return read(value)

    return tell


GLOBAL: dict[str, Callable[..., Any]] = {}
METHODS: dict[str, Callable[..., Any]] = {
    "path": path,
    "serviceAccount": service_account,
    "group": group,
    "resource": resource,
    "subresource": _narrowing("subresource"),
    "namespace": _narrowing("namespace"),
    "name": _narrowing("name"),
    "fieldSelector": _narrowing("field_selector"),
    "labelSelector": _narrowing("label_selector"),
    "check": check,
    "allowed": _told(lambda decision: decision.is_allowed),
    "reason": _told(lambda decision: decision.why),
    "errored": _told(lambda decision: bool(decision.problem)),
    "error": _told(lambda decision: decision.problem),
}
RESULTS = {"allowed": "bool", "reason": "string", "errored": "bool", "error": "string"}
