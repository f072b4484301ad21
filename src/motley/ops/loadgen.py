"""A closed-loop HTTP client, made to be copied into an image: `load URL`.

So many clients each send a request, wait for the answer, think, and send the next: a slow server
gets fewer requests, as with real users. Only Python's own library is used, and nothing of Motley:
the file runs alone.
"""

import argparse
import http.client
import json
import math
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from urllib.parse import urlsplit


class Load:
    """What all clients share: when to stop, and what was measured."""

    def __init__(self, url: str, timeout_s: float, think_s: float, budget: int) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError(f"{url!r} is no http URL")
        self._host, self._port = parts.hostname, parts.port or 80
        self._path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        self._timeout_s = timeout_s
        self._think_s = think_s
        self._left = budget  # requests still to be sent; -1: no limit
        self._lock = threading.Lock()
        self.stopping = threading.Event()
        self.latencies: list[float] = []
        self.codes: Counter[str] = Counter()

    def client(self) -> None:
        """One client, until told to stop."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        while self._may_send():
            begun = time.perf_counter()
            try:
                connection.request("GET", self._path)
                answer = connection.getresponse()
                answer.read()
                outcome = str(answer.status)
            except (OSError, http.client.HTTPException) as error:
                outcome = type(error).__name__
                connection.close()  # the next request opens another
            self._note(outcome, time.perf_counter() - begun)
            if not outcome.isdigit():
                self.stopping.wait(0.1)  # nobody is there: do not burn a core
            self.stopping.wait(self._think_s)
        connection.close()

    def _may_send(self) -> bool:
        with self._lock:
            if self.stopping.is_set() or self._left == 0:
                return False
            self._left -= self._left > 0
            return True

    def _note(self, outcome: str, took_s: float) -> None:
        with self._lock:
            self.codes[outcome] += 1
            if outcome.startswith("2"):
                self.latencies.append(took_s)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value that so large a share does not exceed; 0 of nothing."""
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)] if ordered else 0.0


def report(load: Load, took_s: float) -> dict[str, object]:
    """What came of it, in milliseconds and requests a second."""
    ordered = sorted(load.latencies)
    asked = sum(load.codes.values())
    return {
        "requests": asked,
        "failed": asked - len(ordered),
        "perSecond": round(len(ordered) / took_s, 1) if took_s else 0.0,
        "seconds": round(took_s, 2),
        "p50Ms": round(percentile(ordered, 0.50) * 1000, 2),
        "p95Ms": round(percentile(ordered, 0.95) * 1000, 2),
        "p99Ms": round(percentile(ordered, 0.99) * 1000, 2),
        "answers": dict(sorted(load.codes.items())),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; 1 when nothing was answered."""
    parser = argparse.ArgumentParser(prog="load", description="A closed-loop HTTP client.")
    parser.add_argument("url")
    parser.add_argument("-c", "--clients", type=int, default=4)
    parser.add_argument("-s", "--seconds", type=float, default=10.0, help="0: until told to end")
    parser.add_argument("-n", "--requests", type=int, default=-1, help="end after so many")
    parser.add_argument("--think-ms", type=float, default=0.0, help="pause of a client")
    parser.add_argument("--timeout", type=float, default=5.0, help="seconds to wait for an answer")
    given = parser.parse_args(arguments)
    try:
        load = Load(given.url, given.timeout, given.think_ms / 1000, given.requests)
    except ValueError as error:
        parser.error(str(error))
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: load.stopping.set())
    clients = [threading.Thread(target=load.client) for _ in range(max(1, given.clients))]
    begun = time.perf_counter()
    for client in clients:
        client.start()
    while any(client.is_alive() for client in clients):
        took_s = time.perf_counter() - begun
        if given.seconds and took_s >= given.seconds:
            load.stopping.set()
        load.stopping.wait(0.05)
        if load.stopping.is_set():
            for client in clients:
                client.join()
    print(json.dumps(report(load, time.perf_counter() - begun)), flush=True)
    return 0 if load.latencies else 1


if __name__ == "__main__":
    sys.exit(main())
