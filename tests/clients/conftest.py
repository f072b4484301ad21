"""A real server process and real clients: what users run is what is tested.

kubectl is the one on PATH when it is recent enough, else the one `make setup` keeps in `.cache`.
Nothing is skipped: without a kubectl these tests fail and say what to do.
"""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from motley.client import kubeconfig
from motley.ops import freeports

from . import registries
from . import stock as stocks

asyncio.set_event_loop(None)  # see tests/conftest.py

ROOT = Path(__file__).parents[2]
MINIMUM = (1, 31)  # the first whose exec speaks WebSocket
DEADLINE_S = 60.0
JSON = {"Content-Type": "application/json"}


def wait_until(condition: Any, what: str, timeout_s: float = DEADLINE_S) -> Any:
    """Poll until the condition holds; its value."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if found := condition():
            return found
        _pause()
    raise AssertionError(f"not within {timeout_s} s: {what}")


def _pause() -> None:
    """A short wait that needs no banned sleep: a select on nothing."""
    import select

    select.select([], [], [], 0.05)


@dataclass
class Server:
    """`motley apiserver` as a process; `kill` and `start` keep data and port."""

    directory: Path
    port: int = field(default_factory=freeports.free_port)
    store: str = "sqlite"
    options: tuple[str, ...] = ()
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "admin.kubeconfig"

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def start(self) -> None:
        tokens = self.directory / "tokens.csv"
        tokens.write_text("secret-alice,alice,1,developers\n")
        command = [sys.executable, "-m", "motley.cli.main", "apiserver"]
        command += ["--data-dir", str(self.directory), "--port", str(self.port)]
        command += ["--store", self.store, "--token-auth-file", str(tokens), *self.options]
        with (self.directory / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(self._is_ready, "the server is ready")

    def _is_ready(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise AssertionError((self.directory / "server.log").read_text()[-4000:])
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", context=_trusting(), timeout=2):
                return True
        except OSError:
            return False

    def make_namespace(self, name: str) -> None:
        """Asked for before almost every test, so without a kubectl."""
        context = kubeconfig.load(self.kubeconfig).ssl_context()
        body = json.dumps({"metadata": {"name": name}}).encode()
        asked = urllib.request.Request(f"{self.url}/api/v1/namespaces", body, JSON, method="POST")
        with urllib.request.urlopen(asked, context=context, timeout=DEADLINE_S):
            pass

    def kill(self, number: int = signal.SIGKILL) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        return self.process.wait(30)


def _trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


@dataclass
class Output:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Kubectl:
    """Runs kubectl against one server, in one namespace, or where the words say."""

    binary: str
    kubeconfig: Path
    home: Path
    namespace: str = "default"

    def __call__(
        self, *arguments: str, stdin: str | None = None, fails: bool | None = False
    ) -> Output:
        """Run it; that it `fails`, or not, is asserted. None: either will do."""
        done = subprocess.run(
            self.command(*arguments),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S + 30,
            env=self.environment(),
            check=False,
        )
        output = Output(done.returncode, done.stdout, done.stderr)
        asserted = fails is None or (output.code != 0) is fails
        assert asserted, f"kubectl {arguments}: {output.out}{output.err}"
        return output

    def ready_nodes(self) -> set[str]:
        """Names of the nodes that pods may go to: being listed is not enough."""
        items = json.loads(self("get", "nodes", "-o", "json").out)["items"]
        return {node["metadata"]["name"] for node in items if _is_ready(node)}

    def command(self, *arguments: str) -> list[str]:
        place = ("-n", self.namespace) if self.namespace else ()
        return [self.binary, *place, *arguments]

    def environment(self) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),  # discovery caches stay out of the user's home
            "KUBECONFIG": str(self.kubeconfig),
        }


def _is_ready(node: dict[str, Any]) -> bool:
    said = {c["type"]: c["status"] for c in node["status"].get("conditions") or ()}
    taints = [taint["key"] for taint in node["spec"].get("taints") or ()]
    return said.get("Ready") == "True" and "node.kubernetes.io/not-ready" not in taints


@pytest.fixture(scope="session")
def kubectl_binary() -> str:
    for candidate in (shutil.which("kubectl"), str(ROOT / ".cache/bin/kubectl")):
        if candidate and Path(candidate).exists() and _version(candidate) >= MINIMUM:
            return candidate
    raise AssertionError(f"no kubectl {'.'.join(map(str, MINIMUM))} or later: run `make setup`")


def _version(binary: str) -> tuple[int, int]:
    shown = subprocess.run(
        [binary, "version", "--client", "-o", "json"], capture_output=True, check=True, timeout=30
    )
    version = json.loads(shown.stdout)["clientVersion"]
    return int(version["major"]), int(version["minor"].rstrip("+"))


@pytest.fixture(scope="module")
def server(tmp_path_factory, request) -> Iterator[Server]:
    """One server for a module, with its `SERVER_OPTIONS`; each test has its own namespace. What
    `prepare_server` of the module puts into the data directory is found there."""
    options = getattr(request.module, "SERVER_OPTIONS", ())
    running = Server(tmp_path_factory.mktemp("apiserver"), options=options)
    if prepare := getattr(request.module, "prepare_server", None):
        prepare(running.directory)
    running.start()
    yield running
    assert running.kill(signal.SIGTERM) == 0


@pytest.fixture
def own_server(tmp_path) -> Iterator[Server]:
    """A server that the test may kill."""
    running = Server(tmp_path)
    running.start()
    yield running
    running.kill()


@pytest.fixture(scope="session")
def until() -> Any:
    """Waits until a condition holds."""
    return wait_until


@pytest.fixture(scope="session")
def free_ports() -> Any:
    """Makes ports that nobody has now."""
    return freeports.free_ports


@pytest.fixture
def make_server(tmp_path) -> Iterator[Any]:
    """Makes servers with a store and options of the test's choice; all of them are killed."""
    made: list[Server] = []

    def make(store: str, *options: str) -> Server:
        directory = tmp_path / f"server{len(made)}"
        directory.mkdir()
        made.append(Server(directory, store=store, options=options))
        made[-1].start()
        return made[-1]

    yield make
    for running in made:
        running.kill()


