"""Nodes and pods as network namespaces, made by the test and always removed again."""

import contextlib
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

INSIDE = Path(__file__).parent / "inside"
CNI = Path("/usr/lib/cni")
API_PORT = 18080
_numbers = itertools.count()

KUBECONFIG = f"""\
apiVersion: v1
kind: Config
current-context: test
contexts: [{{name: test, context: {{cluster: test, user: test}}}}]
clusters: [{{name: test, cluster: {{server: "http://127.0.0.1:{API_PORT}"}}}}]
users: [{{name: test, user: {{}}}}]
"""


def eventually(condition, *, within_s=60.0, every_s=0.02):
    """The condition's first true value; fails with the last exception or value."""
    deadline = time.monotonic() + within_s
    while True:
        value, failure = None, None
        try:
            value = condition()
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            failure = error
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within_s} s: {value!r}") from failure
        select.select([], [], [], every_s)


class Process:
    """A child that said "ready" (where it does), ended by its own pid."""

    def __init__(self, command, *, log, ready=True):
        self.log = Path(log)
        self._stderr = self.log.open("ab")
        self.popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if ready else self._stderr,
            stderr=self._stderr,
            text=True,
        )
        if ready:
            line = self.popen.stdout.readline()
            assert line == "ready\n", self.log.read_text()

    def say(self, line):
        self.popen.stdin.write(line + "\n")
        self.popen.stdin.flush()
        return self.popen.stdout.readline()

    def kill(self, number=signal.SIGKILL):
        self.popen.send_signal(number)
        return self.close()

    def close(self):
        if self.popen.poll() is None and self.popen.stdin.closed:
            self.popen.kill()
        for stream in (self.popen.stdin, self.popen.stdout):
            if stream is not None and not stream.closed:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()
        try:
            code = self.popen.wait(20)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            code = self.popen.wait(20)
        self._stderr.close()
        return code


class Namespace:
    """One network namespace and what runs in it."""

    def __init__(self, name):
        self.name = name
        self.path = f"/run/netns/{name}"
        subprocess.run(["ip", "netns", "add", name], check=True)
        self.run("ip", "link", "set", "lo", "up")

    def command(self, *words):
        return ["nsenter", f"--net={self.path}", *map(str, words)]

    def run(self, *words, **options):
        options = {"check": True, "capture_output": True, "text": True, "timeout": 30, **options}
        return subprocess.run(self.command(*words), **options)

    def python(self, script, *words):
        return self.command(sys.executable, INSIDE / script, *words)

    def parameter(self, name, value=None):
        """Read or write a kernel parameter of this namespace."""
        path = f"/proc/sys/net/{name}"
        if value is not None:
            self.run("tee", path, input=value)
        return self.run("cat", path).stdout.strip()

    def http(self, address, port=80, count=1):
        """`[name, client address]` of every answer, or the name of the error."""
        words = ("call.py", "http", address, port, count)
        return json.loads(subprocess.check_output(self.python(*words), timeout=60))

    def udp(self, address, port=80, count=1):
        words = ("call.py", "udp", address, port, count)
        return json.loads(subprocess.check_output(self.python(*words), timeout=60))

    def remove(self):
        subprocess.run(["ip", "netns", "del", self.name], check=False)


