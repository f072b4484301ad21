"""A server of our own to replay against: `motley apiserver` and the few controllers it needs.

The recorded server had only those controllers beside it that make namespaces usable, so that
nothing creates pods from a Deployment and no node is found missing.
"""

import os
import signal
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from motley.controllers import service
from motley.lib.clock import SYSTEM, Clock

from .transport import Target

_READY_S = 60.0
_TOKENS = 'admintoken,admin,1,"system:masters"\nalicetoken,alice,2,"developers"\n'
# Named as the recording's README names them.
_CONTROLLERS = (
    "serviceaccount",
    "namespace",
    "garbagecollector",
    "clusterroleaggregation",
    "resourcequota",
    "validatingadmissionpolicystatus",
)


@contextmanager
def running(directory: Path, *, store: str = "sqlite", clock: Clock = SYSTEM) -> Iterator[Target]:
    """A ready server for as long as the block runs; its logs are in the directory."""
    port = _free_port()
    tokens = directory / "tokens.csv"
    tokens.write_text(_TOKENS)
    url = f"https://127.0.0.1:{port}"
    data = directory / "data"
    command = ["apiserver", "--data-dir", str(data), "--port", str(port), "--store", store]
    command += ["--token-auth-file", str(tokens), "--log-level", "warning"]
    # As the recorded server was started; the plugin is not among kube-apiserver's default ones.
    command += ["--service-account-issuer", "https://kubernetes.default.svc"]
    command += ["--disable-admission-plugins", "NodeRestriction"]
    wanted = ",".join(name for name in _CONTROLLERS if name in service.NAMES)
    kubeconfig = str(data / "admin.kubeconfig")
    with _process(directory / "apiserver.log", command) as server:
        _until_ready(url, server, directory / "apiserver.log", clock)
        beside = ["controllers", "--kubeconfig", kubeconfig, "--no-leader-elect"]
        beside += ["--controllers", wanted, "--health-port", "0", "--log-level", "warning"]
        with _process(directory / "controllers.log", beside):
            yield Target(url, (data / "pki" / "ca.crt").read_bytes())


@contextmanager
def _process(log: Path, arguments: list[str]) -> "Iterator[subprocess.Popen[bytes]]":
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "motley.cli.main", *arguments], stdout=out, stderr=out
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.kill(process.pid, signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until_ready(url: str, process: "subprocess.Popen[bytes]", log: Path, clock: Clock) -> None:
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    deadline = clock.monotonic() + _READY_S
    while clock.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{url}/readyz", context=trusting, timeout=2):
                return
        except OSError:
            try:
                process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
            break
    raise RuntimeError(f"the server did not get ready:\n{log.read_text()[-4000:]}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
