"""Remote-write: the wire by an independent reader, the queue against a receiver that fails, and
the whole against a real Prometheus."""

import asyncio
import contextlib
import json
import struct
import subprocess
import tracemalloc
import urllib.parse
import urllib.request

from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from motley.lib import clock as clocks
from motley.metrics import remotewrite_wire as wire
from motley.metrics.export import Point
from motley.metrics.remotewrite import RemoteWrite, Target
from motley.ops.freeports import free_port


def a_point(value, name="motley_node_cpu_usage_cores", **labels):
    return Point(name, tuple(sorted(labels.items())), value)


def unsnappy(data):
    """Snappy's block format, read by the letter of its description."""
    length, at, shift = 0, 0, 0
    while True:
        byte = data[at]
        at += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    out = bytearray()
    while at < len(data):
        tag = data[at]
        at += 1
        if tag & 3 == 0:
            size = tag >> 2
            if size >= 60:
                extra = size - 59
                size = int.from_bytes(data[at : at + extra], "little")
                at += extra
            out += data[at : at + size + 1]
            at += size + 1
        else:
            assert tag & 3 == 2, "only copies with offsets of two bytes are written"
            size, offset = (tag >> 2) + 1, int.from_bytes(data[at : at + 2], "little")
            at += 2
            assert 0 < offset <= len(out)
            for _ in range(size):
                out.append(out[-offset])
    assert len(out) == length
    return bytes(out)


def fields(message):
    """The fields of a protobuf message: number and value."""
    at, found = 0, []
    while at < len(message):
        key, at = varint(message, at)
        if key & 7 == 2:
            size, at = varint(message, at)
            found.append((key >> 3, message[at : at + size]))
            at += size
        elif key & 7 == 1:
            found.append((key >> 3, struct.unpack("<d", message[at : at + 8])[0]))
            at += 8
        else:
            value, at = varint(message, at)
            found.append((key >> 3, value))
    return found


def varint(message, at):
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def read(body):
    """Series as a receiver understands them: labels, value, milliseconds."""
    found = []
    for _, series in fields(unsnappy(body)):
        parts = fields(series)
        labels = {
            dict(fields(label))[1].decode(): dict(fields(label))[2].decode()
            for number, label in parts
            if number == 1
        }
        sample = dict(fields(next(v for number, v in parts if number == 2)))
        found.append((labels, sample[1], sample[2]))
    return found


@given(st.lists(st.sampled_from([b"abcd", b"motley_", b"\x00", b"z" * 300]), max_size=600))
def test_what_is_compressed_can_be_read_again(parts):
    data = b"".join(parts)
    assert unsnappy(wire.snappy(data)) == data


@given(st.binary(max_size=3000))
def test_what_does_not_repeat_hardly_grows(data):
    packed = wire.snappy(data)
    assert unsnappy(packed) == data
    assert len(packed) <= len(data) + len(data) // 60 + 16


def test_more_than_a_block_can_be_read_again():
    data = bytes(range(256)) * 1000 + b"end"
    packed = wire.snappy(data)
    assert unsnappy(packed) == data
    assert len(packed) < len(data) / 10


def test_a_point_becomes_a_series_with_labels_in_order():
    points = [(a_point(0.5, node="n-1"), 12.345)]
    body = wire.snappy(wire.request(points, [("cluster", "lab")]))
    labels = {"__name__": "motley_node_cpu_usage_cores", "cluster": "lab", "node": "n-1"}
    assert read(body) == [(labels, 0.5, 12345)]
    assert list(read(body)[0][0]) == sorted(labels)


class Receiver:
    """Answers with the codes of a script, then with 204."""

    def __init__(self, *codes):
        self.codes = list(codes)
        self.taken, self.headers = [], []

    async def handle(self, request):
        body = await request.read()
        self.headers.append(dict(request.headers))
        code = self.codes.pop(0) if self.codes else 204
        if code < 300:
            self.taken += read(body)
        return web.Response(status=code, text="no" if code >= 300 else "")


