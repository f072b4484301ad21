"""Service-account tokens: signed, for an audience, until a time, bound to objects that exist.

A token is good as long as the account is, and the pod, Secret or node it was bound to: delete the
pod and its token is worth nothing, whatever its expiry says. The signature is checked once per
token; expiry and the objects are looked at with every request.

Invariant: a token is never written to a log or an error; messages name its claims only.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jwt
import msgspec

from motley.api import scheme
from motley.apiserver.authn.keys import ALGORITHM, Keys
from motley.apiserver.authn.user import (
    AUTHENTICATED,
    CREDENTIAL_ID,
    User,
    service_account_groups,
    service_account_user,
)
from motley.lib.clock import Clock, parse_rfc3339

DEFAULT_ISSUER = "https://kubernetes.default.svc.cluster.local"
_REMEMBERED = 4096
_LEEWAY_S = 10.0  # clocks of a cluster's machines are never quite equal
_FAREWELL_S = 60.0  # Kubernetes', for objects that take longer to go than they were given
_CLAIM = "kubernetes.io"
_EXTRA = "authentication.kubernetes.io"
_BOUND = (("pod", "pods"), ("secret", "secrets"), ("node", "nodes"))


class InvalidToken(Exception):
    """A token of ours, or so it says, that is not good; the text says why."""


class Objects(Protocol):
    """Where accounts and bound objects are looked up."""

    async def value(self, kind: scheme.Kind, namespace: str, name: str) -> bytes | None:
        """The object's bytes; None when there is none."""


class _Meta(msgspec.Struct, gc=False):
    uid: str = ""
    deletionTimestamp: str | None = None


class _Head(msgspec.Struct, gc=False):
    metadata: _Meta


_head = msgspec.json.Decoder(_Head).decode


@dataclass(frozen=True, slots=True)
class Bound:
    """What a token is bound to beside its account: plural, name and uid."""

    plural: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Verified:
    """A token whose signature is right."""

    namespace: str
    name: str
    uid: str
    audiences: tuple[str, ...]
    not_before: float
    expires: float
    bound: tuple[Bound, ...]
    user: User


