"""`deploy/history` on a Kubernetes that is not Motley: who may ask it what, and what it tells.

The manifests are applied as they are but for the Service, which leads to this machine; see
`stock.py` for how the same is tried on kube-apiserver.
"""

import base64
import json
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from motley.api import quantity
from motley.apiserver import tls
from motley.autoscale.past import ApiPasts
from motley.client import kubeconfig
from motley.client.rest import Client
from motley.dashboard.asking import Asked
from motley.dashboard.kube import Api, Endpoint
from motley.dashboard.pages import workloads
from motley.lib.clock import SYSTEM
from motley.ops.freeports import free_port

from .stock import DEPLOY, MOTLEY, Call, eventually, lead_here

HERE = DEPLOY / "history"
ACCOUNT = ("kube-system", "motley-history")
PATH = "/apis/history.motley.io/v1"
SERVICE = "v1.history.motley.io"
BLOCKED = (
    *("grpc", "google", "kubernetes_validate", "jwt", "nacl", "uvicorn", "websockets"),
    *("pyroute2", "dns", "rich", "re2", "httptools"),
)


class Served:
    """A cluster, and the history server that runs beside it on a port."""

    def __init__(self, stock, port, store):
        self.stock, self.port, self.store = stock, port, store
        self.kubectl = stock.kubectl

    def start(self):
        """Run the Deployment's container here, where its volume is as it was left."""
        self._running = ExitStack()
        options = ("--bind-address=127.0.0.1", f"--secure-port={self.port}", "--history-every-s=1")
        options += (f"--remote-write-url={self.store}", "--remote-write-label=cluster=brandenburg")
        self._running.enter_context(self.stock.deployment(HERE / "deployment.yaml", *options))

    def stop(self):
        self._running.close()

    def bundle(self):
        words = ("get", "apiservice", SERVICE, "-o", "jsonpath={.spec.caBundle}")
        return self.kubectl(*words).out

    def is_available(self):
        done = self.kubectl("get", "--raw", f"{PATH}/nodes", fails=None)
        return done.code == 0

    def ask(self, path, *, token="", headers=None, certificate=None):
        """Ask past the API server; its code and body, or 0 where no connection was to be had."""
        trust = ssl.create_default_context(cadata=base64.b64decode(self.bundle()).decode())
        trust.check_hostname = False  # it is known by its Service's name, which leads nowhere here
        if certificate:
            trust.load_cert_chain(*certificate)
        sent = dict(headers or {}) | ({"Authorization": f"Bearer {token}"} if token else {})
        asked = urllib.request.Request(f"https://127.0.0.1:{self.port}{path}", headers=sent)
        try:
            with urllib.request.urlopen(asked, context=trust, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, ""


class Store(ThreadingHTTPServer):
    """Takes what is sent by remote-write, and keeps it."""

    daemon_threads = True

    def __init__(self):
        self.bodies = []
        super().__init__(("127.0.0.1", 0), _Storing)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_port}/api/v1/write"


class _Storing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.server.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def store():
    with Store() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.1})
        thread.start()
        yield made
        made.shutdown()
        thread.join(10)


@pytest.fixture(scope="module")
def served(stock, store):
    """Two nodes, a Deployment of two pods on one of them, and what it used."""
    port = free_port()
    for name in ("rbac", "deployment"):
        stock.apply(HERE / f"{name}.yaml", lead_here(port))
    made = Served(stock, port, store.url)
    with ExitStack() as stack:
        stack.enter_context(stock.workloads())
        stack.enter_context(stock.nodes(2))
        stack.enter_context(stock.metrics())
        made.start()
        stack.callback(made.stop)
        stock.namespace("shop")
        template = {
            "metadata": {
                "labels": {"app": "web"},
                "annotations": {"fake.motley.io/usage": "cpu=200m,memory=64Mi"},
            },
            "spec": {"nodeName": "n-1", "containers": [{"name": "c", "image": "app:1"}]},
        }
        spec = {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template}
        stock.create(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "web"},
                "spec": spec,
            },
            "shop",
        )
        eventually(made.is_available, "the group is served")
        yield made


def told(served, path):
    return served.kubectl("get", "--raw", f"{PATH}/{path}").json


def last(item, figure):
    """The newest figure there is, all containers together."""
    known = [v for part in item["series"] for v in part[figure] if v is not None]
    return known[-1] if known else None


def workload(served):
    listed = told(served, "namespaces/shop/workloads?from=-5m&step=10s&aggregation=max")["items"]
    return next((w for w in listed if last(w, "pods") == 2), None)


def test_kubectl_reads_the_past_of_nodes_pods_and_workloads_through_the_api_server(served):
    found = eventually(lambda: workload(served), "two pods' use")
    assert (found["metadata"]["name"], found["workloadKind"]) == ("web", "Deployment")
    assert last(found, "cpu") == pytest.approx(0.4)
    assert last(found, "memory") == 2 * 64 * 2**20
    node = told(served, "nodes/n-1?from=-5m&step=10s&aggregation=max")
    assert last(node, "cpu") == pytest.approx(0.4)
    names = {pod["metadata"]["name"] for pod in told(served, "namespaces/shop/pods")["items"]}
    assert len(names) == 2
    missing = served.kubectl("get", "--raw", f"{PATH}/nodes/n-9", fails=True)
    assert "n-9" in missing.err
    assert "NotFound" in missing.err


