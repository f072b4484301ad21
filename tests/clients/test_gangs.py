"""PodGroups and ElasticQuotas as users meet them: kubectl, the examples, a scheduler process."""

import json
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
GANGS = ROOT / "examples/gangs"
GROUP = "scheduling.x-k8s.io"


@pytest.fixture(scope="module", autouse=True)
def running(server, components):
    """Controllers, three nodes of two CPUs, and the scheduler of the examples."""
    commands = [
        ["controllers", "--health-port=0", "--no-leader-elect"],
        ["fake-nodes", "--count=3", "--prefix=n-", "--cpu=2"],
        ["scheduler", "--health-port=0", f"--config={GANGS / 'scheduler-config.yaml'}"],
    ]
    with components(server, *commands):
        yield


def placed(kubectl, *options):
    pods = kubectl("get", "pods", "-o", "json", *options).json["items"]
    return [p["metadata"]["name"] for p in pods if p["spec"].get("nodeName")]


def test_a_gang_waits_for_room_and_then_runs_as_a_whole(kubectl, until):
    kubectl("apply", "-f", str(GANGS / "gang.yaml"))
    words = (
        f"PodGroup {kubectl.namespace}/training was released:"
        " only 3 of the 4 members it needs found a place"
    )
    until(lambda: kubectl("get", "pods", "-o", "json").out.count(words) >= 4, "the reason")
    assert words in kubectl("describe", "pods").out
    assert placed(kubectl) == []
    shown = kubectl("get", "pg").out.splitlines()
    assert shown[0].split() == [
        *("NAME", "PHASE", "MINMEMBER", "SCHEDULED", "RUNNING", "SUCCEEDED", "FAILED", "AGE"),
    ]
    assert shown[1].split()[:4] == ["training", "PreScheduling", "4", "0"]

    more = '--patch={"status": {"allocatable": {"cpu": "4"}}}'
    kubectl("patch", "node", "n-0", "--subresource=status", "--type=merge", more)
    until(lambda: len(placed(kubectl)) == 4, "all are placed")
    wanted = ["training", "Running", "4", "4", "4"]
    until(
        lambda: kubectl("get", "podgroup", "training", "--no-headers").out.split()[:5] == wanted,
        "the phase",
    )
    status = kubectl("get", "pgs", "training", "-o", "json").json["status"]
    assert status["occupiedBy"] == f"{kubectl.namespace}/training"
    assert status["scheduleStartTime"]
    kubectl("delete", "-f", str(GANGS / "gang.yaml"))
    until(lambda: not kubectl("get", "pods", "-o", "name").out, "the pods are gone")


def test_a_team_borrows_and_gives_back(kubectl, until):
    """The nodes have room for all; what the teams are guaranteed is four CPUs."""
    kubectl.namespace = ""  # the file names its own
    kubectl("apply", "-f", str(GANGS / "elasticquota.yaml"))
    until(lambda: len(placed(kubectl, "-n", "team-a")) == 4, "team-a borrows")
    used = "jsonpath={.status.used}"
    look = ("get", "eq", "share", "-n", "team-a", "-o", used)
    until(lambda: kubectl(*look).out == '{"cpu":"4"}', "the use")
    assert '{"cpu":"4"}' in kubectl("get", "elasticquotas", "-n", "team-a").out

    container = {"name": "c", "image": "a", "resources": {"requests": {"cpu": "1"}}}
    overrides = json.dumps({"spec": {"containers": [container]}})
    for name in ("one", "two"):
        kubectl("run", name, "-n", "team-b", "--image=a", f"--overrides={overrides}")
    until(lambda: len(placed(kubectl, "-n", "team-b")) == 2, "team-b has its own")
    until(lambda: len(placed(kubectl, "-n", "team-a")) == 2, "team-a has given back")
    preempted = "get", "events", "-n", "team-a", "--field-selector=reason=Preempted", "-o", "name"
    assert len(kubectl(*preempted).out.split()) == 2
    kubectl("delete", "namespace", "team-a", "team-b", "--wait=false")


@pytest.mark.parametrize(
    ("kind", "spec", "problem"),
    [
        ("PodGroup", {"minMember": 0}, "spec.minMember"),
        ("PodGroup", {"minMember": 2, "minResources": {"cpu": "many"}}, "spec.minResources.cpu"),
        ("PodGroup", {"minMember": 2, "scheduleTimeoutSeconds": -1}, "scheduleTimeoutSeconds"),
        ("ElasticQuota", {"min": {"cpu": 2}, "max": {"cpu": 1}}, "min must not be greater than"),
    ],
)
def test_what_makes_no_sense_is_refused(kubectl, kind, spec, problem):
    obj = {"apiVersion": f"{GROUP}/v1alpha1", "kind": kind, "metadata": {"name": "x"}, "spec": spec}
    refused = kubectl("create", "-f", "-", stdin=yaml.safe_dump(obj), fails=True)

    assert problem in refused.err


def test_the_kinds_are_explained_and_watched_over_like_any_other(kubectl):
    listed = kubectl("api-resources", f"--api-group={GROUP}", "-o", "name").out.split()

    assert listed == [f"elasticquotas.{GROUP}", f"podgroups.{GROUP}"]
    assert "must be placed together" in kubectl("explain", "podgroup.spec.minMember").out
    who = ("--as=system:kube-scheduler", "-A")
    assert kubectl("auth", "can-i", "watch", f"podgroups.{GROUP}", *who).out == "yes\n"
    write = kubectl("auth", "can-i", "update", f"podgroups.{GROUP}", *who, fails=True)
    assert write.out == "no\n"
