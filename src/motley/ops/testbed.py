"""A whole cluster inside one network namespace: everything of it is real, nothing of it stays.

The namespace has a loopback device and an underlay bridge that carries the node's address, so that
ports and address ranges are the usual ones and never meet those of another cluster. Commands run
inside with nsenter, as an operator's shell on that machine would. Tests and benchmarks use it.

Invariant: `destroy` leaves nothing, in whatever state the cluster is.
"""

import functools
import http.client
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from motley.lib import clock
from motley.network.paths import nginx
from motley.ops import config as configs
from motley.ops import emulation, install, members, processes, remains
from motley.ops import overview as overviews
from motley.ops.testlookup import Lookup, connect_inside

T = TypeVar("T")
NODE_IP = "10.77.0.1"
_UNDERLAY = "under0"
_MOTLEY = (sys.executable, "-P", "-m", "motley.cli.main")

# Calls a Service again and again until its standard input closes, one connection each, and a few
# times at least; says when it has begun, and at the end how often it was answered and what went
# wrong.
_LOOP = """
import http.client, json, select, sys, time
address, port = sys.argv[1], int(sys.argv[2])
answers, failures, longest = 0, [], 0.0
while answers + len(failures) < 15 or not select.select([sys.stdin], [], [], 0)[0]:
    time.sleep(0.02)
    begun = time.monotonic()
    try:
        connection = http.client.HTTPConnection(address, port, timeout=5)
        connection.request("GET", "/")
        answer = connection.getresponse()
        assert answer.status == 200 and answer.read().startswith(b"hello from")
        connection.close()
        answers += 1
    except Exception as error:
        failures.append(f"{time.time():.3f} {error!r}")
    longest = max(longest, time.monotonic() - begun)
    if answers + len(failures) == 1:
        print("begun", flush=True)
print(json.dumps({"answers": answers, "failures": failures, "longest_s": longest}))
"""


class CommandFailed(AssertionError):
    """A command inside the testbed ended with an error; its output is the message."""


def eventually(check: Callable[[], T], timeout_s: float = 60.0, pause_s: float = 0.1) -> T:
    """The first true value of a check; AssertionError with the last reason when there is none."""
    deadline = clock.SYSTEM.monotonic() + timeout_s
    while True:
        reason: object = "it is still false"
        try:
            value = check()
            if value:
                return value
        except (AssertionError, OSError, subprocess.SubprocessError, LookupError) as error:
            reason = error
        if clock.SYSTEM.monotonic() > deadline:
            raise AssertionError(f"not within {timeout_s:.0f} s: {reason}")
        threading.Event().wait(pause_s)