def test_kubectl_finds_the_group_and_its_resources_without_a_complaint(served):
    done = served.kubectl("api-resources", "--api-group=history.motley.io", "-o", "name")
    assert done.err == ""
    assert {name.partition(".")[0] for name in done.out.split()} == {
        *("metrics", "nodes", "pods", "workloads")
    }
    words = ("wait", "--for=condition=Available", f"apiservice/{SERVICE}", "--timeout=60s")
    served.kubectl(*words)
    listed = served.kubectl("get", "--raw", "/apis/history.motley.io/v1").json
    assert listed["kind"] == "APIResourceList"
    assert served.kubectl("get", "--raw", "/apis/history.motley.io").json["kind"] == "APIGroup"


def test_the_cluster_s_roles_decide_who_reads_what(served):
    served.kubectl("create", "serviceaccount", "viewer", "-n", "shop")
    served.kubectl(
        *("create", "rolebinding", "viewer", "-n", "shop", "--clusterrole=view"),
        "--serviceaccount=shop:viewer",
    )
    who = ("--as=system:serviceaccount:shop:viewer",)
    inside, outside = f"{PATH}/namespaces/shop/workloads", f"{PATH}/namespaces/default/workloads"
    eventually(
        lambda: served.kubectl("get", "--raw", inside, *who, fails=None).code == 0, "view may read"
    )
    refused = served.kubectl("get", "--raw", outside, *who, fails=True)
    assert "cannot list resource" in refused.err or "Forbidden" in refused.err
    token = served.kubectl("create", "token", "viewer", "-n", "shop").out.strip()
    code, body = served.ask(inside, token=token)
    assert (code, json.loads(body)["kind"]) == (200, "WorkloadHistoryList")
    code, body = served.ask(outside, token=token)
    assert (code, json.loads(body)["reason"]) == (403, "Forbidden")
    assert 'User "system:serviceaccount:shop:viewer" cannot list' in json.loads(body)["message"]


def test_who_comes_past_the_api_server_is_nobody_without_a_token(served, stock, tmp_path):
    forged = {"X-Remote-User": "admin", "X-Remote-Group": "system:masters"}
    for headers in ({}, forged, {"Authorization": "Bearer nonsense", **forged}):
        code, body = served.ask(f"{PATH}/nodes", headers=headers)
        assert (code, json.loads(body)["reason"]) == (401, "Unauthorized")
    for path in ("/healthz", "/livez", "/readyz"):
        assert served.ask(path) == (200, "ok")
    for path in ("/metrics", "/apis", "/openapi/v3", "/"):
        assert served.ask(path)[0] == 401
    # The administrator's certificate is of another authority than the front proxy's.
    pair = tmp_path / "admin.crt", tmp_path / "admin.key"
    tls.write_pair(*pair, tls.pair_of(stock.kubeconfig))
    assert served.ask(f"{PATH}/nodes", headers=forged, certificate=pair)[0] == 0


def test_a_prometheus_reads_the_figures_of_the_moment(served):
    served.kubectl("create", "serviceaccount", "prometheus", "-n", "shop")
    served.kubectl("create", "clusterrole", "scrape", "--verb=get", "--non-resource-url=/metrics")
    for role in ("scrape", "motley-history:monitoring"):
        served.kubectl(
            *("create", "clusterrolebinding", f"p-{role}", f"--clusterrole={role}"),
            "--serviceaccount=shop:prometheus",
        )
    token = served.kubectl("create", "token", "prometheus", "-n", "shop").out.strip()
    for path in ("/metrics", f"{PATH}/metrics"):
        _, body = eventually(
            lambda path=path: (found := served.ask(path, token=token))[0] == 200 and found, path
        )
        assert 'motley_node_cpu_usage_cores{node="n-1"} 0.4 ' in body
        assert 'workload="web",workload_kind="Deployment"' in body
    assert served.ask(f"{PATH}/nodes", token=token)[0] == 403


def test_a_remote_store_is_sent_the_same(served, store):
    eventually(lambda: workload(served), "two pods' use")
    # Compressed: what is there for the first time can be read as it is.
    names = (b"motley_", b"brandenburg", b"Deployment")
    eventually(lambda: any(all(n in b for n in names) for b in store.bodies), "a round")


def test_a_spoiled_bundle_is_mended(served):
    right = served.bundle()
    patch = json.dumps({"spec": {"caBundle": None}})
    served.kubectl("patch", "apiservice", SERVICE, "--type=merge", "-p", patch)
    eventually(lambda: served.bundle() == right, "the authority is told again")
    eventually(served.is_available, "and believed")