@pytest.fixture
def kubectl_on(kubectl_binary, tmp_path) -> Any:
    """Makes a kubectl on a server of the test's own, by its kubeconfig or another one."""

    def make(server: Server, kubeconfig: Path | None = None) -> Kubectl:
        return Kubectl(kubectl_binary, kubeconfig or server.kubeconfig, tmp_path)

    return make


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Iterator[registries.Site]:
    """Two registries that answer."""
    made = registries.Site(tmp_path_factory.mktemp("registries"))
    with registries.running(made.prepare(), made.directory / "registries.log"):
        for host in (made.plain, made.guarded):
            wait_until(lambda host=host: registries.is_up(host), f"registry {host}")
        yield made


@pytest.fixture(scope="module")
def stock(kubectl_binary, tmp_path_factory) -> Iterator[stocks.Stock]:
    """A Kubernetes that knows nothing of Motley, for what `deploy/` brings; see `stock.py`."""
    home = tmp_path_factory.mktemp("home")
    directory = tmp_path_factory.mktemp("stock")
    with stocks.start(directory, lambda path: Kubectl(kubectl_binary, path, home, "")) as running:
        yield running


@pytest.fixture(scope="module")
def place(request) -> Any:
    """Motley's server with all its kinds, or kube-apiserver where there is one."""
    return request.getfixturevalue("stock" if os.environ.get(stocks.BINARIES) else "server")


_names = iter(range(1_000_000))


@pytest.fixture
def kubectl(server, kubectl_binary, tmp_path) -> Kubectl:
    """kubectl in a fresh namespace."""
    found = Kubectl(kubectl_binary, server.kubeconfig, tmp_path)
    found.namespace = f"t{next(_names)}"
    server.make_namespace(found.namespace)
    return found


@pytest.fixture(scope="session")
def components() -> Any:
    """Runs commands beside a server: `with components(server, [name, *options]) as log`."""

    @contextlib.contextmanager
    def run(server: Server, *commands: list[str], level: str = "warning") -> Iterator[Path]:
        options = ["--kubeconfig", str(server.kubeconfig), "--log-level", level]
        with (server.directory / f"components-{next(_names)}.log").open("wb") as log:
            running = [
                subprocess.Popen(
                    [sys.executable, "-m", "motley.cli.main", name, *options, *rest],
                    stdout=log,
                    stderr=log,
                )
                for name, *rest in commands
            ]
            try:
                yield Path(log.name)
            finally:
                for process in running:
                    process.terminate()
                for process in running:
                    process.wait(30)

    return run
