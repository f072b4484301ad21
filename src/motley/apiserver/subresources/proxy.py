"""`pods/proxy`, `services/proxy` and `nodes/proxy`: HTTP, passed on into the cluster's network.

The name may carry a scheme and a port: `https:web:8443`. A pod is called at its address, a service
at one of its ready endpoints, a node at its agent with the server's own certificate. Method, path,
query, headers and body go through as they came, and so does the answer: redirects are for the
client to follow. Only the links of a page, and where a redirect leads, are made to lead through
here again (`links`). What says who the client is stays here.

Invariant: nothing is called that is not an address of the cluster's own: neither this machine
nor what only this machine can reach.
"""

import ipaddress
import zlib
from collections.abc import AsyncIterator, Iterable
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from motley.api import scheme, status
from motley.apiserver import agents, answer, document
from motley.apiserver.answer import Answer, Stream
from motley.apiserver.core import Core
from motley.apiserver.request import RequestInfo
from motley.apiserver.subresources import connect, links
from motley.apiserver.verbs.call import Call
from motley.lib import journal

log = journal.get(__name__)

Document = dict[str, Any]

# RFC 9110, 7.6.1: about one connection, not about the message.
_HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_NOT_SENT = _HOP_BY_HOP | {"authorization", "host", "content-length", "expect"}
_NOT_SENT_PREFIXES = ("impersonate-", "x-remote-", "x-forwarded-")
# Whose pages may call this server is not for a pod to say.
_NOT_PASSED = _HOP_BY_HOP | {
    "content-type",
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
}
_ENCODINGS = frozenset({"", "gzip", "deflate"})


class Name(NamedTuple):
    """`[scheme:]name[:port]`, as the path has it."""

    scheme: str
    name: str
    port: str


class Place(NamedTuple):
    """What to call."""

    scheme: str
    host: str
    port: int
    is_agent: bool = False

    @property
    def origin(self) -> str:
        """The start of the address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


async def handle(core: Core, call: Call) -> Answer | Stream:
    """The answer of whoever is behind the name."""
    await connect.admit(core, call.kind, call.info)
    place = await _PLACES[call.kind.plural](core, call.namespace, parse_name(call.info.name))
    rest = path_of(call.info)
    query = query_of(call.info)
    if not rest and call.info.method in ("GET", "HEAD"):
        # Relative links in the page would else lose the last part of the path.
        location = f"{quote(call.info.path, safe=_SAFE)}/{query}"
        return Answer(b"", 301, answer.TEXT, {"location": location})
    return await _pass_on(
        core, call, place, f"{place.origin}{quote(rest or '/', safe=_SAFE)}{query}"
    )


_SAFE = "/:@!$&'()*+,;=~"


def parse_name(given: str) -> Name:
    """Read `name`, `name:port` or `scheme:name:port`; 400 for anything else."""
    parts = given.split(":")
    if len(parts) == 1:
        found = Name("", parts[0], "")
    elif len(parts) == 2:
        found = Name("", parts[0], parts[1])
    elif len(parts) == 3:
        found = Name(*parts)
    else:
        raise status.BadRequest(f'invalid proxy request "{given}": use [scheme:]name[:port]')
    if found.scheme not in ("", "http", "https") or not found.name:
        raise status.BadRequest(f'invalid proxy request "{given}": use [scheme:]name[:port]')
    return found


def path_of(info: RequestInfo) -> str:
    """What follows `proxy` in the request's path, with its slashes."""
    return info.path.split(f"/{info.name}/proxy", 1)[1]


def query_of(info: RequestInfo) -> str:
    """The query as it came, without the marks of this server's own options."""
    pairs = [(key, value) for key, values in info.query.items() for value in values]
    return f"?{urlencode(pairs)}" if pairs else ""


async def _pod(core: Core, namespace: str, name: Name) -> Place:
    pod = await _stored(core, "pods", namespace, name.name)
    host = (pod.get("status") or {}).get("podIP") or ""
    if not host:
        raise status.BadRequest(f"pod {name.name} has no address yet: it is not running")
    check_address(host)
    default = _first_port(pod) or (443 if name.scheme == "https" else 80)
    return Place(name.scheme or "http", host, _number(name.port) or default)


def _first_port(pod: Document) -> int:
    for container in (pod.get("spec") or {}).get("containers") or ():
        for port in container.get("ports") or ():
            return int(port.get("containerPort") or 0)
    return 0


async def _service(core: Core, namespace: str, name: Name) -> Place:
    unavailable = status.ServiceUnavailable(
        f'no endpoints available for service "{name.name}"', details=None
    )
    try:
        service = await _stored(core, "services", namespace, name.name)
    except status.NotFound:
        raise unavailable from None  # Kubernetes' words, also for a service that is not there
    port_name = service_port(service, name.port)
    kind = scheme.resource("discovery.k8s.io", "v1", "endpointslices")
    assert kind is not None
    cache = await core.caches.fresh(kind)
    slices = [
        document.decode(cached.record.value)
        for cached in cache.list(kind.prefix(namespace)).items
        if cached.attributes.labels.get("kubernetes.io/service-name") == name.name
    ]
    ready = sorted(endpoints(slices, port_name))
    if not ready:
        raise unavailable
    host, port = ready[core.rng.randrange(len(ready))]
    check_address(host)
    return Place(name.scheme or "http", host, port)


