"""TokenReview: whose token is this, and for which audience?

A wrong token is an answer, not an error; the answer carries the token that was asked about, as
Kubernetes' does, because the client sent it.
"""

from typing import Any

from motley.api import status
from motley.apiserver.answer import Answer
from motley.apiserver.authn.serviceaccounts import InvalidToken
from motley.apiserver.core import Core
from motley.apiserver.reviews import review
from motley.apiserver.verbs.call import Call


async def create(core: Core, call: Call) -> Answer:
    """201 with the user of a good token, or with what is wrong with it."""
    found, warnings = await review.read(core, call)
    spec = found["spec"]
    token, wanted = str(spec.get("token") or ""), list(spec.get("audiences") or ())
    if not token:
        raise status.BadRequest("token is required for TokenReview in authentication")
    try:
        user, audiences = await core.access.authenticator.review(token, wanted)
    except InvalidToken as error:
        outcome: dict[str, Any] = {"user": {}, "error": str(error)}
    else:
        outcome = {"authenticated": True, "user": user.info, "audiences": audiences}
    fields = {"spec": spec, "status": outcome}
    return review.answer(call, found.get("metadata"), fields, warnings)
