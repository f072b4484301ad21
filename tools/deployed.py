"""What `deploy/` runs with the scheduler's image, as pods of a cluster, judged by its effects.

The manifests are applied as they are, and everything is asked with kubectl: pods are placed,
aggregated APIs answer through their Services, a webhook is called, speeds are learnt, workloads are
recommended for and scaled. The cluster's own controllers for the same leave that alone; who wrote
what is read from managedFields. In the end `kubectl delete -f` takes everything away, and what the
cluster had by itself is back. `scheduler_image.py` is the command.
"""

import contextlib
import functools
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from motley.api import quantity
from motley.lib import clock
from motley.ops import images
from motley.ops.testbed import NODE_IP, CommandFailed, Testbed, eventually

REPOSITORY = Path(__file__).resolve().parents[1]
CACHE = REPOSITORY / ".cache"
DEPLOY = REPOSITORY / "deploy"
CONFIGURATION = REPOSITORY / "examples/realusage/scheduler-config.yaml"
SYSTEM = ("-n", "kube-system")
# What the cluster's own controllers do as well, and are told to leave alone.
OURS = (
    *("imageresolver", "nodespeed", "verticalpodautoscaling", "rebalancer"),
    "horizontalpodautoscaling",
)
SCHEDULERS = ("motley-scheduler", "hice-scheduler", "mem-real-usage-scheduler")
HISTORY = "/apis/history.motley.io/v1"
KINDS = (
    "apiservices,clusterroles,clusterrolebindings,roles,rolebindings,serviceaccounts,configmaps,"
    "mutatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings,"
    "services,deployments,replicasets,poddisruptionbudgets"
)
FORECASTS = "/apis/external.metrics.k8s.io/v1beta1"
PRETEND = "pretend-"  # nodes without machines, for what one node cannot show
MINUTES_S = 180.0  # for what happens by the manifests' own periods


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Say what was done and how long it took."""
    begun = clock.SYSTEM.monotonic()
    yield
    print(f"✓ {what}  {clock.SYSTEM.monotonic() - begun:.1f} s", flush=True)


class Part(NamedTuple):
    """A folder of `deploy/`, and how it is seen that it works."""

    files: tuple[str, ...]
    deployments: tuple[str, ...]
    works: Callable[["Cluster"], None]
    before: Callable[["Cluster"], None] = lambda _: None  # what the manifests say one has to do
    gone: Callable[["Cluster"], None] = lambda _: None  # true when they are deleted
    needs: tuple[str, ...] = ()


class Cluster(Testbed):
    """A cluster that has the image."""

    def show(self, *words: str) -> None:
        """A command and its answer, as in a shell."""
        answer = self.kubectl(*words).rstrip()
        typed = " ".join(f"'{word}'" if set(word) & set("{}? ") else word for word in words)
        print(f"$ kubectl {typed}\n{answer}", flush=True)

    def create(self, version: str, kind: str, name: str, **fields: Any) -> None:
        """An object in the default namespace."""
        document = {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}
        self.kubectl("apply", "-f", "-", stdin=msgspec.json.encode(document).decode())

    def rolled_out(self, deployment: str) -> None:
        """Wait for a Deployment; where it does not come, say how its pods are."""
        where = (*SYSTEM, f"deployment/{deployment}")
        try:
            self.kubectl("rollout", "status", *where, "--timeout=90s")
        except AssertionError as error:
            told = self.answer(
                self.kubectl_program, "--kubeconfig", self.kubeconfig, "logs", *where
            )
            described = self.kubectl("describe", "pods", *SYSTEM)
            raise AssertionError(f"{error}\n{described}\n{told}") from None

    def writer(self, kind: str, name: str, field: str) -> str:
        """Who wrote a field of an object's metadata or status, by its managedFields."""
        managed = self.get(kind, name)["metadata"]["managedFields"]
        found = {one["manager"] for one in managed if field in str(one["fieldsV1"])}
        return ",".join(sorted(found))

    def node(self) -> Any:
        """The one real node."""
        nodes = self.get("nodes")["items"]
        return next(one for one in nodes if not one["metadata"]["name"].startswith(PRETEND))

    @contextmanager
    def pretending(self) -> Iterator[None]:
        """Two nodes without machines, on which nothing is placed that does not ask for it."""
        command = [*self.inside, sys.executable, "-P", "-m", "motley.cli.main", "fake-nodes"]
        command += ["--kubeconfig", str(self.kubeconfig), "--count=2", f"--prefix={PRETEND}"]
        names = [f"{PRETEND}{number}" for number in range(2)]
        with subprocess.Popen([*command, "--log-level=error", "--label=is=pretended"]) as process:
            try:
                eventually(lambda: [self.get("node", name) for name in names])
                self.kubectl("taint", "nodes", *names, "is=pretended:NoSchedule")
                yield
            finally:
                process.terminate()


