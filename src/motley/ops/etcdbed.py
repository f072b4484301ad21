"""An etcd of one's own on loopback: tests and benchmarks use it, clusters do not.

Real etcd processes with free ports and their data in a given directory; they can be killed and
started again with the same data. Invariant: `stop` leaves no process.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from motley.lib import clock
from motley.ops.failure import Failure
from motley.ops.freeports import free_ports

_PATH = "/usr/local/bin:/usr/bin:/opt/bin"
START_S = 30.0


def program() -> str | None:
    """Where etcd is installed."""
    return shutil.which("etcd") or shutil.which("etcd", path=_PATH)


def version() -> tuple[int, int]:
    """Major and minor of the installed etcd."""
    told = subprocess.run([_require(), "--version"], capture_output=True, text=True, timeout=20)
    found = re.search(r"etcd Version: (\d+)\.(\d+)", told.stdout)
    if found is None:
        raise Failure("etcd does not tell its version", told.stdout + told.stderr)
    return int(found[1]), int(found[2])


def _require() -> str:
    found = program()
    if found is None:
        raise Failure("etcd is not installed", "make setup, or apt-get install etcd-server")
    return found


@dataclass
class Tls:
    """Files of a server that wants client certificates."""

    ca: Path
    cert: Path
    key: Path


@dataclass
class Etcd:
    """One member."""

    directory: Path
    name: str = "m0"
    tls: Tls | None = None
    options: Sequence[str] = ()
    fsync: bool = True
    """Whether writes wait for the disk; only etcd 3.5 and later can be told not to."""
    ports: list[int] = field(default_factory=lambda: free_ports(3))
    members: str = ""
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def url(self) -> str:
        """Where clients reach it."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.ports[0]}"

    @property
    def member(self) -> str:
        """Its entry in the list of members."""
        return f"{self.name}=http://127.0.0.1:{self.ports[1]}"

    def launch(self) -> None:
        """Start the process, and do not wait for it."""
        peer = f"http://127.0.0.1:{self.ports[1]}"
        command = [_require(), "--name", self.name, "--data-dir", str(self.directory / self.name)]
        command += ["--listen-client-urls", self.url, "--advertise-client-urls", self.url]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", self.members or self.member]
        command += ["--listen-metrics-urls", self._metrics, "--log-level", "error"]
        if self.tls is not None:
            command += ["--client-cert-auth", "--trusted-ca-file", str(self.tls.ca)]
            command += ["--cert-file", str(self.tls.cert), "--key-file", str(self.tls.key)]
        if not self.fsync and version() >= (3, 5):
            command.append("--unsafe-no-fsync")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("ETCD_")}
        with (self.directory / f"{self.name}.log").open("ab") as output:
            self.process = subprocess.Popen(
                [*command, *self.options], stdout=output, stderr=output, env=inherited
            )

    async def ready(self) -> None:
        """Wait until it serves; raises Failure with its log when it does not come."""
        assert self.process is not None
        deadline = clock.SYSTEM.monotonic() + START_S
        while not self._is_healthy():
            if self.process.poll() is not None or clock.SYSTEM.monotonic() > deadline:
                told = (self.directory / f"{self.name}.log").read_text(errors="replace")
                self.kill()
                raise Failure("etcd does not start", told[-2000:])
            await clock.SYSTEM.sleep(0.02)

    async def start(self) -> None:
        """Start it, with the data it has, and wait until it serves."""
        self.launch()
        await self.ready()

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End the process and wait for that; harmless to repeat."""
        if self.process is not None:
            if self.process.poll() is None:
                self.process.send_signal(number)
            self.process.wait(20)
            self.process = None

    def make_room(self) -> None:
        """`etcdctl defrag` and `etcdctl alarm disarm`, by etcd's JSON gateway."""
        self._maintain("defragment", {})
        for alarm in self._maintain("alarm", {"action": "GET"}).get("alarms", ()):
            self._maintain("alarm", {**alarm, "action": "DEACTIVATE"})

    def _maintain(self, what: str, body: Mapping[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(
            f"{self.url}/v3/maintenance/{what}",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            found: dict[str, Any] = json.loads(answer.read())
        return found

    def pause(self) -> None:
        """Let the process stand still with its connections open, as a machine that hangs."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)  # its threads stop one by one

    def resume(self) -> None:
        """Let it go on."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    @property
    def _metrics(self) -> str:
        return f"http://127.0.0.1:{self.ports[2]}"

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self._metrics}/health", timeout=1) as answer:
                return b'"true"' in answer.read()
        except OSError:
            return False


def cluster(directory: Path, size: int) -> list[Etcd]:
    """Members of one cluster, not started."""
    found = [Etcd(directory, f"m{number}") for number in range(size)]
    for member in found:
        member.members = ",".join(other.member for other in found)
    return found
