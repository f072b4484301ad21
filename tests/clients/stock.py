"""A Kubernetes to try `deploy/` on: Motley's API server, or kube-apiserver where there is one.

What `deploy/` holds must work on a stock Kubernetes. With `MOTLEY_STOCK_BINARIES=DIR` the very same
tests run against etcd, kube-apiserver and kube-controller-manager from that directory; without it,
as in the suite, Motley's own server stands in. A test sees no difference but `is_real`.

A Deployment is run as a process of this machine: the manifest's command line, configuration and
environment, and a token of its ServiceAccount, so that what is written there is what is tested.
The audit log says which calls an account made, was refused, and so which rights it never used.
"""

import base64
import contextlib
import json
import os
import select
import ssl
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from motley.client import kubeconfig
from motley.ops.freeports import free_port, free_ports

from . import stock_binaries, stock_metrics

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BINARIES = "MOTLEY_STOCK_BINARIES"
DEADLINE_S = 60.0
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}
MOTLEY = [sys.executable, "-m", "motley.cli.main"]
# What the image of deploy/scheduler/Dockerfile does not hold, and so nothing run in it may need.
ABSENT = (
    *("aiosmtplib", "asyncssh", "dns", "google", "grpc", "httptools", "jwt", "kubernetes_validate"),
    *("nacl", "pyroute2", "re2", "rich", "uvicorn", "websockets"),
)
IN_THE_IMAGE = f"""
import sys
for name in {ABSENT}:
    sys.modules[name] = None
from motley.cli.main import main
main()
"""
# What a stock Kubernetes does not have, and `deploy/` brings.
OUR_GROUPS = ("motley.io/v1", "scheduling.x-k8s.io/v1alpha1", "autoscaling.k8s.io/v1")
OURS = (
    *("imageresolver", "nodespeed", "verticalpodautoscaling", "rebalancer"),
    *("podgroup", "elasticquota"),
)

Document = dict[str, Any]


def eventually(condition: Callable[[], Any], what: str, timeout_s: float = DEADLINE_S) -> Any:
    """Poll until the condition holds; its value."""
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        select.select([], [], [], 0.1)
    return found


class Call(NamedTuple):
    """What somebody did, or may do: in RBAC's words."""

    group: str
    resource: str  # with its subresource, behind a slash
    verb: str


@dataclass
class Process:
    """A program of the cluster's, and where its words go."""

    process: "subprocess.Popen[bytes]"
    log: Path

    def text(self) -> str:
        """All that it said."""
        return self.log.read_text(errors="replace")

    def is_running(self) -> bool:
        """Has it not ended?"""
        return self.process.poll() is None