def run(archive: Path, asked: Sequence[str]) -> None:
    """Every part at once, as in a cluster that uses them all; then none."""
    needed = {one for name in asked for one in (name, *PARTS[name].needs)}
    chosen = [name for name in PARTS if name in needed]
    cluster = Cluster(CACHE)
    try:
        cluster.make_namespace()
        with timed("a cluster that has the image"):
            left = ",".join(["*", *(f"-{name}" for name in OURS)])
            cluster.up("--no-functions", "--no-slurm", f"--controllers={left}")
            cluster.motley("image", "import", archive)
        with cluster.pretending():
            _busy(cluster)
            before = _everything(cluster)
            for name in chosen:
                with timed(f"deploy/{name} is applied and ready"):
                    _apply(cluster, name)
            for name in chosen:
                with timed(f"deploy/{name} works"):
                    PARTS[name].works(cluster)
                    _is_humble(cluster, name)
            cluster.show("get", "pods", *SYSTEM)
            with timed("everything is deleted, and all is as it was"):
                _delete(cluster, chosen)
                eventually(lambda: _is_as_before(cluster, before))
    finally:
        cluster.destroy()


def _apply(cluster: Cluster, name: str) -> None:
    part = PARTS[name]
    part.before(cluster)
    for file in part.files:
        cluster.kubectl("apply", "--validate=strict", "-f", DEPLOY / name / file)
    for deployment in part.deployments:
        cluster.rolled_out(deployment)


def _is_humble(cluster: Cluster, name: str) -> None:
    """Its pods are nobody's, can write nowhere, and asked for nothing that they may not."""
    for deployment in PARTS[name].deployments:
        where = (*SYSTEM, f"deployment/{deployment}")
        tried = cluster.kubectl("exec", *where, "--", "sh", "-c", "id -u; touch /bin/x || echo no")
        assert tried.split() == ["65532", "no"], tried
        assert "forbidden" not in (told := cluster.kubectl("logs", *where)), told


def _delete(cluster: Cluster, chosen: Sequence[str]) -> None:
    for name in reversed(chosen):
        for file in PARTS[name].files:
            cluster.kubectl("delete", "-f", DEPLOY / name / file, "--timeout=60s")
        PARTS[name].gone(cluster)
    # A namespace ends when every group has said that it holds nothing there.
    cluster.kubectl("create", "namespace", "passing")
    cluster.kubectl("delete", "namespace", "passing", "--timeout=60s")


def _everything(cluster: Cluster) -> set[str]:
    """What manifests may bring, by name. Leases stay, as ever: whoever held them made them."""
    words = ("get", KINDS, "-A", "-o", "jsonpath={range .items[*]}{.kind}/{.metadata.name} {end}")
    return {name for name in cluster.kubectl(*words).split() if "/busy" not in name}


def _is_as_before(cluster: Cluster, before: set[str]) -> bool:
    now = _everything(cluster)
    assert now == before, f"left: {now - before}; lost: {before - now}"
    return True


