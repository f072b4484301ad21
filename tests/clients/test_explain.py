"""`motley explain` and `kubectl get decisions` on a running cluster."""

import json
import subprocess
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from motley.cli.main import main
from motley.ops.freeports import free_port


@dataclass
class Admin:
    """kubectl as the module's administrator."""

    binary: str
    kubeconfig: Path
    home: Path

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        done = subprocess.run(
            [self.binary, "--kubeconfig", str(self.kubeconfig), *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=30,
            env={"HOME": str(self.home)},
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "-o", "json"))


@pytest.fixture(scope="module")
def scheduler_port():
    return free_port()


@pytest.fixture(scope="module", autouse=True)
def cluster(server, components, scheduler_port):
    """Three nodes and a scheduler that serves what it remembers."""
    with components(
        server,
        ["controllers", "--health-port", "0", "--no-leader-elect"],
        ["fake-nodes", "--count", "3", "--prefix", "n-"],
        ["scheduler", "--health-port", str(scheduler_port), "--no-leader-elect"],
    ):
        yield


def free_nodes(admin):
    """Nodes that are ready: new ones have a taint until they are."""
    nodes = admin.json("get", "nodes")["items"]
    return [node for node in nodes if not node["spec"].get("taints")]


@pytest.fixture(scope="module")
def pods(server, until, kubectl_binary, tmp_path_factory):
    """One pod that fits and asks for an explanation, one that just fits, one that does not fit."""
    admin = Admin(kubectl_binary, server.kubeconfig, tmp_path_factory.mktemp("home"))
    until(lambda: len(free_nodes(admin)) == 3, "the nodes are there")
    admin("taint", "node", "n-1", "dedicated=gpu:NoSchedule")
    make(admin, "asks", cpu="500m", annotations={"motley.io/explain": "true"})
    until(lambda: node_of(admin, "asks"), "it is bound")
    make(admin, "fits", cpu="3")
    until(lambda: node_of(admin, "fits"), "it is bound")
    make(admin, "big", cpu="3700m")
    wanted = {"asks", "big"}
    until(
        lambda: (
            {n.split("/")[1] for n in admin("get", "decisions", "-o", "name").split()} == wanted
        ),
        "the decisions are published",
    )
    return admin


@pytest.fixture
def explain(server, scheduler_port):
    """The command in this process: a new one would take longer than its answer."""

    def run(*arguments, fails=False, remembers=True):
        port = scheduler_port if remembers else 1
        place = ["--kubeconfig", str(server.kubeconfig), "--scheduler", f"http://127.0.0.1:{port}"]
        done = CliRunner().invoke(main, ["explain", "pod", *arguments, *place])
        assert (done.exit_code != 0) is fails, done.output
        return done.output

    return run


def make(kubectl, name, *, cpu, annotations=None):
    container = {"name": "c", "image": "nginx", "resources": {"requests": {"cpu": cpu}}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"containers": [container]},
    }
    kubectl("create", "-f", "-", stdin=json.dumps(pod))


def node_of(kubectl, name):
    return kubectl("get", "pod", name, "-o", "jsonpath={.spec.nodeName}")


def test_kubectl_shows_decisions(pods):
    table = pods("get", "decisions")
    assert table.split()[:5] == ["NAME", "PROFILE", "NODE", "FEASIBLE", "NODES"]
    spec = pods.json("get", "decision", "asks")["spec"]
    assert spec["node"] == node_of(pods, "asks")
    assert spec["pluginSeconds"]["NodeResourcesFit"] > 0
    spec = pods.json("get", "decision", "big")["spec"]
    assert spec["message"].startswith("0/3 nodes are available: ")


def test_a_placed_pod_is_explained_from_what_the_scheduler_remembers(pods, explain):
    said = explain("fits")
    assert f"Pod default/fits is on {node_of(pods, 'fits')}." in said
    assert "Decided" in said
    assert "TaintToleration" in said
    assert "2 of 3 nodes passed every filter." in said
    assert "NodeResourcesFit" in explain("asks", "-o", "wide").split("PLUGIN")[1]


def test_a_forgotten_decision_is_said_to_be_and_made_anew(pods, explain):
    said = explain("fits", remembers=False)
    assert "no longer remembered" in said
    assert "Worked out now" in said
    found = json.loads(explain("fits", "-o", "json", remembers=False))
    assert found["source"] == "now"
    assert found["decision"]["feasible"] >= 1


def test_a_pending_pod_is_told_what_would_help(pods, explain):
    said = explain("big")
    assert "Pod default/big fits nowhere." in said
    assert "tolerated dedicated=gpu:NoSchedule" in said
    assert "lack cpu" in said


def test_why_not_names_all_objections_or_compares(pods, explain):
    said = explain("big", "--why-not", "n-1")
    assert "TaintToleration" in said
    free, taken = node_of(pods, "asks"), node_of(pods, "fits")
    assert "Insufficient cpu" in explain("big", "--why-not", free)
    other = explain("asks", "--why-not", taken)
    assert "could run on" in other
    assert "DIFFERENCE" in other
    found = json.loads(explain("big", "--why-not", "n-1", "-o", "json"))
    assert found["whyNot"]["objections"][0]["plugin"] == "TaintToleration"


def test_what_is_not_there_is_said_with_what_to_do(pods, explain):
    assert "-n" in explain("nobody", fails=True)
    assert "kubectl get nodes" in explain("big", "--why-not", "nowhere", fails=True)


def test_the_scheduler_lists_its_decisions_on_its_own_machine(pods, scheduler_port):
    with urllib.request.urlopen(f"http://127.0.0.1:{scheduler_port}/decisions") as answer:
        items = json.load(answer)["items"]
    assert {item["metadata"]["name"] for item in items} >= {"asks", "fits", "big"}


def test_a_decision_goes_with_its_pod(pods, until):
    pods("delete", "pod", "asks", "--grace-period=0", "--force")
    names = ("get", "decisions", "-o", "name")
    until(lambda: "asks" not in pods(*names), "the decision is collected")