async def test_autoscalers_ask_it_as_they_ask_motley_s_own(served, stock):
    eventually(lambda: workload(served), "two pods' use")
    async with Client(kubeconfig.load(stock.kubeconfig)) as client:
        past = await ApiPasts(client).workload("shop", "Deployment", "web", "5m", "10s", "max")
        assert [v for v in past["c"].cpu if v is not None][-1] == pytest.approx(0.4)
        assert await ApiPasts(client).workload("shop", "Deployment", "no", "5m", "10s", "max") == {}


def test_a_vertical_autoscaler_recommends_by_it_without_a_file_of_its_own(served, stock):
    """As the comment in deploy/autoscaling says: no --history-file, and a role more."""
    stock.apply(DEPLOY / "crds/verticalpodautoscalers.yaml")
    stock.apply(DEPLOY / "autoscaling/rbac.yaml")
    served.kubectl(
        *("create", "clusterrolebinding", "motley-autoscaling:history"),
        *("--clusterrole=motley-history:reader",),
        "--serviceaccount=kube-system:motley-autoscaling",
    )
    eventually(lambda: workload(served), "two pods' use")
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    spec = {"targetRef": target, "updatePolicy": {"updateMode": "Off"}}
    stock.create(
        {
            "apiVersion": "autoscaling.k8s.io/v1",
            "kind": "VerticalPodAutoscaler",
            "metadata": {"name": "web"},
            "spec": spec,
        },
        "shop",
    )
    path = "jsonpath={.status.recommendation.containerRecommendations[0].target.cpu}"
    words = ("get", "verticalpodautoscaler", "web", "-n", "shop", "-o", path)
    command = [*MOTLEY, "controllers", "--controllers=verticalpodautoscaling", "--health-port=0"]
    command += ["--no-leader-elect", "--vertical-pod-autoscaler-sync-period-s=1"]
    account = stock.as_service_account("kube-system", "motley-autoscaling")
    with stock.running("vertical", command, {"KUBECONFIG": str(account)}):
        found = eventually(lambda: served.kubectl(*words).out, "a recommendation")
    assert 0.2 < quantity.quantity(found).nano / 1e9 < 0.4  # a pod uses 200m


def test_people_see_it_in_tables_and_charts(served, stock):
    eventually(lambda: workload(served), "two pods' use")
    done = subprocess.run(
        [sys.executable, "-m", "motley.cli.main", "top", "workloads", "-n", "shop"],
        env={"KUBECONFIG": str(stock.kubeconfig), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "deployment/web" in done.stdout, done.stderr
    admin = kubeconfig.load(stock.kubeconfig)
    api = Api(Endpoint(admin.server, admin.ssl_context()))
    page = workloads.show(api, Asked("/", {}, SYSTEM.now()), "shop", "Deployment", "web")
    api.close()
    assert str(page.main).count("<figure") == 2


def test_the_past_outlives_the_server_and_another_authority_is_told(served, stock):
    metadata = {"name": "brief", "annotations": {"fake.motley.io/usage": "cpu=50m,memory=8Mi"}}
    spec = {"nodeName": "n-0", "containers": [{"name": "c", "image": "app:1"}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    stock.create(pod, "shop")
    path = f"{PATH}/namespaces/shop/pods/brief?step=10s"
    ask = ("get", "--raw", path)
    eventually(lambda: served.kubectl(*ask, fails=None).code == 0, "the pod's use")
    served.kubectl("delete", "pod", "brief", "-n", "shop", "--grace-period=0", "--force")
    before = served.bundle()
    served.stop()
    served.start()
    eventually(lambda: served.bundle() != before, "the new authority")
    eventually(served.is_available, "it is served again")
    assert last(served.kubectl(*ask).json, "cpu") == pytest.approx(0.05)
    assert base64.b64decode(served.bundle()).startswith(base64.b64decode(before))


def test_it_needs_no_packages_but_those_of_the_image():
    """The image of deploy/scheduler: motley[scheduler], cryptography and prometheus-client."""
    code = f"import sys\nfor name in {BLOCKED}: sys.modules[name] = None\n"
    code += "import motley.cli.history_server, motley.metrics.aggregated, motley.metrics.follower\n"
    code += "import motley.metrics.history_group, motley.controllers.topowner\n"
    code += "import motley.metrics.forecast_api, motley.controllers.nodespeed\n"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_role_is_enough_and_not_too_much(served):
    eventually(lambda: workload(served), "two pods' use")
    assert served.stock.refused(*ACCOUNT) == []
    readers = {
        Call("history.motley.io", resource, verb)
        for resource, verbs in {
            **dict.fromkeys(("nodes", "pods", "workloads"), ("get", "list")),
            "metrics": ("list",),
        }.items()
        for verb in verbs
    }
    assert served.stock.unused(HERE / "rbac.yaml", *ACCOUNT) == readers
    assert not served.stock.may(ACCOUNT, "patch", "apiservices.apiregistration.k8s.io")
    assert not served.stock.may(ACCOUNT, "get", "secrets")
