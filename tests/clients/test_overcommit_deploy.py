"""`deploy/overcommit` on a Kubernetes of others: kubelets' figures are raised as labels say.

Kubelets are played: their calls are those of a real one, under its identity (`system:node:NAME`).
"""

import base64
import json
import urllib.request
from contextlib import ExitStack, contextmanager

import pytest

from motley.api import overcommit
from motley.client import kubeconfig
from motley.ops.freeports import free_ports

from .stock import DEPLOY, Call, eventually, granted, lead_here

HERE = DEPLOY / "overcommit"
RBAC = HERE / "rbac.yaml"
ACCOUNT = ("kube-system", "motley-overcommit")
CPU, MEMORY = overcommit.LABELS["cpu"], overcommit.LABELS["memory"]
NOTHING = {"status": {"capacity": {}, "allocatable": {}}}
REGISTRATION = (
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/motley-overcommit"
)


def call(stock, method, path, body=None, kind="application/json", user=""):
    """One call, as somebody: the answer, and what the server warned of."""
    headers = {"Content-Type": kind, "Accept": "application/json"}
    if user:
        headers |= {"Impersonate-User": user, "Impersonate-Group": "system:nodes"}
    data = json.dumps(body).encode() if body is not None else None
    asked = urllib.request.Request(stock.url + path, data, headers, method=method)
    context = kubeconfig.load(stock.kubeconfig).ssl_context()
    with urllib.request.urlopen(asked, context=context, timeout=30) as answer:
        return json.load(answer), answer.headers.get_all("Warning") or []


class Kubelet:
    """Registers a node and reports its figures as a kubelet does."""

    def __init__(self, stock, name, cpu="4", memory="8Gi"):
        self.stock, self.user = stock, f"system:node:{name}"
        self.path = f"/api/v1/nodes/{name}"
        self.name, self.figures = name, {"cpu": cpu, "memory": memory, "pods": "110"}
        self.beats = 0

    def register(self, **labels):
        """What the server made of it."""
        body = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": labels},
            "status": {"capacity": self.figures, "allocatable": self.figures},
        }
        return call(self.stock, "POST", "/api/v1/nodes", body, user=self.user)[0]

    def report(self, *, seen=None):
        """A patch of what differs from its copy (`seen`: an old one); the answer, and warnings."""
        self.beats += 1
        known = (seen or self.read())["status"]
        beat = {"type": "Ready", "status": "True", "reason": f"Beat{self.beats}"}
        body = {"conditions": [beat]}
        for part in ("capacity", "allocatable"):
            differs = {k: v for k, v in self.figures.items() if known[part].get(k) != v}
            body |= {part: differs} if differs else {}
        kind = "application/strategic-merge-patch+json"
        path = f"{self.path}/status"
        made, said = call(self.stock, "PATCH", path, {"status": body}, kind, self.user)
        assert made["status"]["conditions"][0]["reason"] == beat["reason"]
        return made, said

    def read(self):
        return call(self.stock, "GET", self.path)[0]

    def label(self, **labels):
        body = {"metadata": {"labels": {overcommit.LABELS[k]: v for k, v in labels.items()}}}
        call(self.stock, "PATCH", self.path, body, "application/merge-patch+json")

    def becomes(self, *wanted):
        eventually(lambda: figures(self.read()) == wanted, f"{self.name} has {wanted}")


def figures(node):
    return node["status"]["allocatable"]["cpu"], node["status"]["allocatable"]["memory"]


def raw(node):
    noted = overcommit.raised(node["metadata"].get("annotations") or {})
    return {resource: one.raw for resource, one in noted.items()}


def authorities(stock):
    text = call(stock, "GET", REGISTRATION)[0]["webhooks"][0]["clientConfig"].get("caBundle", "")
    return base64.b64decode(text).count(b"BEGIN CERTIFICATE")


@contextmanager
def leading_to(stock, port, otherwise):
    """Another replica is the one that is asked, as a Service would choose."""

    def lead(chosen):
        path = "/webhooks/0/clientConfig/service/port"
        body = [{"op": "replace", "path": path, "value": chosen}]
        call(stock, "PATCH", REGISTRATION, body, "application/json-patch+json")

    lead(port)
    try:
        yield
    finally:
        lead(otherwise)


def is_asked(kubelet):
    """Does the webhook raise what a kubelet writes? It shows in the very answer to the write."""
    made, _ = kubelet.report(seen=NOTHING)
    return figures(made) != (kubelet.figures["cpu"], kubelet.figures["memory"])


@pytest.fixture(scope="module")
def ports():
    return free_ports(2)


@pytest.fixture(scope="module")
def webhook(stock, ports):
    """The manifests, and two replicas of which the API server asks the first."""
    stock.apply(RBAC)
    for name in ("deployment.yaml", "webhook.yaml"):
        stock.apply(HERE / name, lead_here(ports[0]))
    with ExitStack() as stack:
        for port in ports:
            changes = {"--port=9443": f"--port={port}"}
            made = stock.deployment(HERE / "deployment.yaml", replace=changes)
            stack.enter_context(made)
        eventually(lambda: authorities(stock) == 2, "both replicas' authorities are believed")
        kubelet = Kubelet(stock, "first")
        kubelet.register(**{CPU: "2"})
        eventually(lambda: is_asked(kubelet), "the API server has seen them")
        yield


