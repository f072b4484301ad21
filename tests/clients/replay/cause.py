"""Why an answer differs, in words that many steps share: what to work off first.

A cause is a guess from the outside, for grouping only. The comparison does not know it.
"""

import re
from collections.abc import Sequence

from .compare import Difference, reason
from .runner import Result

_INDEX = re.compile(r"^(?:\d+|\+)$")
_NAMESPACED = re.compile(r"^(/apis?(?:/[^/]+){1,2})/namespaces/[^/]+/([^/]+)(?:/[^/]+)?(/[^/]+)?")
_CLUSTER = re.compile(r"^/(?:api|apis/[^/]+)/[^/]+/([^/]+)(?:/[^/]+)?(/[^/]+)?")


def of(result: Result) -> str:
    """The cause of the first difference that counts; empty when there is none."""
    if not result.differences:
        return ""
    first = next((d for d in result.differences if not is_managed(d)), None)
    if first is None:
        return "managedFields"
    return _named(result, first)


def is_managed(difference: Difference) -> bool:
    """Whether a difference is only about who owns which field."""
    return "managedFields" in difference.path


def is_status(differences: Sequence[Difference]) -> bool:
    """Whether the status code or the reason differs."""
    return any(d.path in (("status",), ("reason",)) for d in differences)


def is_clear(result: Result) -> bool:
    """Whether bad input that the recorded server answered with 5xx got a 4xx here."""
    response = result.step.response
    return response is not None and response.status >= 500 and 400 <= result.answer.status < 500


def _named(result: Result, difference: Difference) -> str:
    where = resource(result)
    if difference.path in (("status",), ("reason",)):
        return _status(result, where)
    head = difference.path[0]
    if head == "headers":
        return f"header {difference.path[1]}"
    if head in ("contentType", "warnings", "text", "serverEnded", "binary"):
        return f"{head}: {where}"
    if head == "events" and len(difference.path) == 1:
        return f"sequence of events: {where}"
    body = result.step.response.body if result.step.response else None
    if isinstance(body, dict) and body.get("kind") == "Status":
        return f"Status.{_general(difference.path[1:])} ({body.get('reason', '')}): {where}"
    return f"{difference.what} {_general(difference.path[1:])}: {where}"


def _status(result: Result, where: str) -> str:
    assert result.step.response is not None
    wanted = _code(result.step.response.status, reason(result.step.response.body))
    live = result.answer.json()
    given = _code(result.answer.status, reason(live))
    if result.answer.status == 0:
        return f"no answer: {where}"
    message = live.get("message", "") if isinstance(live, dict) else ""
    if message == "the server could not find the requested resource":
        return f"not served: {where}"
    return f"status {wanted} but {given}: {where}"


def _code(status: int, why: str | None) -> str:
    return f"{status} {why}" if why else str(status)


def _general(path: Sequence[str]) -> str:
    return ".".join("*" if _INDEX.match(token) else token for token in path[:6])


def resource(result: Result) -> str:
    """The resource a step is about, with its subresource; the path for others."""
    request = result.step.request
    if request is None:
        opened = (s for s in result.scenario.steps if s.watchOpen == result.step.watchCollect)
        request = next((s.request for s in opened if s.request), None)
    if request is None:
        return "?"
    path = request.path.partition("?")[0]
    if found := _NAMESPACED.match(path):
        return f"{found[2]}{found[3] or ''}"
    if found := _CLUSTER.match(path):
        return f"{found[1]}{found[2] or ''}"
    return path
