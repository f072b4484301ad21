"""The fake runtime behind a socket: gRPC in front of `Services`, and containerd's event stream."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from motley.node.cri import cri_pb2 as cri
from motley.node.cri.errors import RuntimeFailure, RuntimeNotFound
from motley.node.fakecri.inprocess import envelope
from motley.node.fakecri.services import Services

_PREFIXES = ("/runtime.v1.RuntimeService/", "/runtime.v1.ImageService/")
_EVENTS = "/containerd.services.events.v1.Events/Subscribe"


class Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Finds the answer of a method by its name."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def service(self, details: Any) -> Any:
        """The handler of a call; None where there is no such method."""
        method = details.method
        if method == _EVENTS:
            return grpc.unary_stream_rpc_method_handler(self._events)
        prefix, _, name = method.rpartition("/")
        request = getattr(cri, f"{name}Request", None)
        if f"{prefix}/" not in _PREFIXES or request is None:
            return None
        return grpc.unary_unary_rpc_method_handler(
            self._answer(name),
            request_deserializer=request.FromString,
            response_serializer=lambda answer: answer.SerializeToString(),
        )

    def _answer(self, name: str) -> Callable[[Any, Any], Any]:
        async def answer(request: Any, context: Any) -> Any:
            try:
                return await self._services.call(name, request)
            except RuntimeNotFound as error:
                await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
            except RuntimeFailure as error:
                # Agents do without what a runtime does not have, where they can.
                is_known = self._services.simulates(name)
                code = grpc.StatusCode.UNKNOWN if is_known else grpc.StatusCode.UNIMPLEMENTED
                await context.abort(code, str(error))

        return answer

    async def _events(self, request: bytes, context: Any) -> AsyncIterator[bytes]:
        async for topic, runtime_id in self._services.engine.events():
            yield envelope(topic, runtime_id).SerializeToString()


async def serve(services: Services, socket: Path) -> None:
    """Answer on a Unix socket until cancelled."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Handler(services),))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        await asyncio.Event().wait()  # the server's own wait does not survive being cancelled
    finally:
        try:
            await server.stop(0.5)
        finally:
            socket.unlink(missing_ok=True)
