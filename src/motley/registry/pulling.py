"""Reading manifests from a registry over HTTP: tokens, credentials, redirects, bounds.

The distribution protocol as container runtimes speak it: ask, be told where tokens are to be had
(`WWW-Authenticate: Bearer`) or that a password is wanted (`Basic`), ask again.
Invariant: every answer is bounded in size and time and every chain of redirects in length;
credentials go to the registry and to the token server it names itself, never along a redirect to
another host or where that one wants them, and never over plain HTTP unless the operator listed the
registry so. What was asked for by digest is what is returned.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urljoin, urlsplit

import aiohttp
import msgspec
from multidict import CIMultiDictProxy
from yarl import URL

from motley.registry import manifests
from motley.registry.credentials import Login
from motley.registry.manifests import Unreadable
from motley.registry.references import Reference
from motley.registry.settings import Registry

_MOST_BYTES = 4 << 20  # registries refuse larger manifests; configurations are smaller
_MOST_REDIRECTS = 5
_PORTS = {"http": 80, "https": 443}
_DIGESTS = ("sha256", "sha384", "sha512")
_REDIRECTS = (301, 302, 303, 307, 308)
_TIMEOUT = aiohttp.ClientTimeout(total=15.0, sock_connect=5.0)
_CHALLENGE = re.compile(r"\s*(?P<scheme>[A-Za-z]+)\s*(?P<rest>.*)", re.DOTALL)
_PARAMETER = re.compile(r'([a-zA-Z_]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')


class Unreached(Exception):
    """There was no answer that could be used; the text says why. Another attempt may help."""


class Missing(Unreached):
    """The registry has no such image, or does not show it to us."""


class Document(NamedTuple):
    """A body and the digest it has, which is computed here, not believed."""

    body: bytes
    digest: str


class Puller:
    """One repository of one registry, for the time of one look-up."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        registry: Registry,
        image: Reference,
        login: Login | None,
    ) -> None:
        self._session = session
        self._registry = registry
        self._image = image
        self._login = login
        self._ssl = registry.ssl_context()
        self._base = ""
        self._authorization = ""

    async def manifest(self, version: str) -> Document:
        """An index or manifest by tag or digest. Raises Unreached, Unreadable."""
        headers = {"Accept": manifests.ACCEPT}
        return await self._document(f"manifests/{version}", version, headers)

    async def configuration(self, digest: str) -> Document:
        """An image's configuration. Raises Unreached, Unreadable."""
        return await self._document(f"blobs/{digest}", digest, {})

    async def _document(self, path: str, version: str, headers: Mapping[str, str]) -> Document:
        kind, colon, _ = version.partition(":")
        if colon and kind not in _DIGESTS:
            raise Unreadable(f"{version[:40]} is a digest of no known kind")
        body = await self._get(f"/v2/{self._image.repository}/{path}", headers)
        if colon and version != f"{kind}:{hashlib.new(kind, body).hexdigest()}":
            raise Unreadable(f"what the registry sent is not {version}")
        return Document(body, "sha256:" + hashlib.sha256(body).hexdigest())

    async def _get(self, path: str, headers: Mapping[str, str]) -> bytes:
        addresses = [self._base] if self._base else self._registry.addresses()
        failure = Unreached("no address")
        for address in addresses:
            if not self._base:
                self._authorization = ""  # it was for the address before
            try:
                body = await self._with_authorization(address + path, headers)
            except _NoConnection as error:
                failure = error
                continue
            self._base = address
            return body
        raise failure

    async def _with_authorization(self, url: str, headers: Mapping[str, str]) -> bytes:
        status, answer, challenges = await self._follow(url, headers, self._authorization)
        if status == 401:
            self._authorization = await self._authorize(url, challenges)
            status, answer, _ = await self._follow(url, headers, self._authorization)
        if status in (401, 403, 404):
            raise Missing(f"{urlsplit(url).netloc} answers {status} for {self._image}")
        if status != 200:
            raise Unreached(f"{urlsplit(url).netloc} answers {status}")
        return answer

    async def _follow(
        self, url: str, headers: Mapping[str, str], authorization: str
    ) -> tuple[int, bytes, list[str]]:
        """GET along a bounded number of redirects."""
        origin = _origin(url)
        for _ in range(_MOST_REDIRECTS + 1):
            sent = dict(headers)
            if authorization and _origin(url) == origin:
                sent["Authorization"] = authorization
            status, body, answered = await self._once("GET", url, sent)
            location = answered.get("Location")
            if status not in _REDIRECTS or not location:
                # What somebody else wants is none of the registry's business.
                is_own = _origin(url) == origin
                return status, body, answered.getall("WWW-Authenticate", []) if is_own else []
            url = _target(url, location)
        raise Unreached(f"{urlsplit(url).netloc} redirects more than {_MOST_REDIRECTS} times")

    async def _once(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        data: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes, CIMultiDictProxy[str]]:
        try:
            async with self._session.request(
                method,
                url,
                headers=headers,
                data=data,
                timeout=_TIMEOUT,
                allow_redirects=False,
                ssl=self._ssl,
            ) as answer:
                body = await _bounded(answer)
                return answer.status, body, answer.headers
        except aiohttp.ClientConnectionError as error:
            # Refused, or not what TLS expects: the next address may be it.
            raise _NoConnection(f"{urlsplit(url).netloc}: {_why(error)}") from None
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise Unreached(f"{urlsplit(url).netloc}: {_why(error)}") from None

    # -- tokens -----------------------------------------------------------------------------

    async def _authorize(self, url: str, challenges: list[str]) -> str:
        """The header that answers a challenge. Raises Unreached."""
        login = self._login if self._registry.trusts(url) else None
        for scheme, parameters in map(_challenge, challenges):
            if scheme == "bearer" and parameters.get("realm"):
                return f"Bearer {await self._token(parameters, login)}"
            if scheme == "basic" and login is not None:
                return login.basic()
        raise Missing(f"{urlsplit(url).netloc} wants credentials that no pull secret has")

    async def _token(self, parameters: Mapping[str, str], login: Login | None) -> str:
        realm = parameters["realm"]
        wanted = {"scope": f"repository:{self._image.repository}:pull"}
        if parameters.get("service"):
            wanted["service"] = parameters["service"]
        try:
            is_server = _origin(realm)[0] in ("http", "https")
            query = str(URL(realm).update_query(wanted))
        except ValueError:
            is_server = False
        if not is_server:
            raise Unreached("the registry names no token server")
        headers: dict[str, str] = {}
        if login is not None and not self._registry.trusts(realm):
            login = None
        if login is not None and login.identity_token:
            grant = {"grant_type": "refresh_token", "refresh_token": login.identity_token}
            form = {**grant, "client_id": "motley", **wanted}
            status, body, _ = await self._once("POST", realm, headers, form)
        else:
            if login is not None:
                headers["Authorization"] = login.basic()
            status, body, _ = await self._once("GET", query, headers)
        if status != 200:
            refusal = Missing if status in (401, 403) else Unreached
            raise refusal(f"{urlsplit(realm).netloc} answers {status} instead of a token")
        return _token_of(body)


