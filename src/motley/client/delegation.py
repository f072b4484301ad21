"""Who is calling, and may they? The API server is asked, as kube-scheduler asks it.

A component that shows its figures to others holds no list of users: a bearer token is reviewed by
TokenReview, what its user may see by SubjectAccessReview of the path. Answers are kept for a few
seconds, so that a Prometheus that comes every few seconds costs next to nothing.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from motley.api import status
from motley.client.rest import Client
from motley.lib import journal
from motley.lib.clock import SYSTEM, Clock

log = journal.get(__name__)

_KEPT_S = 10.0  # kube-scheduler's cache TTL of delegated decisions
_KEPT = 256

_TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class Delegation:
    """Asks one server who it is and another, or the same, what they may."""

    def __init__(
        self, authentication: Client, authorization: Client, *, clock: Clock = SYSTEM
    ) -> None:
        self._authentication = authentication
        self._authorization = authorization
        self._clock = clock
        self._kept: dict[bytes, tuple[float, int]] = {}

    async def code(self, path: str, header: str, resource: Mapping[str, str] | None = None) -> int:
        """200, 401 (who is it?) or 403 (not for them), for a GET of this path.

        `header`: the request's Authorization. `resource`: what of the API's the path stands for,
        where it does (resourceAttributes). Where the server cannot be asked nobody gets in.
        """
        kind, _, token = header.partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            return 401
        now = self._clock.monotonic()
        # Digests, so that no token stays in memory for longer than its request.
        key = hashlib.sha256(f"{path}\0{resource}\0{token}".encode()).digest()
        until, code = self._kept.get(key, (0.0, 0))
        if now < until:
            return code
        try:
            code = await self._ask(path, token.strip(), resource)
        except status.ApiError as error:
            log.warning("cannot ask who is calling", error=error.message)
            return 403
        if len(self._kept) >= _KEPT:
            self._kept.clear()
        self._kept[key] = (now + _KEPT_S, code)
        return code

    async def _ask(self, path: str, token: str, resource: Mapping[str, str] | None) -> int:
        body: dict[str, Any] = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        }
        found = (await self._authentication.raw("POST", _TOKEN_REVIEWS, body=body))["status"]
        if not found.get("authenticated"):
            return 401
        user = found.get("user") or {}
        return 200 if await self.may(user, path, resource) else 403

    async def may(
        self, user: Mapping[str, Any], path: str, resource: Mapping[str, str] | None = None
    ) -> bool:
        """May a user (as TokenReview describes one) GET this path? Raises ApiError."""
        what = (
            {"resourceAttributes": dict(resource)}
            if resource
            else {"nonResourceAttributes": {"path": path, "verb": "get"}}
        )
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": user.get("username", ""),
                "uid": user.get("uid", ""),
                "groups": user.get("groups") or [],
                "extra": user.get("extra") or {},
                **what,
            },
        }
        answer = await self._authorization.raw("POST", _ACCESS_REVIEWS, body=body)
        return bool(answer["status"].get("allowed"))
