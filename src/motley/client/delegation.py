"""Who is calling, and may they? The API server is asked, as kube-scheduler asks it.

A component that shows its figures to others holds no list of users: a bearer token is reviewed by
TokenReview, what its user may see by SubjectAccessReview of the path. Answers are kept for a few
seconds, so that a Prometheus that comes every few seconds costs next to nothing.
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping
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
        self._kept: dict[bytes, tuple[float, Any]] = {}

    async def code(self, path: str, header: str, resource: Mapping[str, str] | None = None) -> int:
        """200, 401 (who is it?) or 403 (not for them), for a GET of this path.

        `header`: the request's Authorization. `resource`: what of the API's the path stands for,
        where it does (resourceAttributes). Where the server cannot be asked nobody gets in.
        """
        kind, _, token = header.partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            return 401

        async def ask() -> int:
            user = await self._review(token.strip())
            if user is None:
                return 401
            return 200 if await self.may(user, path, resource) else 403

        try:
            code: int = await self._remembered(f"{path}\0{resource}\0{token}", ask)
        except status.ApiError as error:
            log.warning("cannot ask who is calling", error=error.message)
            return 403
        return code

    async def user(self, header: str) -> Mapping[str, Any] | None:
        """Whose bearer token an Authorization header holds; None: nobody's. Raises ApiError."""
        kind, _, token = header.partition(" ")
        if kind.lower() != "bearer" or not token.strip():
            return None

        async def ask() -> Mapping[str, Any] | None:
            return await self._review(token.strip())

        found: Mapping[str, Any] | None = await self._remembered(f"user\0{token}", ask)
        return found

    async def allowed(
        self,
        user: Mapping[str, Any],
        path: str,
        resource: Mapping[str, str] | None = None,
        verb: str = "get",
    ) -> bool:
        """As `may`, with the answer kept for a while. Raises ApiError."""

        async def ask() -> bool:
            return await self.may(user, path, resource, verb)

        where = sorted(resource.items()) if resource else (path, verb)
        found: bool = await self._remembered(f"may\0{sorted(user.items())}\0{where}", ask)
        return found

    async def _remembered(self, question: str, ask: Callable[[], Awaitable[Any]]) -> Any:
        now = self._clock.monotonic()
        # Digests, so that no token stays in memory for longer than its request.
        key = hashlib.sha256(question.encode()).digest()
        until, found = self._kept.get(key, (0.0, None))
        if now < until:
            return found
        found = await ask()
        if len(self._kept) >= _KEPT:
            self._kept.clear()
        self._kept[key] = (now + _KEPT_S, found)
        return found

    async def _review(self, token: str) -> Mapping[str, Any] | None:
        body: dict[str, Any] = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        }
        found = (await self._authentication.raw("POST", _TOKEN_REVIEWS, body=body))["status"]
        if not found.get("authenticated"):
            return None
        user: Mapping[str, Any] = found.get("user") or {}
        return user

    async def may(
        self,
        user: Mapping[str, Any],
        path: str,
        resource: Mapping[str, str] | None = None,
        verb: str = "get",
    ) -> bool:
        """May a user (as TokenReview describes one) do this to a path? Raises ApiError."""
        what = (
            {"resourceAttributes": dict(resource)}
            if resource
            else {"nonResourceAttributes": {"path": path, "verb": verb}}
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
