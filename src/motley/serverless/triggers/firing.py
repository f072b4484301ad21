"""When a Trigger fires, and what its Invocations are called. Pure."""

import hashlib
from typing import Any, NamedTuple

from motley.api.views.trigger import Trigger
from motley.controllers.cron import Schedule
from motley.lib import clock

TRIGGER_LABEL = "triggers.motley.io/name"
_MOST_MISSED = 1000  # moments that are looked at; of more only the latest ones


class Moment(NamedTuple):
    """The next thing to do about a schedule: fire for `due`, or look again at `next`."""

    due: int | None
    next: int | None


def moment(schedule: Schedule, last: float, now: float, deadline_s: float) -> Moment:
    """The latest moment after `last` that is due and not too old, and when the next one comes."""
    since = max(last, now - deadline_s)
    due, at = None, schedule.next(since)
    for _ in range(_MOST_MISSED):
        if at is None or at > now:
            break
        due, at = at, schedule.next(at)
    return Moment(due, at)


def invocation(trigger: Trigger, mark: str, arg: Any) -> dict[str, Any]:
    """The Invocation for a moment or a change; `mark` says which: its name depends on it alone."""
    meta = trigger.metadata
    digest = hashlib.sha256(f"{meta.uid}\0{mark}".encode()).hexdigest()[:12]
    target = {"function": trigger.spec.function, "workflow": trigger.spec.workflow}
    return {
        "metadata": {
            "name": f"{meta.name[:200]}-{digest}",
            "namespace": meta.namespace,
            "labels": {TRIGGER_LABEL: meta.name[:63].rstrip("-.")},
        },
        "spec": {
            **{name: value for name, value in target.items() if value},
            "arg": arg if trigger.spec.arg is None else trigger.spec.arg,
        },
    }


def tick(at: int) -> dict[str, Any]:
    """The argument of a call that a schedule makes."""
    return {"time": clock.rfc3339(at)}


def change(type_: str, document: dict[str, Any]) -> dict[str, Any]:
    """The argument of a call that a change makes."""
    return {"type": type_, "object": document}