def test_a_node_is_raised_as_soon_as_it_is_labelled(stock, webhook):
    kubelet = Kubelet(stock, "labelled")
    kubelet.register()
    kubelet.label(cpu="2", memory="1.25")
    kubelet.becomes("8", "10Gi")
    assert raw(kubelet.read()) == {"cpu": "4", "memory": "8Gi"}
    assert kubelet.read()["status"]["allocatable"]["pods"] == "110"


def test_what_a_kubelet_writes_is_raised_on_its_way_in(stock, webhook):
    kubelet = Kubelet(stock, "reporting")
    assert figures(kubelet.register(**{CPU: "2"})) == ("8", "8Gi"), "with its first word"
    fresh = kubelet.read()
    made, said = kubelet.report(seen=fresh)
    assert figures(made) == ("8", "8Gi")
    assert said == []
    made, _ = kubelet.report(seen=NOTHING)
    assert figures(made) == ("8", "8Gi")
    old = {"status": {"capacity": kubelet.figures, "allocatable": kubelet.figures}}
    made, _ = kubelet.report(seen=old)
    assert figures(made) == ("8", "8Gi"), "its copy was old: it wrote no figures at all"
    kubelet.figures |= {"cpu": "3"}
    made, _ = kubelet.report()
    assert (figures(made), raw(made)) == (("6", "8Gi"), {"cpu": "3"}), "less than before"


def test_others_who_write_the_status_raise_nothing_twice(stock, webhook):
    kubelet = Kubelet(stock, "written")
    kubelet.register(**{CPU: "2"})
    kubelet.becomes("8", "8Gi")
    whole = kubelet.read()
    whole["status"]["allocatable"]["example.org/dongle"] = "3"
    made, _ = call(stock, "PUT", f"{kubelet.path}/status", whole)
    assert figures(made) == ("8", "8Gi")
    assert made["status"]["allocatable"]["example.org/dongle"] == "3"
    plain = {**made, "metadata": {**made["metadata"], "annotations": {}}}
    made, _ = call(stock, "PUT", f"{kubelet.path}/status", plain)
    assert (figures(made), raw(made)) == (("8", "8Gi"), {"cpu": "4"})


def test_other_labels_count_from_what_the_kubelet_reported_and_none_restores_it(stock, webhook):
    kubelet = Kubelet(stock, "changing")
    kubelet.register(**{CPU: "2", MEMORY: "1.5"})
    kubelet.label(cpu="3")
    kubelet.becomes("12", "12Gi")
    kubelet.label(cpu=None, memory=None)
    kubelet.becomes("4", "8Gi")
    assert overcommit.RAISED not in (kubelet.read()["metadata"].get("annotations") or {})
    made, _ = kubelet.report()
    assert figures(made) == ("4", "8Gi")


def test_a_label_that_is_no_ratio_is_told_and_raises_nothing(stock, webhook):
    kubelet = Kubelet(stock, "mislabelled")
    kubelet.register(**{CPU: "2"})
    kubelet.label(cpu="lots")
    kubelet.becomes("4", "8Gi")
    _, said = kubelet.report()
    assert any("not a decimal number from 1 to 10" in one for one in said)
    where = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name=mislabelled"
    events = eventually(lambda: call(stock, "GET", where)[0]["items"], "an event")
    assert {e["reason"] for e in events} == {"InvalidOvercommit"}


def test_the_other_replica_is_believed_too(stock, webhook, ports):
    kubelet = Kubelet(stock, "elsewhere")
    kubelet.register(**{CPU: "2"})
    with leading_to(stock, ports[1], ports[0]):
        eventually(lambda: is_asked(kubelet), "the second replica answers")


def test_nothing_was_refused_and_no_right_is_too_much(stock, webhook):
    assert stock.refused(*ACCOUNT) == []
    # An event is patched when it comes again, which is in five minutes; and a list is asked for
    # where a server cannot watch from the beginning.
    seldom = {Call("", "events", "patch"), *(one for one in granted(RBAC) if one.verb == "list")}
    assert stock.unused(RBAC, *ACCOUNT) <= seldom
    for verb, resource in (
        *(("get", "secrets"), ("list", "pods"), ("patch", "nodes"), ("delete", "nodes")),
        ("patch", "mutatingwebhookconfigurations"),
    ):
        assert not stock.may(ACCOUNT, verb, resource, "kube-system"), (verb, resource)


def test_where_nobody_answers_nodes_report_as_ever_and_are_raised_a_moment_later(
    stock, webhook, ports
):
    kubelet = Kubelet(stock, "lonely")
    kubelet.register(**{CPU: "2"})
    kubelet.becomes("8", "8Gi")
    with leading_to(stock, 1, ports[0]):  # where nobody is
        eventually(lambda: not is_asked(kubelet), "the kubelet's word is taken as it is")
        kubelet.becomes("8", "8Gi")
