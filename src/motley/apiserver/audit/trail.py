"""What is known about one request so far, for the record of it.

The request's own code says what it finds out (`authenticated`, `decided`, `annotate` …) without
knowing whether anybody listens: the trail is in a context variable, and there is none when the
request is not audited.

Invariant: each stage is written at most once, and never before the user is known, unless nobody is.
"""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

import msgspec

from motley.api import codec, status
from motley.apiserver import protobuf
from motley.apiserver.audit.policy import NOTHING, Policy, Recording
from motley.apiserver.authn.user import User
from motley.apiserver.request import RequestInfo
from motley.lib.clock import Clock, rfc3339_micro

Document = dict[str, Any]
Write = Callable[[Document], None]

DECISION = "authorization.k8s.io/decision"
REASON = "authorization.k8s.io/reason"
_NOBODY = User("", ())
_PROTOBUF = b"k8s\0"
_WHO = ("user", "impersonatedUser")


class Trail:
    """One request under audit."""

    def __init__(
        self,
        audit_id: str,
        info: RequestInfo,
        headers: Mapping[str, str],
        uri: str,
        source: str,
        *,
        policy: Policy,
        write: Write,
        clock: Clock,
    ) -> None:
        self._info = info
        self._headers = headers
        self._source = source
        self._policy = policy
        self._write = write
        self._clock = clock
        self._begun = clock.now()
        self._recording: Recording | None = None
        self._user = _NOBODY
        self._fields: Document = {"auditID": audit_id, "requestURI": uri}
        self._annotations: dict[str, str] = {}
        self._is_panic = False

    @property
    def recording(self) -> Recording:
        """What to keep; nothing is decided before the user is known."""
        return self._recording or NOTHING

    def authenticated(self, user: User) -> None:
        """The user is known: now the policy can be asked."""
        self._user = user
        self._recording = self._policy.recording(user, self._info)
        self._fields["user"] = user.info
        self._emit("RequestReceived")

    def impersonating(self, user: User) -> None:
        """The user acts for another."""
        self._fields["impersonatedUser"] = user.info

    def annotate(self, key: str, value: str) -> None:
        """Note something; the first to use a key has the say."""
        self._annotations.setdefault(key, value)

    def panicked(self) -> None:
        """A bug ended the request."""
        self._is_panic = True

    def requested(self, body: bytes) -> None:
        """The request's body was read."""
        if self.recording.has_request and self._info.is_resource:
            self._keep("requestObject", body)

    def started(self, code: int) -> None:
        """A stream begins."""
        self._emit("ResponseStarted", code)

    def completed(self, code: int, body: bytes, content_type: str) -> None:
        """The answer is whole, or the stream has ended."""
        if self._recording is None:  # nobody: the credentials were wrong
            self._recording = self._policy.recording(_NOBODY, self._info)
            self._fields["user"] = {}
        if self.recording.has_response and self._info.is_resource and _is_json(content_type):
            self._keep("responseObject", body)
        failure = _failure(body) if code >= 400 and _is_json(content_type) else {}
        self._emit("Panic" if self._is_panic else "ResponseComplete", code, failure)

    def part(self, info: RequestInfo, request: bytes, code: int, response: bytes) -> None:
        """Record one of several things that the request asked for, as a request of its own."""
        own = Trail(
            self._fields["auditID"],
            info,
            self._headers,
            info.path,
            self._source,
            policy=self._policy,
            write=self._write,
            clock=self._clock,
        )
        own._begun = self._begun
        own._user = self._user
        own._recording = self._policy.recording(self._user, info)
        own._fields |= {k: self._fields[k] for k in _WHO if k in self._fields}
        own._emit("RequestReceived")
        own._annotations |= self._annotations
        own.requested(request)
        own.completed(code, response, "application/json")

    def _keep(self, field: str, body: bytes) -> None:
        try:
            value = self._decoded(body)
        except (status.ApiError, ValueError):  # the handler refuses it, and says so
            return
        if self.recording.omit_managed_fields:
            _strip(value)
        if value is not None:
            self._fields[field] = value

    def _decoded(self, body: bytes) -> Any:
        if body.startswith(_PROTOBUF):
            group, version = self._info.group, self._info.version
            return protobuf.decode(body, f"{group}/{version}" if group else version, "")
        return codec.decode_yaml(body) if body.strip() else None

    def _emit(self, stage: str, code: int = 0, failure: Document | None = None) -> None:
        recording = self.recording
        if recording.level == "None" or stage in recording.omit_stages:
            return
        info = self._info
        event = {
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": recording.level,
            "auditID": self._fields["auditID"],
            "stage": stage,
            "requestURI": self._fields["requestURI"],
            "verb": info.verb,
            **self._fields,
            "sourceIPs": source_addresses(self._headers, self._source),
        }
        if agent := self._headers.get("user-agent"):
            event["userAgent"] = agent
        if info.is_resource:
            event["objectRef"] = _reference(info)
        if code:
            event["responseStatus"] = {"metadata": {}, **(failure or {}), "code": code}
        event["requestReceivedTimestamp"] = rfc3339_micro(self._begun)
        event["stageTimestamp"] = rfc3339_micro(self._clock.now())
        if self._annotations:
            event["annotations"] = dict(self._annotations)
        self._write(event)


