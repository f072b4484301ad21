"""Forwarding, against small name servers on loopback."""

import asyncio
import struct
from random import Random

import dns.message
import dns.rcode
import dns.rrset
import pytest

from motley.api.views.core import Service
from motley.network.dns import wire
from motley.network.dns.forward import Cache, Forwarder, Upstream, from_resolv_conf, parse_upstream
from motley.network.dns.resolver import Resolver
from motley.network.dns.server import DnsServer
from motley.network.dns.zone import Zone


class StoppedClock:
    def __init__(self):
        self.seconds = 1000.0

    def now(self):
        return self.seconds

    def monotonic(self):
        return self.seconds

    async def sleep(self, seconds):
        self.seconds += seconds


class Server(asyncio.DatagramProtocol):
    """Answers every A question with `address`; a `twist` may change the answer's bytes."""

    def __init__(self, address="192.0.2.9", ttl=60, twist=lambda answer: answer):
        self.address, self.ttl, self.twist, self.asked = address, ttl, twist, 0

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, data, addr):
        self.asked += 1
        query = dns.message.from_wire(data)
        answer = dns.message.make_response(query)
        name = query.question[0].name
        answer.answer.append(dns.rrset.from_text(name, self.ttl, "IN", "A", self.address))
        for packet in [self.twist(answer.to_wire())]:
            if packet is not None:
                self.transport.sendto(packet, addr)

    async def __aenter__(self):
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(lambda: self, local_addr=("127.0.0.1", 0))
        self.upstream = Upstream(*self.transport.get_extra_info("sockname"))
        return self

    async def __aexit__(self, *details):
        self.transport.close()


def query(name="outside.example.", id_=7):
    return wire.parse_query(dns.message.make_query(name, "A", id=id_).to_wire())


def forwarder(*servers, **options):
    upstreams = [s.upstream for s in servers]
    return Forwarder(lambda: upstreams, timeout_s=0.3, rng=Random(1), **options)


async def test_an_answer_comes_back_with_the_clients_id():
    async with Server() as server:
        message = dns.message.from_wire(await forwarder(server).ask(query()))
    assert message.id == 7
    assert str(message.answer[0][0]) == "192.0.2.9"


async def test_a_silent_server_is_followed_by_the_next():
    async with Server(twist=lambda answer: None) as silent, Server() as good:
        answer = await forwarder(silent, good).ask(query())
    assert dns.message.from_wire(answer).answer


@pytest.mark.parametrize(
    "twist",
    [
        lambda a: struct.pack("!H", struct.unpack("!H", a[:2])[0] ^ 1) + a[2:],
        lambda a: a[:13] + b"x" + a[14:],
        lambda a: a[:2] + bytes([a[2] & 0x7F]) + a[3:],
        lambda a: a[:5],
    ],
    ids=["other id", "other question", "a query", "cut off"],
)
async def test_an_answer_to_another_question_is_not_believed(twist):
    from motley.network.dns.forward import Unanswered

    async with Server(twist=twist) as liar:
        with pytest.raises(Unanswered):
            await forwarder(liar).ask(query())


async def test_what_was_answered_is_remembered_for_its_time():
    clock = StoppedClock()
    async with Server(ttl=60) as server:
        asking = forwarder(server, clock=clock)
        await asking.ask(query("Outside.example."))
        clock.seconds += 20
        message = dns.message.from_wire(asking.remembered(query("outSIDE.example.", id_=9)))
        assert (message.id, message.answer[0].ttl) == (9, 40)
        assert str(message.question[0].name) == "outSIDE.example."
        clock.seconds += 41
        assert asking.remembered(query()) is None
        assert server.asked == 1


