"""Rules for what runs pods: Deployment, ReplicaSet, DaemonSet, StatefulSet, Job and CronJob."""

from typing import Any

from motley.api.selectors import Selector, SelectorError
from motley.api.validation import pod, selector
from motley.api.validation.errors import (
    Document,
    Errors,
    forbidden,
    immutable,
    int_or_percent,
    invalid,
    not_negative,
    one_of,
    required,
    unsupported,
)

_MISMATCH = "`selector` does not match template `labels`"


def deployment(obj: Document) -> Errors:
    """A Deployment."""
    spec = obj.get("spec") or {}
    yield from not_negative("spec.replicas", spec.get("replicas"))
    yield from _selected_template(spec, "deployment")
    yield from _strategy(spec)
    yield from not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    yield from not_negative("spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))
    deadline = spec.get("progressDeadlineSeconds")
    yield from not_negative("spec.progressDeadlineSeconds", deadline)
    if deadline is not None and deadline <= spec.get("minReadySeconds", 0):
        yield invalid(
            "spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"
        )


def replica_set(obj: Document) -> Errors:
    """A ReplicaSet; Kubernetes calls it a deployment when its selector is empty."""
    spec = obj.get("spec") or {}
    yield from not_negative("spec.replicas", spec.get("replicas"))
    yield from not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    yield from _selected_template(spec, "deployment")


def daemon_set(obj: Document) -> Errors:
    """A DaemonSet."""
    spec = obj.get("spec") or {}
    yield from _selected_template(spec, "daemonset")
    yield from not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    yield from not_negative("spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))


def stateful_set(obj: Document) -> Errors:
    """A StatefulSet."""
    spec = obj.get("spec") or {}
    yield from one_of(
        "spec.podManagementPolicy", spec.get("podManagementPolicy"), ("OrderedReady", "Parallel")
    )
    yield from not_negative("spec.replicas", spec.get("replicas"))
    yield from not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    yield from not_negative("spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))
    yield from _selected_template(spec, "statefulset")


def job(obj: Document) -> Errors:
    """A Job."""
    spec = obj.get("spec") or {}
    for name in (
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
    ):
        yield from not_negative(f"spec.{name}", spec.get(name))
    template = spec.get("template") or {}
    yield from pod.template("spec.template", template)
    policy = (template.get("spec") or {}).get("restartPolicy")
    if policy in ("Always", None):
        yield required("spec.template.spec.restartPolicy", 'valid values: "OnFailure", "Never"')


def selector_is_kept(new: Document, old: Document) -> Errors:
    """A workload's selector says which pods are its own, so it never changes."""
    selectors = [(obj.get("spec") or {}).get("selector") for obj in (new, old)]
    yield from immutable("spec.selector", *selectors)


def _selected_template(spec: Document, kind: str) -> Errors:
    given, template = spec.get("selector"), spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels")
    if given is None:
        yield required("spec.selector")
    else:
        yield from selector.label_selector("spec.selector", given)
        if not given.get("matchLabels") and not given.get("matchExpressions"):
            yield invalid("spec.selector", given, f"empty selector is invalid for {kind}")
    try:
        compiled = Selector.of(given)
    except SelectorError:
        yield invalid("spec.selector", given, "invalid label selector")
    else:
        if given is None or (not compiled.is_everything and not compiled.matches(labels or {})):
            yield invalid("spec.template.metadata.labels", labels, _MISMATCH)
    yield from pod.template("spec.template", template)
    inside = template.get("spec") or {}
    policy = inside.get("restartPolicy")
    if policy in ("OnFailure", "Never"):
        yield unsupported("spec.template.spec.restartPolicy", policy, ("Always",))
    if inside.get("activeDeadlineSeconds") is not None:
        owner = "ReplicaSet" if kind == "deployment" else f"{kind.capitalize()[:-3]}Set"
        yield forbidden(
            "spec.template.spec.activeDeadlineSeconds",
            f"activeDeadlineSeconds in {owner} is not Supported",
        )


def _strategy(spec: Document) -> Errors:
    strategy = spec.get("strategy") or {}
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    if kind == "Recreate":
        if rolling is not None:
            yield forbidden(
                "spec.strategy.rollingUpdate",
                "may not be specified when strategy `type` is 'Recreate'",
            )
    elif kind == "RollingUpdate":
        if rolling is None:
            yield required(
                "spec.strategy.rollingUpdate", "this should be defaulted and never be nil"
            )
        else:
            yield from _rolling("spec.strategy.rollingUpdate", rolling)
    else:
        shown = {"Type": kind, "RollingUpdate": rolling}
        yield unsupported("spec.strategy", shown, ("Recreate", "RollingUpdate"))


def _rolling(field: str, rolling: Document) -> Errors:
    unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    yield from int_or_percent(f"{field}.maxUnavailable", unavailable)
    yield from int_or_percent(f"{field}.maxSurge", surge)
    if _is_zero(unavailable) and _is_zero(surge):
        yield invalid(f"{field}.maxUnavailable", unavailable, "may not be 0 when `maxSurge` is 0")
    percent = str(unavailable).removesuffix("%")
    if str(unavailable).endswith("%") and percent.isdecimal() and int(percent) > 100:
        yield invalid(f"{field}.maxUnavailable", unavailable, "must not be greater than 100%")


def _is_zero(value: Any) -> bool:
    return str(value).removesuffix("%").strip("0") == "" and value is not None