CURRENT: ContextVar[Trail | None] = ContextVar("audit trail", default=None)


def annotate(key: str, value: str) -> None:
    """Note something about the request now served, if it is audited."""
    if (trail := CURRENT.get()) is not None:
        trail.annotate(key, value)


def authenticated(user: User) -> None:
    """The request now served is from this user."""
    if (trail := CURRENT.get()) is not None:
        trail.authenticated(user)


def impersonating(user: User) -> None:
    """The request now served is done in this user's name."""
    if (trail := CURRENT.get()) is not None:
        trail.impersonating(user)


def decided(is_allowed: bool, reason: str) -> None:
    """Whether the request now served was allowed, and why."""
    if (trail := CURRENT.get()) is not None:
        trail.annotate(DECISION, "allow" if is_allowed else "forbid")
        trail.annotate(REASON, reason)


def requested(body: bytes) -> None:
    """The body of the request now served was read."""
    if (trail := CURRENT.get()) is not None:
        trail.requested(body)


def part(info: RequestInfo, request: bytes, code: int, response: bytes) -> None:
    """One of several things that the request now served asked for is done, or refused."""
    if (trail := CURRENT.get()) is not None:
        trail.part(info, request, code, response)


def is_audited() -> bool:
    """Whether anybody records the request now served."""
    return CURRENT.get() is not None


def panicked() -> None:
    """A bug ended the request now served."""
    if (trail := CURRENT.get()) is not None:
        trail.panicked()


def source_addresses(headers: Mapping[str, str], remote: str) -> list[str]:
    """Where a request came from; all but the last is only what the client says."""
    found = [one.strip() for one in headers.get("x-forwarded-for", "").split(",")]
    if (real := headers.get("x-real-ip", "").strip()) not in found:
        found.append(real)
    found = [one for one in found if one]
    if remote and (not found or found[-1] != remote):
        found.append(remote)
    return found


def _reference(info: RequestInfo) -> Document:
    shown = {
        "resource": info.resource,
        "namespace": info.namespace,
        "name": info.name,
        "apiGroup": info.group,
        "apiVersion": info.version,
        "subresource": info.subresource,
    }
    return {key: value for key, value in shown.items() if value}


def _is_json(content_type: str) -> bool:
    return content_type.startswith("application/json")


def _failure(body: bytes) -> Document:
    """What a `Status` says, without what the event says already."""
    try:
        shown = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return {}
    if not isinstance(shown, dict) or shown.get("kind") != "Status":
        return {}
    return {key: shown[key] for key in ("status", "message", "reason", "details") if key in shown}


def _strip(value: Any) -> None:
    """Leave managed fields out, also those of a list's items."""
    if not isinstance(value, dict):
        return
    metadata = value.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
    items = value.get("items")
    for item in items if isinstance(items, list) else ():
        _strip(item)
