"""Defaults of what runs pods: the apps, batch and autoscaling groups."""

from typing import Any

from motley.api.defaults import pod as pods

Document = dict[str, Any]

_HISTORY = 10
_PROGRESS_DEADLINE_S = 600


def deployment(obj: Document) -> None:
    """A Deployment."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    strategy = spec.setdefault("strategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    spec.setdefault("revisionHistoryLimit", _HISTORY)
    spec.setdefault("progressDeadlineSeconds", _PROGRESS_DEADLINE_S)
    pods.template(spec)


def replication_controller(obj: Document) -> None:
    """A ReplicationController takes labels and selector from its pods when it has none."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    if "template" not in spec:
        return
    pods.template(spec)
    if labels := spec["template"]["metadata"].get("labels"):
        if not spec.get("selector"):
            spec["selector"] = dict(labels)
        if not obj["metadata"].get("labels"):
            obj["metadata"]["labels"] = dict(labels)


def pod_template(obj: Document) -> None:
    """A PodTemplate."""
    pods.template(obj)


def replica_set(obj: Document) -> None:
    """A ReplicaSet."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    pods.template(spec)


def daemon_set(obj: Document) -> None:
    """A DaemonSet."""
    spec = obj.setdefault("spec", {})
    strategy = spec.setdefault("updateStrategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    spec.setdefault("revisionHistoryLimit", _HISTORY)
    pods.template(spec)


def stateful_set(obj: Document) -> None:
    """A StatefulSet."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("replicas", 1)
    spec.setdefault("serviceName", "")
    spec.setdefault("podManagementPolicy", "OrderedReady")
    strategy = spec.setdefault("updateStrategy", {})
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("partition", 0)
        rolling.setdefault("maxUnavailable", 1)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    retention.setdefault("whenDeleted", "Retain")
    retention.setdefault("whenScaled", "Retain")
    spec.setdefault("revisionHistoryLimit", _HISTORY)
    pods.template(spec)
    for claim in spec.get("volumeClaimTemplates") or ():
        claim.setdefault("kind", "PersistentVolumeClaim")
        claim.setdefault("apiVersion", "v1")
        claim.setdefault("metadata", {})
        wanted = claim.setdefault("spec", {})
        wanted.setdefault("resources", {})
        wanted.setdefault("volumeMode", "Filesystem")
        claim.setdefault("status", {}).setdefault("phase", "Pending")


def job(obj: Document) -> None:
    """A Job takes its labels from its pods when it has none."""
    spec = obj.setdefault("spec", {})
    job_spec(spec)
    labels = spec["template"]["metadata"].get("labels")
    if labels and not obj["metadata"].get("labels"):
        obj["metadata"]["labels"] = dict(labels)


def job_spec(spec: Document) -> None:
    """A JobSpec. One completion is the default only where neither number is given."""
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = spec["parallelism"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    if "backoffLimitPerIndex" in spec:
        spec.setdefault("backoffLimit", 2**31 - 1)
    spec.setdefault("backoffLimit", 6)
    if "podFailurePolicy" in spec:
        spec.setdefault("podReplacementPolicy", "Failed")
        for rule in spec["podFailurePolicy"].get("rules") or ():
            for pattern in rule.get("onPodConditions") or ():
                pattern.setdefault("status", "True")
    spec.setdefault("podReplacementPolicy", "TerminatingOrFailed")
    pods.template(spec)


def cron_job(obj: Document) -> None:
    """A CronJob; its jobs get their own defaults when they are made."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    template = spec.setdefault("jobTemplate", {})
    template.setdefault("metadata", {})
    pods.template(template.setdefault("spec", {}))


def autoscaler(obj: Document) -> None:
    """A HorizontalPodAutoscaler of autoscaling/v2."""
    spec = obj.setdefault("spec", {})
    spec.setdefault("minReplicas", 1)
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    if (behavior := spec.get("behavior")) is not None:
        _scaling_rules(
            behavior.setdefault("scaleUp", {}),
            [
                {"type": "Pods", "value": 4, "periodSeconds": 15},
                {"type": "Percent", "value": 100, "periodSeconds": 15},
            ],
            stabilization_s=0,
        )
        _scaling_rules(
            behavior.setdefault("scaleDown", {}),
            [{"type": "Percent", "value": 100, "periodSeconds": 15}],
            stabilization_s=None,
        )


def _scaling_rules(
    rules: Document, policies: list[Document], *, stabilization_s: int | None
) -> None:
    if stabilization_s is not None:
        rules.setdefault("stabilizationWindowSeconds", stabilization_s)
    rules.setdefault("selectPolicy", "Max")
    rules.setdefault("policies", policies)
