"""Access reviews: may they? Asked by `kubectl auth can-i`, by operators, by other API servers.

The answer is that of the very authorizer that decides on requests.
"""

from collections.abc import Mapping
from typing import Any

from motley.api import codec
from motley.api.status import FieldError
from motley.apiserver.answer import Answer
from motley.apiserver.authn.user import User
from motley.apiserver.core import Core
from motley.apiserver.request import Query, RequestInfo
from motley.apiserver.reviews import review
from motley.apiserver.verbs.call import Call

GROUP = "authorization.k8s.io"
_RESOURCE = "resourceAttributes"
_PATH = "nonResourceAttributes"


async def of_self(core: Core, call: Call) -> Answer:
    """SelfSubjectAccessReview: may I?"""
    found, warnings = await review.read(core, call)
    _check(_attribute_errors(found["spec"]))
    return await _decided(core, call, found, call.user, warnings)


async def of_subject(core: Core, call: Call) -> Answer:
    """SubjectAccessReview: may this user?"""
    found, warnings = await review.read(core, call)
    spec = found["spec"]
    _check([*_attribute_errors(spec), *_subject_errors(spec)])
    return await _decided(core, call, found, subject_of(spec), warnings)


async def of_subject_locally(core: Core, call: Call) -> Answer:
    """LocalSubjectAccessReview: may this user in this namespace?"""
    found, warnings = await review.read(core, call)
    spec, metadata = found["spec"], {**(found.get("metadata") or {}), "namespace": call.namespace}
    found["metadata"] = metadata
    _check([*_attribute_errors(spec), *_subject_errors(spec), *_local_errors(spec, metadata)])
    return await _decided(core, call, found, subject_of(spec), warnings)


async def _decided(
    core: Core, call: Call, found: dict[str, Any], user: User, warnings: list[str]
) -> Answer:
    decision = await core.access.authorizer.allows(user, asked(found["spec"]))
    outcome: dict[str, Any] = {"allowed": decision.allowed}
    if decision.reason:
        outcome["reason"] = decision.reason
    fields = {"spec": found["spec"], "status": outcome}
    return review.answer(call, found.get("metadata"), fields, warnings)


def subject_of(spec: Mapping[str, Any]) -> User:
    """The user a review asks about: exactly what it says, nothing added."""
    extra = spec.get("extra") or {}
    return User(
        str(spec.get("user") or ""),
        tuple(spec.get("groups") or ()),
        str(spec.get("uid") or ""),
        tuple((key.lower(), tuple(values)) for key, values in extra.items()),
    )


def asked(spec: Mapping[str, Any]) -> RequestInfo:
    """The request a review asks about."""
    path = spec.get(_PATH)
    if path is not None:
        where, verb = str(path.get("path") or ""), str(path.get("verb") or "")
        return RequestInfo("", where, verb, Query())
    about = spec.get(_RESOURCE) or {}

    def text(key: str) -> str:
        return str(about.get(key) or "")

    selector = (about.get("fieldSelector") or {}).get("rawSelector") or ""
    return RequestInfo(
        method="",
        path="",
        verb=text("verb"),
        query=Query({"fieldSelector": [selector]} if selector else {}),
        is_resource=True,
        group=text("group"),
        version=text("version"),
        namespace=text("namespace"),
        resource=text("resource"),
        name=text("name"),
        subresource=text("subresource"),
    )


def _check(errors: list[FieldError]) -> None:
    if errors:
        raise review.invalid(GROUP, errors)


def _invalid(field: str, value: Any, problem: str) -> FieldError:
    shown = codec.encode(value).decode()
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {shown}: {problem}")


def _attribute_errors(spec: Mapping[str, Any]) -> list[FieldError]:
    path = spec.get(_PATH)
    if (spec.get(_RESOURCE) is None) != (path is None):
        return []
    shown = None
    if path is not None:
        shown = {"Path": path.get("path") or "", "Verb": path.get("verb") or ""}
    problem = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
    return [_invalid("spec", shown, problem)]


def _subject_errors(spec: Mapping[str, Any]) -> list[FieldError]:
    if spec.get("user") or spec.get("groups"):
        return []
    return [_invalid("spec.user", "", "at least one of user or group must be specified")]


def _local_errors(spec: Mapping[str, Any], metadata: Mapping[str, Any]) -> list[FieldError]:
    if spec.get(_PATH) is not None:
        field = "spec.nonResourceAttributes"
        problem = "disallowed on this kind of request"
        return [_invalid(field, spec[_PATH], problem)]
    namespace = (spec.get(_RESOURCE) or {}).get("namespace") or ""
    if namespace == metadata["namespace"]:
        return []
    field = "spec.resourceAttributes.namespace"
    return [_invalid(field, namespace, "must match metadata.namespace")]