def _busy(cluster: Cluster) -> None:
    """A pod that uses four times what it requests, as autoscalers and histories like it."""
    resources = {"requests": {"cpu": "50m"}, "limits": {"cpu": "200m"}}
    spec = _pod_spec(["sh", "-c", "while :; do :; done"], resources)
    labels = {"app": "busy"}
    template = {"metadata": {"labels": labels}, "spec": spec}
    described = {"replicas": 1, "selector": {"matchLabels": labels}, "template": template}
    cluster.create("apps/v1", "Deployment", "busy", spec=described)


def _pod_spec(command: list[str], resources: dict[str, Any], **fields: Any) -> dict[str, Any]:
    container = {"name": "c", "image": images.BUSYBOX.reference, "command": command}
    containers = [{**container, "resources": resources}]
    return {"terminationGracePeriodSeconds": 0, "containers": containers, **fields}


# -- its parts ------------------------------------------------------------------------------------


def _scheduler_secret(cluster: Cluster) -> None:
    document = yaml.safe_load((cluster.root / "pki/scheduler.kubeconfig").read_text())
    for one in document["clusters"]:
        one["cluster"]["server"] = f"https://{NODE_IP}:6443"  # loopback is the pod's own there
    kubeconfig = cluster.root / "scheduler.conf"
    kubeconfig.write_text(yaml.safe_dump(document))
    cluster.kubectl(
        *("create", "secret", "generic", "motley-scheduler-mem-secret", *SYSTEM),
        f"--from-file=scheduler.conf={kubeconfig}",
        f"--from-file=scheduler-config.yaml={CONFIGURATION}",
    )


def _schedules(cluster: Cluster) -> None:
    for name in SCHEDULERS:
        spec = _pod_spec(["sleep", "100000"], {}, schedulerName=name)
        cluster.create("v1", "Pod", name, spec=spec)
        cluster.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")
        eventually(functools.partial(_was_placed_by, cluster, name), 20)
    columns = "POD:involvedObject.name,BY:reportingComponent,MESSAGE:message"
    named = f"custom-columns={columns}"
    cluster.show("get", "events", "--field-selector=reason=Scheduled", "-o", named)


def _was_placed_by(cluster: Cluster, scheduler: str) -> bool:
    """Is the pod of that name the work of the scheduler of that name?"""
    selector = f"--field-selector=involvedObject.name={scheduler},reason=Scheduled"
    (event,) = cluster.get("events", selector)["items"] or [{}]
    by = (event.get("reportingComponent"), event.get("source", {}).get("component"))
    assert scheduler in by, f"{scheduler} was scheduled by {by}"
    return True


def _is_served(cluster: Cluster, path: str, group: str) -> None:
    """Through the Service, under a certificate that the API server was told about."""
    name = f"apiservice/{group}"
    cluster.kubectl("wait", "--for=condition=Available", name, "--timeout=60s")
    eventually(lambda: cluster.get(*name.split("/"))["spec"].get("caBundle"))
    cluster.show("get", *name.split("/"))
    eventually(lambda: cluster.kubectl("get", "--raw", path))


def _remembers(cluster: Cluster) -> None:
    group = "v1.history.motley.io"
    _is_served(cluster, f"{HISTORY}/nodes", group)
    node = cluster.node()["metadata"]["name"]
    eventually(lambda: node in cluster.kubectl("get", "--raw", f"{HISTORY}/nodes"), MINUTES_S)
    # It is the pod that answers: without it nobody does, and another one has another authority.
    bundle = cluster.get("apiservice", group)["spec"]["caBundle"]
    cluster.kubectl("scale", *SYSTEM, "deployment/motley-history", "--replicas=0")
    eventually(lambda: _is_refused(cluster, f"{HISTORY}/nodes"))
    cluster.kubectl("scale", *SYSTEM, "deployment/motley-history", "--replicas=1")
    _is_served(cluster, f"{HISTORY}/nodes", group)
    assert cluster.get("apiservice", group)["spec"]["caBundle"] != bundle


