"""Whom an aggregated API server believes about who is calling: the API server in front of it.

The API server says in `X-Remote-` headers for whom it asks, and proves with a client certificate
that it is the one to say so. Which authority signs that certificate, which names it may have and
what the headers are called stands in a ConfigMap that every Kubernetes has, and may change.

Invariant: a header is believed only on a connection whose certificate the authorities of *now* have
signed, under an allowed name. Everybody else's headers are ignored.
"""

import asyncio
import json
import ssl
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from motley.api.views.core import ConfigMap
from motley.client.informer import Change, Informer
from motley.client.rest import Client
from motley.lib import journal
from motley.lib.clock import SYSTEM, Clock

log = journal.get(__name__)

NAMESPACE, NAME = "kube-system", "extension-apiserver-authentication"
AUTHENTICATED = "system:authenticated"

User = dict[str, Any]
"""As TokenReview describes one: username, uid, groups, extra."""


class Trust(NamedTuple):
    """What the ConfigMap says; header names in lower case."""

    ca_pem: str = ""
    names: frozenset[str] = frozenset()  # empty: any that the authority has signed
    user_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()


def read(data: Mapping[str, str]) -> Trust:
    """The trust in a ConfigMap's data; nobody is trusted without an authority. Raises ValueError
    for what cannot be understood: half of it would be worse than none."""
    ca_pem = data.get("requestheader-client-ca-file", "").strip()
    if not ca_pem:
        return Trust()

    def listed(key: str) -> tuple[str, ...]:
        found = json.loads(data.get(f"requestheader-{key}") or "[]")
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise ValueError(f"requestheader-{key} is no list of words")
        return tuple(found)

    def headers(key: str) -> tuple[str, ...]:
        return tuple(one.lower() for one in listed(key))

    return Trust(
        ca_pem + "\n",
        frozenset(listed("allowed-names")),
        headers("username-headers"),
        headers("uid-headers"),
        headers("group-headers"),
        headers("extra-headers-prefix"),
    )


def caller(
    trust: Trust, certificate: Mapping[str, Any], headers: Iterable[tuple[str, str]], now: float
) -> User | None:
    """For whom the front proxy asks; None when the certificate (as `ssl` describes it, its chain
    verified) is not the proxy's, or no user is named. Pure."""
    subject = [(k, v) for part in certificate.get("subject", ()) for k, v in part]
    common = next((v for k, v in subject if k == "commonName"), "")
    if trust.names and common not in trust.names:
        return None
    ends = certificate.get("notAfter")
    if ends and ssl.cert_time_to_seconds(ends) < now:  # since the connection began
        return None
    found: dict[str, list[str]] = {}
    for name, value in headers:
        found.setdefault(name.lower(), []).append(value)
    username = _first(found, trust.user_headers)
    if not username:
        return None
    extra: dict[str, list[str]] = {}
    for prefix in trust.extra_prefixes:
        for name, values in found.items():
            if prefix and name.startswith(prefix):
                extra.setdefault(unquote(name.removeprefix(prefix)), []).extend(values)
    groups = [group for name in trust.group_headers for group in found.get(name, ())]
    return {
        "username": username,
        "uid": _first(found, trust.uid_headers),
        "groups": groups,
        "extra": extra,
    }


def _first(found: Mapping[str, list[str]], names: Iterable[str]) -> str:
    return next((value for name in names for value in found.get(name, ()) if value), "")


class FrontProxy:
    """The trust of now: `run` follows the ConfigMap, `changed` says that it became another."""

    def __init__(self, client: Client, clock: Clock = SYSTEM) -> None:
        self.trust = Trust()
        self.changed = asyncio.Event()
        self._informer = Informer(
            client,
            ConfigMap,
            namespace=NAMESPACE,
            field_selector=f"metadata.name={NAME}",
            clock=clock,
        )
        self._informer.add_handler(self._take)

    @property
    def has_synced(self) -> bool:
        """Has it been read, or found missing?"""
        return self._informer.has_synced

    async def run(self) -> None:
        """Follow until cancelled."""
        await self._informer.run()

    def _take(self, change: Change[ConfigMap]) -> None:
        try:
            trust = read(change.new.data) if change.new is not None else Trust()
        except ValueError as error:
            log.error("front proxy not understood: nobody is believed", error=str(error))
            trust = Trust()
        if trust != self.trust:
            self.trust = trust
            self.changed.set()
