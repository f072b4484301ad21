"""The options of a request, read from its query (and a delete's body) and checked at once.

Kubernetes validates them like objects: a wrong option is 422 with the option named as a field.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from motley.api import status
from motley.api.status import FieldError
from motley.apiserver.request import Query

META = "meta.k8s.io"
# 128 bytes: as Kubernetes limits the name of a field manager.
MANAGER_MAX_BYTES = 128
_PROPAGATION = ("Foreground", "Background", "Orphan")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What create, update and patch may be told."""

    dry_run: bool
    field_validation: str  # Strict, Warn, Ignore
    field_manager: str
    force: bool = False  # of an apply: take fields that others own


def write_options(query: Query, kind: str, *, applies: bool = False) -> WriteOptions:
    """Read `CreateOptions`, `UpdateOptions` or `PatchOptions` (the kind names them in errors).

    An apply must name its field manager, and only an apply may be forced.
    """
    if not query and not applies:
        return _USUAL
    errors = [*_apply_errors(query, kind, applies), *_manager_errors(query)]
    errors += _dry_run_errors(query.get("dryRun", ()))
    validation = query.text("fieldValidation")
    if validation not in ("", "Ignore", "Warn", "Strict"):
        message = (
            f'Unsupported value: "{validation}": supported values: "", "Ignore", "Strict", "Warn"'
        )
        errors.append(FieldError("fieldValidation", "FieldValueNotSupported", message))
    if errors:
        raise status.invalid(META, kind, "", errors)
    return WriteOptions(
        bool(query.get("dryRun")),
        validation or "Warn",
        query.text("fieldManager"),
        applies and query.flag("force"),
    )


_USUAL = WriteOptions(False, "Warn", "")


def _apply_errors(query: Query, kind: str, applies: bool) -> list[FieldError]:
    if applies and not query.text("fieldManager"):
        message = "Required value: is required for apply patch"
        return [FieldError("fieldManager", "FieldValueRequired", message)]
    if kind == "PatchOptions" and not applies and "force" in query:
        message = "Forbidden: may not be specified for non-apply patch"
        return [FieldError("force", "FieldValueForbidden", message)]
    return []


def _dry_run_errors(values: Any) -> list[FieldError]:
    if not values or all(v == "All" for v in values):
        return []
    listed = ", ".join(f'"{v}"' for v in values)
    message = f'Unsupported value: [{listed}]: supported values: "All"'
    return [FieldError("dryRun", "FieldValueNotSupported", message)]


def _manager_errors(query: Query) -> list[FieldError]:
    manager = query.text("fieldManager")
    if len(manager.encode()) > MANAGER_MAX_BYTES:
        message = f"Too long: may not be more than {MANAGER_MAX_BYTES} bytes"
        return [FieldError("fieldManager", "FieldValueTooLong", message)]
    for position, char in enumerate(manager):
        if not char.isprintable():
            shown = manager.encode("unicode_escape").decode()
            message = (
                f'Invalid value: "{shown}": invalid character U+{ord(char):04X} '
                f"(at position {position})"
            )
            return [FieldError("fieldManager", "FieldValueInvalid", message)]
    return []


class _Preconditions(msgspec.Struct, rename="camel"):
    uid: str | None = None
    resource_version: str | None = None


class DeleteOptions(msgspec.Struct, rename="camel"):
    """What a delete may be told, in its body or its query."""

    kind: str = ""
    api_version: str = ""
    grace_period_seconds: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    preconditions: _Preconditions | None = None
    orphan_dependents: bool | None = None
    propagation_policy: str | None = None
    dry_run: list[str] | None = None

    @property
    def says_nothing_of_dependents(self) -> bool:
        """Whether it is left to the kind what becomes of what the object owns."""
        return self.propagation_policy is None and self.orphan_dependents is None

    @property
    def uid(self) -> str | None:
        """The uid the object must have."""
        return self.preconditions.uid if self.preconditions else None

    @property
    def resource_version(self) -> str | None:
        """The version the object must be at."""
        return self.preconditions.resource_version if self.preconditions else None


def delete_options(query: Query, body: Mapping[str, Any] | None) -> DeleteOptions:
    """Read `DeleteOptions`; a body wins over the query, as in Kubernetes."""
    if body is not None:
        try:
            options = msgspec.convert(body, DeleteOptions)
        except msgspec.ValidationError as error:
            raise status.BadRequest(f"json: DeleteOptions: {error}") from None
        if options.kind not in ("", "DeleteOptions"):
            raise status.BadRequest(
                f'{options.kind} in version "{options.api_version}" '
                "cannot be handled as a DeleteOptions"
            )
        if options.dry_run is None and query.get("dryRun"):
            options.dry_run = query["dryRun"]
    else:
        options = DeleteOptions(
            grace_period_seconds=query.integer("gracePeriodSeconds"),
            orphan_dependents=query.flag("orphanDependents")
            if "orphanDependents" in query
            else None,
            propagation_policy=query.text("propagationPolicy") or None,
            dry_run=query.get("dryRun"),
        )
    _check_delete(options)
    return options


