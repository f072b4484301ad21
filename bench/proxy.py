"""Service rules and names: what one change costs among many, and what an answer costs.

Runs in a network namespace of its own, which ends with it.
"""

import asyncio
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import figures
from motley.api.views.base import Key
from motley.api.views.core import EndpointSlice, Service
from motley.network.dns import wire
from motley.network.dns.forward import Forwarder
from motley.network.dns.resolver import Resolver
from motley.network.dns.server import DnsServer
from motley.network.dns.zone import Zone
from motley.network.proxy import ruleset
from motley.network.proxy.layout import Settings
from motley.network.proxy.nftables import Nft
from motley.network.proxy.plan import Plan

INSIDE = "MOTLEY_BENCH_INSIDE"
TABLE = "motley"


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


def make_resolver(size: int) -> Resolver:
    zone = Zone()
    for number in range(size):
        service, slices = objects(number)
        zone.put(Key("bench", service.metadata.name), service, slices)
    resolver = Resolver(zone, Forwarder(lambda: ()))
    resolver.is_ready = True
    return resolver


def question(name: str) -> bytes:
    return bytes.fromhex("000701000001000000000000") + wire.encode_name(name) + b"\0\1\0\1"


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
    packet = question("s500.bench.svc.cluster.local")
    with server() as pid, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
        client.connect(("127.0.0.1", 5353))
        client.settimeout(0.2)
        for _ in range(100):
            try:
                client.send(packet)
                client.recv(512)
                break
            except OSError:  # not listening yet
                subprocess.run(["sleep", "0.1"], check=True)
        before = cpu_s(pid)
        window = 64
        for _ in range(count // window):
            for _ in range(window):
                client.send(packet)
            for _ in range(window):
                client.recv(512)
        spent = cpu_s(pid) - before
    per_second = (count // window * window) / spent
    report.add("dns.served", per_second, "queries/s", "per core of the server, by UDP")


def main() -> None:
    report = figures.Report.from_arguments(__doc__ or "")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    sizes, rounds = ([100, 1000], 5) if report.quick else ([100, 1000, 5000], 15)
    asyncio.run(rules(report, sizes, rounds))
    answers(report, 100_000)
    wire_answers(report, 64_000 if report.quick else 256_000)
    report.finish()


if __name__ == "__main__":
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "1"
        os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv])
    main()
