"""Rules for what runs pods until told otherwise: Deployment, DaemonSet and their kin."""

from typing import Any

from motley.api import names
from motley.api.selectors import Selector, SelectorError
from motley.api.validation import pod, scaling, selector
from motley.api.validation.errors import (
    Document,
    Errors,
    forbidden,
    immutable,
    int_or_percent,
    invalid,
    named,
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
    yield from _daemon_strategy(spec.get("updateStrategy") or {})
    yield from not_negative("spec.revisionHistoryLimit", spec.get("revisionHistoryLimit"))


def _daemon_strategy(strategy: Document) -> Errors:
    field, kind = "spec.updateStrategy", strategy.get("type", "")
    rolling = strategy.get("rollingUpdate")
    if kind not in ("OnDelete", "RollingUpdate"):
        shown = {"Type": kind, "RollingUpdate": rolling}
        yield unsupported(field, shown, ("RollingUpdate", "OnDelete"))
    elif kind == "RollingUpdate" and rolling is None:
        yield required(f"{field}.rollingUpdate")
    elif kind == "RollingUpdate" and rolling is not None:
        unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
        for name, value in (("maxUnavailable", unavailable), ("maxSurge", surge)):
            yield from int_or_percent(f"{field}.rollingUpdate.{name}", value)
            yield from scaling.not_over_100(f"{field}.rollingUpdate.{name}", value)
        if not _is_zero(unavailable) and not _is_zero(surge):
            detail = "may not be set when maxUnavailable is non-zero"
            yield invalid(f"{field}.rollingUpdate.maxSurge", surge, detail)
        elif _is_zero(unavailable) and _is_zero(surge):
            detail = "cannot be 0 when maxSurge is 0"
            yield required(f"{field}.rollingUpdate.maxUnavailable", detail)


def stateful_set(obj: Document) -> Errors:
    """A StatefulSet."""
    spec = obj.get("spec") or {}
    policy = spec.get("podManagementPolicy")
    if policy not in (None, "OrderedReady", "Parallel"):
        detail = "must be 'OrderedReady' or 'Parallel'"
        yield invalid("spec.podManagementPolicy", policy, detail)
    yield from _set_strategy("spec.updateStrategy", spec.get("updateStrategy") or {})
    retention = spec.get("persistentVolumeClaimRetentionPolicy") or {}
    for name in ("whenDeleted", "whenScaled"):
        field = f"spec.persistentVolumeClaimRetentionPolicy.{name}"
        yield from one_of(field, retention.get(name), ("Retain", "Delete"))
    yield from not_negative("spec.replicas", spec.get("replicas"))
    yield from not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    yield from not_negative("spec.ordinals.start", (spec.get("ordinals") or {}).get("start"))
    service = spec.get("serviceName", "")
    if service:
        yield from named("spec.serviceName", service, names.check_dns_label(service))
    yield from _selected_template(_with_claims(spec), "statefulset")


def _set_strategy(field: str, strategy: Document) -> Errors:
    kind, rolling = strategy.get("type", ""), strategy.get("rollingUpdate")
    if kind == "RollingUpdate":
        at = f"{field}.rollingUpdate"
        yield from not_negative(f"{at}.partition", (rolling or {}).get("partition"))
        yield from int_or_percent(f"{at}.maxUnavailable", (rolling or {}).get("maxUnavailable"))
    elif kind == "OnDelete":
        if rolling is not None:
            shown = {
                "Partition": rolling.get("partition", 0),
                "MaxUnavailable": rolling.get("maxUnavailable"),
            }
            detail = "only allowed for updateStrategy 'RollingUpdate'"
            yield invalid(f"{field}.rollingUpdate", shown, detail)
    else:
        shown = {"Type": kind, "RollingUpdate": rolling}
        yield invalid(field, shown, "must be 'RollingUpdate' or 'OnDelete'")


def _with_claims(spec: Document) -> Document:
    """The spec with its claims as volumes, since its pods will have them."""
    claims = {
        (c.get("metadata") or {}).get("name", "") for c in spec.get("volumeClaimTemplates") or ()
    }
    template = spec.get("template") or {}
    inside = {
        k: v for k, v in (template.get("spec") or {}).items() if k not in ("hostname", "subdomain")
    }
    own = [v for v in inside.get("volumes") or () if v.get("name") not in claims]
    promised = [{"name": name, "emptyDir": {}} for name in sorted(claims) if name]
    inside["volumes"] = [*promised, *own]
    return {**spec, "template": {**template, "spec": inside}}


def stateful_set_update(new: Document, old: Document) -> Errors:
    """A changed StatefulSet keeps what its pods and volumes are named after."""
    yield from stateful_set(new)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    for part in ("selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy"):
        yield from immutable(f"spec.{part}", spec.get(part), before.get(part))


def replication_controller(obj: Document) -> Errors:
    """A ReplicationController, which selects by plain labels."""
    spec = obj.get("spec") or {}
    yield from not_negative("spec.minReadySeconds", spec.get("minReadySeconds"))
    selector_ = spec.get("selector") or {}
    if not selector_:
        yield required("spec.selector")
    yield from not_negative("spec.replicas", spec.get("replicas"))
    template = spec.get("template")
    if template is None:
        yield required("spec.template")
        return
    labels = (template.get("metadata") or {}).get("labels") or {}
    if selector_ and not selector_.items() <= labels.items():
        yield invalid("spec.template.metadata.labels", labels, _MISMATCH)
    yield from pod.template("spec.template", template)
    policy = (template.get("spec") or {}).get("restartPolicy")
    if policy in ("OnFailure", "Never"):
        yield unsupported("spec.template.spec.restartPolicy", policy, ("Always",))


def pod_template(obj: Document) -> Errors:
    """A PodTemplate."""
    yield from pod.template("template", obj.get("template") or {})


def controller_revision(obj: Document) -> Errors:
    """A ControllerRevision holds one JSON object."""
    yield from not_negative("revision", obj.get("revision"))
    data = obj.get("data")
    if data is None:
        yield required("data", "data is mandatory")
    elif not isinstance(data, dict):
        yield required("data", "data must be a valid JSON object")


def controller_revision_update(new: Document, old: Document) -> Errors:
    """A ControllerRevision is history, and history does not change."""
    yield from not_negative("revision", new.get("revision"))
    yield from immutable("data", new.get("data"), old.get("data"))


def selector_is_kept(new: Document, old: Document) -> Errors:
    """A workload's selector says which pods are its own, so it never changes."""
    selectors = [(obj.get("spec") or {}).get("selector") for obj in (new, old)]
    yield from immutable("spec.selector", *selectors)


def _selected_template(spec: Document, kind: str) -> Errors:
    given, template = spec.get("selector"), spec.get("template") or {}
    labels = (template.get("metadata") or {}).get("labels")
    if given is None:
        if kind != "daemonset":  # Kubernetes says nothing here, only that nothing matches
            yield required("spec.selector")
    else:
        yield from selector.label_selector("spec.selector", given)
        if not given.get("matchLabels") and not given.get("matchExpressions"):
            yield invalid("spec.selector", given, f"empty selector is invalid for {kind}")
    try:
        compiled = Selector.of(given)
    except SelectorError:
        detail = "" if kind == "statefulset" else "invalid label selector"
        yield invalid("spec.selector", given, detail)
    else:
        if given is None or (not compiled.is_everything and not compiled.matches(labels or {})):
            shown = dict(sorted(labels.items())) if labels else labels
            yield invalid("spec.template.metadata.labels", shown, _MISMATCH)
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
