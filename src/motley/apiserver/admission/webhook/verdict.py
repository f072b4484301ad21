"""What a webhook's answer says."""

import base64
import binascii
from typing import Any, NamedTuple

from motley.api import codec, status
from motley.apiserver.admission.webhook.caller import CallFailed

Document = dict[str, Any]

_VERSION = "admission.k8s.io/v1"


class Verdict(NamedTuple):
    """Yes or no, and what goes with it."""

    allowed: bool
    result: Document
    patch: list[Any] | None
    warnings: list[str]


def read(review: Document, uid: str) -> Verdict:
    """The verdict in an AdmissionReview; raises CallFailed when it is none."""
    if (review.get("kind"), review.get("apiVersion")) != ("AdmissionReview", _VERSION):
        raise _invalid(
            f"expected webhook response of {_VERSION}, Kind=AdmissionReview, got "
            f"{review.get('apiVersion', '')}, Kind={review.get('kind', '')}"
        )
    response = review.get("response")
    if not isinstance(response, dict):
        raise CallFailed("webhook response was absent")
    if response.get("uid") != uid:
        raise _invalid(f'expected response.uid="{uid}", got "{response.get("uid", "")}"')
    raw = response.get("patch")
    if raw and response.get("patchType") != "JSONPatch":
        raise _invalid("response.patchType must be JSONPatch when a patch is given")
    return Verdict(
        bool(response.get("allowed")),
        response.get("status") or {},
        _patch(raw) if raw else None,
        [str(warning) for warning in response.get("warnings") or ()],
    )


def _invalid(problem: str) -> CallFailed:
    return CallFailed(f"received invalid webhook response: {problem}")


def _patch(raw: Any) -> list[Any]:
    try:
        found = codec.decode(base64.b64decode(str(raw)))
    except (binascii.Error, ValueError, status.BadRequest):
        raise _invalid("response.patch is no base64 of a JSON patch") from None
    if not isinstance(found, list):
        raise _invalid("response.patch is no JSON patch")
    return found


def refusal(webhook: str, result: Document) -> status.ApiError:
    """The error a refusal is answered with: the webhook's own status, said to be its."""
    denied = f'admission webhook "{webhook}" denied the request'
    message, reason = result.get("message"), result.get("reason")
    if message or reason:
        text = f"{denied}: {message or reason}"
    else:
        text = f"{denied} without explanation"
    code = int(result.get("code") or 0)
    code = code if code >= 400 else 400
    # The code is the webhook's, whatever class of ours it belongs to.
    refused = type("Refused", (status.ApiError,), {"code": code, "reason": str(reason or "")})
    error: status.ApiError = refused(text, details=result.get("details") or {})
    return error
