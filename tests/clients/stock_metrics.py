"""A metrics server of a few lines, for a real kube-apiserver in a test.

It measures nothing: it asks the API server for its pods and tells what their annotations say they
use (`fake.motley.io/usage`), as Motley's own server does for fake nodes. kube-apiserver reaches it
as it reaches any aggregated API: an APIService, and a Service that leads to this machine.
"""

import contextlib
import json
import ssl
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from motley.api import selectors
from motley.apiserver import tls
from motley.client import kubeconfig
from motley.lib import clock
from motley.metrics import scripted
from motley.metrics.usage import Use

Document = dict[str, Any]

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
NAME, NAMESPACE = "metrics-server", "kube-system"
WINDOW_S = 1.0


def registration(port: int) -> list[Document]:
    """What makes the API server send the group's requests here."""
    place = {"name": NAME, "namespace": NAMESPACE}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": place,
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{VERSION}.{GROUP}"},
            "spec": {
                "group": GROUP,
                "version": VERSION,
                "service": {**place, "port": port},
                "insecureSkipTLSVerify": True,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
            },
        },
    ]


@contextlib.contextmanager
def serve(admin: Path, directory: Path) -> Iterator[int]:
    """Serve on a port of loopback, until the `with` ends."""
    config = kubeconfig.load(admin)
    trust = config.ssl_context()

    def ask(path: str) -> list[Document]:
        with urllib.request.urlopen(config.server + path, context=trust, timeout=10) as answer:
            listed: list[Document] = json.load(answer)["items"]
            return listed

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            asked = urlsplit(self.path)
            selector = parse_qs(asked.query).get("labelSelector", [""])[0]
            found = _answer(asked.path.strip("/").split("/"), selector, ask)
            body = json.dumps(
                found or {"kind": "Status", "status": "Failure", "code": 404}
            ).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Tests' output is not for this."""

    authority = tls.Pki(directory, *tls.make_authority("metrics"))
    cert, key = directory / "metrics.crt", directory / "metrics.key"
    name = f"{NAME}.{NAMESPACE}.svc"
    tls.write_pair(cert, key, tls.issue_server(authority, name, [name, "localhost", "127.0.0.1"]))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1})
        thread.start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
            thread.join(10)


def _answer(path: list[str], selector: str, ask: Any) -> Document | None:
    """The document at a path; None: there is none."""
    if path[:3] != ["apis", GROUP, VERSION]:
        return None
    match path[3:]:
        case []:
            return _resources()
        case ["nodes", *_] | ["pods"] | ["namespaces", _, "pods", *_]:
            pass
        case _:
            return None
    nodes = [n for n in ask("/api/v1/nodes") if scripted.is_fake(n)]
    pods = ask("/api/v1/pods")
    if path[3] == "nodes":
        items, wanted, kind = _nodes(nodes, pods), path[4:], "NodeMetrics"
    else:
        namespace = path[4] if path[3] == "namespaces" else ""
        items, wanted, kind = _pods(nodes, pods, namespace), path[6:], "PodMetrics"
    if wanted:
        named = [i for i in items if i["metadata"]["name"] == wanted[0]]
        return {**_typed(kind), **named[0]} if named else None
    chosen = selectors.Selector.parse(selector)
    items = [i for i in items if chosen.matches(i["metadata"].get("labels") or {})]
    return {**_typed(f"{kind}List"), "metadata": {}, "items": items}


def _nodes(nodes: list[Document], pods: list[Document]) -> list[Document]:
    now = clock.SYSTEM.now()
    uses: dict[str, list[Use]] = {n["metadata"]["name"]: [] for n in nodes}
    for pod in pods:
        if (node := pod["spec"].get("nodeName")) in uses:
            uses[node] += scripted.usage(pod, now, WINDOW_S).values()
    sums = {name: scripted.total(listed, now, WINDOW_S) for name, listed in uses.items()}
    return [
        _item(n["metadata"], now, {"usage": _usage(sums[n["metadata"]["name"]])}) for n in nodes
    ]


def _pods(nodes: list[Document], pods: list[Document], namespace: str) -> list[Document]:
    now = clock.SYSTEM.now()
    names = {n["metadata"]["name"] for n in nodes}
    items = []
    for pod in pods:
        is_asked = namespace in ("", pod["metadata"]["namespace"])
        if is_asked and pod["spec"].get("nodeName") in names:
            uses = scripted.usage(pod, now, WINDOW_S)
            listed = [{"name": key.container, "usage": _usage(use)} for key, use in uses.items()]
            if listed:
                items.append(_item(pod["metadata"], now, {"containers": listed}))
    return items


def _resources() -> Document:
    kinds = (("nodes", "NodeMetrics", False), ("pods", "PodMetrics", True))
    return {
        "apiVersion": "v1",
        "kind": "APIResourceList",
        "groupVersion": f"{GROUP}/{VERSION}",
        "resources": [
            {
                "name": name,
                "singularName": "",
                "namespaced": namespaced,
                "kind": kind,
                "verbs": ["get", "list"],
            }
            for name, kind, namespaced in kinds
        ],
    }


def _typed(kind: str) -> Document:
    return {"apiVersion": f"{GROUP}/{VERSION}", "kind": kind}


def _item(metadata: Document, stamp: float, more: Document) -> Document:
    kept = {k: metadata[k] for k in ("name", "namespace", "labels") if k in metadata}
    return {"metadata": kept, "timestamp": clock.rfc3339(stamp), "window": "1s", **more}


def _usage(use: Use) -> dict[str, str]:
    return {"cpu": f"{use.cpu_nano}n", "memory": str(use.memory_bytes)}
