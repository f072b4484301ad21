"""`kubectl get -o json` without a kubectl: what tests ask many times a second while they wait.

A process and a handshake for every look were most of what a testbed's machine did. One connection
stays open instead, made inside the testbed's network namespace; names are resolved as kubectl
resolves them, by what the server says of its resources.

Invariant: an answer is what kubectl would have printed, or None, and then kubectl itself is asked;
it also knows best how to say what went wrong.
"""

import ctypes
import http.client
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from motley.client import kubeconfig

_CLONE_NEWNET = 0x40000000
_TIMEOUT_S = 20.0
_DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_SELECTORS = {"-l": "labelSelector", "--field-selector": "fieldSelector"}
_NAMESPACE = ("-n", "--namespace")


def connect_inside(
    namespace: Path, address: tuple[str, int], timeout_s: float = _TIMEOUT_S
) -> socket.socket:
    """A connection made inside a network namespace; it stays there, whoever uses it."""

    def enter() -> None:
        # Only this thread, which ends at once, is inside.
        with namespace.open() as file:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(file.fileno(), _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "setns")

    def connect() -> socket.socket:
        enter()
        return socket.create_connection(address, timeout=timeout_s)

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(connect).result()


@dataclass(frozen=True)
class Question:
    """What `kubectl get` was asked, in words that are understood here."""

    resource: str
    name: str = ""
    namespace: str = "default"
    is_everywhere: bool = False
    selectors: tuple[tuple[str, str], ...] = ()


def understand(words: tuple[str, ...]) -> Question | None:
    """The words of a `kubectl get`; None for those that only kubectl understands."""
    plain: list[str] = []
    namespace, is_everywhere = "default", False
    selectors: list[tuple[str, str]] = []
    rest = iter(words)
    for word in rest:
        option, _, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if word == "-A":
            is_everywhere = True
        elif option in _NAMESPACE:
            namespace = value or next(rest, "")
        elif option in _SELECTORS:
            selectors.append((_SELECTORS[option], value or next(rest, "")))
        elif word.startswith("-"):
            return None
        else:
            plain.append(word)
    if not 1 <= len(plain) <= 2 or any(mark in plain[0] for mark in "/,."):
        return None
    name = plain[1] if len(plain) == 2 else ""
    return Question(plain[0], name, namespace, is_everywhere, tuple(selectors))


@dataclass(frozen=True)
class _Resource:
    """Where the objects of a resource are."""

    base: str
    plural: str
    is_namespaced: bool

    def path(self, question: Question) -> str:
        inside = self.is_namespaced and not question.is_everywhere
        parts = [self.base, *(("namespaces", question.namespace) if inside else ()), self.plural]
        path = "/".join([*parts, *([quote(question.name)] if question.name else [])])
        return f"{path}?{urlencode(question.selectors)}" if question.selectors else path


def resources(document: Any, root: str) -> dict[str, _Resource]:
    """What every name of an aggregated discovery document means; the first to have it wins."""
    found: dict[str, _Resource] = {}
    for group in document["items"]:
        version = group["versions"][0]
        name = group["metadata"].get("name", "")
        base = "/".join(part for part in (root, name, version["version"]) if part)
        for one in version["resources"]:
            is_namespaced = one["scope"] == "Namespaced"
            resource = _Resource(base, one["resource"], is_namespaced)
            words = (one["resource"], one.get("singularResource"), *one.get("shortNames", ()))
            for word in filter(None, words):
                found.setdefault(word, resource)
    return found


class Lookup:
    """Looks at objects of one API server, over one connection that is made again when it breaks."""

    def __init__(self, config: Callable[[], Path], namespace: Path) -> None:
        """`config` says where the kubeconfig is, `namespace` is the network to ask from."""
        self._config = config
        self._namespace = namespace
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None
        self._known: dict[str, _Resource] = {}

    def get(self, *words: str) -> Any:
        """What `kubectl get WORDS -o json` prints; None when kubectl should be asked."""
        question = understand(words)
        if question is None:
            return None
        with self._lock:
            if question.resource not in self._known:
                self._discover()
            resource = self._known.get(question.resource)
            return self._ask(resource.path(question)) if resource else None

    def close(self) -> None:
        """End the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _discover(self) -> None:
        self._known = {}
        for root in ("/api", "/apis"):
            document = self._ask(root, accept=_DISCOVERY)
            if document is not None and "items" in document:
                self._known = {**resources(document, root), **self._known}

    def _ask(self, path: str, accept: str = "application/json") -> Any:
        for is_fresh in (False, True):  # an open one may have ended with the server it led to
            if is_fresh:
                self.close()
            try:
                return self._answer(path, accept)
            except (OSError, http.client.HTTPException, kubeconfig.ConfigError):
                continue
        self.close()
        return None

    def _answer(self, path: str, accept: str) -> Any:
        if self._connection is None:
            self._connection = self._connect()
        self._connection.request("GET", path, headers={"Accept": accept})
        answer = self._connection.getresponse()
        body = answer.read()
        return msgspec.json.decode(body) if answer.status == 200 else None

    def _connect(self) -> http.client.HTTPConnection:
        config = kubeconfig.load(self._config())
        context, url = config.ssl_context(), urlsplit(config.server)
        address = (url.hostname or "", url.port or 443)
        connection = http.client.HTTPConnection(*address, timeout=_TIMEOUT_S)
        opened = connect_inside(self._namespace, address)
        try:
            wrapped = context.wrap_socket(opened, server_hostname=address[0]) if context else opened
        except OSError:
            opened.close()
            raise
        connection.sock = wrapped
        connection.auto_open = 0  # by itself it would go on outside, without TLS
        return connection
