"""The scheduler's manifests: accepted as they are, and the role is enough and not too much.

On Motley's server with all its kinds, or on kube-apiserver where there is one; see `stock.py`.
"""

import json
import ssl
import subprocess
import urllib.error
import urllib.request
from itertools import count
from pathlib import Path

import pytest
import yaml

from motley.ops.freeports import free_port

from .stock import Stock

NUMBERS = count()
DEPLOY = Path(__file__).parents[2] / "deploy/scheduler"
BLOCKED = (
    *("cryptography", "grpc", "google", "kubernetes_validate", "prometheus_client", "jwt"),
    *("nacl", "uvicorn", "websockets", "pyroute2", "dns", "rich", "re2", "httptools"),
)


@pytest.fixture
def kubectl(place, kubectl_on):
    """kubectl in a fresh namespace."""
    found = kubectl_on(place)
    found.namespace = f"t{next(NUMBERS)}"
    (place.namespace if isinstance(place, Stock) else place.make_namespace)(found.namespace)
    return found


@pytest.fixture(scope="module")
def admin(place, kubectl_binary, tmp_path_factory):
    """kubectl with the manifests applied, in kube-system."""
    home = tmp_path_factory.mktemp("home")

    def run(*arguments, stdin=None):
        done = subprocess.run(
            [kubectl_binary, "--kubeconfig", str(place.kubeconfig), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
        )
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return done.stdout

    for name in ("rbac", "deployment", "second-scheduler"):
        run("apply", "--validate=strict", "-f", str(DEPLOY / f"{name}.yaml"))
    return run


@pytest.fixture(scope="module")
def port():
    return free_port()


@pytest.fixture(scope="module")
def log(place, admin, components, port, tmp_path_factory):
    """The Deployment's scheduler as a process: its token, its configuration, its arguments."""
    local = {"10259": str(port), "0.0.0.0": "127.0.0.1"}
    if isinstance(place, Stock):
        with (
            place.workloads(),
            place.nodes(2, "--cpu", "1", prefix="d-"),
            place.deployment(DEPLOY / "deployment.yaml", replace=local) as scheduler,
        ):
            yield scheduler.log
        return
    directory = tmp_path_factory.mktemp("pod")
    token = admin("create", "token", "motley-scheduler", "-n", "kube-system").strip()
    document = yaml.safe_load(place.kubeconfig.read_text())
    document["users"] = [{"name": u["name"], "user": {"token": token}} for u in document["users"]]
    kubeconfig = directory / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(document))
    manifests = list(yaml.safe_load_all((DEPLOY / "deployment.yaml").read_text()))
    config = directory / "config.yaml"
    config.write_text(manifests[0]["data"]["config.yaml"])
    args = manifests[1]["spec"]["template"]["spec"]["containers"][0]["args"]
    args = [a.replace("/etc/motley/config.yaml", str(config)) for a in args]
    args = [a.replace("10259", str(port)).replace("0.0.0.0", "127.0.0.1") for a in args]
    with components(
        place,
        ["controllers", "--health-port", "0", "--no-leader-elect"],
        ["fake-nodes", "--count", "2", "--prefix", "d-", "--cpu", "1"],
        ["scheduler", "--kubeconfig", str(kubeconfig), *args],
        level="info",
    ) as log:
        yield log


def make(kubectl, name, cpu, scheduler="motley-scheduler", **spec):
    resources = {"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}
    container = {"name": "c", "image": "app:1", "resources": resources}
    spec |= {"schedulerName": scheduler, "containers": [container]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    kubectl("create", "-f", "-", stdin=json.dumps(pod))


def bound(kubectl, name, until):
    def look():
        return kubectl("get", "pod", name, "-o", "jsonpath={.spec.nodeName}").out

    return until(look, f"{name} is bound")


def status_of(port, path, token=""):
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", headers=headers)
    try:
        with urllib.request.urlopen(request, context=trusting, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, ""
    except OSError:
        return 0, ""


def test_the_role_is_enough_for_binding_preempting_and_rewriting(kubectl, until, log):
    make(kubectl, "low-0", "700m")
    make(kubectl, "low-1", "700m")
    assert {bound(kubectl, f"low-{i}", until) for i in range(2)} == {"d-0", "d-1"}
    high = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 9"
    kubectl("apply", "-f", "-", stdin=high)
    make(kubectl, "high", "700m", priorityClassName="high")
    bound(kubectl, "high", until)
    kubectl("label", "--overwrite", "nodes", "--all", "hice.kj=0.5")
    make(kubectl, "scaled", "50m", scheduler="hice-scheduler")
    bound(kubectl, "scaled", until)
    cpu = "jsonpath={.spec.containers[0].resources.requests.cpu}"
    assert kubectl("get", "pod", "scaled", "-o", cpu).out == "100m"
    until(lambda: "Preempted" in kubectl("get", "events").out, "its event")
    # A Lease of its own: a Motley cluster's schedulers hold `motley-scheduler`.
    name = "motley-scheduler-deployment"
    lease = kubectl("get", "lease", "-n", "kube-system", name, "-o", "json").json
    assert lease["spec"]["holderIdentity"]
    assert "forbidden" not in log.read_text().lower()


def test_figures_are_shown_to_those_the_api_server_allows(admin, port, until, log):
    until(lambda: status_of(port, "/readyz")[0] == 200, "ready, without a token")
    assert status_of(port, "/livez") == (200, "ok")
    assert status_of(port, "/metrics")[0] == 401
    assert status_of(port, "/metrics", "nonsense")[0] == 401
    admin("create", "serviceaccount", "prometheus", "-n", "default")
    token = admin("create", "token", "prometheus", "-n", "default").strip()
    assert status_of(port, "/metrics", token)[0] == 403
    admin("create", "clusterrole", "scrape", "--verb=get", "--non-resource-url=/metrics")
    who = "--serviceaccount=default:prometheus"
    admin("create", "clusterrolebinding", "scrape", "--clusterrole=scrape", who)
    # The refusal is kept for a few seconds; another token asks anew.
    token = admin("create", "token", "prometheus", "-n", "default", "--duration=20m").strip()
    code, body = status_of(port, "/metrics", token)
    assert code == 200
    assert "scheduler_schedule_attempts_total" in body
    assert status_of(port, "/decisions", token)[0] == 403


def test_without_a_rule_it_says_what_it_may_not(kubectl, admin, until, log):
    roles = list(yaml.safe_load_all((DEPLOY / "rbac.yaml").read_text()))
    role = next(r for r in roles if r["kind"] == "ClusterRole")
    role["rules"] = [r for r in role["rules"] if r["resources"] != ["pods/binding"]]
    # Motley's own way to bind many at once is checked against the same right.
    try:
        admin("apply", "-f", "-", stdin=yaml.safe_dump(role))
        make(kubectl, "late", "10m")
        until(lambda: "forbidden" in kubectl("describe", "pod", "late").out, "the event")
        assert kubectl("get", "pod", "late", "-o", "jsonpath={.spec.nodeName}").out == ""
    finally:
        admin("apply", "-f", str(DEPLOY / "rbac.yaml"))
    bound(kubectl, "late", until)


def test_the_scheduler_needs_no_packages_but_its_own():
    """The image holds motley[scheduler]; what other roles need must not be imported."""
    import sys

    code = f"import sys\nfor name in {BLOCKED}: sys.modules[name] = None\n"
    code += "from motley.cli.main import main\nmain(['scheduler', '--help'])\n"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "new-plugin" in done.stdout