def service_port(service: Document, wanted: str) -> str:
    """The name of the service's port that is meant; 503 when it has none such."""
    ports = (service.get("spec") or {}).get("ports") or []
    if not wanted and len(ports) == 1:
        return str(ports[0].get("name") or "")
    for port in ports:
        name = str(port.get("name") or "")
        if wanted and wanted in (name, str(port.get("port"))):
            return name
    raise status.ServiceUnavailable(
        f'no service port "{wanted}" found for service "{service["metadata"]["name"]}"'
    )


def endpoints(slices: Iterable[Document], port_name: str) -> set[tuple[str, int]]:
    """Addresses and ports that are ready to serve."""
    found: set[tuple[str, int]] = set()
    for piece in slices:
        numbers = [
            int(p["port"])
            for p in piece.get("ports") or ()
            if str(p.get("name") or "") == port_name and p.get("port")
        ]
        for endpoint in piece.get("endpoints") or ():
            if (endpoint.get("conditions") or {}).get("ready") is False:
                continue
            found |= {(a, n) for a in endpoint.get("addresses") or () for n in numbers}
    return found


async def _node(core: Core, namespace: str, name: Name) -> Place:
    node = await _stored(core, "nodes", "", name.name)
    host, agent_port = agents.endpoint(node)
    port = _number(name.port) or agent_port
    if port == agent_port:
        return Place("https", host, port, is_agent=True)
    check_address(host)
    return Place(name.scheme or "http", host, port)


_PLACES = {"pods": _pod, "services": _service, "nodes": _node}


def check_address(host: str) -> None:
    """400 for addresses that mean this machine or its own link: pods may claim any."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise status.BadRequest(f'address "{host}" is not an IP address') from None
    if (
        address.is_loopback
        or address.is_link_local
        or address.is_unspecified
        or address.is_multicast
    ):
        raise status.BadRequest("address not allowed")


def _number(port: str) -> int:
    if not port:
        return 0
    if not port.isdigit() or not 1 <= int(port) <= 65535:
        raise status.BadRequest(f'invalid port "{port}": must be between 1 and 65535')
    return int(port)


async def _stored(core: Core, plural: str, namespace: str, name: str) -> Document:
    kind = scheme.resource("", "v1", plural)
    assert kind is not None
    record = await core.store.get(kind.key(namespace, name))
    if record is None:
        raise status.not_found("", plural, name)
    return document.decode(record.value)


def headers_to_send(given: Iterable[tuple[str, str]], path: str) -> dict[str, str]:
    """The client's headers without what is about its connection or its identity."""
    sent: dict[str, str] = {}
    host = ""
    dropped: set[str] = set()
    for key, value in given:
        if key == "connection":
            dropped |= {part.strip().lower() for part in value.split(",")}
        elif key == "host":
            host = value
        if key not in _NOT_SENT and not key.startswith(_NOT_SENT_PREFIXES):
            sent[key] = value
    kept = {k: v for k, v in sent.items() if k not in dropped}
    return kept | {
        "x-forwarded-host": host,
        "x-forwarded-proto": "https",
        "x-forwarded-uri": quote(path),
    }


async def _pass_on(core: Core, call: Call, place: Place, url: str) -> Stream:
    body = await call.body()
    headers = headers_to_send(call.headers.items(), call.info.path)
    # Only an agent is shown our certificate; pods' own are nobody's we know.
    verification: Any = {} if place.is_agent else {"ssl": False}
    try:
        response = await core.agents.session().request(
            call.info.method,
            URL(url, encoded=True),
            headers=headers,
            data=body or None,
            allow_redirects=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            **verification,
        )
    except (aiohttp.ClientError, TimeoutError) as error:
        log.info("proxied call failed", host=place.host, port=place.port, error=str(error))
        raise status.ServiceUnavailable(
            f"error trying to reach service: {error or type(error).__name__}"
        ) from None
    passed: CIMultiDict[str] = CIMultiDict()
    for key, value in response.headers.items():
        if key.lower() not in _NOT_PASSED:
            passed.add(key.lower(), value)
    proxied = proxied_by(call, place)
    if location := passed.get("location"):
        passed["location"] = proxied.link(location)
    chunks = _chunks(response)
    encoding = passed.get("content-encoding", "").lower()
    if not location and response.content_type == "text/html" and encoding in _ENCODINGS:
        passed.popall("content-length", None)
        chunks = _with_links(chunks, proxied, encoding)
    return Stream(
        chunks,
        response.status,
        response.headers.get("content-type", "application/octet-stream"),
        passed,
        close=response.close,
    )


def proxied_by(call: Call, place: Place) -> links.Proxied:
    """Where a page is seen, and where it comes from."""
    path = call.info.path
    rest = path_of(call.info)
    prefix = quote(path.removesuffix(rest), safe=_SAFE)
    return links.Proxied(prefix, place.origin.partition("//")[2], call.headers.get("host", ""))


async def _with_links(
    chunks: AsyncIterator[bytes], proxied: links.Proxied, encoding: str
) -> AsyncIterator[bytes]:
    page = links.Page(proxied.link)
    passing = links.Compressed(page, encoding) if encoding else page
    try:
        async for chunk in chunks:
            if piece := passing.feed(chunk):
                yield piece
        if piece := passing.finish():
            yield piece
    except zlib.error as error:
        log.info("proxied page broke", error=str(error))


async def _chunks(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    try:
        async for chunk in response.content.iter_any():
            yield chunk
    except aiohttp.ClientError as error:
        log.info("proxied answer broke", error=str(error))