@contextlib.asynccontextmanager
async def receiving(receiver, port=0):
    app = web.Application()
    app.router.add_post("/write", receiver.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


class Hurry:
    """Waits are noted, and hardly waited for."""

    def __init__(self):
        self.waits = []

    def now(self):
        return clocks.SYSTEM.now()

    def monotonic(self):
        return clocks.SYSTEM.monotonic()

    async def sleep(self, seconds):
        self.waits.append(seconds)
        await clocks.SYSTEM.sleep(0.01)


@contextlib.asynccontextmanager
async def sending(target, every_s=10.0, clock=None):
    sender = RemoteWrite(target, every_s, clock or Hurry())
    async with asyncio.TaskGroup() as group:
        task = group.create_task(sender.run())
        yield sender
        task.cancel()


async def until(condition, within_s=10.0):
    async with asyncio.timeout(within_s):
        while not condition():
            await clocks.SYSTEM.sleep(0.01)


async def test_a_receiver_that_fails_for_a_while_gets_everything_in_order(tmp_path):
    receiver, clock = Receiver(503, 500, 429, 204, 503), Hurry()
    token = tmp_path / "token"
    token.write_text("secret\n")
    async with receiving(receiver) as port:
        target = Target(f"http://127.0.0.1:{port}/write", token)
        async with sending(target, clock=clock) as sender:
            for i in range(5):
                sender.take([a_point(float(i), node="n")], 100.0 + i)
            await until(lambda: sender.counts.sent == 5)
    assert [value for _, value, _ in receiver.taken] == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert [at for *_, at in receiver.taken] == [100000, 101000, 102000, 103000, 104000]
    assert receiver.headers[0]["Authorization"] == "Bearer secret"
    assert receiver.headers[0]["Content-Encoding"] == "snappy"
    assert clock.waits[0] < clock.waits[1] < clock.waits[2], "longer each time"
    assert (sender.counts.dropped, sender.counts.refused) == (0, 0)


async def test_what_is_refused_for_good_is_not_sent_again():
    receiver = Receiver(400)
    async with (
        receiving(receiver) as port,
        sending(Target(f"http://127.0.0.1:{port}/write")) as sender,
    ):
        sender.take([a_point(1.0)], 1.0)
        sender.take([a_point(2.0)], 2.0)
        await until(lambda: sender.counts.sent == 1)
    assert [value for _, value, _ in receiver.taken] == [2.0]
    assert sender.counts.refused == 1


async def test_rounds_that_wait_for_a_silent_receiver_take_little_memory():
    """Two hours of ten thousand pods would else be eight gigabytes."""

    def a_round(at):
        labels = [(("container", "c"), ("pod", f"web-{at * 0}-{i}")) for i in range(2000)]
        return [Point(f"motley_{at * 0}_use", one, at + i) for i, one in enumerate(labels)]

    sender = RemoteWrite(Target("http://127.0.0.1:9"), every_s=10.0)
    sender.take(a_round(0), 0.0)
    sender.take(a_round(1), 10.0)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for at in range(2, 52):
            sender.take(a_round(at), at * 10.0)
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert sender.waiting == 52
    assert used / (50 * 2000) < 64, "bytes a figure, its share of everything included"


async def test_a_queue_that_is_full_lets_the_oldest_go():
    sender = RemoteWrite(Target("http://127.0.0.1:9/write"), every_s=2400.0)
    for i in range(5):
        sender.take([a_point(float(i))], float(i))
    assert sender.waiting == 3
    assert sender.counts.dropped == 2


async def test_a_round_with_very_many_points_goes_in_parts():
    receiver = Receiver()
    async with (
        receiving(receiver) as port,
        sending(Target(f"http://127.0.0.1:{port}/write")) as sender,
    ):
        sender.take([a_point(float(i), node=f"n-{i}") for i in range(4500)], 1.0)
        await until(lambda: sender.counts.sent == 4500)
    assert len(receiver.headers) == 3
    assert len(receiver.taken) == 4500


@contextlib.contextmanager
def prometheus(directory, port):
    (directory / "prometheus.yml").write_text("global: {scrape_interval: 1h}\n")
    process = subprocess.Popen(
        [
            "prometheus",
            f"--config.file={directory}/prometheus.yml",
            f"--storage.tsdb.path={directory}/data",
            f"--web.listen-address=127.0.0.1:{port}",
            "--web.enable-remote-write-receiver",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(20)


def asked(port, query):
    url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return json.load(answer)["data"]["result"]
    except OSError:
        return []


async def test_a_real_prometheus_has_every_sample_also_after_an_outage(tmp_path):
    port = free_port()
    target = Target(f"http://127.0.0.1:{port}/api/v1/write", labels=(("cluster", "lab"),))
    begun = int(clocks.SYSTEM.now()) - 100
    query = 'motley_node_cpu_usage_normalized_cores{cluster="lab"}[10m]'

    async def values(count):
        async with asyncio.timeout(30):
            while True:
                found = await asyncio.to_thread(asked, port, query)
                if found and len(found[0]["values"]) >= count:
                    return found[0]
                await clocks.SYSTEM.sleep(0.1)

    async with sending(target) as sender:

        def measure(i):
            points = [a_point(i / 4, "motley_node_cpu_usage_normalized_cores", node="n-1")]
            sender.take(points, begun + i)

        with prometheus(tmp_path, port):
            for i in range(5):
                measure(i)
            await values(5)
        for i in range(5, 10):  # nobody listens
            measure(i)
        with prometheus(tmp_path, port):
            for i in range(10, 15):
                measure(i)
            found = await values(15)
    assert found["metric"]["node"] == "n-1"
    assert [(int(at) - begun, float(v)) for at, v in found["values"]] == [
        (i, i / 4) for i in range(15)
    ]
