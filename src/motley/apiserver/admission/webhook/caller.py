"""The call to a webhook: POST an AdmissionReview, take the answer, or say what went wrong.

Failures are told in the words Go's HTTP client uses, because that is what people search for.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from motley.api import codec, status
from motley.apiserver.admission.lookup import Lookup, kind_of
from motley.apiserver.admission.webhook.configuration import Webhook

Document = dict[str, Any]

_MAX_ANSWER = 3 * 1024 * 1024  # as much as a request may have
_CONNECTIONS = 100


class CallFailed(Exception):
    """No answer that could be read; the failure policy decides what that means."""


class Caller:
    """Calls webhooks; one session for all of them."""

    def __init__(self, lookup: Lookup, make_session: Callable[[], aiohttp.ClientSession]) -> None:
        self._lookup = lookup
        self._make_session = make_session
        self._session: aiohttp.ClientSession | None = None

    async def aclose(self) -> None:
        """Close connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def call(self, webhook: Webhook, review: Document) -> Document:
        """The AdmissionReview that comes back; raises CallFailed."""
        shown, address, hostname = await self._address(webhook)
        separator = "&" if "?" in shown else "?"
        query = f"{separator}timeout={webhook.timeout_s}s"
        prefix = f'failed to call webhook: Post "{shown}{query}": '
        if self._session is None:
            self._session = self._make_session()
        try:
            async with (
                asyncio.timeout(webhook.timeout_s),
                self._session.post(
                    address + query,
                    data=codec.encode(review),
                    headers={
                        "Content-Type": "application/json",
                        "Accept": "application/json, */*",
                        "Host": urlsplit(shown).netloc,
                    },
                    ssl=webhook.context,
                    server_hostname=hostname,
                    allow_redirects=False,
                ) as response,
            ):
                body = await response.content.read(_MAX_ANSWER + 1)
                if response.status != 200:
                    raise CallFailed("failed to call webhook: " + _refused(response.status, body))
        except TimeoutError:
            raise CallFailed(prefix + "context deadline exceeded") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise CallFailed(prefix + _in_go(error)) from None
        return _decoded(body)

    async def _address(self, webhook: Webhook) -> tuple[str, str, str]:
        """The URL as people know it, as it is dialled, and the name on the certificate."""
        if webhook.url:
            return webhook.url, webhook.url, urlsplit(webhook.url).hostname or ""
        name, namespace = webhook.service.get("name", ""), webhook.service.get("namespace", "")
        port = int(webhook.service.get("port") or 443)
        path = str(webhook.service.get("path") or "/")
        hostname = f"{name}.{namespace}.svc"
        shown = f"https://{hostname}:{port}{path}"
        found = await self._lookup.get(kind_of("", "services"), str(namespace), str(name))
        if found is None:
            raise CallFailed(
                f'failed to call webhook: Post "{shown}?timeout={webhook.timeout_s}s": '
                f'service "{name}" not found'
            )
        spec = found.get("spec") or {}
        host = spec.get("clusterIP") or ""
        if spec.get("type") == "ExternalName":
            host = spec.get("externalName") or ""
        if not host or host == "None":
            raise CallFailed(f'failed to call webhook: service "{name}" has no address')
        host = f"[{host}]" if ":" in host else host
        return shown, f"https://{host}:{port}{path}", hostname


def session() -> aiohttp.ClientSession:
    """The session webhooks are called with; it keeps connections, so a busy rule costs little."""
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=_CONNECTIONS),
        timeout=aiohttp.ClientTimeout(total=None),
    )


def _refused(code: int, body: bytes) -> str:
    text = body[:1024].decode("utf-8", "replace").strip()
    return (
        f'an error on the server ("{text or "unknown"}") has prevented the request from succeeding'
        if code >= 500
        else f"the server responded with the status code {code}: {text}"
    )


def _in_go(error: Exception) -> str:
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        reason = getattr(error.certificate_error, "verify_message", "")
        if "hostname" in str(reason).lower() or "Hostname" in str(error):
            return f"tls: failed to verify certificate: x509: {reason}"
        return "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return f"dial tcp: lookup {error.host}: no such host"
    if isinstance(error, aiohttp.ClientConnectorError) and not isinstance(
        error.os_error, ssl.SSLError
    ):
        what = "connection refused" if isinstance(error.os_error, ConnectionRefusedError) else ""
        what = what or (error.os_error.strerror or str(error.os_error)).lower()
        return f"dial tcp {error.host}:{error.port}: connect: {what}"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "EOF"
    return str(error) or type(error).__name__


def _decoded(body: bytes) -> Document:
    if len(body) > _MAX_ANSWER:
        raise CallFailed("failed to call webhook: the answer is too large")
    try:
        found = codec.decode(body)
    except status.BadRequest as error:
        raise CallFailed(
            f"failed to call webhook: couldn't get version/kind; json parse error: {error.message}"
        ) from None
    if not isinstance(found, dict):
        raise CallFailed("failed to call webhook: the answer is no object")
    return found
