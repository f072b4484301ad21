"""Errors of the API, and their one mapping to Kubernetes' `Status`.

    ApiError
    ├── BadRequest 400        the request itself makes no sense
    ├── Unauthorized 401      we do not know who asks
    ├── Forbidden 403         we know, and they may not
    ├── NotFound 404
    ├── MethodNotAllowed 405
    ├── NotAcceptable 406
    ├── AlreadyExists 409     create: the name is taken
    ├── Conflict 409          update: re-read and try again
    ├── Gone 410              watch or list: that revision is compacted, list again
    ├── TooLarge 413
    ├── UnsupportedMediaType 415
    ├── Invalid 422           the object breaks rules; every broken rule is a cause with its field
    ├── TooManyRequests 429   come back after Retry-After
    ├── InternalError 500
    ├── ServiceUnavailable 503
    ├── GatewayTimeout 504
    └── InsufficientStorage 507  the store is full: somebody must make room

The server raises them, `to_status` writes them, and the client's `from_status` raises the same
class again on the other side.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple


class FieldError(NamedTuple):
    """One broken rule of an object."""

    field: str
    reason: str  # FieldValueRequired, FieldValueInvalid, FieldValueNotSupported, …
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class ApiError(Exception):
    """Something the API server answers with a `Status` instead of an object."""

    code: ClassVar[int] = 500
    reason: ClassVar[str] = "InternalError"
    # Refused before any resource saw the request; the HTTP answer differs a little.
    is_from_filter: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        details: Mapping[str, Any] | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.details = dict(details or {})
        self.shows_details = details is not None  # even empty ones, as Kubernetes does in places
        self.retry_after_s = retry_after_s


class BadRequest(ApiError):
    """The request cannot be understood."""

    code, reason = 400, "BadRequest"


class Unauthorized(ApiError):
    """No credentials, or none we trust."""

    code, reason = 401, "Unauthorized"


class Forbidden(ApiError):
    """Known user, action not allowed."""

    code, reason = 403, "Forbidden"


class NotFound(ApiError):
    """No such object or resource."""

    code, reason = 404, "NotFound"


class MethodNotAllowed(ApiError):
    """The resource exists, the verb does not apply to it."""

    code, reason = 405, "MethodNotAllowed"


class NotAcceptable(ApiError):
    """None of the media types the client accepts can be produced."""

    code, reason = 406, "NotAcceptable"


class AlreadyExists(ApiError):
    """A create whose name is taken."""

    code, reason = 409, "AlreadyExists"


class Conflict(ApiError):
    """A write on a stale version: re-read, then try again."""

    code, reason = 409, "Conflict"


class Gone(ApiError):
    """The asked revision is compacted: list again, or go on from `next_page` as things are now."""

    code, reason = 410, "Expired"

    def __init__(self, message: str, *, next_page: str = "", **more: Any) -> None:
        super().__init__(message, **more)
        self.next_page = next_page


class TooLarge(ApiError):
    """The request body is over the limit."""

    code, reason = 413, "RequestEntityTooLarge"


class UnsupportedMediaType(ApiError):
    """The body's Content-Type is not one this resource takes."""

    code, reason = 415, "UnsupportedMediaType"


class Invalid(ApiError):
    """The object breaks rules; `details.causes` names each field."""

    code, reason = 422, "Invalid"


class TooManyRequests(ApiError):
    """Come back after `retry_after_s`."""

    code, reason = 429, "TooManyRequests"


class InternalError(ApiError):
    """Our fault."""


class ServiceUnavailable(ApiError):
    """Not now; nothing was changed."""

    code, reason = 503, "ServiceUnavailable"


class GatewayTimeout(ApiError):
    """Took too long; whether it happened is unknown."""

    code, reason = 504, "Timeout"


class InsufficientStorage(ApiError):
    """No room for the change; it was not made, and trying again does not make any."""

    code, reason = 507, "InsufficientStorage"


_BY_REASON: dict[str, type[ApiError]] = {c.reason: c for c in ApiError.__subclasses__()}
_BY_REASON["Gone"] = Gone
_BY_CODE: dict[int, type[ApiError]] = {
    c.code: c for c in ApiError.__subclasses__() if c is not AlreadyExists
}


def invalid(group: str, kind: str, name: str, errors: Sequence[FieldError]) -> Invalid:
    """The `Invalid` error for these broken rules, worded as Kubernetes words it."""
    listed = [str(e) for e in errors]
    text = listed[0] if len(listed) == 1 else f"[{', '.join(listed)}]"
    qualified = f"{kind}.{group}" if group else kind
    details: dict[str, Any] = {
        "name": name,
        "group": group,
        "kind": kind,
        "causes": [{"reason": e.reason, "message": e.message, "field": e.field} for e in errors],
    }
    return Invalid(
        f'{qualified} "{name}" is invalid: {text}',
        details={k: v for k, v in details.items() if v},
    )


def not_found(group: str, resource: str, name: str) -> NotFound:
    """The `NotFound` error for one object."""
    qualified = f"{resource}.{group}" if group else resource
    details = {"name": name, "group": group, "kind": resource}
    return NotFound(
        f'{qualified} "{name}" not found', details={k: v for k, v in details.items() if v}
    )


def to_status(error: ApiError) -> dict[str, Any]:
    """The `Status` object to answer with."""
    rest = error.next_page if isinstance(error, Gone) else ""
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {"continue": rest} if rest else {},
        "status": "Failure",
        "message": error.message,
        **({"reason": error.reason} if error.reason else {}),
        "code": error.code,
    }
    details = dict(error.details)
    if error.retry_after_s is not None:
        details["retryAfterSeconds"] = error.retry_after_s
    if details or error.shows_details:
        status["details"] = details
    return status


def from_status(status: Mapping[str, Any], code: int | None = None) -> ApiError:
    """The error a server's `Status` (or a bare HTTP code) stands for."""
    code = int(status.get("code") or code or 500)
    cls = _BY_REASON.get(str(status.get("reason", ""))) or _BY_CODE.get(code) or InternalError
    details = status.get("details") or {}
    error = cls(
        str(status.get("message") or f"server answered {code}"),
        details=status.get("details"),
        retry_after_s=details.get("retryAfterSeconds"),
    )
    return error
