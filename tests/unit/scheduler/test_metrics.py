"""What `/metrics` says: kube-scheduler's names and labels."""

import prometheus_client
import pytest

from motley.scheduler.metrics import PrometheusMeter

# Of Kubernetes' list, those it calls stable or beta, with their labels.
DOCUMENTED = {
    "scheduler_schedule_attempts_total": {"result", "profile"},
    "scheduler_scheduling_attempt_duration_seconds_count": {"result", "profile"},
    "scheduler_scheduling_algorithm_duration_seconds_count": set(),
    "scheduler_framework_extension_point_duration_seconds_count": {
        "extension_point",
        "status",
        "profile",
    },
    "scheduler_plugin_execution_duration_seconds_count": {"plugin", "extension_point", "status"},
    "scheduler_pod_scheduling_attempts_count": set(),
    "scheduler_pod_scheduling_sli_duration_seconds_count": {"attempts"},
    "scheduler_preemption_attempts_total": set(),
    "scheduler_preemption_victims_count": set(),
    "scheduler_queue_incoming_pods_total": {"queue", "event"},
    "scheduler_pending_pods": {"queue"},
}


@pytest.fixture
def registry():
    return prometheus_client.CollectorRegistry()


@pytest.fixture
def meter(registry):
    return PrometheusMeter(registry)


def test_the_documented_metrics_have_kubernetes_names_and_labels(meter, registry):
    meter.attempt("default-scheduler", "scheduled", 0.001)
    meter.plugins("default-scheduler", {("NodeName", "filter"): 0.00001})
    meter.scheduled(1, 0.5)
    meter.preemption(3)
    meter.queued("active", "PodAdd")
    meter.pending({"active": 2, "in flight": 1})
    shown = {s.name: set(s.labels) for m in registry.collect() for s in m.samples}
    assert {name: shown.get(name) for name in DOCUMENTED} == DOCUMENTED


def test_pods_are_counted_by_queue_and_those_in_flight_are_in_none(meter, registry):
    meter.pending({"active": 2, "in flight": 7})
    queues = {
        s.labels["queue"]: s.value
        for m in registry.collect()
        for s in m.samples
        if s.name == "scheduler_pending_pods"
    }
    assert queues == {"active": 2, "backoff": 0, "unschedulable": 0, "gated": 0}


def test_plugins_of_one_extension_point_add_up(meter, registry):
    meter.plugins("p", {("A", "filter"): 0.25, ("B", "filter_rows"): 0.5, ("B", "score"): 1.0})
    name = "scheduler_framework_extension_point_duration_seconds_sum"
    labels = {"status": "Success", "profile": "p"}
    assert registry.get_sample_value(name, {**labels, "extension_point": "Filter"}) == 0.75
    assert registry.get_sample_value(name, {**labels, "extension_point": "Score"}) == 1.0


def test_many_attempts_share_a_label(meter, registry):
    meter.scheduled(15, 1.0)
    meter.scheduled(400, 1.0)
    name = "scheduler_pod_scheduling_sli_duration_seconds_count"
    assert registry.get_sample_value(name, {"attempts": "15+"}) == 2
