"""Rules for Jobs and CronJobs."""

import re
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from motley.api import names, schedule
from motley.api.selectors import Selector, SelectorError
from motley.api.validation import pod, selector
from motley.api.validation.errors import (
    Document,
    Errors,
    duplicate,
    immutable,
    invalid,
    named,
    not_negative,
    one_of,
    required,
    too_long,
    too_many,
    unsupported,
)

_PARALLEL_MAX = 100_000
_INDEXES_SOFT = 100_000
_MANAGED_BY_MAX = 63
_RULES_MAX = 20
_CODES_MAX = 255
_CRON_NAME_MAX = 52  # a Job's name adds eleven characters
_ZONE = re.compile(r"[A-Za-z0-9._+/-]+")
_COUNTS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_UID_LABELS = ("controller-uid", "batch.kubernetes.io/controller-uid")
_NAME_LABELS = ("job-name", "batch.kubernetes.io/job-name")
_MISMATCH = "`selector` does not match template `labels`"
_INDEXED = "requires indexed completion mode"


def job(obj: Document) -> Errors:
    """A Job."""
    metadata, spec = obj.get("metadata") or {}, obj.get("spec") or {}
    if not spec.get("manualSelector") and spec.get("selector") is not None:
        yield from _generated(metadata, spec)
    yield from _selected_spec(spec)
    yield from _names_fit(metadata, spec)


def _selected_spec(spec: Document) -> Errors:
    yield from job_spec("spec", spec)
    given = spec.get("selector")
    if given is None:
        yield required("spec.selector")
    else:
        yield from selector.label_selector("spec.selector", given)
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    try:
        matches = given is not None and Selector.of(given).matches(labels or {})
    except SelectorError:
        return
    if not matches:
        shown = dict(sorted(labels.items())) if labels else labels
        yield invalid("spec.template.metadata.labels", shown, _MISMATCH)


def _generated(metadata: Document, spec: Document) -> Errors:
    """What the server puts in must be there: another value would find other Jobs' pods."""
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    uid, name = metadata.get("uid", ""), metadata.get("name", "")
    expected = {_UID_LABELS[0]: uid, _NAME_LABELS[0]: name}
    expected |= {_UID_LABELS[1]: uid, _NAME_LABELS[1]: name}
    for label, value in expected.items():
        field = f"spec.template.metadata.labels[{label}]"
        if label not in labels:
            yield required("spec.template.metadata.labels", f"must be '{value}'")
        elif labels[label] != value:
            yield invalid(field, labels, f"must be '{value}'")
    try:
        found = Selector.of(spec["selector"]).matches(expected)
    except SelectorError:
        return
    if not found:
        yield invalid("spec.selector", spec["selector"], "`selector` not auto-generated")


def _names_fit(metadata: Document, spec: Document) -> Errors:
    name, completions = metadata.get("name", ""), spec.get("completions")
    if spec.get("completionMode") != "Indexed" or not completions or completions < 0:
        return
    longest = f"{name}-{completions - 1}"
    if names.check_dns_label(longest):
        yield invalid(
            "metadata.name",
            name,
            f"will not able to create pod with invalid DNS label: {longest}",
        )


def job_spec(field: str, spec: Document) -> Errors:
    """What a Job is to do, in a Job or in a CronJob's template."""
    for name in _COUNTS:
        yield from not_negative(f"{field}.{name}", spec.get(name))
    if spec.get("maxFailedIndexes") is not None and spec.get("backoffLimitPerIndex") is None:
        yield required(f"{field}.backoffLimitPerIndex", "when maxFailedIndexes is specified")
    managed_by = spec.get("managedBy")
    if managed_by is not None:
        yield from named(f"{field}.managedBy", managed_by, names.check_domain_path(managed_by))
        if len(managed_by) > _MANAGED_BY_MAX:
            yield too_long(f"{field}.managedBy", _MANAGED_BY_MAX)
    yield from _completion(field, spec)
    if spec.get("podFailurePolicy") is not None:
        yield from _failure_policy(f"{field}.podFailurePolicy", spec)
    if spec.get("successPolicy") is not None:
        yield from _success_policy(f"{field}.successPolicy", spec)
    yield from _replacement(f"{field}.podReplacementPolicy", spec)
    template = spec.get("template") or {}
    yield from pod.template(f"{field}.template", template)
    yield from _restart(f"{field}.template.spec.restartPolicy", template, spec)