class Testbed:
    """One cluster, its namespace and its directory."""

    __test__ = False  # not a test class, whatever pytest thinks of its name

    def __init__(self, cache: Path) -> None:
        """`cache` keeps images and kubectl between runs."""
        # Short: paths of sockets below it are limited.
        self.root = Path(tempfile.mkdtemp(prefix="motley-", dir="/tmp"))
        self.name = self.root.name
        self.cache = cache
        self._namespace = Path("/run/netns", self.name)
        self._lookup = Lookup(lambda: self.kubeconfig, self._namespace)

    @property
    def inside(self) -> list[str]:
        """What puts a command into the namespace."""
        # Not `ip netns exec`: it mounts a new /sys, which hides the cgroups.
        return ["nsenter", f"--net=/run/netns/{self.name}"]

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.root / "apiserver" / "admin.kubeconfig"

    def make_bare_namespace(self) -> None:
        """A machine without a network, for a cluster of several nodes: it makes its own."""
        subprocess.run(["ip", "netns", "add", self.name], check=True)
        subprocess.run([*self.inside, "ip", "link", "set", "lo", "up"], check=True)

    def make_namespace(self) -> None:
        """The machine the cluster runs on."""
        subprocess.run(["ip", "netns", "add", self.name], check=True)
        for line in (
            "link set lo up",
            f"link add {_UNDERLAY} type bridge",
            f"addr add {NODE_IP}/24 dev {_UNDERLAY}",
            f"link set {_UNDERLAY} up",
        ):
            subprocess.run([*self.inside, "ip", *line.split()], check=True)

    def make_neighbour(self, other: "Testbed", address: str) -> None:
        """Another machine on the network of a testbed that has its own."""
        subprocess.run(["ip", "netns", "add", self.name], check=True)
        port = f"to-{self.name[-8:]}"
        line = f"link add {_UNDERLAY} type veth peer name {port} netns {other.name}"
        for here, words in (
            (self, "link set lo up"),
            (self, line),
            (self, f"addr add {address}/24 dev {_UNDERLAY}"),
            (self, f"link set {_UNDERLAY} up"),
            (other, f"link set {port} master {_UNDERLAY} up"),
        ):
            subprocess.run([*here.inside, "ip", *words.split()], check=True)

    def answer(
        self, *command: object, timeout_s: float = 180.0, stdin: str | None = None
    ) -> tuple[int, str, str]:
        """Run a command inside: exit code, output, errors."""
        done = subprocess.run(
            [*self.inside, *map(str, command)],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            input=stdin,
        )
        return done.returncode, done.stdout, done.stderr

    def run(self, *command: object, timeout_s: float = 180.0, stdin: str | None = None) -> str:
        """Run a command inside that must succeed; its output."""
        code, out, errors = self.answer(*command, timeout_s=timeout_s, stdin=stdin)
        if code != 0:
            raise CommandFailed(f"{' '.join(map(str, command))}: exit {code}\n{out}\n{errors}")
        return out

    def motley(self, *arguments: object) -> str:
        """Run a `motley` command on this cluster."""
        return self.run(*_MOTLEY, *arguments, "--root", self.root)

    def up(self, *arguments: object) -> str:
        """`motley up`."""
        given = ("--node-ip", NODE_IP, "--image-cache", self.cache / "images")
        return self.motley("up", *given, *arguments)

    def up_nodes(self, count: int, *arguments: object) -> str:
        """`motley up --nodes`, where no network was made."""
        return self.motley(
            *("up", "--nodes", count, "--image-cache", self.cache / "images"),
            *("--no-functions", "--no-slurm", *arguments),
        )

    def node_inside(self, name: str) -> list[str]:
        """What puts a command into a further node's namespace."""
        config = configs.load(self.root) or configs.Config(root=self.root)
        return ["nsenter", f"--net=/run/netns/{members.namespace(config, name)}"]

    def status(self) -> Any:
        """`motley status -o json`, whatever its exit code."""
        _, out, _ = self.answer(*_MOTLEY, "status", "-o", "json", "--root", self.root)
        return msgspec.json.decode(out)

    def components(self) -> dict[str, Any]:
        """The components of `motley status` by name; asked often, so without the command."""
        return {one["name"]: one for one in msgspec.to_builtins(self._processes().components)}

    def all_run(self) -> bool:
        """What `motley status` says as well: every component runs and is supervised."""
        return self._processes().is_running

    def _processes(self) -> overviews.Overview:
        return overviews.processes_only(configs.load(self.root) or configs.Config(root=self.root))

    def kubectl(self, *arguments: object, stdin: str | None = None) -> str:
        """Real kubectl on this cluster."""
        words = ("--kubeconfig", self.kubeconfig, *arguments)
        return self.run(self.kubectl_program, *words, stdin=stdin)

    @functools.cached_property
    def kubectl_program(self) -> str:
        """Where kubectl is; finding out starts it once."""
        return install.kubectl(self.cache, say=lambda _: None)

    def get(self, *arguments: object) -> Any:
        """`kubectl get -o json`; asked often, so without a kubectl where that says the same."""
        found = self._lookup.get(*map(str, arguments))
        if found is not None:
            return found
        return msgspec.json.decode(self.kubectl("get", *arguments, "-o", "json"))

    def fetch(self, address: str, port: int = 80, timeout_s: float = 5.0) -> str:
        """One HTTP request from the node itself; the body."""
        connection = http.client.HTTPConnection(address, port)
        connection.sock = connect_inside(self._namespace, (address, port), timeout_s)
        try:
            connection.request("GET", "/", headers={"Connection": "close"})
            answer = connection.getresponse()
            body = answer.read().decode().strip()
        except http.client.HTTPException as error:
            raise CommandFailed(f"{address}:{port}: {error!r}") from error
        finally:
            connection.close()
        if answer.status != 200:
            raise CommandFailed(f"{address}:{port}: {answer.status} {body}")
        return body

    def requests(self, address: str, port: int = 80) -> "Requests":
        """Requests for as long as a `with` block runs."""
        return Requests([*self.inside, sys.executable, "-c", _LOOP, address, str(port)])

    def logs(self, count: int = 25) -> str:
        """The end of every component's log, for a failure's report."""
        shown = []
        for path in [*self.root.glob("logs/*.log"), *self.root.glob("nodes/*/logs/*.log")]:
            lines = path.read_text(errors="replace").splitlines()[-count:]
            shown.append("\n".join([f"--- {path.relative_to(self.root)}", *lines]))
        return "\n".join(shown)

    def leftovers(self) -> dict[str, Any]:
        """What is left of the cluster on the machine, by kind; empty when nothing is."""
        config = configs.load(self.root) or configs.Config(root=self.root)
        links = msgspec.json.decode(self.run("ip", "-json", "link", "show"))
        every = [config, *(members.member(config, name) for name in members.names(config))]
        found = {
            "processes": [p for one in every for p in processes.of_cluster(one.root)],
            "containers": [p for one in every for p in processes.in_cgroup(one.cgroup_root)],
            "nginx": nginx.running(config.gateway),
            "mounts": remains.mounts(self.root),
            "cgroups": [path for one in every for path in remains.cgroups(one.cgroup_root)],
            "namespaces": _namespaces(config),
            "links": {link["ifname"] for link in links} - {"lo", _UNDERLAY},
            "tables": self.run("nft", "list", "tables").strip(),
            "shims": {s for one in every for s in remains.shim_sockets(one.root / "containerd")},
        }
        return {kind: what for kind, what in found.items() if what}

    def destroy(self) -> None:
        """Take everything away, whatever state it is in."""
        self._lookup.close()
        if os.path.exists(f"/run/netns/{self.name}"):
            self.answer(*_MOTLEY, "down", "--grace", 0, "--root", self.root)
        for root in (self.root, *self.root.glob("nodes/*")):
            for process in processes.of_cluster(root):
                processes.send(process, signal.SIGKILL)
        nginx.send(nginx.running(self.root / "gateway"), signal.SIGKILL)
        for one in members.present(configs.Config(root=self.root)):
            if one.emulates:
                emulation.remove(one)
        remains.unmount(self.root)
        for name in _namespaces(configs.Config(root=self.root)):
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True)
        shutil.rmtree(self.root, ignore_errors=True)


def _namespaces(config: configs.Config) -> list[str]:
    """Namespaces that a cluster of several nodes makes."""
    prefix = members.namespace(config, "")
    return [name for name in os.listdir("/run/netns") if name.startswith(prefix)]


class Requests:
    """Requests through a Service while a block runs; afterwards what came of them."""

    def __init__(self, command: list[str]) -> None:
        self._command = command
        self.answers = 0
        self.failures: list[str] = []
        self.longest_s = 0.0

    def __enter__(self) -> "Requests":
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()
        return self

    def __exit__(self, *_: object) -> None:
        out, _errors = self._process.communicate(timeout=60)
        result = msgspec.json.decode(out)
        self.answers, self.failures = result["answers"], result["failures"]
        self.longest_s = result["longest_s"]
