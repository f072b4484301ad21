"""Which platforms an image is built for, asked at its registry.

What comes back is always an answer: the registry's where it gives one; else what the image's name
gives away; else linux/amd64, which is what an image is that says nothing. The answer names its
source and, where the registry failed, the failure, so that whoever asked can ask again.
"""

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import NamedTuple, Self

import aiohttp

from motley.api.views.core import Secret
from motley.lib import journal
from motley.registry import credentials, manifests, platforms, references, variants
from motley.registry.credentials import Login
from motley.registry.manifests import Part, Unreadable
from motley.registry.platforms import ASSUMED, Platform
from motley.registry.pulling import Document, Missing, Puller, Unreached
from motley.registry.references import Reference
from motley.registry.settings import Registries

log = journal.get(__name__)

REGISTRY, KEYWORD, ASSUMPTION = "registry", "keyword", "assumed"
_MOST_PARTS = 16  # manifests and configurations behind one index
_DEPTH = 3  # index, index within it, manifest, its configuration
_IN_ALL_S = 30.0


class Resolution(NamedTuple):
    """What is known of an image, and from where."""

    platforms: tuple[Platform, ...]
    source: str
    digest: str = ""
    problem: str = ""  # why the registry did not say
    is_refused: bool = False  # it answered, and showed no such image to who asked

    @property
    def is_certain(self) -> bool:
        """Did the registry itself say so?"""
        return self.source == REGISTRY


def guess(image: str, problem: str = "", *, is_refused: bool = False) -> Resolution:
    """What an image's name gives away; else linux/amd64."""
    arch = platforms.keyword(image)
    source = KEYWORD if arch is not None else ASSUMPTION
    platform = Platform("linux", arch) if arch is not None else ASSUMED
    return Resolution((platform,), source, problem=problem, is_refused=is_refused)


class Resolver:
    """An async context manager over one HTTP session."""

    def __init__(self, registries: Registries | None = None) -> None:
        self._registries = registries or Registries()
        self._stack = AsyncExitStack()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        session = aiohttp.ClientSession(
            cookie_jar=aiohttp.DummyCookieJar(),
            # Unpacked here, an answer could be of any size: so it must not come packed.
            headers={"User-Agent": "motley", "Accept-Encoding": "identity"},
            connector=aiohttp.TCPConnector(limit=16, limit_per_host=4),
            auto_decompress=False,
            trust_env=True,  # a site's proxy
        )
        self._session = await self._stack.enter_async_context(session)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()

    async def resolve(self, image: str, secrets: Iterable[Secret] = ()) -> Resolution:
        """Never raises: a failure is in the answer."""
        try:
            reference = references.parse(image)
        except ValueError as error:
            return guess(image, str(error))
        if reference.is_local:
            return guess(image, "localhost is no registry")
        try:
            async with asyncio.timeout(_IN_ALL_S):
                return await self._ask(reference, list(secrets))
        except (Unreached, Unreadable) as error:
            return guess(image, str(error), is_refused=isinstance(error, Missing))
        except TimeoutError:
            return guess(image, f"{reference.host}: no answer within {_IN_ALL_S:.0f} s")
        except OSError as error:  # a certificate file that has gone
            return guess(image, f"{reference.host}: {error}")

    async def pin(self, image: Reference, here: Platform, login: Login | None = None) -> Reference:
        """The very manifest a machine of one platform runs, by digest.

        Raises Unreached, and Unreadable where there is none for that platform.
        """
        try:
            async with asyncio.timeout(_IN_ALL_S):
                digest = await variants.find(self._puller(image, login), image.version, here)
        except TimeoutError:
            raise Unreached(f"{image.host}: no answer within {_IN_ALL_S:.0f} s") from None
        except OSError as error:  # a certificate file that has gone
            raise Unreached(f"{image.host}: {error}") from None
        return image._replace(digest=digest)

    def _puller(self, image: Reference, login: Login | None) -> Puller:
        assert self._session is not None
        return Puller(self._session, self._registries.of(image.host), image, login)

    async def _ask(self, image: Reference, secrets: list[Secret]) -> Resolution:
        """Try each set of credentials, and none, until one is let in."""
        refused = Missing(f"{image.host} was not asked")
        for login in [*credentials.logins(secrets, image), None]:
            puller = self._puller(image, login)
            try:
                first = await puller.manifest(image.version)
                return await _read(puller, first)
            except Missing as error:
                refused = error
        raise refused


async def _read(puller: Puller, first: Document) -> Resolution:
    """Follow an index to what it does not say itself."""
    reading = manifests.manifest(first.body)
    found = list(reading.platforms)
    waiting = [(part, 1) for part in reading.parts]
    fetched = 0
    seen: set[Part] = set()
    while waiting:
        part, depth = waiting.pop(0)
        if part in seen:
            continue
        seen.add(part)
        fetched += 1
        if fetched > _MOST_PARTS or depth > _DEPTH:
            raise Unreadable("an index too deep or too large")
        if part.is_manifest:
            more = manifests.manifest((await puller.manifest(part.digest)).body)
            found += more.platforms
            waiting += [(one, depth + 1) for one in more.parts]
        else:
            document = await puller.configuration(part.digest)
            found.append(manifests.configuration(document.body))
    if not found:
        raise Unreadable("nothing in the image says its architecture")
    return Resolution(tuple(dict.fromkeys(found)), REGISTRY, first.digest)
