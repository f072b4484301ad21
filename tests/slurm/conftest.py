"""A real Slurm, a real API server and a real bridge, one of each for all tests here."""

import base64
import contextlib
import http.client
import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from motley.apiserver import tls
from motley.client import kubeconfig
from motley.ops import install
from motley.ops.freeports import free_port

HERE = Path(__file__).parent


def _module(path: Path) -> Any:
    # As a package of its own, so that it finds the files beside it.
    spec = importlib.util.spec_from_file_location(
        f"motley_tests_{path.stem}", path, submodule_search_locations=[str(path.parent)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


slurmbed = _module(HERE / "slurmbed.py")
clients = _module(HERE.parent / "clients/conftest.py")
wait_until = slurmbed.wait_until
Proxy = slurmbed.Proxy


_PATHS = {
    "slurmjobs": "/apis/motley.io/v1/namespaces/default/slurmjobs",
    "slurmclusters": "/apis/motley.io/v1/slurmclusters",
    "configmaps": "/api/v1/namespaces/default/configmaps",
    "pods": "/api/v1/namespaces/default/pods",
    "nodes": "/api/v1/nodes",
}


class Refused(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass
class Bridge:
    """`motley slurm bridge` as a process."""

    kubeconfig: Path
    directory: Path
    options: tuple[str, ...] = ()
    process: "subprocess.Popen[bytes] | None" = None

    def start(self, **environment: str) -> None:
        self.directory.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "motley.cli.main", "slurm", "bridge", "--health-port=0"]
        command += ["--kubeconfig", str(self.kubeconfig), "--directory", str(self.directory)]
        command += ["--poll-s=0.3", *self.options]
        with (self.directory / "bridge.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, **environment}
            )

    def kill(self, number: int = signal.SIGKILL) -> None:
        if self.process is not None:
            if self.process.poll() is None:
                os.kill(self.process.pid, number)
            self.process.wait(10)
            self.process = None


@dataclass
class World:
    """What the tests work with."""

    slurm: Any
    server: Any
    proxy: Any
    bridge: Bridge
    kubectl: Any
    local: Path  # what jobs call D:\\work
    names: Iterator[int] = field(default_factory=lambda: iter(range(10_000)))
    refused: type[Exception] = Refused
    _api: http.client.HTTPSConnection | None = None

    def job(self, name: str = "", *, metadata: dict[str, Any] | None = None, **spec: Any) -> str:
        """Create a SlurmJob; its name."""
        name = name or f"job{next(self.names)}"
        document = {
            "apiVersion": "motley.io/v1",
            "kind": "SlurmJob",
            "metadata": {"name": name, **(metadata or {})},
            "spec": spec,
        }
        self.call("POST", "/apis/motley.io/v1/namespaces/default/slurmjobs", document)
        return name

    def call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Any:
        """One request to the API; quicker than a kubectl."""
        if self._api is None:  # kept open: a handshake for every look would be most of the work
            context = kubeconfig.load(self.server.kubeconfig).ssl_context()
            self._api = http.client.HTTPSConnection(
                "127.0.0.1", self.server.port, context=context, timeout=20
            )
        data = None if body is None else json.dumps(body)
        self._api.request(method, path, data, {"Content-Type": kind})
        answer = self._api.getresponse()
        document = json.loads(answer.read())
        if answer.status >= 400:
            raise Refused(answer.status, document["message"])
        return document

    def close(self) -> None:
        if self._api is not None:
            self._api.close()

    def get(self, name: str, kind: str = "slurmjobs") -> dict[str, Any]:
        found: dict[str, Any] = self.call("GET", f"{_PATHS[kind]}/{name}")
        return found

    def delete(self, name: str, kind: str = "slurmjobs") -> None:
        self.call("DELETE", f"{_PATHS[kind]}/{name}")

    def is_gone(self, name: str, kind: str = "slurmjobs") -> bool:
        try:
            self.get(name, kind)
        except Refused as error:
            return error.code == 404
        return False

    def patch(self, name: str, change: dict[str, Any], kind: str = "slurmjobs") -> Any:
        path = f"{_PATHS[kind]}/{name}"
        return self.call("PATCH", path, change, "application/merge-patch+json")

    def events(self, name: str) -> list[dict[str, Any]]:
        path = f"/api/v1/namespaces/default/events?fieldSelector=involvedObject.name={name}"
        found: list[dict[str, Any]] = self.call("GET", path)["items"]
        return found

    def pod(self, name: str, node: str, **container: Any) -> None:
        """A pod on one of the nodes that stand for clusters; its container is called main."""
        spec = {
            "restartPolicy": "Never",
            "tolerations": [{"key": "motley.io/slurm", "operator": "Exists"}],
            "nodeName": node,
            "containers": [{"name": "main", "image": "example.com/tool:1", **container}],
        }
        body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        self.call("POST", _PATHS["pods"], body)

    def until_pod(self, name: str, phase: str) -> Any:
        def seen() -> Any:
            status = self.get(name, "pods")["status"]
            return status if status["phase"] == phase else None

        return wait_until(seen, f"pod {name} is {phase}")

    def until_ready(self, node: str) -> None:
        def is_ready() -> bool:
            if self.is_gone(node, "nodes"):
                return False
            return self.condition(self.get(node, "nodes").get("status", {}), "Ready") == "True"

        wait_until(is_ready, f"node {node} is ready")

    def status(self, name: str) -> dict[str, Any]:
        return self.get(name).get("status", {})

    def until(self, name: str, phase: str, timeout_s: float = 60.0, reason: str = "") -> Any:
        """Wait for a phase, and after the end for the results as well; the status then."""
        seen: dict[str, Any] = {}

        def reached() -> bool:
            seen.clear()
            seen.update(self.status(name))
            if seen.get("phase") != phase or (reason and seen.get("reason") != reason):
                return False
            is_over = phase in ("Completed", "Failed", "Cancelled")
            return (
                not (is_over and seen.get("jobID")) or self.condition(seen, "Downloaded") == "True"
            )

        try:
            wait_until(reached, f"{name} is {phase}", timeout_s)
        except AssertionError:
            log = (self.bridge.directory / "bridge.log").read_text()[-6000:]
            raise AssertionError(f"{name} is not {phase}: {seen}\n{log}") from None
        return seen

    def condition(self, status: dict[str, Any], kind: str, what: str = "status") -> Any:
        return next((c.get(what) for c in status.get("conditions", []) if c["type"] == kind), None)

    def results(self, name: str) -> dict[str, bytes]:
        found = self.get(f"{name}-slurm-results", "configmaps")["binaryData"]
        return {key: base64.b64decode(value) for key, value in found.items()}

    def cluster(self, name: str, **spec: Any) -> None:
        """Apply a SlurmCluster; by default through the proxy, with the right key."""
        secret = spec.pop("secret", "slurm")
        document = {
            "apiVersion": "motley.io/v1",
            "kind": "SlurmCluster",
            "metadata": {"name": name},
            "spec": {
                "hosts": [f"127.0.0.1:{self.proxy.port}"],
                "user": "root",
                "credentialsSecret": {"namespace": "default", "name": secret},
                "hostKeys": [self.slurm.host_key],
                "workDirectory": str(self.slurm.directory / "work"),
                # A login shell of Debian's sets PATH anew.
                "setup": f"export PATH={self.slurm.directory}/bin:$PATH",
                **spec,
            },
        }
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(document))

    def secret(self, name: str, key: str, **more: str) -> None:
        document = {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "kubernetes.io/ssh-auth",
            "metadata": {"name": name},
            "stringData": {"ssh-privatekey": key, **more},
        }
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(document))

    def until_connected(self, name: str, is_good: bool = True, timeout_s: float = 60.0) -> Any:
        def seen() -> Any:
            conditions = self.get(name, "slurmclusters").get("status", {}).get("conditions", [])
            return next(
                (c for c in conditions if c["status"] == ("True" if is_good else "False")), None
            )

        return wait_until(seen, f"{name} connected: {is_good}", timeout_s)

    @contextlib.contextmanager
    def components(self, *commands: list[str]) -> Iterator[None]:
        """Other components beside the server, for a while."""
        options = ["--kubeconfig", str(self.server.kubeconfig), "--health-port=0"]
        motley = [sys.executable, "-m", "motley.cli.main"]
        with (self.server.directory / "components.log").open("ab") as log:
            running = [
                subprocess.Popen([*motley, *words, *options], stdout=log, stderr=log)
                for words in commands
            ]
            try:
                yield
            finally:
                for process in running:
                    process.terminate()
                for process in running:
                    process.wait(20)

    def submissions(self, name: str, count: int = 1) -> list[str]:
        """Every submission that sacct knows of, once it knows of as many; it learns late."""
        wait_until(lambda: len(self.slurm.submissions(f"{name}.")) >= count, f"sacct knows {name}")
        found: list[str] = self.slurm.submissions(f"{name}.")
        return found

    def gate(self, name: str) -> tuple[str, Path]:
        """A command that waits, and the file that it waits for."""
        path = self.slurm.directory / f"gate-{name}"
        return f"while [ ! -e {path} ]; do sleep 0.1; done", path

    def answers(self, host: str) -> bool:
        """Does somebody listen on this machine at `127.0.0.1:PORT`?"""
        heard: bool = slurmbed.answers(int(host.rpartition(":")[2]))
        return heard

    def wait(self, condition: Any, what: str, timeout_s: float = 60.0) -> Any:
        return wait_until(condition, what, timeout_s)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "motley.cli.main", "slurm", *words]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "KUBECONFIG": str(self.server.kubeconfig)}

    def motley(self, *words: str, fails: bool = False, **options: Any) -> str:
        done = subprocess.run(
            self.command(*words), capture_output=True, text=True, timeout=60, check=False,
            env=self.environment, **options,
        )  # fmt: skip
        assert (done.returncode != 0) is fails, done.stdout + done.stderr
        return done.stdout + done.stderr


