"""One node, really: containerd, the API server and the agent inside a network namespace.

Nothing schedules and nothing controls: pods are bound by hand (`spec.nodeName`), so that a test
sees the agent alone. Everything runs inside the namespace by nsenter and below one directory.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from motley.apiserver import tls
from motley.ops import containerd, images, install, processes, remains
from motley.ops.testlookup import Lookup

REPOSITORY = Path(__file__).parents[2]
NODE_IP = "10.77.0.1"
NODE = "node-1"
MOTLEY = [sys.executable, "-m", "motley.cli.main"]
BUSYBOX = "localhost/motley/busybox:1"
POD_MAX_PIDS = 100
FAILED = pytest.StashKey[bool]()
NO_TOKEN = {"automountServiceAccountToken": False}


def eventually(check, timeout_s=60.0, pause_s=0.05):
    """The first true value of a check; the last reason when there is none in time."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            value, reason = check(), "it is still false"
        except (AssertionError, OSError, subprocess.SubprocessError, LookupError) as error:
            value, reason = None, error
        if value:
            return value
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {reason}"
        threading.Event().wait(pause_s)


class Rig:
    """The processes of one node and what a test asks of them."""

    def __init__(self, cache):
        self.name = f"mn-{os.getpid()}"
        self.cgroup_root = f"motley-test-{os.getpid()}"
        self.root = Path(tempfile.mkdtemp(prefix="motley-node-", dir="/tmp"))
        self.cache = cache
        self.kubectl_program = install.kubectl(cache, say=lambda _: None)
        self.layout = containerd.Layout(self.root / "containerd", self.root / "cni")
        self.processes = {}
        self.made = []
        self.logs = self.root / "logs"
        self.logs.mkdir()
        self.lookup = Lookup(lambda: self.kubeconfig, Path("/run/netns", self.name))

    @property
    def inside(self):
        return ["nsenter", f"--net=/run/netns/{self.name}"]

    @property
    def socket(self):
        return self.layout.socket

    def make_namespace(self):
        subprocess.run(["ip", "netns", "add", self.name], check=True)
        for line in (
            "link set lo up",
            "link add under0 type bridge",
            f"addr add {NODE_IP}/24 dev under0",
            "link set under0 up",
        ):
            subprocess.run([*self.inside, "ip", *line.split()], check=True)

    def spawn(self, name, *command):
        with (self.logs / f"{name}.log").open("ab") as log:
            self.processes[name] = subprocess.Popen(
                [*self.inside, *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def end(self, name, number=signal.SIGTERM):
        process = self.processes.pop(name)
        process.send_signal(number)
        return process.wait(timeout=15)

    def run(self, *command, check=True, timeout_s=90, **options):
        done = subprocess.run(
            [*self.inside, *map(str, command)],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            **options,
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
        return done.stdout

    # -- bringing it up

    def start(self):
        self.make_namespace()
        containerd.prepare(self.layout)
        self._second_handler()
        self.spawn("containerd", "containerd", "-c", self.layout.config)
        data = self.root / "apiserver"
        self.spawn(
            "apiserver",
            *(*MOTLEY, "apiserver", "--data-dir", data, "--bind", "0.0.0.0", "--store", "memory"),
            *("--metrics-every-s", "2"),
        )
        self.kubeconfig = data / "admin.kubeconfig"
        eventually(lambda: self.socket.exists())
        archives = images.ensure(self.cache / "images", say=lambda _: None)
        wanted = {r: p for r, p in archives.items() if "python" not in r}
        eventually(lambda: images.Imports(self.socket).ensure(wanted) or True)
        eventually(lambda: self.kubectl("get", "--raw", "/readyz"))
        # No controllers here, so nobody else makes the account that pods have, nor the
        # certificate that its token would come with.
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        self.create({**account, **NO_TOKEN})
        self._certificates(data)
        self.start_agent()
        eventually(lambda: self.get("node", NODE))
        self.kubectl("patch", "node", NODE, "-p", '{"spec":{"podCIDR":"10.244.7.0/24"}}')
        eventually(lambda: self.node_condition("Ready") == "True")

    def _second_handler(self):
        """The runtime's handler `other` is runc, too, but keeps its state elsewhere."""
        text = self.layout.config.read_text()
        block = text[text.rindex("\n", 0, text.index("containerd.runtimes.runc]")) :]
        second = block.replace("runtimes.runc", "runtimes.other")
        second = second.replace(str(self.layout.runc), str(self.other_runc))
        self.layout.config.write_text(text + second.lstrip("\n"))

    @property
    def other_runc(self):
        """What the handler `other` remembers of running containers."""
        return self.root / "containerd" / "other-runc"

    def _certificates(self, data):
        pki = tls.load(data)
        for name, pair in (
            ("serving", tls.issue_server(pki, f"system:node:{NODE}", [NODE_IP, "127.0.0.1"])),
            ("client", tls.issue_client(pki, f"system:node:{NODE}", ["system:nodes"])),
        ):
            (self.root / f"{name}.crt").write_bytes(pair[0])
            (self.root / f"{name}.key").write_bytes(pair[1])
        pair = ((self.root / "client.crt").read_bytes(), (self.root / "client.key").read_bytes())
        text = tls.kubeconfig("https://127.0.0.1:6443", pki.ca_pem, *pair)
        (self.root / "node.kubeconfig").write_text(text)
        self.pki = pki

    def agent_command(self, **changed):
        options = {
            "kubeconfig": self.root / "node.kubeconfig",
            "name": NODE,
            "node-ip": NODE_IP,
            "runtime-endpoint": f"unix://{self.socket}",
            "root": self.root / "node",
            "client-ca": self.root / "apiserver" / "pki" / "ca.crt",
            "tls-cert": self.root / "serving.crt",
            "tls-key": self.root / "serving.key",
            "cni-conf-dir": self.layout.cni_conf_dir,
            "cgroup-root": self.cgroup_root,
            "pod-max-pids": POD_MAX_PIDS,
            "allowed-unsafe-sysctls": "kernel.msg*",
            "log-level": "info",
            **{key.replace("_", "-"): value for key, value in changed.items()},
        }
        return [*MOTLEY, "node", *(f"--{key}={value}" for key, value in options.items())]

    def start_agent(self):
        self.spawn("node", *self.agent_command())

    # -- asking

    def kubectl(self, *arguments, **options):
        return self.run(
            self.kubectl_program, "--kubeconfig", self.kubeconfig, *arguments, **options
        )

    def get(self, *arguments):
        """`kubectl get -o json`; asked often, so without a kubectl where that says the same."""
        found = self.lookup.get(*arguments)
        if found is not None:
            return found
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def node_condition(self, kind):
        found = self.get("node", NODE)["status"].get("conditions", [])
        return next((c["status"] for c in found if c["type"] == kind), None)

    def create(self, *objects):
        for pod in (one for one in objects if one["kind"] == "Pod"):
            pod["spec"] = {**NO_TOKEN, **pod["spec"]}
            self.made.append(pod["metadata"])
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        self.kubectl("create", "--validate=false", "-f", "-", input=text)

    def pod(self, name, *command, pod_spec=None, **container):
        """Bind a pod of one busybox container to the node."""
        main = {"name": "main", "image": BUSYBOX, **container}
        if command:
            main["command"] = list(command)
        spec = {
            "nodeName": NODE,
            "terminationGracePeriodSeconds": 1,
            "containers": [main],
            **(pod_spec or {}),
        }
        self.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})

    def status(self, name):
        return self.get("pod", name)["status"]

    def container(self, name, index=0):
        """The status of a container."""
        return self.status(name)["containerStatuses"][index]

    def until_phase(self, name, phase, timeout_s=60.0):
        return eventually(
            lambda: (s := self.status(name))["phase"] == phase and s, timeout_s=timeout_s
        )

    def until_ready(self, name, timeout_s=60.0):
        def ready():
            status = self.status(name)
            found = {one["type"]: one["status"] for one in status.get("conditions", ())}
            assert found.get("Ready") == "True", status
            return status

        return eventually(ready, timeout_s=timeout_s)

    def exec(self, name, *command, **options):
        return self.kubectl("exec", name, "--", *command, **options)

    def delete(self, name, *arguments):
        self.kubectl("delete", "pod", name, "--timeout=60s", *arguments)

    def forget(self, pods):
        """Take away what a failed test left, so that it disturbs no other."""
        for one in pods:
            where = ("--namespace", one.get("namespace", "default"))
            now = ("--ignore-not-found", "--grace-period=1", "--wait=false")
            self.kubectl("delete", "pod", one["name"], *where, *now, check=False)

    def agent_log(self):
        return (self.logs / "node.log").read_text(errors="replace")

    def cgroup_tree(self):
        """The agent's control groups, in one hierarchy that has them all."""
        base = Path("/sys/fs/cgroup")
        return (base / "memory" if (base / "memory").is_dir() else base) / self.cgroup_root

    def cgroup_file(self, uid, container_id, controller, name):
        """A file of a container's control group, wherever the host has it."""
        base = Path("/sys/fs/cgroup")
        v1 = base / controller
        top = v1 if v1.is_dir() else base
        found = list((top / self.cgroup_root).glob(f"**/pod{uid}/{container_id}/{name}"))
        assert found, f"no {name} for {container_id}"
        return found[0].read_text().strip()

    def pid(self, container_id):
        """The first process of a container, on the host."""
        for point in ("pids", "memory", "cpu", "."):
            pattern = f"{self.cgroup_root}/**/{container_id}/cgroup.procs"
            for path in (Path("/sys/fs/cgroup") / point).glob(pattern):
                return int(path.read_text().split()[0])
        raise LookupError(container_id)

    def tails(self):
        shown = []
        for path in sorted(p for p in self.logs.glob("*.log") if p.stem != "containerd"):
            lines = path.read_text(errors="replace").splitlines()[-60:]
            shown.append("\n".join([f"--- {path.name}", *lines]))
        return "\n".join(shown)

    # -- taking it away

    def leftovers(self):
        """What pods left on the machine while the node's processes are still up."""
        return {
            "containers": processes.in_cgroup(f"/{self.cgroup_root}"),
            "cgroups": [p for p in self.cgroup_tree().glob("**/pod*")],
            "mounts": [
                m for m in remains.mounts(self.root) if "/node/" in str(m) or "rootfs" in str(m)
            ],
            "pods": list((self.root / "node" / "pods").glob("*")),
            "logs": list((self.root / "node" / "logs" / "pods").glob("*")),
            "exec": list((self.root / "node" / "exec").glob("*")),
        }

    def destroy(self):
        self.lookup.close()
        for name in ("node", "apiserver"):
            if name in self.processes:
                self.end(name)
        ctr = ["ctr", "--address", str(self.socket), "--namespace", "k8s.io"]
        listed = subprocess.run([*ctr, "tasks", "ls", "-q"], capture_output=True, text=True)
        for task in listed.stdout.split():
            subprocess.run([*ctr, "tasks", "rm", "-f", task], capture_output=True, timeout=30)
        if "containerd" in self.processes:
            self.end("containerd")
        # Also when a test left without its containerd: shims by our directory, pods by our group.
        for process in self._ours():
            processes.send(process, signal.SIGKILL)
        eventually(lambda: not self._ours())
        remains.unmount(self.root)
        subprocess.run(["ip", "netns", "del", self.name], capture_output=True)
        shutil.rmtree(self.root, ignore_errors=True)
        eventually(self._remove_cgroups)

    def _ours(self):
        found = processes.in_cgroup(f"/{self.cgroup_root}")
        for pid in processes.pids():
            with contextlib.suppress(OSError):
                if str(self.root).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(processes.identify(pid))
        return [process for process in found if process is not None]

    def _remove_cgroups(self):
        for group in Path("/sys/fs/cgroup").glob(f"*/{self.cgroup_root}"):
            for directory, _, _ in os.walk(group, topdown=False):
                os.rmdir(directory)
        return not list(Path("/sys/fs/cgroup").glob(f"*/{self.cgroup_root}"))


@pytest.fixture(scope="session")
def cache():
    """Where this checkout keeps images and kubectl, so that they are made once."""
    return REPOSITORY / ".cache"


@pytest.fixture(scope="session")
def rig(cache):
    """A node that is Ready; destroyed at the end, whatever happened."""
    made = Rig(cache)
    try:
        made.start()
        yield made
    except BaseException:
        print(made.tails())
        raise
    finally:
        made.destroy()


@pytest.fixture(autouse=True)
def _pods_of_failed_tests_go(request):
    """A test that fails half way leaves its pods, and busy ones would fail all that follow."""
    if "rig" not in request.fixturenames:
        yield
        return
    made = request.getfixturevalue("rig")
    before = len(made.made)
    yield
    if request.node.stash.get(FAILED, False):
        made.forget(made.made[before:])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Show the processes' logs below the failure of a test that used the rig."""
    report = yield
    used = item.funcargs.get("rig") if hasattr(item, "funcargs") else None
    if report.failed and used is not None:
        item.stash[FAILED] = True
        report.sections.append(("process logs", used.tails()))
    return report
