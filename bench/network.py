"""The network: what a Service adds to a connection, what one change costs, what a name costs.

Targets: a Service adds at most 5 % to the latency and takes at most 5 % of the throughput of direct
access in the same run; one change among 1,000 Services in 5 ms, among 5,000 in 25 ms; 20,000
answers a second and core for names of the cluster.

Runs in network namespaces of its own, which end with it.
"""

import asyncio
import contextlib
import ctypes
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import figures
from motley.api.views.base import Key
from motley.api.views.core import EndpointSlice, Service
from motley.api.views.networkpolicy import NetworkPolicy
from motley.network.dns import wire
from motley.network.dns.forward import Forwarder
from motley.network.dns.resolver import Resolver
from motley.network.dns.server import DnsServer
from motley.network.dns.zone import Zone
from motley.network.policy.planner import Policies, Reachable
from motley.network.proxy import ruleset
from motley.network.proxy.layout import Settings
from motley.network.proxy.nftables import Nft
from motley.network.proxy.plan import Plan

INSIDE = "MOTLEY_BENCH_INSIDE"
TABLE = "motley"
SERVER, CLIENT, VIP, PORT = "10.244.1.2", "10.244.1.3", "10.96.200.1", 8080
NEW_NETWORK = 0x40000000  # CLONE_NEWNET


def objects(number: int) -> tuple[Service, list[EndpointSlice]]:
    """Service `number` with three endpoints."""
    high, low = divmod(number, 250)
    meta = {"name": f"s{number}", "namespace": "bench"}
    service = Service.of(
        {
            "metadata": meta,
            "spec": {
                "clusterIP": f"10.96.{high}.{low + 1}",
                "ports": [{"name": "http", "port": 80, "protocol": "TCP"}],
            },
        }
    )
    endpoints = [{"addresses": [f"10.244.{high * 3 + i}.{low + 1}"]} for i in range(3)]
    ports = [{"name": "http", "port": 8080, "protocol": "TCP"}]
    return service, [EndpointSlice.of({"metadata": meta, "endpoints": endpoints, "ports": ports})]


async def sync(nft: Nft, plan: Plan) -> figures.Spent:
    """From changed Services to changed rules."""
    with figures.measured() as spent:
        changes = plan.changes()
        await nft.apply(ruleset.render(TABLE, changes))
        plan.commit(changes)
    return spent


def median(report: figures.Report, name: str, rounds: list[figures.Spent]) -> None:
    wall_ms = statistics.median(s.wall_s for s in rounds) * 1000
    cpu_ms = statistics.median(s.cpu_s for s in rounds) * 1000
    report.add(name, wall_ms, "ms", f"p50 of {len(rounds)}, CPU {cpu_ms:.1f} ms")


async def rules(report: figures.Report, sizes: list[int], rounds: int) -> None:
    nft = Nft()
    for size in sizes:
        await nft.remove(TABLE)
        plan = Plan(Settings("node-1"))
        everything = [objects(number) for number in range(size)]
        with figures.measured() as spent:
            for service, slices in everything:
                plan.put(service.key, service, slices)
        report.add(f"proxy.plan.{size}", spent.cpu_s * 1000, "ms", "CPU, Services to rules")
        spent = await sync(nft, plan)
        report.add(
            f"proxy.load.{size}", spent.wall_s * 1000, "ms", "an empty table to all Services"
        )
        service, slices = objects(size)
        added, removed = [], []
        for _ in range(rounds):
            plan.put(service.key, service, slices)
            added.append(await sync(nft, plan))
            plan.put(service.key, None, [])
            removed.append(await sync(nft, plan))
        median(report, f"proxy.add_one.{size}", added)
        median(report, f"proxy.remove_one.{size}", removed)
        with figures.measured() as spent:
            plan.adopt(await nft.read(TABLE))
            assert not plan.changes()
        detail = "a restart that finds all in order"
        report.add(f"proxy.adopt.{size}", spent.wall_s * 1000, "ms", detail)
    await nft.remove(TABLE)
    await nft.close()


def policy(number: int) -> NetworkPolicy:
    """A policy that lets the pods of one application in."""
    peer = {"podSelector": {"matchLabels": {"app": f"a{number}"}}}
    return NetworkPolicy.of(
        {
            "metadata": {"name": f"p{number}", "namespace": f"n{number % 20}"},
            "spec": {
                "podSelector": {"matchLabels": {"app": f"a{number}"}},
                "ingress": [{"from": [peer], "ports": [{"port": 8080}]}],
            },
        }
    )