class _NoConnection(Unreached):
    """Nothing was said at all."""


async def _bounded(answer: aiohttp.ClientResponse) -> bytes:
    """The body; raises Unreadable when it is larger than anything sensible."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in answer.content.iter_chunked(1 << 16):
        size += len(chunk)
        if size > _MOST_BYTES:
            raise Unreadable(f"an answer of more than {_MOST_BYTES} bytes")
        chunks.append(chunk)
    return b"".join(chunks)


def _challenge(header: str) -> tuple[str, dict[str, str]]:
    found = _CHALLENGE.match(header)
    if found is None:
        return "", {}
    parameters: dict[str, str] = {}
    for name, quoted, plain in _PARAMETER.findall(found["rest"]):
        # The first of a name counts: later ones may be another challenge's, behind a comma.
        parameters.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted) or plain)
    return found["scheme"].lower(), parameters


class _Token(msgspec.Struct):
    token: str = ""
    access_token: str = ""


def _token_of(body: bytes) -> str:
    try:
        answer = msgspec.json.decode(body, type=_Token)
    except (ValueError, RecursionError):
        raise Unreached("the token server's answer is not readable") from None
    token = answer.token or answer.access_token
    if not token or any(ord(c) <= 32 or ord(c) > 126 for c in token):
        raise Unreached("the token server's answer has no token")
    return token


def _target(url: str, location: str) -> str:
    """Where a redirect leads. Raises Unreached."""
    try:
        target = urljoin(url, location)
        scheme, _, _ = _origin(target)
    except ValueError:
        raise Unreached(f"{urlsplit(url).netloc} leads nowhere") from None
    is_downgrade = url.startswith("https://") and scheme != "https"
    if is_downgrade or scheme not in ("http", "https"):
        raise Unreached(f"{urlsplit(url).netloc} leads away from TLS")
    return target


def _origin(url: str) -> tuple[str, str | None, int | None]:
    """Raises ValueError for what is no URL."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


def _why(error: BaseException) -> str:
    """The same words for the same failure: aiohttp's have addresses of objects in them."""
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not trusted: {error.certificate_error}"
    if isinstance(error, aiohttp.ClientConnectorError):
        return str(error.os_error.strerror or error.os_error)
    return str(error) or type(error).__name__
