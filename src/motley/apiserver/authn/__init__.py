"""Who is asking? Bearer tokens first, then the client certificate, then nobody in particular.

Invariant: credentials that are wrong are refused (401), never taken for anonymous.
"""

from collections.abc import Mapping

from motley.api import status
from motley.apiserver.authn import certificates
from motley.apiserver.authn.tokens import TokenFile
from motley.apiserver.authn.user import ANONYMOUS, AUTHENTICATED, MASTERS, User

__all__ = ["ANONYMOUS", "Authenticator", "TokenFile", "User"]


class Authenticator:
    """Turns the credentials of a request into a user."""

    def __init__(self, tokens: TokenFile | None = None) -> None:
        self._tokens = tokens

    def authenticate(self, headers: Mapping[str, str], certificate: bytes | None) -> User:
        """The user, or whom they act for; `ANONYMOUS` without credentials.

        Raises Unauthorized for wrong credentials.
        """
        user = self._authenticate(headers, certificate)
        if "impersonate-user" in headers or "impersonate-group" in headers:
            return impersonated(user, headers)
        return user

    def _authenticate(self, headers: Mapping[str, str], certificate: bytes | None) -> User:
        authorization = headers.get("authorization", "")
        if authorization:
            scheme, _, token = authorization.partition(" ")
            user = None
            if self._tokens is not None and scheme.lower() == "bearer":
                user = self._tokens.user_of(token.strip())
            if user is None:
                raise status.Unauthorized("Unauthorized")
            return user
        if certificate:
            user = certificates.user_of(certificate)
            if user is None:
                raise status.Unauthorized("Unauthorized")
            return user
        return ANONYMOUS


def impersonated(user: User, headers: Mapping[str, str]) -> User:
    """The user that `kubectl --as` names; administrators only may act for others."""
    name = headers.get("impersonate-user", "")
    if not name:
        raise status.BadRequest("requested groups without a user to impersonate")
    if MASTERS not in user.groups:
        raise status.Forbidden(
            f'users "{name}" is forbidden: User "{user.name}" cannot impersonate resource "users" '
            'in API group "" at the cluster scope',
            details={"name": name, "kind": "users"},
        )
    groups = headers.get("impersonate-group", "").split(",")
    named = {group.strip() for group in groups if group.strip()}
    return User(name, frozenset({*named, AUTHENTICATED}))
