"""The admission webhook that raises what a Node says is allocatable, as its labels allow.

It is asked about every status a labelled node's kubelet writes, so it does one thing, from what is
in the question: no lookup, no state, no opinion about what it does not understand. It never refuses
a write: a node that cannot report is a node that is lost, and its plain figures are the safe ones.
For the same reason it is registered with `failurePolicy: Ignore`.

Invariant: every question is answered within a second or so, if only with an error; a body that is
longer than an object may be is not read.
"""

import asyncio
import base64
import ssl
from collections.abc import Callable

import msgspec
from aiohttp import web

from motley.api import overcommit
from motley.lib import journal
from motley.node import amplification

log = journal.get(__name__)

PATH = "/nodes"
# An object has at most 1.5 MiB in etcd (3 MiB in a request); a question holds it twice.
_BODY_MAX = 7 << 20
_READ_S = 1.0  # the API server itself waits two
_AT_ONCE = 64


class _Metadata(msgspec.Struct):
    name: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Status(msgspec.Struct):
    capacity: dict[str, str | int | float] | None = None
    allocatable: dict[str, str | int | float] | None = None


class _Node(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    status: _Status = msgspec.field(default_factory=_Status)


class _Request(msgspec.Struct, rename="camel"):
    uid: str
    object: _Node
    old_object: _Node | None = None


class _Review(msgspec.Struct):
    request: _Request


_decode = msgspec.json.Decoder(_Review).decode


def answer(body: bytes) -> bytes:
    """The AdmissionReview that answers one. Pure. Raises msgspec.MsgspecError, RecursionError."""
    request = _decode(body).request
    node, meta = request.object, request.object.metadata
    annotations = dict(meta.annotations or {})
    # Who writes a whole status without our note has not seen it, and changed nothing of it.
    if overcommit.RAISED not in annotations and request.old_object is not None:
        before = request.old_object.metadata.annotations or {}
        annotations |= {k: v for k, v in before.items() if k == overcommit.RAISED}
    wanted = amplification.amplified(
        meta.labels or {}, annotations, node.status.capacity or {}, node.status.allocatable or {}
    )
    response: dict[str, object] = {"uid": request.uid, "allowed": True}
    if patch := amplification.json_patch(meta.annotations, wanted):
        log.debug("allocatable changed", node=meta.name, **wanted.allocatable)
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(patch)).decode()
    if wanted.wrong:
        response["warnings"] = [f"{', '.join(wanted.wrong)}: {overcommit.WRONG}"]
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": response,
    }
    return msgspec.json.encode(review)


class Webhook:
    """Answers the API server's questions about nodes."""

    def __init__(self, ready: Callable[[], bool]) -> None:
        self._ready = ready
        self._busy = 0

    async def run(self, host: str | None, port: int, tls: ssl.SSLContext) -> None:
        """Serve until cancelled; on every address where `host` is None."""
        runner = web.AppRunner(self.app(), access_log=None, shutdown_timeout=2.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port, ssl_context=tls).start()
            log.info("webhook listens", host=host, port=port)
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    def app(self) -> web.Application:
        """The questions, and health."""
        app = web.Application(client_max_size=_BODY_MAX)
        app.router.add_post(PATH, self._review)
        app.router.add_get("/livez", self._health)
        app.router.add_get("/readyz", self._health)
        return app

    async def _health(self, request: web.Request) -> web.Response:
        is_well = request.path == "/livez" or self._ready()
        return web.Response(status=200 if is_well else 503, text="ok" if is_well else "not ready")

    async def _review(self, request: web.Request) -> web.Response:
        if self._busy >= _AT_ONCE:
            return web.Response(status=503, text="too many requests at once\n")
        self._busy += 1
        try:
            async with asyncio.timeout(_READ_S):
                body = await request.read()
            return web.Response(body=answer(body), content_type="application/json")
        except TimeoutError:
            return web.Response(status=408, text="the request did not come in time\n")
        except (msgspec.MsgspecError, RecursionError) as error:
            return web.Response(status=400, text=f"not an AdmissionReview of a Node: {error}\n")
        finally:
            self._busy -= 1
