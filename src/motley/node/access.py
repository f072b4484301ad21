"""Who may use a node's server.

The API server and administrators are known by their client certificates. Of anyone else (with
another certificate, or a bearer token) the API server is asked who it is, and whether they may
have what they ask for: `nodes/metrics`, `nodes/stats`, `nodes/log`, or `nodes/proxy` for all else.
"""

import ssl
from pathlib import Path
from typing import Any

from aiohttp import web

from motley.api.status import ApiError
from motley.client.delegation import Delegation
from motley.lib import journal

log = journal.get(__name__)

API_SERVER = "kube-apiserver-kubelet-client"
ADMINISTRATORS = "system:masters"


def is_allowed(certificate: dict[str, Any] | None) -> bool:
    """May the holder of this certificate (as `ssl` describes it) use the server?"""
    subject = {(k, v) for part in (certificate or {}).get("subject", ()) for k, v in part}
    return ("commonName", API_SERVER) in subject or ("organizationName", ADMINISTRATORS) in subject


def tls_context(certificate: Path, key: Path, client_ca: Path) -> ssl.SSLContext:
    """TLS that asks for a client certificate; who has none must have a token."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(client_ca))
    context.load_cert_chain(certificate, key)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def attributes(node: str, method: str, path: str) -> dict[str, str]:
    """What a request is in the words of RBAC, as the kubelet puts it."""
    first = path.strip("/").partition("/")[0]
    part = {"stats": "stats", "metrics": "metrics", "logs": "log"}.get(first, "proxy")
    verb = {"GET": "get", "HEAD": "get", "POST": "create"}.get(method, method.lower())
    return {"verb": verb, "version": "v1", "resource": "nodes", "subresource": part, "name": node}


async def refusal(request: web.Request, node: str, delegation: Delegation) -> web.Response | None:
    """The answer to somebody who may not have this of the node; None for those who may. How a
    server fares is for everybody."""
    transport = request.transport
    certificate = transport.get_extra_info("peercert") if transport else None
    if request.path == "/healthz" or is_allowed(certificate):
        return None
    asked = attributes(node, request.method, request.path)
    code = await _ask(request, certificate, asked, delegation)
    if code == 200:
        return None
    what = f"{asked['verb']} nodes/{asked['subresource']}"
    return web.Response(status=code, text=f"not allowed to {what} of this node\n")


async def _ask(
    request: web.Request,
    certificate: dict[str, Any] | None,
    asked: dict[str, str],
    delegation: Delegation,
) -> int:
    """200, 401 or 403: ask the API server about a token, or about a certificate's user."""
    header = request.headers.get("Authorization", "")
    if not certificate or header:
        return await delegation.code(request.path, header, asked)
    subject = [(k, v) for part in certificate.get("subject", ()) for k, v in part]
    user = {
        "username": next((v for k, v in subject if k == "commonName"), ""),
        "groups": [v for k, v in subject if k == "organizationName"],
    }
    try:
        return 200 if await delegation.may(user, request.path, asked) else 403
    except ApiError as error:
        log.warning("cannot ask who is calling", error=error.message)
        return 403