async def policies(report: figures.Report, pods: int, count: int, rounds: int) -> None:
    """Network policies: a pod that comes and goes among many."""
    nft, plan, planner = Nft(), Plan(Settings("node-1", network_policy=True)), Policies()

    def pod(number: int) -> Reachable:
        address = f"10.244.{number // 250}.{number % 250 + 1}"
        return Reachable(address, {"app": f"a{number % count}"}, is_here=number % 100 == 0)

    def take() -> None:
        for owner, fragment in planner.take().items():
            plan.place(owner, fragment)

    with figures.measured() as spent:
        for number in range(count):
            planner.put_policy(policy(number).key, policy(number))
        for number in range(pods):
            planner.put_pod(Key(f"n{number % 20}", f"p{number}"), pod(number))
        take()
    detail = f"CPU, {count} policies and {pods} pods to rules"
    report.add(f"policy.plan.{pods}", spent.cpu_s * 1000, "ms", detail)
    spent = await sync(nft, plan)
    report.add(f"policy.load.{pods}", spent.wall_s * 1000, "ms", "an empty table to all policies")
    changed = []
    for turn in range(rounds):
        planner.put_pod(Key("n0", "one"), pod(pods) if turn % 2 == 0 else None)
        take()
        changed.append(await sync(nft, plan))
    median(report, f"policy.change_one.{pods}", changed)
    await nft.remove(TABLE)
    await nft.close()


def in_pod(channel: Connection, work: Callable[[Connection], None]) -> None:
    """A pod: a process in a network namespace of its own, which ends with it."""
    if ctypes.CDLL(None, use_errno=True).unshare(NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "cannot make a network namespace")
    channel.send(os.getpid())
    address = channel.recv()
    ip("link set lo up")
    ip(f"addr add {address}/24 dev eth0")
    ip("link set eth0 up")
    ip("route add default via 10.244.1.1")
    work(channel)


def ip(words: str) -> None:
    subprocess.run(["ip", *words.split()], check=True)


@contextmanager
def pod(name: str, address: str, work: Callable[[Connection], None]) -> Iterator[Connection]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=in_pod, args=(theirs, work), daemon=True)
    process.start()
    try:
        pid = ours.recv()
        ip(f"link add {name} type veth peer name eth0 netns {pid}")
        ip(f"link set {name} master br0 up")
        ours.send(address)
        yield ours
    finally:
        process.kill()
        process.join(5)


def echoing(channel: Connection) -> None:
    """Answers every byte with a byte; a connection that begins with `s` is only read."""
    with socket.create_server(("0.0.0.0", PORT), backlog=128) as server:
        channel.send("listening")
        while True:
            connection, _ = server.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection, contextlib.suppress(ConnectionError):
                serve_one(connection)


def serve_one(connection: socket.socket) -> None:
    buffer = bytearray(1 << 18)
    while received := connection.recv_into(buffer):
        if buffer[0] == ord("s"):
            total = received
            while received := connection.recv_into(buffer):
                total += received
            return
        connection.sendall(b"e")


def calling(channel: Connection) -> None:
    """Measures both ways in turns: what disturbs the machine disturbs both."""
    rounds, requests, connections, megabytes = channel.recv()
    ways = {"direct": (SERVER, PORT), "service": (VIP, 80)}
    found: dict[str, dict[str, list[float]]] = {
        kind: {way: [] for way in ways} for kind in ("request", "connect", "stream")
    }
    for turn in range(rounds):
        order = list(ways) if turn % 2 else list(reversed(ways))
        for way in order:
            found["request"][way] += request_times(ways[way], requests)
        for _ in range(connections):
            for way in order:
                found["connect"][way].append(connect_time(ways[way]))
        for way in order:
            found["stream"][way].append(stream_time(ways[way], megabytes))
    channel.send(found)


def opened(where: tuple[str, int]) -> socket.socket:
    connection = socket.create_connection(where, timeout=5)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def request_times(where: tuple[str, int], count: int) -> list[float]:
    times = []
    with opened(where) as connection:
        for _ in range(count):
            started = time.perf_counter()
            connection.send(b"q")
            connection.recv(1)
            times.append(time.perf_counter() - started)
    return times


def connect_time(where: tuple[str, int]) -> float:
    started = time.perf_counter()
    with opened(where) as connection:
        connection.send(b"q")
        connection.recv(1)
    return time.perf_counter() - started


def stream_time(where: tuple[str, int], megabytes: int) -> float:
    piece = b"s" * (1 << 18)
    with opened(where) as connection:
        started = time.perf_counter()
        for _ in range(megabytes * 4):
            connection.sendall(piece)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)  # the server has read everything
        return time.perf_counter() - started


async def services_for(count: int) -> None:
    """The table of a busy node: many Services, policies on, ours among them."""
    plan = Plan(Settings("node-1", network_policy=True))
    for number in range(count):
        made, slices = objects(number)
        plan.put(made.key, made, slices)
    port = {"name": "x", "port": 80, "protocol": "TCP"}
    meta = {"name": "echo", "namespace": "bench"}
    echo = Service.of({"metadata": meta, "spec": {"clusterIP": VIP, "ports": [port]}})
    target = {"endpoints": [{"addresses": [SERVER]}], "ports": [{**port, "port": PORT}]}
    plan.put(echo.key, echo, [EndpointSlice.of({"metadata": meta, **target})])
    nft = Nft()
    await sync(nft, plan)
    await nft.close()


