"""Who is asking? The client certificate says it, or a bearer token, or nobody in particular.

    certificate → static tokens → bootstrap tokens → service-account tokens → anonymous

Invariant: a bearer token that nobody knows is refused (401), never taken for anonymous.
"""

from collections.abc import Mapping, Sequence

from motley.api import status
from motley.apiserver.authn import certificates
from motley.apiserver.authn.bootstrap import BootstrapTokens
from motley.apiserver.authn.serviceaccounts import InvalidToken, ServiceAccountTokens
from motley.apiserver.authn.tokens import TokenFile
from motley.apiserver.authn.user import ANONYMOUS, User
from motley.lib import journal

log = journal.get(__name__)

_UNKNOWN = "invalid bearer token"


class Authenticator:
    """Turns the credentials of a request into a user."""

    def __init__(
        self,
        static: TokenFile | None = None,
        accounts: ServiceAccountTokens | None = None,
        bootstrap: BootstrapTokens | None = None,
    ) -> None:
        self._static = static
        self._accounts = accounts
        self._bootstrap = bootstrap

    async def authenticate(self, headers: Mapping[str, str], certificate: bytes | None) -> User:
        """The user; `ANONYMOUS` without credentials. Raises Unauthorized for wrong ones."""
        if certificate:
            user = certificates.user_of(certificate)
            if user is not None:
                return user
        token = bearer_token(headers.get("authorization", ""))
        if token:
            try:
                user, _ = await self.review(token, ())
            except InvalidToken as error:
                log.debug("bearer token refused", reason=str(error))
                raise status.Unauthorized("Unauthorized") from None
            return user
        if certificate:
            raise status.Unauthorized("Unauthorized")
        return ANONYMOUS

    async def review(self, token: str, audiences: Sequence[str]) -> tuple[User, list[str]]:
        """Whose token it is, and for which of the audiences (none: this server's own).

        Raises `InvalidToken`, worded as Kubernetes words the error of a TokenReview.
        """
        accounts = self._accounts
        own = accounts.audiences if accounts is not None else ()
        if not audiences or any(audience in own for audience in audiences):
            # These name no audience, so they are for this server alone.
            shared = [a for a in audiences if a in own] or list(own)
            if self._static is not None and (user := self._static.user_of(token)) is not None:
                return user, shared
            if self._bootstrap is not None:
                user = await self._bootstrap.user_of(token)
                if user is not None:
                    return user, shared
        if accounts is None or not accounts.is_ours(token):
            raise InvalidToken(_UNKNOWN)
        try:
            return await accounts.user_of(token, audiences or own)
        except InvalidToken as error:
            raise InvalidToken(f"[{_UNKNOWN}, {error}]") from None


def bearer_token(authorization: str) -> str:
    """The token of an Authorization header; empty for any other scheme, which nobody reads."""
    scheme, _, token = authorization.strip().partition(" ")
    return token.strip() if scheme.lower() == "bearer" else ""
