"""What is to be done about one function's instances now. Pure.

An update makes instances of the new code first; those of the old one take calls until a new one
does, and end when they have none. Only an instance without calls is ended to save resources.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from motley.api.views.base import Key
from motley.serverless.instances import Instance


@dataclass
class Plan:
    """Instances to start (a number), to give no further calls, to delete."""

    start: int = 0
    drain: list[Key] = field(default_factory=list)
    delete: list[Key] = field(default_factory=list)


def plan(
    desired: int, revision: str, instances: Iterable[Instance], starting: int, *, maximum: int
) -> Plan:
    """Bring instances of a v2 function to the desired number, all of this revision.

    `starting`: instances of this revision that do not take calls yet.
    """
    every = list(instances)
    current = [one for one in every if one.revision == revision and not one.is_draining]
    old = [one for one in every if one.revision != revision]
    found = Plan(start=max(0, desired - len(current) - starting))
    # Old ones count against the maximum only while they still have work.
    found.start = min(found.start, max(0, maximum - len(current) - starting))
    if current or desired == 0:
        found.drain = [one.pod for one in old if not one.is_draining]
        found.delete = [one.pod for one in old if one.in_flight == 0]
    surplus = len(current) + starting - desired
    idle = sorted((one for one in current if one.in_flight == 0), key=lambda one: one.idle_since)
    # Never the last one for the sake of another that does not take calls yet.
    removable = max(0, min(surplus, len(current) - desired))
    going = [one.pod for one in idle[:removable]]
    found.drain += going
    found.delete += going
    finished = [one.pod for one in every if one.is_draining and one.in_flight == 0]
    found.delete += [pod for pod in finished if pod not in found.delete]
    return found


def plan_v1(
    waiting: int,
    revision: str,
    instances: Iterable[Instance],
    starting: int,
    *,
    minimum: int,
    maximum: int,
    now: float,
    idle_s: float,
) -> Plan:
    """One pod for each call that waits, some in advance if asked for; unused ones do not stay."""
    every = list(instances)
    unused = [one for one in every if not one.calls and one.revision == revision]
    old = [one.pod for one in every if not one.calls and one.revision != revision]
    wanted = waiting + minimum - len(unused) - starting
    found = Plan(start=max(0, min(wanted, maximum - len(every) - starting)))
    spare = len(unused) - waiting - minimum
    idle = [one.pod for one in unused if now - one.idle_since > idle_s]
    found.drain = [*old, *idle[: max(0, spare)]]
    found.delete = list(found.drain)
    return found