@dataclass
class Stock:
    """A running control plane; see the module's docstring."""

    directory: Path
    port: int
    kubectl: Callable[..., Any]
    """kubectl as the administrator: `kubectl(*words, stdin=…, fails=False)` has out, err, json."""
    binaries: Path | None = None
    _counts: dict[str, int] = field(default_factory=dict)

    @property
    def is_real(self) -> bool:
        """Is it kube-apiserver?"""
        return self.binaries is not None

    @property
    def url(self) -> str:
        """The API server's address."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self.directory / "admin.kubeconfig"

    # -- objects ----------------------------------------------------------------------------

    def apply(self, path: Path | str, change: Callable[[Document], Any] | None = None) -> str:
        """`kubectl apply` of a file or a directory, strictly and without a warning; `change` may
        alter each document first. What kubectl said."""
        if change is None:
            done = self.kubectl("apply", "--validate=strict", "-f", str(path))
        else:
            listed = documents(Path(path))
            for document in listed:
                change(document)
            done = self.kubectl(
                "apply", "--validate=strict", "-f", "-", stdin=yaml.safe_dump_all(listed)
            )
        assert done.err == "", done.err
        return str(done.out)

    def create(self, document: Document, namespace: str = "") -> None:
        """Make one object."""
        words = ("-n", namespace) if namespace else ()
        self.kubectl("create", *words, "-f", "-", stdin=json.dumps(document))

    def namespace(self, name: str) -> str:
        """A namespace in which pods can be made, with or without controllers."""
        self.kubectl("create", "namespace", name)
        # Where controllers run, they may have been quicker.
        done = self.kubectl("create", "serviceaccount", "default", "-n", name, fails=None)
        assert done.code == 0 or "already exists" in done.err, done.err
        return name

    def apply_text(self, *listed: Document) -> None:
        """Apply documents; what kubectl warns of (an object made by others) is no matter."""
        self.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(listed))

    def as_service_account(self, namespace: str, name: str) -> Path:
        """A kubeconfig with a fresh token of a ServiceAccount."""
        token = self.kubectl("create", "token", name, "-n", namespace).out.strip()
        document = yaml.safe_load(self.kubeconfig.read_text())
        document["users"] = [
            {"name": u["name"], "user": {"token": token}} for u in document["users"]
        ]
        made = self.directory / f"{namespace}-{name}.kubeconfig"
        made.write_text(yaml.safe_dump(document))
        return made

    # -- programs ---------------------------------------------------------------------------

    @contextlib.contextmanager
    def running(
        self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> Iterator[Process]:
        """A program, until the `with` ends; that it ended by itself is an error."""
        number = self._counts[name] = self._counts.get(name, -1) + 1
        log = self.directory / f"{name}-{number}.log"
        plain = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        with log.open("wb") as out:
            made = Process(
                subprocess.Popen(command, stdout=out, stderr=out, env=plain | (environment or {})),
                log,
            )
            try:
                yield made
                # Who cannot renew a lease for ten seconds ends, and a kubelet would start it again.
                is_late = "leadership lost" in made.text()
                assert made.is_running() or is_late, f"{name} ended: {made.text()[-4000:]}"
            finally:
                made.process.terminate()
                try:
                    made.process.wait(20)
                except subprocess.TimeoutExpired:
                    made.process.kill()
                    made.process.wait(10)

    @contextlib.contextmanager
    def deployment(
        self,
        path: Path,
        *options: str,
        name: str = "",
        replace: Mapping[str, str] | None = None,
    ) -> Iterator[Process]:
        """Run the first container of a manifest's Deployment, once, as a process.

        `options` follow the manifest's own; `replace` are pieces of its words and environment
        (addresses, ports) that cannot be as they are here. Volumes become directories: ConfigMaps
        and Secrets as the cluster has them, empty ones empty.
        """
        found = [d for d in documents(path) if d["kind"] == "Deployment"]
        (chosen,) = [d for d in found if name in ("", d["metadata"]["name"])]
        namespace, label = chosen["metadata"]["namespace"], chosen["metadata"]["name"]
        spec = chosen["spec"]["template"]["spec"]
        container = spec["containers"][0]
        changes = {**self._mounts(namespace, spec, container), **(replace or {})}

        def local(text: str) -> str:
            for old, new in changes.items():
                text = text.replace(old, new)
            return text

        words = [*container.get("command", ()), *container.get("args", ())]
        command = [sys.executable, "-c", IN_THE_IMAGE]
        command += [*(local(word) for word in _motley(words)), *options]
        environment = {
            "KUBECONFIG": str(self.as_service_account(namespace, spec["serviceAccountName"]))
        }
        for entry in container.get("env", ()):
            known = {"metadata.namespace": namespace, "metadata.name": f"{label}-0"}
            source = entry.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath")
            environment[entry["name"]] = known[source] if source else local(entry["value"])
        with self.running(label, command, environment) as made:
            yield made

    def _mounts(self, namespace: str, spec: Document, container: Document) -> dict[str, str]:
        """The directories that stand for a container's volumes."""
        volumes = {v["name"]: v for v in spec.get("volumes", ())}
        made = {}
        for mount in container.get("volumeMounts", ()):
            volume = volumes[mount["name"]]
            place = self.directory / f"volume-{namespace}-{volume['name']}"
            place.mkdir(exist_ok=True)
            if "configMap" in volume:
                self._fill(place, namespace, "configmap", volume["configMap"], "name")
            elif "secret" in volume:
                self._fill(place, namespace, "secret", volume["secret"], "secretName")
            else:
                assert "emptyDir" in volume, f"a volume of another kind: {volume}"
            if mount["mountPath"] != "/tmp":  # which programs find by themselves
                made[mount["mountPath"]] = str(place)
        return made

    def _fill(self, place: Path, namespace: str, kind: str, source: Document, key: str) -> None:
        words = ("get", kind, source[key], "-n", namespace, "--ignore-not-found", "-o", "json")
        text = self.kubectl(*words).out
        assert text or source.get("optional"), f"there is no {kind} {source[key]}"
        for name, value in (json.loads(text).get("data") or {} if text else {}).items():
            if kind == "secret":
                (place / name).write_bytes(base64.b64decode(value))
            else:
                (place / name).write_text(value)

    @contextlib.contextmanager
    def workloads(self, *without: str, autoscale_every_s: int = 15) -> Iterator[Process]:
        """The cluster's own controllers: Deployments, garbage, autoscaling and all."""
        if self.binaries is not None:
            command = stock_binaries.controllers(self.binaries, self.directory, autoscale_every_s)
            command += [f"--controllers={','.join(['*', *(f'-{name}' for name in without)])}"]
            name = "kube-controller-manager"
        else:
            listed = ",".join(["*", *(f"-{name}" for name in (*OURS, *without))])
            command = [*MOTLEY, "controllers", "--kubeconfig", str(self.kubeconfig)]
            command += ["--health-port", "0", "--no-leader-elect", "--log-level", "warning"]
            command += ["--horizontal-pod-autoscaler-sync-period-s", str(autoscale_every_s)]
            command += ["--controllers", listed]
            name = "controllers"
        with self.running(name, command) as made:
            yield made

    @contextlib.contextmanager
    def nodes(self, count: int, *options: str, prefix: str = "n-") -> Iterator[Process]:
        """Nodes without machines, ready; what their pods use is said by annotations."""
        command = [*MOTLEY, "fake-nodes", "--kubeconfig", str(self.kubeconfig), *options]
        command += ["--count", str(count), "--prefix", prefix, "--log-level", "warning"]
        words = ("get", "nodes", "-o", "jsonpath={.items[*].metadata.name}")
        with self.running("fake-nodes", command) as made:
            eventually(lambda: self.kubectl(*words).out.count(prefix) >= count, f"{count} nodes")
            yield made

    @contextlib.contextmanager
    def metrics(self) -> Iterator[None]:
        """`metrics.k8s.io`, with what pods on fake nodes say they use."""
        with ExitStack() as stack:
            if self.is_real:
                port = stack.enter_context(stock_metrics.serve(self.kubeconfig, self.directory))
                self.apply_text(*stock_metrics.registration(port))
            look = ("get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes")
            eventually(lambda: _succeeds(self.kubectl, *look), "metrics.k8s.io is served")
            yield

    # -- rights -----------------------------------------------------------------------------

    def calls(self, namespace: str, name: str) -> list[tuple[Call, int, str]]:
        """What a ServiceAccount asked, how it was answered, and for which object."""
        user = f"system:serviceaccount:{namespace}:{name}"
        found = []
        for line in (self.directory / "audit.log").read_text().splitlines():
            if user not in line or not line.endswith("}"):
                continue
            event = json.loads(line)
            ref = event.get("objectRef") or {}
            if event["user"]["username"] != user or not ref.get("resource"):
                continue
            resource = "/".join(filter(None, (ref["resource"], ref.get("subresource"))))
            call = Call(ref.get("apiGroup", ""), resource, event["verb"])
            code = (event.get("responseStatus") or {}).get("code", 0)
            place = f"{ref.get('namespace', '')}/{ref.get('name', '')}"
            found.append((call, code, place))
        return found

    def refused(self, namespace: str, name: str) -> list[str]:
        """What a ServiceAccount asked and may not: what a manifest's role forgets."""
        found = [(c, place) for c, code, place in self.calls(namespace, name) if code == 403]
        return sorted({f"{c.verb} {c.group}/{c.resource} {place}" for c, place in found})

    def unused(self, rbac: Path, namespace: str, name: str) -> set[Call]:
        """The rights in a file's roles that a ServiceAccount has not used: what may be too much."""
        used = set()
        for call, code, _ in self.calls(namespace, name):
            used.add(call)
            if call.verb == "watch":  # of older servers, what is there is listed first
                used.add(call._replace(verb="list"))
            if call.verb == "patch" and code == 201:  # applied, and made by it
                used.add(call._replace(verb="create"))
        return granted(rbac) - used

    def may(self, account: tuple[str, str], *words: str) -> bool:
        """Would the server let this ServiceAccount do that, as `kubectl auth can-i` writes it?"""
        who = "system:serviceaccount:{}:{}".format(*account)
        done = self.kubectl("auth", "can-i", *words, "--as", who, fails=None)
        return bool(done.out.strip() == "yes")