class Node(Namespace):
    """A node: pod network made by podnet, pods attached by the real CNI plugin, a real proxy."""

    def __init__(self, prefix, directory, *, number=1):
        super().__init__(prefix)
        self.prefix = prefix
        self.number = number
        self.directory = directory
        self.pods = {}
        self.processes = []
        self.proxy = None
        self.api = None

    def podnet(self, expression, **options):
        code = f"import asyncio; from motley.network import podnet; asyncio.run({expression})"
        return self.run(sys.executable, "-W", "error", "-c", code, **options)

    def ensure(self, pod_cidr="10.244.1.0/24", **options):
        return self.podnet(
            f"podnet.ensure(pod_cidr={pod_cidr!r}, bridge='motley0', service_cidr='10.96.0.0/16',"
            f" dns_address='10.96.0.10', cni_conf_dir={str(self.directory / 'cni')!r},"
            " cluster_cidr='10.244.0.0/16')",
            **options,
        )

    def add_pod(self, name, *, server=True):
        pod = Namespace(f"{self.prefix}-{name}")
        self.pods[name] = pod
        answer = self._cni("ADD", pod)
        pod.ip = json.loads(answer.stdout)["ips"][0]["address"].split("/")[0]
        if server:
            self.spawn(pod.python("echo.py", name))
        return pod

    def remove_pod(self, name):
        pod = self.pods.pop(name)
        self._cni("DEL", pod)
        pod.remove()

    def _cni(self, verb, pod):
        conflist = json.loads((self.directory / "cni" / "10-motley.conflist").read_bytes())
        plugin = next(p for p in conflist["plugins"] if p["type"] == "bridge")
        config = {"cniVersion": conflist["cniVersion"], "name": conflist["name"], **plugin}
        environment = {
            **os.environ,
            "CNI_COMMAND": verb,
            "CNI_CONTAINERID": pod.name,
            "CNI_NETNS": pod.path,
            "CNI_IFNAME": "eth0",
            "CNI_PATH": str(CNI),
        }
        done = self.run(CNI / "bridge", input=json.dumps(config), env=environment, check=False)
        assert done.returncode == 0, done.stdout
        return done

    def start_api(self):
        self.api = Process(self.python("api.py", API_PORT), log=self.directory / "api.log")

    def start_proxy(self, *words):
        kubeconfig = self.directory / "kubeconfig"
        kubeconfig.write_text(KUBECONFIG)
        command = self.command(
            *(sys.executable, "-W", "error", "-m", "motley.cli.main", "proxy"),
            *("--kubeconfig", kubeconfig, "--node-name", "node-1", "--dns-upstream", "none"),
            *("--health-port", "10256", *words),
        )
        self.proxy = Process(command, log=self.directory / "proxy.log", ready=False)

    def wait_ready(self):
        eventually(lambda: self.http("127.0.0.1", 10256) == [["ok"]])

    def put(self, plural, obj, type_="ADDED"):
        event = {"plural": plural, "type": type_, "object": obj}
        assert self.api.say(json.dumps(event)) == "ok\n"

    def put_service(self, *, type_="ADDED", **options):
        self.put("services", service(**options), type_)

    def put_endpoints(self, pods, type_="ADDED", **options):
        self.put("endpointslices", endpoints([pod.ip for pod in pods], **options), type_)

    def spawn(self, command, *, ready=True):
        process = Process(command, log=self.directory / f"{len(self.processes)}.log", ready=ready)
        self.processes.append(process)
        return process

    def serve(self, names=("a", "b", "c"), name="web", **spec):
        """Pods behind a Service, as soon as its rules are there."""
        pods = [self.pods.get(pod) or self.add_pod(pod) for pod in names]
        self.put_service(name=name, **spec)
        self.put_endpoints(pods, name=name)
        self.eventually(lambda: f"default/{name}/tcp" in self.rules())
        return pods

    eventually = staticmethod(eventually)

    def rules(self):
        return self.run("nft", "list", "table", "ip", "motley", check=False).stdout

    def close(self):
        for process in [self.proxy, self.api, *self.processes]:
            if process is not None:
                process.kill()
        for pod in self.pods.values():
            pod.remove()
        self.remove()


def service(name="web", ip="10.96.0.50", *, ports=None, annotations=None, status=None, **spec):
    ports = ports or [
        {"name": "http", "port": 80, "protocol": "TCP"},
        {"name": "who", "port": 80, "protocol": "UDP"},
    ]
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": name,
            "annotations": annotations or {},
        },
        "status": status or {},
        "spec": {"clusterIP": ip, "type": "ClusterIP", "ports": ports, **spec},
    }


def endpoints(ips, name="web", *, ports=None, node_name="node-1", **conditions):
    ports = ports or [
        {"name": "http", "port": 8080, "protocol": "TCP"},
        {"name": "who", "port": 8080, "protocol": "UDP"},
    ]
    return {
        "metadata": {
            "name": f"{name}-abcde",
            "namespace": "default",
            "uid": f"{name}-slice",
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": "IPv4",
        "ports": ports,
        "endpoints": [
            {"addresses": [ip], "conditions": {"ready": True, **conditions}, "nodeName": node_name}
            for ip in ips
        ],
    }


@contextlib.contextmanager
def nodes_in(directory):
    nodes = []

    def make(number=1):
        prefix = f"mtnet{os.getpid()}-{next(_numbers)}"
        own = directory / prefix
        own.mkdir()
        nodes.append(Node(prefix, own, number=number))
        return nodes[-1]

    try:
        yield make
    finally:
        for node in nodes:
            node.close()


def started(node):
    node.ensure()
    node.start_api()
    node.start_proxy()
    node.wait_ready()
    return node


@pytest.fixture
def make_node(tmp_path):
    """Makes bare nodes."""
    with nodes_in(tmp_path) as make:
        yield make


@pytest.fixture(scope="module")
def make_shared_node(tmp_path_factory):
    """Makes bare nodes for all tests of a module."""
    with nodes_in(tmp_path_factory.mktemp("nodes")) as make:
        yield make


@pytest.fixture
def node(make_node):
    """A node with the pod network, an API and a proxy that has synced."""
    return started(make_node())


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A node for tests that leave it as it was: pods a, b, c behind `web`, and a client."""
    with nodes_in(tmp_path_factory.mktemp("shared")) as make:
        node = started(make())
        node.add_pod("client", server=False)
        node.serve()
        yield node


@pytest.fixture(scope="module")
def own_node(tmp_path_factory):
    """A bare started node that one module has for itself."""
    with nodes_in(tmp_path_factory.mktemp("own")) as make:
        yield started(make())
