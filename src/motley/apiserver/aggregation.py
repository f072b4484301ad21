"""Aggregated APIs: groups that another server serves, reached through this one.

An APIService that names a Service makes this server a proxy for its group and version: who asks
is decided here and told in `X-Remote-` headers, which the other server believes because of the
front-proxy client certificate. Local APIServices only list what is served here.

Invariant: credentials of clients never leave this server.
"""

import asyncio
import base64
import binascii
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import aiohttp

from motley.api import codec, names, scheme, status
from motley.api.fields import tracking
from motley.apiserver import answer, apiservices, discovery, document
from motley.apiserver.answer import Answer, Stream
from motley.apiserver.apiservices import Target
from motley.apiserver.authn.user import User
from motley.apiserver.core import Core
from motley.apiserver.crds import naming
from motley.apiserver.extension import Extension
from motley.apiserver.request import RequestInfo
from motley.lib import journal
from motley.lib.backoff import Backoff
from motley.store.contract import Delete, Mismatch, Op, Put, Revision, StoreError

log = journal.get(__name__)

Document = dict[str, Any]
CHECK_EVERY_S = 30.0  # kube-aggregator's interval for services that do not change
_SOON_S = 0.2
_FIRST_S = 0.5  # to the second look at one that does not answer
MANAGER = "kube-apiserver"
# What the client did not say is not said for it: a body without a type would be no JSON any more.
_NOT_ADDED = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")
_SYSTEM, _TRUST = "kube-system", "extension-apiserver-authentication"
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=5.0)
_CHECK_TIMEOUT = aiohttp.ClientTimeout(total=5.0)
# Belongs to one connection or to the caller's identity: not passed on.
_HOP = frozenset(
    {
        "authorization",
        "connection",
        "content-length",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)


@dataclass(frozen=True)
class FrontProxy:
    """The certificate by which aggregated servers know this one."""

    cert_file: Path
    key_file: Path
    client_ca: Path | None = None  # signs the certificates of users

    def trust(self) -> dict[str, str]:
        """What an aggregated server must know to believe this one; it reads a ConfigMap."""
        return {
            "client-ca-file": self.client_ca.read_text() if self.client_ca else "",
            "requestheader-allowed-names": '["front-proxy-client"]',
            "requestheader-client-ca-file": (self.cert_file.parent / "ca.crt").read_text(),
            "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
            "requestheader-group-headers": '["X-Remote-Group"]',
            "requestheader-uid-headers": '["X-Remote-Uid"]',
            "requestheader-username-headers": '["X-Remote-User"]',
        }


class Aggregation:
    """The APIServices, their conditions, and the proxy to the remote ones."""

    def __init__(
        self,
        core: Core,
        front_proxy: FrontProxy | None,
        extensions: Sequence[Extension] = (),
    ) -> None:
        self._core = core
        self._extensions = {(e.group, e.version): e for e in extensions}
        self._kind = apiservices.kind()
        self._front_proxy = front_proxy
        self._remote: dict[tuple[str, str], Document] = {}
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[tuple[str, bool], ssl.SSLContext] = {}
        self._resources: dict[tuple[str, str], list[Document]] = {}
        self._due = asyncio.Event()
        # Whoever is not there yet comes soon, or has been away for long.
        self._again = Backoff(_FIRST_S, CHECK_EVERY_S, core.rng)

    def wake(self) -> None:
        """Kinds came or went: look at the list of local APIServices soon."""
        self._due.set()

    def remote(self, info: RequestInfo) -> Document | None:
        """The APIService to which a request belongs, if another server answers it."""
        if not self._remote:
            return None
        parts = info.path.strip("/").split("/")
        if parts[0] != "apis" or len(parts) < 3:
            return None
        return self._remote.get((parts[1], parts[2]))

    def extension(self, info: RequestInfo) -> Extension | None:
        """The extension to which a request belongs, unless a remote server took its place."""
        if not self._extensions:
            return None
        parts = info.path.strip("/").split("/")
        if parts[0] != "apis" or len(parts) < 3 or (parts[1], parts[2]) in self._remote:
            return None
        return self._extensions.get((parts[1], parts[2]))

    def groups(self) -> dict[str, dict[str, list[Document]]]:
        """Remote groups and extensions with their versions and resources, for discovery."""
        found: dict[str, dict[str, list[Document]]] = {}
        for (group, version), extension in self._extensions.items():
            found.setdefault(group, {})[version] = list(extension.resources)
        for group, version in sorted(
            self._remote, key=lambda gv: (gv[0], scheme.version_order(gv[1]))
        ):
            found.setdefault(group, {})[version] = self._resources.get((group, version), [])
        return found

    async def load(self) -> None:
        """Make the local APIServices and learn the remote ones, before the first request."""
        await self.sync_local()
        await self.publish_trust()
        for record in (await self._core.store.range(self._kind.storage_prefix)).records:
            self._learn(document.decode(record.value))
        if self._extensions:
            discovery.set_remote(self.groups())

    async def publish_trust(self) -> None:
        """Say, in a ConfigMap, whom aggregated servers are to believe."""
        if self._front_proxy is None:
            return
        maps = scheme.resource("", "v1", "configmaps")
        assert maps is not None
        data = self._front_proxy.trust()

        def modify(stored: Document) -> Document:
            stored["data"] = data
            stored["metadata"].pop("resourceVersion", None)
            return stored

        try:
            await self._core.writer.update(maps, _SYSTEM, _TRUST, modify)
        except status.NotFound:
            wanted = {"metadata": {"name": _TRUST, "namespace": _SYSTEM}, "data": data}
            with contextlib.suppress(status.AlreadyExists):  # by a server that says the same
                await self._core.writer.create(maps, _SYSTEM, wanted)

    def _learn(self, obj: Document) -> None:
        spec = obj["spec"]
        key = (spec.get("group", ""), spec["version"])
        if spec.get("service"):
            if key not in self._remote or self._remote[key]["spec"] != spec:
                self._again.reset()
            self._remote[key] = obj
        else:
            self._remote.pop(key, None)

    async def sync_local(self) -> None:
        """Bring the local APIServices in line with the table of kinds, in one transaction."""
        now = self._core.writer.timestamp()
        wanted = apiservices.local_ones(now)
        for group, version in self._extensions:
            wanted[apiservices.name_of(group, version)] = apiservices.local(
                group, version, False, now
            )
        have = {
            record.key.rpartition("/")[2]: record
            for record in (await self._core.store.range(self._kind.storage_prefix)).records
        }
        ops: list[Op] = []
        for name, obj in wanted.items():
            if name not in have:
                state = obj.pop("status")
                tracking.created(self._kind, obj, MANAGER, now)
                obj["status"] = state
                obj["metadata"] |= {"uid": names.new_uid(self._core.rng), "creationTimestamp": now}
                value = document.encode(self._kind, obj)
                ops.append(Put(self._kind.key("", name), value, Revision(0)))
        if ops:
            with contextlib.suppress(Mismatch):  # somebody was quicker; looked at again soon
                await self._core.writer.commit(ops)
        for name, record in have.items():
            obj = document.decode(record.value)
            if name in wanted or not apiservices.is_automanaged(obj):
                continue
            if not apiservices.is_defined(obj, await self._definitions()):
                with contextlib.suppress(Mismatch):
                    await self._core.writer.commit([Delete(record.key, record.revision)])

    async def _definitions(self) -> list[Document]:
        kind = scheme.resource("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        assert kind is not None
        records = (await self._core.store.range(kind.storage_prefix)).records
        return [document.decode(record.value) for record in records]

    async def run(self) -> None:
        """Follow APIServices and check the remote ones until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow())
                group.create_task(self._check_forever())
        finally:
            discovery.set_remote({})
            if self._session is not None:
                await self._session.close()

    async def _follow(self) -> None:
        while True:
            try:
                cache = await self._core.caches.fresh(self._kind)
                listing = cache.list()
                self._remote = {}
                for item in listing.items:
                    self._learn(document.decode(item.record.value))
                self._due.set()
                cursor = cache.watch(listing.revision)
                try:
                    async for events in cursor:
                        self._take(events)
                finally:
                    cursor.close()
            except StoreError as error:
                log.warning("APIServices are listed again", reason=str(error))
                await self._core.clock.sleep(_SOON_S)

    def _take(self, events: Any) -> None:
        for event in events:
            obj = document.decode(event.value)
            if event.deleted:
                spec = obj["spec"]
                self._remote.pop((spec.get("group", ""), spec["version"]), None)
            else:
                self._learn(obj)
        self._due.set()

    async def _check_forever(self) -> None:
        wait_s = CHECK_EVERY_S
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._due.wait()
            self._due.clear()
            try:
                await self.sync_local()
                answers = [await self._check(obj) for obj in list(self._remote.values())]
                wait_s = CHECK_EVERY_S if all(answers) else self._again.next()
                discovery.set_remote(self.groups())
            except (status.ApiError, StoreError) as error:
                log.warning("APIServices cannot be checked", reason=str(error))
            await self._core.clock.sleep(_SOON_S)

    async def _check(self, obj: Document) -> bool:
        """Ask the server behind an APIService whether it is there, and say so in its status."""
        found = await self._target(obj)
        if isinstance(found, Target):
            spec = obj["spec"]
            url = f"{_url(found)}/apis/{spec['group']}/{spec['version']}"
            problem = await self._problem(found, url, (spec["group"], spec["version"]))
            found = apiservices.checked(url, problem)
        now = self._core.writer.timestamp()
        condition: naming.Condition = found
        is_there = condition[1] == "True"
        if apiservices.with_condition(obj, condition, now) == obj.get("status"):
            return is_there

        def modify(stored: Document) -> Document:
            stored["status"] = apiservices.with_condition(stored, condition, now)
            stored["metadata"].pop("resourceVersion", None)
            return stored

        with contextlib.suppress(status.NotFound):
            await self._core.writer.update(
                self._kind,
                "",
                obj["metadata"]["name"],
                modify,
                subresource="status",
                manager=MANAGER,
            )
        return is_there

    async def _problem(self, target: Target, url: str, of: tuple[str, str]) -> str:
        """Why the other server does not answer; else what it serves is remembered."""
        headers = {"x-remote-user": "system:kube-aggregator", "x-remote-group": "system:masters"}
        try:
            async with self._client().get(
                url,
                headers=headers,
                ssl=self._context(target),
                server_hostname=_server_name(target),
                timeout=_CHECK_TIMEOUT,
            ) as reply:
                if reply.status >= 300:
                    return f"bad status from {url}: {reply.status}"
                self._resources[of] = codec.decode(await reply.read()).get("resources") or []
                return ""
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            return str(error) or type(error).__name__
        except (status.BadRequest, AttributeError):
            return f"{url} did not answer with a list of resources"

    async def _target(self, obj: Document) -> Any:
        wanted = obj["spec"]["service"]
        services = scheme.resource("", "v1", "services")
        slices = scheme.resource("discovery.k8s.io", "v1", "endpointslices")
        assert services is not None
        assert slices is not None
        namespace, name = wanted["namespace"], wanted["name"]
        record = await self._core.store.get(services.key(namespace, name))
        service = document.decode(record.value) if record is not None else None
        cache = await self._core.caches.fresh(slices)
        found = [
            document.decode(item.record.value)
            for item in cache.list(slices.prefix(namespace)).items
            if item.attributes.labels.get(apiservices.SERVICE_NAME) == name
        ]
        return apiservices.target(obj, service, found)

    async def proxy(
        self,
        obj: Document,
        info: RequestInfo,
        headers: Mapping[str, str],
        query: bytes,
        user: User,
        body: Callable[[], Awaitable[bytes]],
    ) -> Answer | Stream:
        """Pass a request on, and the answer back; 503 where nobody answers."""
        target = await self._target(obj)
        if not isinstance(target, Target):
            return _unavailable()
        url = f"{_url(target)}{quote(info.path, safe='/:@')}"
        if query:
            url = f"{url}?{query.decode('latin-1')}"
        passed = [(k, v) for k, v in headers.items() if k not in _HOP and not _is_claim(k)]
        passed += _identity(user)
        data = await body() if info.method not in ("GET", "HEAD") else None
        try:
            reply = await self._client().request(
                info.method,
                url,
                headers=passed,
                skip_auto_headers=_NOT_ADDED,
                data=data,
                ssl=self._context(target),
                server_hostname=_server_name(target),
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            log.warning("aggregated API cannot be reached", url=url, reason=str(error))
            return _unavailable()
        kept = ("etag", "location", "retry-after", "vary", "warning", "content-encoding")
        shown = {k: reply.headers[k] for k in kept if k in reply.headers}
        kind = reply.headers.get("content-type", answer.JSON)
        return Stream(_chunks(reply), reply.status, kind, shown, close=reply.close)

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=_TIMEOUT, auto_decompress=False)
        return self._session

    def _context(self, target: Target) -> ssl.SSLContext:
        key = (target.ca_bundle, target.insecure)
        context = self._contexts.get(key)
        if context is None:
            context = self._contexts[key] = self._made(target)
        return context

    def _made(self, target: Target) -> ssl.SSLContext:
        if target.insecure:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        else:
            context = ssl.create_default_context(cadata=_pem(target.ca_bundle) or None)
        if self._front_proxy is not None:
            context.load_cert_chain(self._front_proxy.cert_file, self._front_proxy.key_file)
        return context


def _pem(bundle: str) -> str:
    try:
        return base64.b64decode(bundle, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ValueError(f"caBundle is no PEM: {error}") from None


def _server_name(target: Target) -> str:
    return target.server_name if not target.insecure else target.host


def _url(target: Target) -> str:
    host = f"[{target.host}]" if ":" in target.host else target.host
    return f"https://{host}:{target.port}"


def _is_claim(header: str) -> bool:
    return header.startswith(("x-remote-", "impersonate-"))


def _identity(user: User) -> list[tuple[str, str]]:
    claims = [("x-remote-user", user.name)]
    claims += [("x-remote-group", group) for group in user.groups]
    if user.uid:
        claims.append(("x-remote-uid", user.uid))
    for key, values in user.extra:
        claims += [(f"x-remote-extra-{quote(key.lower(), safe='')}", v) for v in values]
    return claims


def _unavailable() -> Answer:
    return answer.text("service unavailable\n", 503)


async def _chunks(reply: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    try:
        async for chunk in reply.content.iter_any():
            yield chunk
    except (aiohttp.ClientError, OSError) as error:
        log.debug("aggregated API ended a stream", reason=str(error))
    finally:
        reply.close()
