"""How an object goes: at once, after its grace period, or when its finalizers are gone.

Pure: from the stored document, the options and the time to what shall be stored instead, or
that it shall be removed. Only pods have a grace period, and only those that run somewhere.

Invariant: a deletion in progress can be hurried, never taken back or put off.
"""

from dataclasses import dataclass
from typing import Any

from motley.api import scheme, status
from motley.apiserver import strategy
from motley.apiserver.crds import ending
from motley.apiserver.options import DeleteOptions
from motley.lib.clock import parse_rfc3339, rfc3339

Document = dict[str, Any]

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
# 30 s: the grace of a pod that does not say.
_LAST_SECOND = 253402300799  # of the year 9999, the last that a timestamp can say
_POD_GRACE_S = 30

# Deleting one of these answers with the object as it was, the others with a Status.
_ANSWERED_WHOLE = frozenset(
    {
        ("", "namespaces"),
        ("", "persistentvolumeclaims"),
        ("", "persistentvolumes"),
        ("", "pods"),
        ("", "podtemplates"),
        ("", "resourcequotas"),
        ("", "serviceaccounts"),
        ("", "services"),
        ("resource.k8s.io", "deviceclasses"),
        ("resource.k8s.io", "resourceclaims"),
        ("resource.k8s.io", "resourceclaimtemplates"),
        ("resource.k8s.io", "resourceslices"),
        ("storage.k8s.io", "csidrivers"),
        ("storage.k8s.io", "csinodes"),
        ("storage.k8s.io", "storageclasses"),
        ("storage.k8s.io", "volumeattachments"),
        ("storage.k8s.io", "volumeattributesclasses"),
    }
)
# Who deletes one of these and says nothing of its pods leaves them: the oldest kinds' custom.
_ORPHANING = frozenset({("", "replicationcontrollers"), ("batch", "jobs")})


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do with the stored object."""

    document: Document
    remove: bool  # take it out of the store now
    changed: bool  # else: whether the marked document differs from what is stored


def answers_whole(kind: scheme.Kind) -> bool:
    """Whether a removal is answered with the object."""
    return (kind.group, kind.plural) in _ANSWERED_WHOLE


def check_preconditions(kind: scheme.Kind, stored: Document, options: DeleteOptions) -> None:
    """409 when the object is not the one the client means."""
    metadata = stored["metadata"]
    name = metadata.get("name", "")
    problem = ""
    if options.uid is not None and options.uid != metadata.get("uid"):
        problem = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record "
            f"({metadata.get('uid')}). The object might have been deleted and then recreated"
        )
    elif options.resource_version is not None and options.resource_version != metadata.get(
        "resourceVersion"
    ):
        problem = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match "
            f"the ResourceVersion in record ({metadata.get('resourceVersion')}). "
            "The object might have been modified"
        )
    if problem:
        qualified = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
        details = {"name": name, "group": kind.group, "kind": kind.kind}
        raise status.Conflict(
            f'Operation cannot be fulfilled on {qualified} "{name}": {problem}',
            details={k: v for k, v in details.items() if v},
        )


def plan(kind: scheme.Kind, stored: Document, options: DeleteOptions, now: float) -> Plan:
    """Decide; `stored` is not changed."""
    grace_s = _grace_s(kind, stored, options)
    marked = {**stored, "metadata": dict(stored["metadata"])}
    metadata = marked["metadata"]
    default = "Orphan" if (kind.group, kind.plural) in _ORPHANING else "Background"
    finalizers = _finalizers(metadata.get("finalizers") or [], options, default)
    if finalizers:
        metadata["finalizers"] = finalizers
    else:
        metadata.pop("finalizers", None)
    if metadata.get("deletionTimestamp"):
        changed = _hurry(metadata, grace_s, now) or finalizers != (
            stored["metadata"].get("finalizers") or []
        )
    else:
        _mark(kind, marked, grace_s, now)
        changed = True
    return Plan(marked, strategy.is_released(marked), changed)


def _mark(kind: scheme.Kind, marked: Document, grace_s: int, now: float) -> None:
    metadata = marked["metadata"]
    if (kind.group, kind.plural) == ("apiextensions.k8s.io", "customresourcedefinitions"):
        ending.mark(marked, rfc3339(now))
        return
    metadata["deletionTimestamp"] = _moment(now + grace_s)
    if (kind.group, kind.plural) == ("", "namespaces"):
        marked["status"] = {**(marked.get("status") or {}), "phase": "Terminating"}
        return
    metadata["deletionGracePeriodSeconds"] = grace_s
    if metadata.get("generation"):
        metadata["generation"] += 1


def _moment(seconds: float) -> str:
    """When a grace period ends; one that outlasts the calendar ends with it."""
    return rfc3339(min(max(seconds, 0.0), _LAST_SECOND))


def _hurry(metadata: Document, grace_s: int, now: float) -> bool:
    """Shorten a running grace period, never into the past; whether that changed anything."""
    running_s = metadata.get("deletionGracePeriodSeconds") or 0
    if grace_s >= running_s:
        return False
    begun = parse_rfc3339(metadata["deletionTimestamp"]) - running_s
    ends = begun + grace_s
    if ends < now:  # over already: the least that still lets the node agent end it
        ends, grace_s = now, min(grace_s, 1)
    metadata["deletionTimestamp"] = _moment(ends)
    metadata["deletionGracePeriodSeconds"] = grace_s
    return True


def _grace_s(kind: scheme.Kind, stored: Document, options: DeleteOptions) -> int:
    if (kind.group, kind.plural) != ("", "pods"):
        return 0
    spec = stored.get("spec") or {}
    phase = (stored.get("status") or {}).get("phase")
    if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
        return 0  # no node agent has anything to stop
    grace_s = options.grace_period_seconds
    if grace_s is None:
        grace_s = spec.get("terminationGracePeriodSeconds", _POD_GRACE_S)
    return int(grace_s) if grace_s >= 0 else 1


def _finalizers(have: list[str], options: DeleteOptions, default: str) -> list[str]:
    policy = options.propagation_policy
    if policy is None and options.orphan_dependents is not None:
        policy = "Orphan" if options.orphan_dependents else "Background"
    if policy is None:
        if ORPHAN in have or FOREGROUND in have:
            return have
        policy = default
    kept = [f for f in have if f not in (ORPHAN, FOREGROUND)]
    if policy == "Orphan":
        return [*kept, ORPHAN]
    if policy == "Foreground":
        return [*kept, FOREGROUND]
    return kept
