"""Bootstrap tokens: short-lived Secrets by which new nodes join.

`abcdef.0123456789abcdef` names the Secret `bootstrap-token-abcdef` in `kube-system` and proves to
know what is in it. Whoever has one is a bootstrapper and may ask for a certificate, nothing more.
"""

import base64
import binascii
import hmac
import re
from collections.abc import Mapping
from typing import Any

from motley.api import codec, scheme
from motley.apiserver.authn.serviceaccounts import Objects
from motley.apiserver.authn.user import AUTHENTICATED, User
from motley.lib import journal
from motley.lib.clock import Clock, parse_rfc3339

log = journal.get(__name__)

NAMESPACE = "kube-system"
SECRET_TYPE = "bootstrap.kubernetes.io/token"
BOOTSTRAPPERS = "system:bootstrappers"
_TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
_EXTRA_GROUP = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]")


class BootstrapTokens:
    """The users of the bootstrap Secrets."""

    def __init__(self, objects: Objects, clock: Clock) -> None:
        self._objects = objects
        self._clock = clock

    async def user_of(self, token: str) -> User | None:
        """Whose token this is; None when it is no good one."""
        found = _TOKEN.fullmatch(token)
        if found is None:
            return None
        kind = scheme.resource("", "v1", "secrets")
        assert kind is not None
        name = f"bootstrap-token-{found[1]}"
        value = await self._objects.value(kind, NAMESPACE, name)
        if value is None:
            return None
        user, problem = user_of(codec.decode(value), found[1], found[2], self._clock.now())
        if user is None:
            log.warning("bootstrap token refused", secret=name, reason=problem)
        return user


def user_of(
    secret: Mapping[str, Any], token_id: str, token_secret: str, now: float
) -> tuple[User | None, str]:
    """The user a Secret stands for, or why it does not stand for whoever shows this token."""
    data = secret.get("data") or {}
    if secret.get("type") != SECRET_TYPE:
        return None, "another type of Secret"
    if (secret.get("metadata") or {}).get("deletionTimestamp"):
        return None, "being deleted"
    known = _text(data, "token-secret")
    if not known or not hmac.compare_digest(known.encode(), token_secret.encode()):
        return None, "wrong secret"
    if _text(data, "token-id") != token_id:
        return None, "another token id"
    if expiration := _text(data, "expiration"):
        try:
            if now >= parse_rfc3339(expiration):
                return None, "expired"
        except ValueError:
            return None, "unreadable expiration"
    if _text(data, "usage-bootstrap-authentication") != "true":
        return None, "not for authentication"
    extra = [g.strip() for g in _text(data, "auth-extra-groups").split(",") if g.strip()]
    if not all(_EXTRA_GROUP.fullmatch(group) for group in extra):
        return None, "extra groups are no groups of bootstrappers"
    groups = dict.fromkeys([BOOTSTRAPPERS, *sorted(extra), AUTHENTICATED])
    return User(f"system:bootstrap:{token_id}", tuple(groups)), ""


def _text(data: Mapping[str, Any], key: str) -> str:
    try:
        return base64.b64decode(str(data.get(key) or "")).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
