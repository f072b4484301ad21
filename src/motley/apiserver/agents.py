"""Talking to node agents: where one listens, and with which certificate.

The server reaches a pod's logs and terminals through the agent of the pod's node. It shows the
`kube-apiserver-kubelet-client` certificate, which agents accept alone, and trusts serving
certificates of the cluster's authority.
"""

import ssl
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

import aiohttp

from motley.api import codec, scheme, status
from motley.apiserver import document
from motley.store.contract import Store

DEFAULT_PORT = 10250
CONNECT_TIMEOUT_S = 10.0


class Target(NamedTuple):
    """One container, or a pod as a whole, and the agent that runs it."""

    host: str
    port: int
    namespace: str
    pod: str
    container: str

    def url(self, what: str, query: list[tuple[str, str]], scheme_: str = "https") -> str:
        """The agent's address for `containerLogs`, `exec`, `attach` or `portForward`."""
        parts = [what, self.namespace, self.pod, *([self.container] if self.container else [])]
        path = "/".join(quote(p, safe="") for p in parts)
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme_}://{host}:{self.port}/{path}?{urlencode(query)}"


class Agents:
    """Finds agents and holds the one client session that talks to them."""

    def __init__(self, store: Store, context: ssl.SSLContext | None) -> None:
        self._store = store
        self._context = context
        self._session: aiohttp.ClientSession | None = None
        self._left: list[aiohttp.ClientSession] = []  # of certificates before: one per renewal

    def session(self) -> aiohttp.ClientSession:
        """The shared session, made at first use, inside the event loop."""
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self._context or False, limit=0)
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT_S)
            self._session = aiohttp.ClientSession(
                connector=connector, timeout=timeout, auto_decompress=False
            )
        return self._session

    def renew(self, context: ssl.SSLContext) -> None:
        """Talk with other certificates from now on; what is under way goes on."""
        self._context = context
        if self._session is not None:
            self._left.append(self._session)
            self._session = None

    async def close(self) -> None:
        """Let go of idle connections."""
        for session in (*self._left, self._session):
            if session is not None:
                await session.close()

    async def target(self, namespace: str, name: str, container: str | None) -> Target:
        """Where a pod's container runs, or just the pod (None); says clearly why it cannot be
        reached."""
        pod = await self._document("pods", namespace, name)
        chosen = "" if container is None else choose_container(pod, container)
        node_name = (pod.get("spec") or {}).get("nodeName")
        if not node_name:
            raise status.BadRequest(f"pod {name} does not have a host assigned")
        node = await self._document("nodes", "", node_name)
        host, port = endpoint(node)
        return Target(host, port, namespace, name, chosen)

    async def _document(self, plural: str, namespace: str, name: str) -> dict[str, Any]:
        kind = scheme.resource("", "v1", plural)
        assert kind is not None
        record = await self._store.get(kind.key(namespace, name))
        if record is None:
            raise status.not_found("", plural, name)
        return document.decode(record.value)


def choose_container(pod: dict[str, Any], wanted: str) -> str:
    """The container meant: the named one, the annotated default, or the only one."""
    spec = pod.get("spec") or {}
    name = pod["metadata"]["name"]
    regular = [c["name"] for c in spec.get("containers") or ()]
    others = [
        c["name"]
        for field in ("initContainers", "ephemeralContainers")
        for c in spec.get(field) or ()
    ]
    if wanted:
        if wanted in regular or wanted in others:
            return wanted
        raise status.BadRequest(f"container {wanted} is not valid for pod {name}")
    default = (pod["metadata"].get("annotations") or {}).get(
        "kubectl.kubernetes.io/default-container"
    )
    if default in regular:
        return str(default)
    if len(regular) == 1:
        return str(regular[0])
    message = (
        f"a container name must be specified for pod {name}, choose one of: [{' '.join(regular)}]"
    )
    if initial := [c["name"] for c in spec.get("initContainers") or ()]:
        message += f" or one of the init containers: [{' '.join(initial)}]"
    raise status.BadRequest(message)


def endpoint(node: dict[str, Any]) -> tuple[str, int]:
    """Where a node's agent listens: its InternalIP, and the port it reported."""
    state = node.get("status") or {}
    by_type = {a.get("type"): a.get("address") for a in state.get("addresses") or ()}
    host = by_type.get("InternalIP") or by_type.get("Hostname")
    if not host:
        raise status.ServiceUnavailable(
            f"node {node['metadata']['name']} has reported no address to reach it at"
        )
    reported = (state.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}
    return str(host), int(reported.get("Port") or DEFAULT_PORT)


async def refusal(response: aiohttp.ClientResponse) -> status.ApiError:
    """An agent's error in its own words, whether it sent a Status or text."""
    try:
        async with response:
            raw = await response.content.read(64 * 1024)
    except aiohttp.ClientError as error:
        return status.InternalError(f"node agent answered {response.status}: {error}")
    try:
        document = codec.decode(raw)
    except status.BadRequest:
        document = None
    if isinstance(document, dict) and document.get("kind") == "Status":
        return status.from_status(document, response.status)
    message = raw.decode("utf-8", "replace").strip() or f"node agent answered {response.status}"
    return status.from_status({"message": message}, response.status)