def _completion(field: str, spec: Document) -> Errors:
    mode = spec.get("completionMode")
    yield from one_of(f"{field}.completionMode", mode, ("NonIndexed", "Indexed"))
    failed, completions = spec.get("maxFailedIndexes"), spec.get("completions")
    if mode == "Indexed":
        if completions is None:
            yield required(f"{field}.completions", "when completion mode is Indexed")
        if (spec.get("parallelism") or 0) > _PARALLEL_MAX:
            yield invalid(
                f"{field}.parallelism",
                spec["parallelism"],
                f"must be less than or equal to {_PARALLEL_MAX} when completion mode is Indexed",
            )
        if failed is not None and completions is not None and failed > completions:
            detail = "must be less than or equal to completions"
            yield invalid(f"{field}.maxFailedIndexes", failed, detail)
        if failed is not None and failed > _INDEXES_SOFT:
            detail = f"must be less than or equal to {_INDEXES_SOFT}"
            yield invalid(f"{field}.maxFailedIndexes", failed, detail)
    elif mode in (None, "NonIndexed"):
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(name) is not None:
                yield invalid(f"{field}.{name}", spec[name], _INDEXED)


def _restart(field: str, template: Document, spec: Document) -> Errors:
    policy = (template.get("spec") or {}).get("restartPolicy")
    if policy in ("Always", "", None):
        yield required(field, 'valid values: "OnFailure", "Never"')
    elif policy not in ("OnFailure", "Never"):
        yield unsupported(field, policy, ("OnFailure", "Never"))
    elif spec.get("podFailurePolicy") is not None and policy != "Never":
        detail = 'only "Never" is supported when podFailurePolicy is specified'
        yield invalid(field, policy, detail)


def _replacement(field: str, spec: Document) -> Errors:
    policy = spec.get("podReplacementPolicy")
    if policy is None:
        return
    if spec.get("podFailurePolicy") is not None:
        yield from one_of(field, policy, ("Failed",))
    else:
        yield from one_of(field, policy, ("Failed", "TerminatingOrFailed"))


def _failure_policy(field: str, spec: Document) -> Errors:
    rules = spec["podFailurePolicy"].get("rules") or []
    if len(rules) > _RULES_MAX:
        yield too_many(f"{field}.rules", len(rules), _RULES_MAX)
    inside = (spec.get("template") or {}).get("spec") or {}
    containers = {
        c.get("name") for part in ("containers", "initContainers") for c in inside.get(part) or ()
    }
    for index, rule in enumerate(rules):
        at = f"{field}.rules[{index}]"
        action = rule.get("action", "")
        if not action:
            yield required(f"{at}.action", f"valid values: {_quoted(_ACTIONS)}")
        elif action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            detail = "requires the backoffLimitPerIndex to be set"
            yield invalid(f"{at}.action", action, detail)
        else:
            yield from one_of(f"{at}.action", action, _ACTIONS)
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or []
        if codes is not None:
            yield from _exit_codes(f"{at}.onExitCodes", codes, containers)
        for number, pattern in enumerate(conditions):
            where = f"{at}.onPodConditions[{number}]"
            kind, state = pattern.get("type", ""), pattern.get("status")
            yield from named(f"{where}.type", kind, names.check_qualified_name(kind))
            yield from one_of(f"{where}.status", state, ("False", "True", "Unknown"))
        if codes is not None and conditions:
            detail = "specifying both OnExitCodes and OnPodConditions is not supported"
            yield invalid(at, "", detail)
        elif codes is None and not conditions:
            detail = "specifying one of OnExitCodes and OnPodConditions is required"
            yield invalid(at, "", detail)


def _quoted(words: tuple[str, ...]) -> str:
    return "[" + " ".join(f'"{w}"' for w in words) + "]"


def _exit_codes(field: str, codes: Document, containers: set[Any]) -> Errors:
    operator, values = codes.get("operator", ""), codes.get("values") or []
    if not operator:
        yield required(f"{field}.operator", f"valid values: {_quoted(('In', 'NotIn'))}")
    else:
        yield from one_of(f"{field}.operator", operator, ("In", "NotIn"))
    name = codes.get("containerName")
    if name is not None and name not in containers:
        yield invalid(
            f"{field}.containerName",
            name,
            "must be one of the container or initContainer names in the pod template",
        )
    if not values:
        yield invalid(f"{field}.values", values, "at least one value is required")
    elif len(values) > _CODES_MAX:
        yield too_many(f"{field}.values", len(values), _CODES_MAX)
    seen: set[int] = set()
    for index, value in enumerate(values):
        at = f"{field}.values[{index}]"
        if operator == "In" and value == 0:
            yield invalid(at, value, "must not be 0 for the In operator")
        if value in seen:
            yield duplicate(at, value)
        seen.add(value)
    if values != sorted(values):
        yield invalid(f"{field}.values", values, "must be ordered")