def _is_refused(cluster: Cluster, path: str) -> bool:
    with contextlib.suppress(CommandFailed):
        cluster.kubectl("get", "--raw", path)
        return False
    return True


def _is_given_back(cluster: Cluster) -> None:
    """The cluster's own server has the group again."""
    node = cluster.node()["metadata"]["name"]
    eventually(lambda: node in cluster.kubectl("get", "--raw", f"{HISTORY}/nodes"))
    cluster.show("get", "apiservice", "v1.history.motley.io")


def _foresees(cluster: Cluster) -> None:
    """After what the manifest says to do: the server is told to serve the group as well."""
    patch = {"op": "add", "path": "/spec/template/spec/containers/0/args/-"}
    change = msgspec.json.encode([{**patch, "value": "--external-metrics"}]).decode()
    cluster.kubectl("patch", "deployment/motley-history", *SYSTEM, "--type=json", "-p", change)
    cluster.rolled_out("motley-history")
    _is_served(cluster, FORECASTS, "v1beta1.external.metrics.k8s.io")
    cluster.show("get", "--raw", FORECASTS)


def _recommends(cluster: Cluster) -> None:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "busy"}
    spec = {"targetRef": target, "updatePolicy": {"updateMode": "Off"}}
    cluster.create("autoscaling.k8s.io/v1", "VerticalPodAutoscaler", "busy", spec=spec)
    looked = ("verticalpodautoscaler", "busy")
    eventually(lambda: cluster.get(*looked)["status"]["recommendation"], MINUTES_S)
    cluster.show("get", *looked)
    assert cluster.writer(*looked, "f:recommendation") == "motley-autoscaling"


def _scales(cluster: Cluster) -> None:
    cluster.kubectl("autoscale", "deployment", "busy", "--cpu-percent=50", "--min=1", "--max=2")
    eventually(lambda: cluster.get("deployment", "busy")["spec"]["replicas"] == 2, MINUTES_S)
    looked = ("horizontalpodautoscaler", "busy")
    cluster.show("get", *looked)
    assert cluster.writer(*looked, "f:desiredReplicas") == "motley-horizontal"


def _learns(cluster: Cluster) -> None:
    """An image that only a registry knows is asked for; of two nodes one turns out slower."""
    spec = _pod_spec(["true"], {}, nodeSelector={"is": "nowhere"})
    spec["containers"][0]["image"] = f"{NODE_IP}:9/only/example:1"
    cluster.create("v1", "Pod", "asks", spec=spec)
    # Where all machines are alike nobody needs to be asked.
    cluster.kubectl("label", "--overwrite", "node", f"{PRETEND}1", "kubernetes.io/arch=arm64")
    cluster.kubectl("label", "node", f"{PRETEND}0", "hice.kj=1.0")  # the scale
    labels, tolerations = {"app": "spread"}, [{"operator": "Exists"}]
    chosen = {"nodeSelector": {"is": "pretended"}, "tolerations": tolerations}
    template = {"metadata": {"labels": labels}, "spec": _pod_spec(["true"], {}, **chosen)}
    cluster.create("v1", "Service", "spread", spec={"selector": labels, "ports": [{"port": 80}]})
    replicas = {"replicas": 4, "selector": {"matchLabels": labels}, "template": template}
    cluster.create("apps/v1", "ReplicaSet", "spread", spec=replicas)
    eventually(lambda: len(_spread(cluster)) == 4 and all(_spread(cluster).values()))
    for name, node in _spread(cluster).items():
        uses = "200m" if node == f"{PRETEND}0" else "400m"
        cluster.kubectl("annotate", "pod", name, f"fake.motley.io/usage=cpu={uses},memory=64Mi")
    slower, key = f"{PRETEND}1", "motley.io/estimated-speed"
    about = functools.partial(cluster.get, "node", slower)
    said = eventually(lambda: about()["metadata"]["annotations"][key], MINUTES_S)
    assert 0.45 < float(said) < 0.55, said
    cluster.show("get", "nodes", "-L", "hice.kj")
    assert cluster.writer("node", slower, f"f:{key}") == "motley-heterogeneity"
    eventually(lambda: "only/example" in str(cluster.get("imagemaps")), MINUTES_S)
    columns = "IMAGE:.spec.images[*].name,FROM:.spec.images[*].source"
    cluster.show("get", "imagemaps", "-o", f"custom-columns={columns}")
    # What it made of its own accord, and what it was made for.
    cluster.kubectl("delete", "imagemaps", "--all")
    cluster.kubectl("delete", "pod/asks", "replicaset/spread", "service/spread")