def _check_delete(options: DeleteOptions) -> None:
    errors: list[FieldError] = []
    policy = options.propagation_policy
    if policy is not None and options.orphan_dependents is not None:
        message = (
            f'Invalid value: "{policy}": orphanDependents and deletionPropagation '
            "cannot be both set"
        )
        errors.append(FieldError("propagationPolicy", "FieldValueInvalid", message))
    elif policy is not None and policy not in _PROPAGATION:
        listed = ", ".join(f'"{p}"' for p in (*_PROPAGATION, "nil"))
        message = f'Unsupported value: "{policy}": supported values: {listed}'
        errors.append(FieldError("propagationPolicy", "FieldValueNotSupported", message))
    errors += _dry_run_errors(options.dry_run)
    if errors:
        raise status.invalid(META, "DeleteOptions", "", errors)


@dataclass(frozen=True, slots=True)
class ListOptions:
    """What list and watch may be told."""

    resource_version: int | None  # None: not given; 0: anything cached will do
    match: str  # Exact, NotOlderThan or empty
    limit: int
    next_page: str
    timeout_s: int | None
    bookmarks: bool
    send_initial_events: bool | None
    label_selector: str
    field_selector: str


def list_options(query: Query, *, watching: bool) -> ListOptions:
    """Read `ListOptions`."""
    timeout_s = query.integer("timeoutSeconds")
    limit = query.integer("limit") or 0
    errors = _list_errors(query, watching)
    if errors:
        raise status.invalid(META, "ListOptions", "", errors)
    return ListOptions(
        resource_version=_version(query, watching),
        match=query.text("resourceVersionMatch"),
        limit=max(limit, 0),
        next_page=query.text("continue"),
        timeout_s=timeout_s,
        bookmarks=query.flag("allowWatchBookmarks"),
        send_initial_events=_tristate(query, "sendInitialEvents"),
        label_selector=query.text("labelSelector"),
        field_selector=query.text("fieldSelector"),
    )


def _tristate(query: Query, key: str) -> bool | None:
    return query.flag(key) if key in query else None


def _version(query: Query, watching: bool) -> int | None:
    text = query.text("resourceVersion")
    if not text:
        return None
    is_number = text.isascii() and text.isdigit()
    if not is_number or not _is_uint64(text):
        problem = "value out of range" if is_number else "invalid syntax"
        words = f'strconv.ParseUint: parsing "{text}": {problem}'
        message = f'Invalid value: "{text}": {words}'
        if watching:  # Kubernetes answers 500 here; a wrong question is not our fault
            raise status.BadRequest(f"resourceVersion: {message}")
        raise status.BadRequest(f"invalid resource version: resourceVersion: {message}")
    return int(text)


def _list_errors(query: Query, watching: bool) -> list[FieldError]:
    match = query.text("resourceVersionMatch")
    version = query.text("resourceVersion")
    initial = "sendInitialEvents" in query
    if watching:
        return _watch_errors(query, match, initial)

    def forbidden(field: str, message: str) -> FieldError:
        return FieldError(field, "FieldValueForbidden", f"Forbidden: {message}")

    field = "resourceVersionMatch"
    errors: list[FieldError] = []
    if initial:
        errors.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if not match:
        return errors
    if not version:
        errors.append(forbidden(field, f"{field} is forbidden unless resourceVersion is provided"))
    if query.text("continue"):
        errors.append(forbidden(field, f"{field} is forbidden when continue is provided"))
    if match not in ("Exact", "NotOlderThan"):
        message = f'Unsupported value: "{match}": supported values: "Exact", "NotOlderThan", ""'
        errors.append(FieldError(field, "FieldValueNotSupported", message))
    elif match == "Exact" and version == "0":
        errors.append(forbidden(field, f'{field} "exact" is forbidden for resourceVersion "0"'))
    return errors


def _watch_errors(query: Query, match: str, initial: bool) -> list[FieldError]:
    field = "resourceVersionMatch"

    def forbidden(message: str) -> FieldError:
        return FieldError(field, "FieldValueForbidden", f"Forbidden: {message}")

    errors: list[FieldError] = []
    if query.text("continue"):
        errors.append(forbidden(f"{field} is forbidden when continue is provided"))
        return errors
    if match and not initial:
        errors.append(
            forbidden(f"{field} is forbidden for watch unless sendInitialEvents is provided")
        )
    if initial and match != "NotOlderThan":
        errors.append(
            forbidden("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
        )
        if match:
            message = f'Unsupported value: "{match}": supported values: "NotOlderThan"'
            errors.append(FieldError(field, "FieldValueNotSupported", message))
    return errors


def parse_version(text: str) -> int | None:
    """The resourceVersion inside an object: None when absent or "0" (an unconditional write)."""
    if text in ("", "0"):
        return None
    if not text.isascii() or not text.isdigit() or not _is_uint64(text):
        raise status.BadRequest(
            f'metadata.resourceVersion: Invalid value: "{text}": must be a number'
        )
    return int(text)


def _is_uint64(digits: str) -> bool:
    """Whether the number fits; Python refuses to read numbers of thousands of digits at all."""
    return len(digits.lstrip("0")) <= 20 and int(digits.lstrip("0") or "0") < 2**64