def traffic(report: figures.Report, count: int) -> None:
    """Direct access and the Service, from pod to pod over the node's bridge."""
    ip("link add br0 type bridge")
    ip("addr add 10.244.1.1/24 dev br0")
    ip("link set br0 up")
    for name in ("ipv4/ip_forward", "bridge/bridge-nf-call-iptables"):
        path = Path("/proc/sys/net") / name
        if path.exists():
            path.write_text("1")
    asyncio.run(services_for(count))
    amount = (8, 500, 60, 64) if report.quick else (20, 1500, 150, 128)
    with pod("server", SERVER, echoing) as server, pod("client", CLIENT, calling) as client:
        assert server.recv() == "listening"
        client.send(amount)
        found = client.recv()
    subprocess.run(["nft", "delete", "table", "ip", TABLE], check=True)
    for kind, title in (("request", "on an open connection"), ("connect", "a new connection")):
        both = {way: statistics.median(times) * 1e6 for way, times in found[kind].items()}
        added = (both["service"] / both["direct"] - 1) * 100
        for way, micros in both.items():
            detail = f"p50, one request {title}, {count} Services"
            report.add(f"service.{kind}.{way}", micros, "us", detail)
        report.add(f"service.{kind}.added", added, "%", "by the Service; target 5")
    speeds = {way: amount[3] / statistics.median(times) for way, times in found["stream"].items()}
    for way, speed in speeds.items():
        report.add(f"service.stream.{way}", speed, "MiB/s", "p50, one connection")
    lost = (1 - speeds["service"] / speeds["direct"]) * 100
    report.add("service.stream.lost", lost, "%", "by the Service; target 5")


def make_resolver(size: int) -> Resolver:
    zone = Zone()
    for number in range(size):
        service, slices = objects(number)
        zone.put(Key("bench", service.metadata.name), service, slices)
    resolver = Resolver(zone, Forwarder(lambda: ()))
    resolver.is_ready = True
    return resolver


def question(name: str, *, edns: bool = False) -> bytes:
    """As the C library asks; with EDNS0 as Go's resolver does."""
    head = bytes.fromhex("00070100000100000000000" + ("1" if edns else "0"))
    opt = bytes.fromhex("00002904d0000000000000") if edns else b""
    return head + wire.encode_name(name) + b"\0\1\0\1" + opt


def answers(report: figures.Report, count: int) -> None:
    resolver = make_resolver(1000)
    for label, name in (
        ("known", "s500.bench.svc.cluster.local"),
        ("unknown", "example.com.bench.svc.cluster.local"),
    ):
        packet = question(name)
        assert isinstance(resolver.answer(packet), bytes)
        started = time.process_time()
        for _ in range(count):
            resolver.answer(packet)
        spent_us = (time.process_time() - started) / count * 1e6
        report.add(f"dns.answer.{label}", spent_us, "us", f"CPU per answer, {count} answers")


def serve() -> None:
    import uvloop

    uvloop.run(DnsServer(make_resolver(1000), "127.0.0.1", 5353).run())


@contextmanager
def server() -> Iterator[int]:
    process = multiprocessing.get_context("spawn").Process(target=serve)
    process.start()
    try:
        assert process.pid is not None
        yield process.pid
    finally:
        process.terminate()
        process.join(5)


def cpu_s(pid: int) -> float:
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wire_answers(report: figures.Report, count: int) -> None:
    """Whole answers through a socket: what a core of the server can give."""
    plain = question("s500.bench.svc.cluster.local")
    with server() as pid, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", 5353))
        client.settimeout(0.2)
        for _ in range(100):
            try:
                client.send(plain)
                client.recv(512)
                break
            except OSError:  # not listening yet
                subprocess.run(["sleep", "0.1"], check=True)
        client.settimeout(5)
        for name, packet, detail in (
            ("dns.served", plain, "target 20000"),
            ("dns.served.edns", question("s500.bench.svc.cluster.local", edns=True), "with EDNS0"),
            ("dns.served.unknown", question("example.com.bench.svc.cluster.local"), "no such name"),
        ):
            spent, asked = ask_many(client, pid, packet, count)
            report.add(name, asked / spent, "queries/s", f"per core of the server, {detail}")


def ask_many(client: socket.socket, pid: int, packet: bytes, count: int) -> tuple[float, int]:
    """What `count` answers cost the server; a window of questions is always on its way."""
    window = 64
    before = cpu_s(pid)
    for _ in range(count // window):
        for _ in range(window):
            client.send(packet)
        for _ in range(window):
            client.recv(512)
    return cpu_s(pid) - before, count // window * window


def main() -> None:
    report = figures.Report.from_arguments(__doc__ or "")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    sizes, rounds = ([1000], 5) if report.quick else ([1000, 5000], 15)
    traffic(report, 1000)
    asyncio.run(rules(report, sizes, rounds))
    asyncio.run(policies(report, 1000 if report.quick else 5000, 100, rounds))
    answers(report, 100_000)
    wire_answers(report, 64_000 if report.quick else 256_000)
    report.finish()


if __name__ == "__main__":
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv])
    main()