async def test_the_cache_is_bounded_and_keeps_no_failures():
    clock = StoppedClock()
    cache = Cache(3, clock)
    for number in range(10):
        asked = query(f"n{number}.example.")
        good = dns.message.make_response(dns.message.make_query(f"n{number}.example.", "A"))
        good.answer.append(dns.rrset.from_text(f"n{number}.example.", 9, "IN", "A", "192.0.2.1"))
        cache.put(asked, good.to_wire())
    assert len(cache) == 3
    failed = dns.message.make_response(dns.message.make_query("f.example.", "A"))
    failed.set_rcode(dns.rcode.SERVFAIL)
    cache.put(query("f.example."), failed.to_wire())
    assert cache.get(query("f.example.")) is None
    assert cache.get(query("n9.example.")) is not None


def test_resolv_conf_is_read_without_ourselves():
    text = "search x\nnameserver 10.96.0.10\nnameserver 192.0.2.53 # c\nnameserver fe80::1%eth0\n"
    assert from_resolv_conf(text, ourselves="10.96.0.10") == [
        Upstream("192.0.2.53"),
        Upstream("fe80::1%eth0"),
    ]
    assert parse_upstream("192.0.2.1:5353") == Upstream("192.0.2.1", 5353)
    assert parse_upstream("[fd00::1]:54") == Upstream("fd00::1", 54)
    for wrong in ("example.com", "1.2.3.4:x", "1.2.3.4:99999", ""):
        with pytest.raises(ValueError):
            parse_upstream(wrong)


@pytest.fixture
async def serving():
    """A DNS server on loopback: (ask by udp, ask by tcp, its resolver's upstream list)."""
    zone, upstreams = Zone(), []
    external = Service.of(
        {
            "metadata": {"name": "out", "namespace": "shop"},
            "spec": {"type": "ExternalName", "externalName": "outside.example"},
        }
    )
    zone.put(external.key, external, [])
    resolver = Resolver(zone, Forwarder(lambda: upstreams, timeout_s=0.3))
    resolver.is_ready = True
    server = DnsServer(resolver, "127.0.0.1", 0)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(server.run())
        async with asyncio.timeout(20):
            await server.is_listening.wait()
        yield server, upstreams
        running.cancel()


async def ask(server, name, *, tcp=False):
    import dns.asyncquery

    way = dns.asyncquery.tcp if tcp else dns.asyncquery.udp
    message = dns.message.make_query(name, "A")
    return await way(message, "127.0.0.1", port=server.port, timeout=3)


async def test_the_server_answers_by_udp_and_tcp_and_fails_quickly_without_upstreams(serving):
    server, _ = serving
    for tcp in (False, True):
        answer = await ask(server, "ns.dns.cluster.local.", tcp=tcp)
        assert str(answer.answer[0][0]) == "10.96.0.10"
        assert (await ask(server, "x.example.", tcp=tcp)).rcode() == dns.rcode.SERVFAIL


async def test_an_external_name_is_resolved_to_its_addresses(serving):
    server, upstreams = serving
    async with Server() as outside:
        upstreams.append(outside.upstream)
        answer = await ask(server, "out.shop.svc.cluster.local.")
        again = await ask(server, "out.shop.svc.cluster.local.", tcp=True)
    assert [str(rrset[0]) for rrset in answer.answer] == ["outside.example.", "192.0.2.9"]
    assert [str(rrset[0]) for rrset in again.answer] == ["outside.example.", "192.0.2.9"]
    assert outside.asked == 1


async def test_broken_packets_and_connections_leave_the_server_running(serving):
    server, _ = serving
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        asyncio.DatagramProtocol, remote_addr=("127.0.0.1", server.port)
    )
    for packet in (b"", b"\0", b"\xff" * 600, b"\0\1\1\0\0\1\0\0\0\0\0\0\xc0\x0c\0\1\0\1"):
        transport.sendto(packet)
    transport.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"\0\x05abc")
    writer.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"\0\x03abc")
    assert await reader.read() == b""
    writer.close()
    assert (await ask(server, "ns.dns.cluster.local.")).answer
