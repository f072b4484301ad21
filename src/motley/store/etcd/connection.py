"""Calls to etcd: a deadline on each, another server when one fails, a bound on what is in flight.

All calls go to one server until it fails; then the next one is asked, and after a round of all of
them there is a growing pause. A call that may have been carried out is sent again only when its
maker says that this does no harm.
"""

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import Any

import grpc
import grpc.aio

from motley.lib import journal
from motley.lib.backoff import Backoff
from motley.lib.clock import SYSTEM, Clock
from motley.store.contract import Closed, InDoubt, StoreError, Unavailable
from motley.store.etcd import errors
from motley.store.etcd import etcd_pb2 as pb
from motley.store.etcd.config import Address, Config

log = journal.get(__name__)

RANGE = "/etcdserverpb.KV/Range"
TXN = "/etcdserverpb.KV/Txn"
COMPACT = "/etcdserverpb.KV/Compact"
WATCH = "/etcdserverpb.Watch/Watch"
_MESSAGES: dict[str, tuple[Any, Any]] = {
    RANGE: (pb.RangeRequest, pb.RangeResponse),
    TXN: (pb.TxnRequest, pb.TxnResponse),
    COMPACT: (pb.CompactionRequest, pb.CompactionResponse),
}

ATTEMPT_S = 5.0  # etcd itself gives a proposal up after 7 s; another server may be healthy
TOTAL_S = 10.0  # then the caller is told; kube-apiserver's clients wait up to 60 s
IN_FLIGHT = 256  # calls at a time; the others wait for a place

_OPTIONS = (
    ("grpc.max_receive_message_length", -1),  # a batch of events may be large; we ask in pages
    ("grpc.max_send_message_length", -1),  # etcd says what is too large
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.keepalive_time_ms", 10_000),  # a dead machine sends no reset; etcd takes one per 5 s
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.use_local_subchannel_pool", 1),
)


@dataclass
class _Server:
    address: Address
    channel: grpc.aio.Channel
    methods: dict[str, Any] = field(default_factory=dict)


class Connection:
    """Channels to every server of one etcd cluster."""

    def __init__(self, config: Config, clock: Clock = SYSTEM, rng: Random | None = None) -> None:
        self._clock = clock
        self._rng = rng or Random()
        self._servers = [_server(address, config) for address in config.addresses()]
        self._current = 0
        self._places = asyncio.Semaphore(IN_FLIGHT)
        self._closed = False

    def backoff(self) -> Backoff:
        """Pauses between attempts: short at first, since a restart of etcd is quick."""
        return Backoff(base_s=0.05, cap_s=1.0, rng=self._rng)

    async def call(self, method: str, request: Any) -> Any:
        """A call that may be repeated; raises `Unavailable` or what etcd's refusal means."""
        answer, _ = await self.try_call(method, request, may_repeat=True)
        return answer

    async def try_call(self, method: str, request: Any, *, may_repeat: bool) -> tuple[Any, bool]:
        """The answer, and whether an earlier attempt may have been carried out as well."""
        async with self._places:
            if self._closed:
                raise Closed("the store was closed")
            return await self._attempts(method, request, may_repeat)

    async def _attempts(self, method: str, request: Any, may_repeat: bool) -> tuple[Any, bool]:
        deadline = self._clock.monotonic() + TOTAL_S
        backoff, failed, in_doubt = self.backoff(), 0, False
        while True:
            server = self._servers[self._current]
            left_s = deadline - self._clock.monotonic()
            try:
                answer = await server.methods[method](request, timeout=min(ATTEMPT_S, left_s))
                return answer, in_doubt
            except grpc.aio.AioRpcError as error:
                problem = errors.meaning(error.code(), error.details() or "")
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if self._closed and task is not None and not task.cancelling():
                    # Closing the channel cancelled the call; nobody cancelled its caller.
                    raise Closed("the store was closed") from None
                raise
            if isinstance(problem, StoreError):
                raise problem
            if problem.was_sent and not may_repeat:
                raise InDoubt(
                    f"etcd at {server.address.target} did not answer ({problem.reason});"
                    " the transaction may have happened"
                )
            in_doubt |= problem.was_sent
            failed += 1
            self.fail_over(server.address, problem.reason)
            pause_s = backoff.next() if failed % len(self._servers) == 0 else 0.0
            if self._clock.monotonic() + pause_s >= deadline:
                told = f"cannot reach etcd at {self}: {problem.reason}"
                if in_doubt and method == TXN:
                    raise InDoubt(f"{told}; the transaction may have happened")
                raise Unavailable(told)
            await self._clock.sleep(pause_s)

    def stream(self) -> tuple[Address, Any]:
        """A new watch stream, from the server that is asked at present."""
        server = self._servers[self._current]
        # Without a leader a member would hold the stream and say nothing: let it end instead.
        return server.address, server.methods[WATCH](metadata=(("hasleader", "true"),))

    def fail_over(self, failed: Address, reason: str) -> None:
        """Ask the next server from now on, unless somebody has switched already."""
        if self._servers[self._current].address == failed and len(self._servers) > 1:
            self._current = (self._current + 1) % len(self._servers)
            now = self._servers[self._current].address
            log.warning("etcd server failed", server=failed.target, now=now.target, reason=reason)

    def __str__(self) -> str:
        return ", ".join(server.address.target for server in self._servers)

    async def close(self) -> None:
        """End what is under way."""
        self._closed = True
        for server in self._servers:
            await server.channel.close()


def _credentials(config: Config) -> grpc.ChannelCredentials:
    """For TLS: whom we trust, and our own certificate when there is one."""
    files = (config.cafile, config.keyfile, config.certfile)
    return grpc.ssl_channel_credentials(*(f.read_bytes() if f else None for f in files))


def _server(address: Address, config: Config) -> _Server:
    if address.tls:
        channel = grpc.aio.secure_channel(address.target, _credentials(config), _OPTIONS)
    else:
        channel = grpc.aio.insecure_channel(address.target, _OPTIONS)
    server = _Server(address, channel)
    for method, (request, answer) in _MESSAGES.items():
        server.methods[method] = channel.unary_unary(
            method,
            request_serializer=request.SerializeToString,
            response_deserializer=answer.FromString,
        )
    server.methods[WATCH] = channel.stream_stream(
        WATCH,
        request_serializer=pb.WatchRequest.SerializeToString,
        response_deserializer=pb.WatchResponse.FromString,
    )
    return server
