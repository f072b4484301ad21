"""Pods, autoscalers and a clock that only the test moves."""

import pytest

from motley.api.views.autoscaling import HorizontalPodAutoscaler
from motley.api.views.pod import Pod
from motley.autoscale import hpa as hpas
from motley.autoscale import proposals, rules
from motley.autoscale.calculator import Pods, Sample, Settings
from motley.autoscale.hpa import Conditions, Scale
from motley.autoscale.rules import History
from motley.lib import clock as clocks

START = 1_700_000_000.0


def a_pod(
    name, *, cpu="1000m", phase="Running", ready="True", started_s=3600, ready_s=3500, **more
):
    """A pod that started and became ready so many seconds before START."""
    container = {"name": "c", "resources": {"requests": {"cpu": cpu} if cpu else {}}}
    return Pod.of(
        {
            "metadata": {"name": name, "namespace": "ns", **more},
            "spec": {"containers": [container]},
            "status": {
                "phase": phase,
                "startTime": clocks.rfc3339(START - started_s),
                "conditions": [
                    {
                        "type": "Ready",
                        "status": ready,
                        "lastTransitionTime": clocks.rfc3339(START - ready_s),
                    }
                ],
            },
        }
    )


def an_autoscaler(annotations=None, state=None, **spec):
    target = {"type": "Utilization", "averageUtilization": 50}
    metrics = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    body = {"minReplicas": 1, "maxReplicas": 10, "metrics": metrics, **spec}
    metadata = {"name": "a", "namespace": "ns", "annotations": annotations or {}}
    return HorizontalPodAutoscaler.of({"metadata": metadata, "spec": body, "status": state or {}})


class Curve:
    """One autoscaler over time: its pods share a demand evenly, each requests one core."""

    def __init__(self, hpa, size, settings=None):
        self.hpa, self.size = hpa, size
        self.settings = settings or Settings()
        self.history = History()
        self.now = START
        self.conditions = Conditions((), START)

    def step(self, demand_milli, failing=False):
        """Look once; the decision."""
        scale = Scale(self.size, self.size, "app=web")
        self.history = self.history.begun(self.size, self.now)
        if not hpas.needs_metrics(self.hpa, scale, self.conditions):
            decision = hpas.without_metrics(self.hpa, scale, self.conditions, self.history)
        else:
            decision = hpas.decide(
                self.hpa,
                scale,
                [
                    self._outcome(spec, scale, demand_milli, failing)
                    for spec in self.hpa.spec.metrics
                ],
                self.conditions,
                self.history,
                self.now,
                self.settings,
            )
        self.history = decision.history
        if decision.rescale:
            keep_s = hpas.remembered_s(self.hpa)
            self.history = self.history.scaled(self.size, decision.desired, self.now, keep_s)
            hpas.rescaled(self.hpa, self.size, decision, self.conditions)
            self.size = decision.desired
        return decision

    def _outcome(self, spec, scale, demand_milli, failing):
        if failing:
            return proposals.failed(spec, "nobody answers")
        names = [f"p{i}" for i in range(self.size)]
        pods = Pods([a_pod(n) for n in names], self.settings, self.now)
        each = demand_milli // max(1, self.size)
        reading = {n: Sample(each, self.now, 15.0) for n in names}
        if spec.type in ("Object", "External"):
            reading = demand_milli
        tolerances = rules.tolerances(self.hpa, self.settings)
        return proposals.propose(spec, reading, scale, pods, tolerances)


@pytest.fixture
def curve():
    return Curve


@pytest.fixture(name="a_pod")
def a_pod_fixture():
    return a_pod


@pytest.fixture(name="an_autoscaler")
def an_autoscaler_fixture():
    return an_autoscaler


@pytest.fixture
def start():
    return START