def lead_here(port: int) -> Callable[[Document], None]:
    """A change for `apply`: Services lead to this machine, and what names them to a port of it.

    The API server calls a Service of type ExternalName by that name, on the port of the reference.
    """

    def change(document: Document) -> None:
        if document["kind"] == "Service":
            document["spec"] = {"type": "ExternalName", "externalName": "localhost"}
        if document["kind"] == "APIService":
            document["spec"]["service"]["port"] = port
        for webhook in document.get("webhooks", ()):
            webhook["clientConfig"]["service"]["port"] = port

    return change


def documents(path: Path) -> list[Document]:
    """The objects of a file."""
    return [d for d in yaml.safe_load_all(path.read_text()) if d]


def granted(rbac: Path) -> set[Call]:
    """Every right that a file's roles give, one by one."""
    return {
        Call(group, resource, verb)
        for document in documents(rbac)
        for rule in document.get("rules") or ()
        for group in rule.get("apiGroups", ())
        for resource in rule.get("resources", ())
        for verb in rule["verbs"]
    }


def _motley(words: Sequence[str]) -> list[str]:
    """A container's words without the program's name, which is this checkout's here."""
    if words and not words[0].startswith("-"):
        program, *rest = words
        if program.endswith("/motley"):
            return rest
        assert program.endswith("/kube-scheduler"), f"an unknown program: {program}"
        return ["scheduler", *rest]
    return ["scheduler", *words]  # the image's own entry point


