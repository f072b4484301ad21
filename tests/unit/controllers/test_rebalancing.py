"""What the rebalancer makes of a cluster's own objects and figures."""

import json

import pytest

from motley.api import overcommit
from motley.api.views.core import Node
from motley.api.views.pod import Pod
from motley.autoscale.rebalance import Amount, Settings
from motley.controllers import rebalancing
from motley.controllers.rebalancing import Seen
from motley.controllers.topowner import Owner


@pytest.mark.parametrize(
    "answer",
    [None, [], "text", {"items": 5}, {"items": [None, 1, {}, {"containers": [1]}, {"usage": {}}]}],
)
def test_answers_that_are_no_measurements_are_none(answer):
    assert rebalancing.uses(answer) == {}


def node(name, *, raised=False):
    note = {"cpu": {"raw": "4", "raised": "8", "capacity": "4"}}
    metadata = {"annotations": {overcommit.RAISED: json.dumps(note)}} if raised else {}
    return Node.of(
        {
            "metadata": {"name": name, **metadata},
            "status": {
                "capacity": {"cpu": "4", "memory": "8Gi"},
                "allocatable": {"cpu": "8" if raised else "4", "memory": "8Gi"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
    )


def pod(name, on, cpu):
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return Pod.of(
        {
            "metadata": {"name": name, "namespace": "d", "uid": name},
            "spec": {"nodeName": on, "containers": [container]},
            "status": {
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
    )


@pytest.mark.parametrize("raised", [True, False])
def test_a_raised_node_is_hot_by_what_it_has_and_promises_what_was_raised(raised):
    pods = [pod("p", "hot", "500m"), pod("there", "cool", "3900m")]
    use = {("d", "p"): Amount(1.0, 0.0), ("d", "there"): Amount(0.1, 0.0)}
    seen = Seen(
        [node("hot", raised=raised), node("cool", raised=raised)],
        pods,
        [],
        {"hot": Amount(3.6, 0.0), "cool": Amount(0.5, 0.0)},
        use,
    )
    owner = Owner("ReplicaSet", "rs")
    plan = rebalancing.plan(seen, lambda _: owner, Settings(), {}, 0.0)
    assert list(plan.hot) == ["hot"], "90 % of four cores, not 45 % of eight"
    assert [move.to for move in plan.moves] == (["cool"] if raised else [])
