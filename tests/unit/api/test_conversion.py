import copy

import pytest

from motley.api import conversion, defaults, scheme

EVENT = scheme.resource("events.k8s.io", "v1", "events")
HPA = scheme.resource("autoscaling", "v1", "horizontalpodautoscalers")
HPA_BETA = scheme.resource("autoscaling", "v2beta2", "horizontalpodautoscalers")
PRIORITY = scheme.resource("scheduling.k8s.io", "v1beta1", "priorityclasses")
OLD_DEPLOYMENT = scheme.resource("extensions", "v1beta1", "deployments")


def autoscaler(metrics=(), **spec):
    return {
        "kind": "HorizontalPodAutoscaler",
        "apiVersion": "autoscaling/v2",
        "metadata": {"name": "a", "annotations": {"mine": "1"}},
        "spec": {"maxReplicas": 3, "metrics": list(metrics), **spec},
        "status": {"desiredReplicas": 2, "currentMetrics": None},
    }


def cpu(usage):
    target = {"type": "Utilization", "averageUtilization": usage}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


METRICS = [
    {
        "type": "Resource",
        "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}},
    },
    {
        "type": "ContainerResource",
        "containerResource": {
            "name": "cpu",
            "container": "c",
            "target": {"type": "Utilization", "averageUtilization": 50},
        },
    },
    {
        "type": "Pods",
        "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "5"}},
    },
    {
        "type": "Object",
        "object": {
            "describedObject": {"kind": "Service", "name": "s", "apiVersion": "v1"},
            "target": {"type": "Value", "value": "10"},
            "metric": {"name": "m", "selector": {"matchLabels": {"a": "b"}}},
        },
    },
    {
        "type": "External",
        "external": {
            "metric": {"name": "m", "selector": {"matchLabels": {"a": "b"}}},
            "target": {"type": "AverageValue", "averageValue": "7"},
        },
    },
]


def test_every_converted_row_names_a_row_that_is_kept():
    converted = [k for k in scheme.kinds() if conversion.is_converted(k)]

    assert converted
    for kind in converted:
        assert kind.storage.stored_as is None
        assert kind.storage_prefix == kind.storage.storage_prefix
        assert kind.storage_version_hash == kind.storage.storage_version_hash


def test_a_kind_with_one_version_is_left_alone():
    pod = {"kind": "Pod", "metadata": {}}
    kind = scheme.by_kind("v1", "Pod")

    assert conversion.to_storage(kind, pod) is pod
    assert conversion.from_storage(kind, pod) is pod


def test_an_event_is_kept_under_its_old_names_and_shown_under_its_new_ones():
    given = {
        "kind": "Event",
        "apiVersion": "events.k8s.io/v1",
        "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "name": "p"},
        "note": "something",
        "reportingController": "example.com/c",
        "deprecatedCount": 2,
    }

    kept = conversion.to_storage(EVENT, given)

    assert kept["apiVersion"] == "v1"
    assert kept["involvedObject"] == given["regarding"]
    assert (kept["message"], kept["count"]) == ("something", 2)
    assert conversion.from_storage(EVENT, kept) == given


def test_the_one_number_of_the_oldest_autoscaler_is_a_metric():
    given = {"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v1", "metadata": {}}
    given["spec"] = {"maxReplicas": 3, "targetCPUUtilizationPercentage": 60}

    kept = conversion.to_storage(HPA, given)

    assert kept["apiVersion"] == "autoscaling/v2"
    assert kept["spec"]["metrics"] == [cpu(60)]
    shown = conversion.from_storage(HPA, kept)
    assert shown["spec"]["targetCPUUtilizationPercentage"] == 60
    assert "metrics" not in shown["spec"]


def test_an_autoscaler_without_a_target_means_eighty_percent():
    kept = conversion.to_storage(HPA, {"metadata": {}, "spec": {"maxReplicas": 1}})

    assert kept["spec"]["metrics"] == [cpu(80)]


@pytest.mark.parametrize("metric", METRICS, ids=lambda m: m["type"])
def test_what_the_oldest_version_has_no_field_for_survives_in_an_annotation(metric):
    kept = autoscaler([metric, cpu(70)], behavior={"scaleDown": {"selectPolicy": "Min"}})
    kept["status"]["conditions"] = [{"type": "AbleToScale", "status": "True"}]
    before = copy.deepcopy(kept)

    shown = conversion.from_storage(HPA, kept)

    assert shown["spec"]["targetCPUUtilizationPercentage"] == 70
    assert "behavior" not in shown["spec"]
    assert conversion.to_storage(HPA, shown) == before
    assert kept == before, "the stored object is not to be changed"


def test_an_annotation_that_is_no_json_says_nothing():
    given = autoscaler()
    given["metadata"]["annotations"] = {"autoscaling.alpha.kubernetes.io/metrics": "{"}
    given["spec"].pop("metrics")

    assert conversion.to_storage(HPA, given)["spec"]["metrics"] == [cpu(80)]


@pytest.mark.parametrize("kind", [HPA_BETA, PRIORITY], ids=str)
def test_versions_that_differ_in_name_only_keep_everything(kind):
    given = {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": {}, "value": 5}

    kept = conversion.to_storage(kind, given)

    assert kept == {**given, "apiVersion": kind.storage.api_version}
    assert conversion.from_storage(kind, kept) == given


def test_an_old_deployment_gets_the_defaults_of_its_time():
    given = {
        "metadata": {"name": "d"},
        "spec": {"template": {"metadata": {"labels": {"app": "d"}}}, "rollbackTo": {"revision": 3}},
    }

    kept = conversion.to_storage(OLD_DEPLOYMENT, given)
    defaults.apply(OLD_DEPLOYMENT.storage, kept)

    spec = kept["spec"]
    assert spec["selector"] == {"matchLabels": {"app": "d"}}
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 1}
    assert spec["revisionHistoryLimit"] == 2**31 - 1
    shown = conversion.from_storage(OLD_DEPLOYMENT, kept)
    assert shown["spec"]["rollbackTo"] == {"revision": 3}
    assert "annotations" not in shown["metadata"]
    assert conversion.to_storage(OLD_DEPLOYMENT, shown) == kept
