"""Who it is and whether they may, in one place: what the application and the reviews ask.

credentials → user → whom they act for → allowed?
"""

from collections.abc import Mapping
from dataclasses import dataclass

from motley.api import scheme
from motley.apiserver import audit
from motley.apiserver.authn import impersonation
from motley.apiserver.authn.authenticator import Authenticator
from motley.apiserver.authn.serviceaccounts import ServiceAccountTokens
from motley.apiserver.authn.user import User
from motley.apiserver.authz.authorizer import Authorizer, Caches, name_of
from motley.apiserver.authz.decision import Denied, forbidden
from motley.apiserver.request import RequestInfo
from motley.store.contract import Store


@dataclass(frozen=True)
class Access:
    """Authentication and authorization of one server."""

    authenticator: Authenticator
    authorizer: Authorizer
    tokens: ServiceAccountTokens

    async def admit(
        self, headers: Mapping[str, str], certificate: bytes | None, info: RequestInfo
    ) -> User:
        """The user to serve this request for. Raises Unauthorized or `Denied`."""
        user = await self.authenticator.authenticate(headers, certificate)
        audit.authenticated(user)
        wanted = impersonation.wanted_user(headers)
        if wanted is not None:
            await self.authorizer.refresh(user)
            user = impersonation.impersonated(user, wanted, info, self._refusal)
            audit.impersonating(user)
        decision = await self.authorizer.allows(user, info)
        audit.decided(decision.allowed, decision.reason)
        if not decision.allowed:
            raise forbidden(user, info, name_of(info), decision.reason)
        return user

    def _refusal(self, user: User, info: RequestInfo) -> Denied | None:
        decision = self.authorizer.decide(user, info)
        if decision.allowed:
            return None
        return forbidden(user, info, name_of(info), decision.reason)


class StoredObjects:
    """See `serviceaccounts.Objects`: from the caches, and from the store what they lack."""

    def __init__(self, store: Store, caches: Caches) -> None:
        self._store = store
        self._caches = caches

    async def value(self, kind: scheme.Kind, namespace: str, name: str) -> bytes | None:
        """The object's bytes; None when there is none."""
        key = kind.key(namespace, name)
        cached = self._caches[kind].get(key)
        if cached is not None:
            return cached.record.value
        record = await self._store.get(key)
        return record.value if record is not None else None