def _succeeds(kubectl: Callable[..., Any], *words: str) -> bool:
    return bool(kubectl(*words, fails=None).code == 0)


# -- starting it -------------------------------------------------------------------------------


@contextlib.contextmanager
def start(directory: Path, kubectl: Callable[[Path], Any]) -> Iterator[Stock]:
    """A control plane; `kubectl` makes the administrator's from a kubeconfig."""
    named = os.environ.get(BINARIES, "")
    (directory / "policy.yaml").write_text(yaml.safe_dump(POLICY))
    made = Stock(directory, free_port(), None, Path(named) if named else None)  # type: ignore[arg-type]
    made.kubectl = kubectl(made.kubeconfig)
    audit = [f"--audit-log-path={directory / 'audit.log'}"]
    audit += [f"--audit-policy-file={directory / 'policy.yaml'}"]
    with ExitStack() as stack:
        if made.binaries is not None:
            clients, peers = free_ports(2)
            etcd = stock_binaries.etcd(made.binaries, directory, clients, peers)
            stack.enter_context(made.running("etcd", etcd))
            command = stock_binaries.apiserver(made.binaries, directory, made.port, clients)
        else:
            command = [*MOTLEY, "apiserver", "--data-dir", str(directory), "--port", str(made.port)]
            command += ["--metrics-every-s", "1", "--log-level", "warning"]
            command += ["--history-series", "0"]
            command += ["--runtime-config", ",".join(f"{one}=false" for one in OUR_GROUPS)]
        server = stack.enter_context(made.running("apiserver", [*command, *audit]))
        eventually(lambda: _is_ready(made, server), "the API server is ready")
        eventually(
            lambda: _succeeds(made.kubectl, "get", "serviceaccounts", "-n", "kube-system"),
            "kube-system",
        )
        yield made


def _is_ready(made: Stock, server: Process) -> bool:
    assert server.is_running(), server.text()[-4000:]
    if not made.kubeconfig.exists():
        return False
    try:
        context = kubeconfig.load(made.kubeconfig).ssl_context()
        with urllib.request.urlopen(f"{made.url}/readyz", context=context, timeout=2):
            return True
    except (OSError, ssl.SSLError):
        return False
