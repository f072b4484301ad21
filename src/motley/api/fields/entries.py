"""The entries of `metadata.managedFields`: who owns which fields, by which write, since when.

Invariant: an entry is never changed in place; `encode` gives the list in Kubernetes' order.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from motley.api import scheme
from motley.api.fields import pathset
from motley.api.fields.pathset import PathSet

APPLY: Literal["Apply"] = "Apply"
UPDATE: Literal["Update"] = "Update"
# The most Update entries an object keeps; older ones are put together, as in Kubernetes.
MAX_UPDATERS = 10
ANCIENT = "ancient-changes"
UNKNOWN = "unknown"
_FIELDS_V1 = "FieldsV1"


class Manager(NamedTuple):
    """Who writes, and how: what tells one entry from another."""

    name: str
    operation: str
    api_version: str  # empty for appliers: they are the same in every version
    subresource: str = ""

    @property
    def shown(self) -> str:
        """As conflicts name it."""
        text = f'"{self.name}"'
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return text if self.operation == APPLY else f"{text} using {self.api_version}"


class Owned(NamedTuple):
    """What a manager owns."""

    fields: PathSet
    api_version: str
    time: str | None


Managed = dict[Manager, Owned]


def manager(name: str, operation: str, api_version: str, subresource: str = "") -> Manager:
    """The identity of a writer; a nameless one is "unknown"."""
    return Manager(
        name or UNKNOWN, operation, "" if operation == APPLY else api_version, subresource
    )


def decode(entries: Iterable[dict[str, Any]] | None) -> Managed:
    """Entries as the server wrote them."""
    found: Managed = {}
    for entry in entries or ():
        api_version = entry["apiVersion"]
        operation = entry["operation"]
        found[
            Manager(
                entry.get("manager", ""),
                operation,
                "" if operation == APPLY else api_version,
                entry.get("subresource", ""),
            )
        ] = Owned(entry.get("fieldsV1") or {}, api_version, entry.get("time"))
    return found


def read(entries: Any) -> Managed | None:
    """Entries as a client sent them; None where any of them makes no sense."""
    if not isinstance(entries, list):
        return None
    sound: list[dict[str, Any]] = []
    for entry in entries:
        if (
            not isinstance(entry, dict)
            or entry.get("operation") not in (APPLY, UPDATE)
            or not entry.get("apiVersion")
            or entry.get("fieldsType") != _FIELDS_V1
        ):
            return None
        try:
            fields = pathset.read(entry.get("fieldsV1") or {})
        except ValueError:
            return None
        sound.append({**entry, "fieldsV1": fields})
    return decode(sound)


def is_reset(entries: Any) -> bool:
    """Whether a client asks to forget all owners: `[]` or `[{}]`."""
    return entries in ([], [{}])


def encode(managed: Managed) -> list[dict[str, Any]]:
    """The entries in Kubernetes' order: appliers first, then by time and name."""
    if len(managed) == 1:
        ((manager_, owned),) = managed.items()
        return [_entry(manager_, owned)]
    ranked = sorted(
        managed.items(),
        key=lambda item: (
            item[0].operation,
            item[1].time or "",  # all in one form, so that their order is that of the texts
            item[0].name,
            item[1].api_version,
            item[0].subresource,
        ),
    )
    return [_entry(manager_, owned) for manager_, owned in ranked]


def _entry(manager_: Manager, owned: Owned) -> dict[str, Any]:
    entry: dict[str, Any] = {"manager": manager_.name} if manager_.name else {}
    entry["operation"] = manager_.operation
    entry["apiVersion"] = owned.api_version
    if owned.time is not None:
        entry["time"] = owned.time
    entry["fieldsType"] = _FIELDS_V1
    entry["fieldsV1"] = owned.fields
    if manager_.subresource:
        entry["subresource"] = manager_.subresource
    return entry


def capped(managed: Managed) -> Managed:
    """At most so many updaters; the oldest are put together, version by version."""
    updaters = [m for m in managed if m.operation == UPDATE]
    excess = len(updaters) - MAX_UPDATERS
    if excess <= 0:
        return managed
    updaters.sort(key=lambda m: (managed[m].time or "", m))
    found = dict(managed)
    first: dict[str, Manager] = {}
    for manager_ in updaters:
        if excess == 0:
            break
        owned = found[manager_]
        version = owned.api_version
        if version not in first:
            first[version] = manager_
            continue
        bucket = Manager(ANCIENT, UPDATE, version)
        if bucket not in found:
            found[bucket] = found.pop(first[version])
        joined = pathset.union(owned.fields, found[bucket].fields)
        if manager_ != bucket:
            del found[manager_]
        found[bucket] = Owned(joined, version, owned.time)
        excess -= 1
    return found


def is_served(kind: scheme.Kind, api_version: str) -> bool:
    """Whether the kind still has this version; what was owned in another is forgotten."""
    return api_version == kind.api_version or scheme.by_kind(api_version, kind.kind) is not None


def same_but_times(one: Sequence[dict[str, Any]], other: Sequence[dict[str, Any]]) -> bool:
    """Whether the same managers own the same fields."""
    if len(one) != len(other):
        return False
    return all(
        a.keys() == b.keys() and all(a[k] == b[k] for k in a if k != "time")
        for a, b in zip(one, other, strict=True)
    )
