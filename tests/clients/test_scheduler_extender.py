"""An HTTP extender as its users write one: its own web server, beside a real API server."""

import http.server
import json
import threading

import pytest

CONFIG = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {{leaderElect: false}}
extenders:
  - urlPrefix: {url}/gpu
    filterVerb: filter
    prioritizeVerb: prioritize
    bindVerb: bind
    preemptVerb: preempt
    weight: 2
    nodeCacheCapable: true
    httpTimeout: 10s
    managedResources: [{{name: example.com/gpu, ignoredByScheduler: true}}]
  - urlPrefix: {url}/whole
    filterVerb: filter
    ignorable: true
    managedResources: [{{name: example.com/fpga, ignoredByScheduler: true}}]
"""


class Extender(http.server.BaseHTTPRequestHandler):
    """Takes nodes g-1 and g-2 only, likes g-2 best, and binds through the API itself."""

    def do_POST(self):
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.asked.append((self.path, body))
        server.gate.wait(20)
        answer = getattr(self, self.path.strip("/").replace("/", "_"))(body)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(answer).encode())

    def gpu_filter(self, body):
        pod = body["Pod"]["metadata"]["name"]
        if pod == "nowhere":
            return {"NodeNames": [], "FailedNodes": {n: "no free GPU" for n in body["NodeNames"]}}
        kept = [name for name in body["NodeNames"] if name in ("g-1", "g-2")]
        return {"NodeNames": kept, "FailedNodes": {"g-0": "has no GPU"}}

    def gpu_prioritize(self, body):
        return [{"Host": name, "Score": 10 * (name == "g-2")} for name in body["NodeNames"]]

    def gpu_preempt(self, body):
        victims = body["NodeNameToMetaVictims"]
        return {"NodeNameToMetaVictims": {"g-1": victims["g-1"]}}

    def gpu_bind(self, body):
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": body["PodName"]},
            "target": {"kind": "Node", "name": body["Node"]},
        }
        path = f"/api/v1/namespaces/{body['PodNamespace']}/pods/{body['PodName']}/binding"
        self.server.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(binding))
        return {"Error": ""}

    def whole_filter(self, body):
        keep = [n for n in body["Nodes"]["items"] if "g-0" in n["metadata"]["name"]]
        return {"Nodes": {"items": keep}}

    def log_message(self, *_):
        """Keep quiet."""


@pytest.fixture(scope="module")
def extender():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Extender) as running:
        running.asked, running.gate, running.kubectl = [], threading.Event(), None
        running.gate.set()
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.gate.set()
        running.shutdown()
        thread.join(10)


@pytest.fixture(scope="module", autouse=True)
def scheduler(server, extender, components, tmp_path_factory):
    config = tmp_path_factory.mktemp("extender") / "config.yaml"
    config.write_text(CONFIG.format(url=f"http://127.0.0.1:{extender.server_address[1]}"))
    with components(
        server,
        ["controllers", "--health-port", "0", "--no-leader-elect"],
        ["fake-nodes", "--count", "3", "--prefix", "g-"],
        ["scheduler", "--health-port", "0", "--config", str(config)],
    ):
        yield


@pytest.fixture
def cluster(kubectl, extender, until):
    extender.kubectl = kubectl
    extender.asked.clear()
    until(lambda: len(kubectl.ready_nodes()) == 3, "nodes")
    return kubectl


def make(kubectl, name, resource="example.com/gpu", cpu="", **more):
    requests = {resource: "1"} if resource else {}
    requests |= {"cpu": cpu} if cpu else {}
    container = {
        "name": "c",
        "image": "app:1",
        "env": [{"name": "SECRET_OF_THE_POD", "value": "told"}],
        "resources": {"requests": requests, "limits": requests},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container], **more},
    }
    kubectl("create", "-f", "-", stdin=json.dumps(pod))


def node_of(kubectl, name):
    return kubectl("get", "pod", name, "-o", "jsonpath={.spec.nodeName}").out


def test_the_extender_filters_scores_and_binds(cluster, extender, until):
    make(cluster, "one")
    assert until(lambda: node_of(cluster, "one"), "bound") == "g-2"
    verbs = [path for path, _ in extender.asked]
    assert verbs == ["/gpu/filter", "/gpu/prioritize", "/gpu/bind"]
    asked = extender.asked[0][1]
    assert sorted(asked["NodeNames"]) == ["g-0", "g-1", "g-2"]
    assert asked["Nodes"] is None
    # The whole pod, not only what the scheduler looks at.
    assert asked["Pod"]["spec"]["containers"][0]["env"][0]["name"] == "SECRET_OF_THE_POD"
    bound = extender.asked[2][1]
    assert bound["PodUID"] == cluster("get", "pod", "one", "-o", "json").json["metadata"]["uid"]


def test_the_extenders_reasons_are_in_the_event(cluster, until):
    make(cluster, "nowhere")
    words = "0/3 nodes are available: 3 no free GPU."
    until(lambda: words in cluster("describe", "pod", "nowhere").out, "the reason")


def test_pods_it_is_not_asked_about_go_on_while_it_thinks(cluster, extender, until):
    extender.gate.clear()
    try:
        make(cluster, "slow")
        until(lambda: extender.asked, "it is asked")
        for i in range(5):
            make(cluster, f"quick-{i}", resource=None)
        for i in range(5):
            until(lambda i=i: node_of(cluster, f"quick-{i}"), "bound")
        assert node_of(cluster, "slow") == ""
    finally:
        extender.gate.set()
    assert until(lambda: node_of(cluster, "slow"), "bound") == "g-2"


def test_one_without_a_cache_is_told_whole_nodes(cluster, extender, until):
    make(cluster, "whole", resource="example.com/fpga")
    assert until(lambda: node_of(cluster, "whole"), "bound") == "g-0"
    (path, asked), *_ = extender.asked
    assert path == "/whole/filter"
    status = asked["Nodes"]["items"][0]["status"]
    assert status["nodeInfo"]["kubeletVersion"]
    assert asked["NodeNames"] is None


def test_what_changed_while_it_thought_counts(cluster, extender, until):
    """The node it likes best is cordoned before it answers."""
    extender.gate.clear()
    try:
        make(cluster, "late")
        until(lambda: extender.asked, "it is asked")
        cluster("cordon", "g-2")
        make(cluster, "after", resource=None, nodeSelector={"kubernetes.io/hostname": "g-2"})
        events = "the scheduler has seen it"
        words = "node(s) were unschedulable"
        until(lambda: words in cluster("describe", "pod", "after").out, events)
    finally:
        extender.gate.set()
    assert until(lambda: node_of(cluster, "late"), "bound") == "g-1"
    cluster("uncordon", "g-2")


def test_it_has_a_say_about_who_is_preempted(cluster, extender, until):
    """Without it either node would do; it wants g-1."""
    for number in (1, 2):
        where = {"kubernetes.io/hostname": f"g-{number}"}
        make(cluster, f"low-{number}", resource=None, cpu="3", nodeSelector=where)
        until(lambda n=number: node_of(cluster, f"low-{n}"), "bound")
    high = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 9"
    cluster("apply", "-f", "-", stdin=high)
    make(cluster, "vip", cpu="3", priorityClassName="high")
    assert until(lambda: node_of(cluster, "vip"), "bound") == "g-1"
    given = next(body for path, body in extender.asked if path == "/gpu/preempt")
    assert sorted(given["NodeNameToMetaVictims"]) == ["g-1", "g-2"]
    assert node_of(cluster, "low-2") == "g-2"
