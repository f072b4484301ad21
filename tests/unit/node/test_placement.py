"""What a node refuses although it was chosen: as the scheduler's plugins would have."""

import pytest

from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.node import placement


def node(*taints, **labels):
    return Node.of({"metadata": {"name": "n", "labels": labels}, "spec": {"taints": list(taints)}})


def pod(*ports, annotations=None, **spec):
    container = {"name": "c", "ports": [{"containerPort": 80, **port} for port in ports]}
    meta = {"name": "p", "annotations": annotations or {}}
    return Pod.of({"metadata": meta, "spec": {"containers": [container], **spec}})


def reason(wanted, on, *present):
    found = placement.refusal(wanted, on, present)
    return found.reason if found else None


@pytest.mark.parametrize(
    ("wanted", "held", "is_free"),
    [
        ({"hostPort": 80}, {"hostPort": 80}, False),
        ({"hostPort": 80}, {"hostPort": 81}, True),
        ({"hostPort": 80, "protocol": "UDP"}, {"hostPort": 80}, True),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80}, False),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80, "hostIP": "10.0.0.2"}, True),
        ({"hostPort": 80, "hostIP": "10.0.0.1"}, {"hostPort": 80, "hostIP": "0.0.0.0"}, False),
        ({}, {}, True),
    ],
)
def test_a_port_of_the_node_has_one_holder(wanted, held, is_free):
    assert reason(pod(wanted), node(), pod(held)) == (None if is_free else "NodePorts")


def test_labels_must_be_those_the_pod_asks_for():
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    wanted = pod(nodeSelector={"disk": "ssd"}, affinity={"nodeAffinity": required})

    assert reason(wanted, node(disk="ssd", zone="a")) is None
    assert reason(wanted, node(disk="hdd", zone="a")) == "NodeAffinity"
    assert reason(wanted, node(disk="ssd", zone="c")) == "NodeAffinity"


def test_only_a_taint_that_ends_pods_keeps_one_away_and_never_the_nodes_own():
    ending = {"key": "k", "value": "v", "effect": "NoExecute"}
    mild = {"key": "k", "value": "v", "effect": "NoSchedule"}
    accepting = pod(tolerations=[{"key": "k", "operator": "Exists"}])

    assert reason(pod(), node(ending)) == "TaintToleration"
    assert reason(pod(), node(mild)) is None
    assert reason(accepting, node(ending)) is None
    assert reason(pod(annotations={"kubernetes.io/config.source": "file"}), node(ending)) is None


def test_the_message_names_the_check():
    refused = placement.refusal(pod({"hostPort": 1}), node(), [pod({"hostPort": 1})])

    assert refused.message == (
        "Pod was rejected: Predicate NodePorts failed: "
        "node(s) didn't have free ports for the requested pod ports"
    )
