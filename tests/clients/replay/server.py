"""A server of our own to replay against: `motley apiserver` and the few controllers it needs.

The recorded server had only those controllers beside it that make namespaces usable, so that
nothing creates pods from a Deployment and no node is found missing.
"""

import os
import signal
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from motley.controllers import service
from motley.lib.clock import SYSTEM, Clock
from motley.ops.freeports import free_port

from .transport import Target, Transport

_READY_S = 60.0
_COMPACTED_S = 10.0
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


_NOT_THERE = (
    "autoscaling.k8s.io/v1",
    "autoscaling/v2beta2",
    "extensions/v1beta1",
    "scheduling.k8s.io/v1beta1",
    "scheduling.x-k8s.io/v1alpha1",
    "motley.io/v1",
)


@contextmanager
def running(directory: Path, *, store: str = "sqlite", clock: Clock = SYSTEM) -> Iterator[Target]:
    """A ready server for as long as the block runs; its logs are in the directory."""
    port = free_port()
    tokens = directory / "tokens.csv"
    tokens.write_text(_TOKENS)
    url = f"https://127.0.0.1:{port}"
    data = directory / "data"
    command = ["apiserver", "--data-dir", str(data), "--port", str(port), "--store", store]
    command += ["--token-auth-file", str(tokens), "--log-level", "warning"]
    # As the recorded server was started; the plugin is not among kube-apiserver's default ones.
    command += ["--service-account-issuer", "https://kubernetes.default.svc"]
    command += ["--disable-admission-plugins", "NodeRestriction"]
    # Kubernetes 1.37 has none of these.
    command += ["--runtime-config", ",".join(f"{version}=false" for version in _NOT_THERE)]
    wanted = ",".join(name for name in _CONTROLLERS if name in service.NAMES)
    kubeconfig = str(data / "admin.kubeconfig")
    with _process(directory / "apiserver.log", command) as server:
        _until_ready(url, server, directory / "apiserver.log", clock)
        beside = ["controllers", "--kubeconfig", kubeconfig, "--no-leader-elect"]
        beside += ["--controllers", wanted, "--health-port", "0", "--log-level", "warning"]
        with _process(directory / "controllers.log", beside):
            ca = (data / "pki" / "ca.crt").read_bytes()
            yield Target(url, ca, compact=_compaction(Target(url, ca), server.pid, clock))


def _compaction(target: Target, pid: int, clock: Clock) -> Callable[[], Awaitable[None]]:
    """Have the server forget its past, and wait until the store says it has."""
    path = "/api/v1/namespaces/default/endpoints?resourceVersion=1&resourceVersionMatch=Exact"

    async def compact() -> None:
        os.kill(pid, signal.SIGUSR1)
        deadline = clock.monotonic() + _COMPACTED_S
        async with Transport(target) as transport:
            while (await transport.send("GET", path, {}, "admin", None)).status != 410:
                if clock.monotonic() > deadline:
                    raise RuntimeError("the server does not compact its store")
                await clock.sleep(0.02)

    return compact


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