def _success_policy(field: str, spec: Document) -> Errors:
    rules = spec["successPolicy"].get("rules") or []
    if spec.get("completionMode") != "Indexed":
        shown = [
            {
                "SucceededIndexes": rule.get("succeededIndexes"),
                "SucceededCount": rule.get("succeededCount"),
            }
            for rule in rules
        ]
        yield invalid(field, {"Rules": shown}, _INDEXED)
        return
    if not rules:
        yield required(
            f"{field}.rules",
            "at least one rules must be specified when the successPolicy is specified",
        )
    if len(rules) > _RULES_MAX:
        yield too_many(f"{field}.rules", len(rules), _RULES_MAX)
    for index, rule in enumerate(rules):
        at = f"{field}.rules[{index}]"
        count = rule.get("succeededCount")
        if count is None and rule.get("succeededIndexes") is None:
            detail = "at least one of succeededCount or succeededIndexes must be specified"
            yield required(at, detail)
        yield from not_negative(f"{at}.succeededCount", count)
        most = spec.get("completions")
        if count is not None and most is not None and count > most:
            detail = f"must be less than or equal to {most} (the number of specified completions)"
            yield invalid(f"{at}.succeededCount", count, detail)


def job_update(new: Document, old: Document) -> Errors:
    """A changed Job does the same work, perhaps quicker."""
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    yield from _selected_spec(spec)
    completions = spec.get("completions")
    if spec.get("completionMode") != "Indexed":
        yield from immutable("spec.completions", completions, before.get("completions"))
    elif completions != before.get("completions") and completions != spec.get("parallelism"):
        detail = "can only be modified in tandem with spec.parallelism"
        yield invalid("spec.completions", completions, detail)
    yield from immutable("spec.selector", spec.get("selector"), before.get("selector"))
    if _fixed_template(spec, before) != _fixed_template(before, before):
        yield invalid("spec.template", spec.get("template"), "field is immutable")
    for part in ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy"):
        yield from immutable(f"spec.{part}", spec.get(part), before.get(part))
    yield from immutable(
        "spec.successPolicy", spec.get("successPolicy"), before.get("successPolicy")
    )
    yield from _names_fit(new.get("metadata") or {}, spec)


def _fixed_template(spec: Document, before: Document) -> Document:
    """The template without what may change while nothing runs yet: where its pods may go."""
    template = dict(spec.get("template") or {})
    if not before.get("suspend"):
        return template
    template.pop("metadata", None)
    directions = ("nodeSelector", "tolerations", "schedulingGates", "affinity")
    inside = {k: v for k, v in (template.get("spec") or {}).items() if k not in directions}
    for part in ("containers", "initContainers"):
        if inside.get(part):
            inside[part] = [{k: v for k, v in c.items() if k != "resources"} for c in inside[part]]
    return {**template, "spec": inside}


def cron_job_create(obj: Document) -> Errors:
    """A new CronJob: the names of its Jobs are longer than its own."""
    yield from cron_job(obj)
    name = (obj.get("metadata") or {}).get("name", "")
    if len(name) > _CRON_NAME_MAX:
        yield invalid("metadata.name", name, "must be no more than 52 characters")


def cron_job(obj: Document) -> Errors:
    """A CronJob."""
    spec = obj.get("spec") or {}
    text, zone = spec.get("schedule", ""), spec.get("timeZone")
    if not text:
        yield required("spec.schedule")
    else:
        try:
            schedule.parse(text)
        except schedule.ScheduleError as error:
            yield invalid("spec.schedule", text, str(error))
        if "TZ" in text:
            detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
            yield invalid("spec.schedule", text, detail)
    deadline = spec.get("startingDeadlineSeconds")
    yield from not_negative("spec.startingDeadlineSeconds", deadline)
    if zone is not None:
        yield from _time_zone("spec.timeZone", zone)
    policies = ("Allow", "Forbid", "Replace")
    yield from one_of("spec.concurrencyPolicy", spec.get("concurrencyPolicy"), policies)
    inside = (spec.get("jobTemplate") or {}).get("spec") or {}
    yield from job_spec("spec.jobTemplate.spec", inside)
    if inside.get("selector") is not None:
        detail = "`selector` will be auto-generated"
        yield invalid("spec.jobTemplate.spec.selector", inside["selector"], detail)
    if inside.get("manualSelector"):
        yield unsupported("spec.jobTemplate.spec.manualSelector", True, ("nil", "false"))
    for name in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        yield from not_negative(f"spec.{name}", spec.get(name))


def _time_zone(field: str, zone: str) -> Errors:
    if not zone:
        yield invalid(field, zone, "timeZone must be nil or non-empty string")
        return
    unknown = f"unknown time zone {zone}"
    for part in zone.split("/"):
        if part in (".", "..") or part.startswith("-") or not _ZONE.fullmatch(part):
            yield invalid(field, zone, unknown)
            return
    if zone.lower() == "local":
        yield invalid(
            field,
            zone,
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
        )
        return
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        yield invalid(field, zone, unknown)
