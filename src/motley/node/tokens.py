"""Service-account tokens for the pods of this node: asked for, remembered, renewed in time.

A token is bound to its pod, so it dies with it. It is renewed when four fifths of its life are
over; the pod is then told to look at its volumes again, as after a change of a ConfigMap.

Invariant: what `get` gives is good for a while yet, or is None.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from motley.api import status
from motley.api.views.core import ServiceAccount
from motley.api.views.pod import Pod
from motley.client.rest import Client
from motley.lib import journal
from motley.lib.clock import SYSTEM, Clock, parse_rfc3339

log = journal.get(__name__)

# Kubelet's rule: at four fifths of its life a token is replaced, or after a day.
_RENEW_AT = 0.8
_RENEW_AFTER_S = 24 * 3600.0
_LOOK_EVERY_S = 30.0


class Wanted(NamedTuple):
    """A token as a projected volume asks for it."""

    audience: str
    lifetime_s: int


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    renew_at: float


def wanted(pod: Pod) -> set[Wanted]:
    """The tokens a pod's volumes ask for."""
    found: set[Wanted] = set()
    for volume in pod.spec.volumes:
        for part in volume.projected.sources if volume.projected else []:
            if part.service_account_token is not None:
                source = part.service_account_token
                found.add(Wanted(source.audience, source.expiration_seconds))
    return found


class Tokens:
    """Holds the tokens; `changed` is called with the uid of a pod whose token is due."""

    def __init__(
        self, client: Client, changed: Callable[[str], None], *, clock: Clock = SYSTEM
    ) -> None:
        self._client = client
        self._changed = changed
        self._clock = clock
        self._held: dict[str, dict[Wanted, _Token]] = {}

    def get(self, uid: str, audience: str, lifetime_s: int) -> str | None:
        """A pod's token; None when it could not be had yet."""
        found = self._held.get(uid, {}).get(Wanted(audience, lifetime_s))
        return found.text if found is not None else None

    async def use(self, pod: Pod) -> None:
        """Fetch what is missing or due. A failure is logged: the pod's volume waits and retries,
        and a running pod keeps the token it has."""
        uid, now = pod.metadata.uid, self._clock.now()
        for one in wanted(pod):
            held = self._held.get(uid, {}).get(one)
            if held is not None and held.renew_at > now:
                continue
            try:
                self._held.setdefault(uid, {})[one] = await self._request(pod, one)
            except (status.ApiError, OSError, TimeoutError) as error:
                log.warning("no token for the pod yet", pod=pod.key, error=str(error))

    def release(self, uid: str) -> None:
        """The pod is gone."""
        self._held.pop(uid, None)

    async def renew_forever(self) -> None:
        """Tell pods in time that a token is due."""
        while True:
            await self._clock.sleep(_LOOK_EVERY_S)
            now = self._clock.now()
            for uid, tokens in list(self._held.items()):
                if any(token.renew_at <= now for token in tokens.values()):
                    self._changed(uid)

    async def _request(self, pod: Pod, one: Wanted) -> _Token:
        spec = {
            "audiences": [one.audience] if one.audience else [],
            "expirationSeconds": one.lifetime_s,
            "boundObjectRef": {
                "kind": "Pod",
                "apiVersion": "v1",
                "name": pod.metadata.name,
                "uid": pod.metadata.uid,
            },
        }
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        account = pod.spec.service_account_name or "default"
        begun = self._clock.now()
        async with asyncio.timeout(10):
            answer = await self._client.create_subresource(
                ServiceAccount, account, pod.metadata.namespace, "token", body
            )
        expires = parse_rfc3339(answer["status"]["expirationTimestamp"])
        life_s = expires - begun
        return _Token(answer["status"]["token"], begun + min(life_s * _RENEW_AT, _RENEW_AFTER_S))
