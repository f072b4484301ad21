"""A steady load through a Service, from several processes: new connections and kept ones.

The same program runs on nodes and in a pod. It answers HTTP itself, so that its counts can be had
while it works and although no API server is there to ask through.
"""

import contextlib
import subprocess
import sys
from dataclasses import dataclass

import msgspec

from motley.lib import clock
from motley.ops.testbed import eventually

LINGER_S = 10.0  # a pod told to end serves on: endpoints go when there is a controller again
PORT, COUNTS_PORT = 8080, 9090
TIMEOUT_S = 5.0

# Answers with its pod's name and keeps connections. Told to end it serves on for a while, and says
# on every connection that it will close it.
SERVER = f"""
import os, signal, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
leaving = threading.Event()
def leave(*_):
    leaving.set()
    threading.Timer({LINGER_S}, os._exit, (0,)).start()
signal.signal(signal.SIGTERM, leave)
class Hello(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    def do_GET(self):
        body = os.environ["HOSTNAME"].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        if leaving.is_set():
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
    def log_request(self, *_):
        pass
class Server(ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True
Server(("", {PORT}), Hello).serve_forever()
"""

# caller.py ADDRESS PORT COUNTS_PORT: two callers, one with a connection per request and one that
# keeps its own, and their counts over HTTP.
CALLER = f"""
import http.client, json, os, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
address, port, counts_port = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
counts = {{"answers": {{"new": 0, "kept": 0}}, "longest_s": 0.0, "failures": [], "names": {{}}}}
def call(keeps):
    kind = "kept" if keeps else "new"
    connection, used = None, 0
    while True:
        begun = time.time()
        started = time.monotonic()
        try:
            if connection is None:
                connection, used = http.client.HTTPConnection(address, port, timeout={TIMEOUT_S}), 0
                phase = "connect"
                connection.connect()
            phase = "answer"
            connection.request("GET", "/")
            answer = connection.getresponse()
            name = answer.read().decode()
            assert answer.status == 200 and name, answer.status
            counts["answers"][kind] += 1
            counts["names"][name] = counts["names"].get(name, 0) + 1
            used += 1
            # Kept for some seconds: so that one is always open to every pod, and new ones are made.
            if not keeps or answer.will_close or used >= 100:
                connection.close()
                connection = None
        except Exception as error:
            counts["failures"].append([begun, kind, f"{{phase}}: {{error!r}}"])
            if connection is not None:
                connection.close()
            connection = None
        counts["longest_s"] = max(counts["longest_s"], time.monotonic() - started)
        time.sleep(0.04)
class Counts(BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps(counts).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_request(self, *_):
        pass
for keeps in (False, True):
    threading.Thread(target=call, args=(keeps,), daemon=True).start()
ThreadingHTTPServer(("", counts_port), Counts).serve_forever()
"""


@dataclass(frozen=True)
class Failure:
    """A request that failed: who made it, when it began, over which kind of connection."""

    caller: str
    begun: float
    kind: str
    error: str


class Load:
    """Callers on the given nodes of a testbed, and one in a pod."""

    def __init__(self, testbed, vip):
        self._testbed = testbed
        self._vip = vip
        self._processes = {}
        self._where = {}  # caller → the address of its counts, as the first node reaches it

    def call_from(self, name, address, inside):
        """A caller on a node, which has an address and can be entered."""
        words = [self._vip, "80", str(COUNTS_PORT)]
        self._processes[name] = subprocess.Popen([*inside, sys.executable, "-c", CALLER, *words])
        self._where[name] = address

    def call_from_pod(self, name, address):
        """A caller that runs in a pod."""
        self._where[name] = address

    def counts(self):
        """What every caller has to say."""
        said = {}
        for name, address in self._where.items():
            fetch = lambda where=address: self._testbed.fetch(where, COUNTS_PORT)  # noqa: E731
            said[name] = msgspec.json.decode(eventually(fetch))
        return said

    def answers(self):
        """Requests answered so far, per caller and kind of connection."""
        return {
            (name, kind): count
            for name, said in self.counts().items()
            for kind, count in said["answers"].items()
        }

    def names(self):
        """The pods that have answered, and how often."""
        found = {}
        for said in self.counts().values():
            for name, count in said["names"].items():
                found[name] = found.get(name, 0) + count
        return found

    def failures(self, since=0.0):
        """Requests that failed, of those begun after a moment."""
        found = [
            Failure(name, *one) for name, said in self.counts().items() for one in said["failures"]
        ]
        return [one for one in found if one.begun >= since]

    @contextlib.contextmanager
    def goes_on(self):
        """Everybody is answered during the block, and no request of it fails."""
        since, before = clock.SYSTEM.now(), self.answers()
        yield
        self.all_answered_since(before)
        failed = self.failures(since)
        assert failed == [], f"{len(failed)} requests failed: {failed[:5]}"

    def all_answered_since(self, before):
        """Every caller has been answered again, a few times."""

        def enough():
            return all(count > before[who] + 3 for who, count in self.answers().items())

        eventually(enough)

    def stop(self):
        """End the callers that are processes here."""
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait(10)