class ServiceAccountTokens:
    """Issues tokens and reads them."""

    def __init__(
        self,
        keys: Keys,
        objects: Objects,
        clock: Clock,
        *,
        issuer: str = DEFAULT_ISSUER,
    ) -> None:
        self.keys = keys
        self.issuer = issuer
        self.audiences: tuple[str, ...] = (issuer,)
        """Whom tokens are for when nobody says: this server."""
        self._objects = objects
        self._clock = clock
        self._verified: OrderedDict[bytes, Verified] = OrderedDict()

    def issue(
        self,
        account: Mapping[str, Any],
        *,
        audiences: Sequence[str],
        expires: int,
        token_id: str,
        bound: Mapping[str, Mapping[str, str]],
    ) -> str:
        """A token for a ServiceAccount; `bound` has `pod`, `secret` or `node` with name and uid."""
        now = int(self._clock.now())
        metadata = account["metadata"]
        namespace, name = metadata["namespace"], metadata["name"]
        about = {
            "namespace": namespace,
            **{kind: {"name": o["name"], "uid": o["uid"]} for kind, o in bound.items()},
            "serviceaccount": {"name": name, "uid": metadata["uid"]},
        }
        claims = {
            "aud": list(audiences),
            "exp": expires,
            "iat": now,
            "iss": self.issuer,
            "jti": token_id,
            _CLAIM: about,
            "nbf": now,
            "sub": service_account_user(namespace, name),
        }
        kid = self.keys.public[0].id
        return jwt.encode(claims, self.keys.private, algorithm=ALGORITHM, headers={"kid": kid})

    def is_ours(self, token: str) -> bool:
        """Whether the token says that this server issued it; says nothing about its worth."""
        if _digest(token) in self._verified:
            return True
        try:
            claims = jwt.decode(token, options={"verify_signature": False})
        except jwt.PyJWTError:
            return False
        return claims.get("iss") == self.issuer

    async def user_of(self, token: str, audiences: Sequence[str]) -> tuple[User, list[str]]:
        """Whose token it is, and for which of the wanted audiences. Raises `InvalidToken`."""
        found = self._verify(token)
        shared = [audience for audience in audiences if audience in found.audiences]
        if not shared:
            raise InvalidToken(
                f"token audiences {_quoted(found.audiences)} is invalid for the target audiences "
                f"{_quoted(audiences)}"
            )
        now = self._clock.now()
        if now > found.expires + _LEEWAY_S:
            raise InvalidToken("service account token has expired")
        if now < found.not_before - _LEEWAY_S:
            raise InvalidToken("service account token is not valid yet")
        await self._check(found.namespace, Bound("serviceaccounts", found.name, found.uid))
        for bound in found.bound:
            await self._check(found.namespace, bound)
        return found.user, shared

    def _verify(self, token: str) -> Verified:
        digest = _digest(token)
        known = self._verified.get(digest)
        if known is None:
            known = self._read(token)
            self._verified[digest] = known
            if len(self._verified) > _REMEMBERED:
                self._verified.popitem(last=False)
        return known

    def _read(self, token: str) -> Verified:
        try:
            kid = jwt.get_unverified_header(token).get("kid", "")
            key = self.keys.by_id(str(kid))
            if key is None:
                raise InvalidToken("no key of this server signed the token")
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[ALGORITHM],
                issuer=self.issuer,
                # Time and audience are looked at with every request; see `user_of`.
                options={
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                    "verify_aud": False,
                    "require": ["exp", "sub", "iss", "aud"],
                },
            )
        except jwt.PyJWTError as error:
            raise InvalidToken(_problem(error)) from None
        return _verified(claims)

    async def _check(self, namespace: str, bound: Bound) -> None:
        kind = scheme.resource("", "v1", bound.plural)
        assert kind is not None
        home = namespace if kind.namespaced else ""
        value = await self._objects.value(kind, home, bound.name)
        head = _head(value).metadata if value is not None else None
        if head is None or head.uid != bound.uid:
            raise InvalidToken(f"{bound.plural} {bound.name!r} of the token does not exist anymore")
        if head.deletionTimestamp is not None:
            gone_at = parse_rfc3339(head.deletionTimestamp)
            if self._clock.now() > gone_at + _FAREWELL_S:
                raise InvalidToken(f"{bound.plural} {bound.name!r} of the token has been deleted")


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _verified(claims: Mapping[str, Any]) -> Verified:
    about = claims.get(_CLAIM)
    audiences = claims["aud"]
    if not isinstance(about, dict) or not isinstance(about.get("serviceaccount"), dict):
        raise InvalidToken("the token names no service account")
    account, namespace = about["serviceaccount"], str(about.get("namespace", ""))
    name, uid = str(account.get("name", "")), str(account.get("uid", ""))
    if claims["sub"] != service_account_user(namespace, name):
        raise InvalidToken("the token's subject is not its service account")
    bound: list[Bound] = []
    extra: list[tuple[str, tuple[str, ...]]] = []
    if claims.get("jti"):
        extra.append((CREDENTIAL_ID, (f"JTI={claims['jti']}",)))
    for key, plural in _BOUND:
        named = about.get(key)
        if not isinstance(named, dict):
            continue
        one = Bound(plural, str(named.get("name", "")), str(named.get("uid", "")))
        # A pod's token names the pod's node, too, for whoever wants to know: that is no binding.
        if key != "node" or "pod" not in about:
            bound.append(one)
        if key != "secret":
            extra.append((f"{_EXTRA}/{key}-name", (one.name,)))
            extra.append((f"{_EXTRA}/{key}-uid", (one.uid,)))
    groups = (*service_account_groups(namespace), AUTHENTICATED)
    user = User(service_account_user(namespace, name), groups, uid, tuple(sorted(extra)))
    return Verified(
        namespace,
        name,
        uid,
        tuple(audiences if isinstance(audiences, list) else [audiences]),
        # One that is good from its issue on, as all of ours are, can only be seen before by a
        # server whose clock was put back; pods must not be locked out for that.
        0.0 if claims.get("nbf") == claims.get("iat") else float(claims.get("nbf", 0)),
        float(claims["exp"]),
        tuple(bound),
        user,
    )


def _problem(error: jwt.PyJWTError) -> str:
    if isinstance(error, jwt.InvalidSignatureError):
        return "the signature of the token is wrong"
    return "the token cannot be read"


def _quoted(listed: Sequence[str]) -> str:
    return "[" + " ".join(f'"{item}"' for item in listed) + "]"