def _spread(cluster: Cluster) -> dict[str, str]:
    pods = cluster.get("pods", "-l", "app=spread")["items"]
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in pods}


def _overcommits(cluster: Cluster) -> None:
    """The node says twice what it has; its agent takes that much, and not twice of it."""
    node = cluster.node()
    name, has = node["metadata"]["name"], quantity.parse(node["status"]["allocatable"]["cpu"])
    cluster.kubectl("label", "node", name, "motley.io/overcommit-cpu=2")
    eventually(lambda: _cpu(cluster) == 2 * has, 30)
    heard = _heard(cluster)
    eventually(lambda: _heard(cluster) != heard, 30)  # from the agent, through the webhook
    assert _cpu(cluster) == 2 * has
    resources = {"requests": {"cpu": quantity.format_milli(int(has * 700))}}
    spec = _pod_spec(["sleep", "100000"], resources, nodeName=name)  # past the scheduler
    pods = {"forced-0": "condition=Ready", "forced-1": "condition=Ready"}
    for pod, wanted in {**pods, "forced-2": "jsonpath={.status.reason}=OutOfcpu"}.items():
        cluster.create("v1", "Pod", pod, spec=spec)
        cluster.kubectl("wait", f"--for={wanted}", f"pod/{pod}", "--timeout=60s")
    noted = "{.metadata.annotations.motley\\.io/raw-allocatable}"
    cluster.show("get", "node", name, "-o", f"jsonpath={{.status.allocatable.cpu}} {noted}")
    cluster.show("get", "pods", *pods, "forced-2")
    cluster.show("get", "pod", "forced-2", "-o", "jsonpath={.status.message}")
    cluster.kubectl("delete", "pod", *pods, "forced-2")


def _has_what_it_has(cluster: Cluster) -> None:
    """Label or no label, the agent's own figure is back."""
    eventually(lambda: _cpu(cluster) <= quantity.parse(cluster.node()["status"]["capacity"]["cpu"]))


def _cpu(cluster: Cluster) -> Fraction:
    """What the node says pods may have."""
    return quantity.parse(cluster.node()["status"]["allocatable"]["cpu"])


def _heard(cluster: Cluster) -> str:
    conditions = cluster.node()["status"]["conditions"]
    (found,) = [one["lastHeartbeatTime"] for one in conditions if one["type"] == "Ready"]
    return str(found)


TWO = ("rbac.yaml", "deployment.yaml")
PARTS = {
    "scheduler": Part(
        (*TWO, "second-scheduler.yaml"),
        ("motley-scheduler", "motley-scheduler-mem-usage"),
        _schedules,
        before=_scheduler_secret,
    ),
    "history": Part(TWO, ("motley-history",), _remembers, gone=_is_given_back),
    "forecasts": Part(("external-metrics.yaml",), (), _foresees, needs=("history",)),
    "autoscaling": Part(TWO, ("motley-autoscaling",), _recommends),
    "horizontal": Part(TWO, ("motley-horizontal",), _scales),
    "heterogeneity": Part((*TWO, "node-guard.yaml"), ("motley-heterogeneity",), _learns),
    "overcommit": Part(
        (*TWO, "webhook.yaml"), ("motley-overcommit",), _overcommits, gone=_has_what_it_has
    ),
}
