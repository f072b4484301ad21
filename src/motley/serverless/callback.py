"""Tells whoever asked for it that an invocation has ended: a POST, a few times if need be.

The URL comes from a user and the request leaves from the control plane, so addresses that only the
control plane's own machine can reach (loopback, link-local) are not called.
"""

import asyncio
import ipaddress
import socket
from random import Random
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from motley.api import status
from motley.api.views.serverless import Invocation
from motley.client.rest import Client
from motley.lib import journal
from motley.lib.backoff import Backoff
from motley.lib.clock import Clock

log = journal.get(__name__)

_ATTEMPTS = 5
_TIMEOUT_S = 10.0


class Refused(Exception):
    """The address may not be called."""


class Callbacks:
    """Delivers results."""

    def __init__(self, client: Client, clock: Clock, rng: Random, *, allow_local: bool) -> None:
        self._client = client
        self._clock = clock
        self._rng = rng
        self._allow_local = allow_local

    async def deliver(self, invocation: Invocation) -> None:
        """POST the result; what came of it is written into the status."""
        outcome = await self._tried(invocation)
        key = invocation.key
        try:
            await self._client.patch(
                Invocation,
                key.name,
                key.namespace,
                {"status": {"callback": outcome}},
                subresource="status",
            )
        except status.ApiError as error:
            log.warning("callback not noted", invocation=key, error=error.message)

    async def _tried(self, invocation: Invocation) -> dict[str, Any]:
        backoff = Backoff(base_s=0.5, cap_s=10.0, rng=self._rng)
        message = ""
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                await self._post(invocation)
                return {"delivered": True, "attempts": attempt}
            except Refused as error:
                return {"delivered": False, "attempts": attempt, "message": str(error)}
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                message = str(error) or type(error).__name__
            if attempt < _ATTEMPTS:
                await self._clock.sleep(backoff.next())
        log.info("callback given up", invocation=invocation.key, error=message)
        return {"delivered": False, "attempts": _ATTEMPTS, "message": message[:512]}

    async def _post(self, invocation: Invocation) -> None:
        url = invocation.spec.callback_url
        await self._check(url)
        timeout = aiohttp.ClientTimeout(total=_TIMEOUT_S)
        headers = {"Content-Type": "application/json"}
        body = msgspec.json.encode(document(invocation))
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(url, data=body, headers=headers, allow_redirects=False) as answer,
        ):
            if answer.status >= 300:
                raise aiohttp.ClientError(f"{answer.status} {answer.reason}")

    async def _check(self, url: str) -> None:
        if self._allow_local:
            return
        parts = urlsplit(url)
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(
            parts.hostname or "", parts.port or 80, type=socket.SOCK_STREAM
        )
        for *_, address in found:
            ip = ipaddress.ip_address(str(address[0]).partition("%")[0])
            if ip.is_loopback or ip.is_link_local or ip.is_unspecified:
                raise Refused(f"{parts.hostname} is {ip}, which is not called from here")


def document(invocation: Invocation) -> dict[str, Any]:
    """An invocation as callers see it."""
    shown = invocation.status
    found: dict[str, Any] = {
        "id": invocation.metadata.name,
        "namespace": invocation.metadata.namespace,
        "phase": shown.phase or "Pending",
    }
    more = {
        "function": invocation.spec.function,
        "workflow": invocation.spec.workflow,
        "error": shown.error,
        "startTime": shown.start_time,
        "completionTime": shown.completion_time,
    }
    found |= {name: value for name, value in more.items() if value}
    if shown.phase == "Succeeded":
        found["result"] = shown.result
    if shown.steps:
        found["steps"] = shown.steps
    return found