def serving(directory: Path) -> tuple[str, ...]:
    """Options by which a bridge serves virtual nodes, with a certificate of the API server's."""
    pki = tls.load(directory)
    cert, key = directory / "bridge.crt", directory / "bridge.key"
    tls.write_pair(cert, key, tls.issue_server(pki, "system:motley-slurm", ["127.0.0.1"]))
    files = (f"--tls-cert={cert}", f"--tls-key={key}", f"--client-ca={pki.ca_file}")
    return (*files, "--node-ip=127.0.0.1", f"--port={free_port()}")


@pytest.fixture(scope="session")
def world(tmp_path_factory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("slurm")
    server = clients.Server(tmp_path_factory.mktemp("apiserver"), store="memory")
    server.options = ("--compat", "minik8s")
    with slurmbed.running(directory) as slurm:
        server.start()
        proxy = Proxy(slurm.ssh_port)
        home = tmp_path_factory.mktemp("home")
        kubectl_binary = install.find_kubectl(HERE.parents[1] / ".cache")
        assert kubectl_binary, "no kubectl: run `make setup`"
        kubectl = clients.Kubectl(kubectl_binary, server.kubeconfig, home)
        results = tmp_path_factory.mktemp("local")
        options = ("--local-root", rf"D:\work={results}", *serving(server.directory))
        bridge = Bridge(server.kubeconfig, home / "bridge", options)
        made = World(slurm, server, proxy, bridge, kubectl, results)
        try:
            bridge.start()
            made.secret("slurm", slurm.key())
            made.cluster("default")
            made.until_connected("default")
            yield made
        finally:
            bridge.kill(signal.SIGTERM)
            made.close()
            proxy.close()
            server.kill(signal.SIGTERM)


@pytest.fixture(scope="session")
def nodes(world: World) -> World:
    """Clusters as nodes: two can run images, each in its own way, and one cannot."""
    world.cluster("default", virtualNode={})
    bare = [f"127.0.0.1:{world.slurm.bare_port}"]
    world.cluster("plain", hosts=bare, virtualNode={"name": "plain-node"})
    world.cluster("unpacking", virtualNode={"runtime": "Enroot"})
    for name in ("slurm-default", "plain-node", "slurm-unpacking"):
        world.until_ready(name)
    return world
