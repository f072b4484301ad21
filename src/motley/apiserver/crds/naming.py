"""Whether a definition's names are free, and what its status says about it. Pure.

Names are taken within a group, by definitions that were accepted before and by built-in kinds.
Who comes second waits: when the first goes, its names are free again.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from motley.api import scheme

Document = dict[str, Any]

_NAMES = ("plural", "singular", "shortNames", "kind", "listKind", "categories")
_CONFLICTS = {
    "plural": "PluralConflict",
    "singular": "SingularConflict",
    "shortNames": "ShortNamesConflict",
    "kind": "KindConflict",
    "listKind": "ListKindConflict",
}
Condition = tuple[str, str, str, str]  # type, status, reason, message


def taken(group: str, others: Iterable[Document]) -> tuple[set[str], set[str]]:
    """The resource names and the kinds of a group that somebody has."""
    resources: set[str] = set()
    kinds: set[str] = set()
    for other in others:
        accepted = (other.get("status") or {}).get("acceptedNames") or {}
        if other["spec"]["group"] == group:
            resources |= {accepted.get("plural", ""), accepted.get("singular", "")}
            resources |= set(accepted.get("shortNames") or ())
            kinds |= {accepted.get("kind", ""), accepted.get("listKind", "")}
    for kind in scheme.kinds():
        if kind.group == group and (kind.definition is None or not kind.definition.is_custom):
            resources |= {kind.plural, kind.singular, *kind.short_names}
            kinds |= {kind.kind, kind.list_kind}
    return resources - {""}, kinds - {""}


def conflicts(names: Document, resources: set[str], kinds: set[str]) -> Iterator[tuple[str, str]]:
    """Each name that is taken: (reason, message)."""
    for part in ("plural", "singular", "shortNames"):
        given = names.get(part) or ()
        for name in [given] if isinstance(given, str) else given:
            if name in resources:
                yield _CONFLICTS[part], f'"{name}" is already in use'
    for part in ("kind", "listKind"):
        if names.get(part) in kinds:
            yield _CONFLICTS[part], f'"{names[part]}" is already in use'


def status_of(crd: Document, others: Iterable[Document], now: str) -> Document:
    """The status a definition should have, from what it has."""
    old = crd.get("status") or {}
    spec = crd["spec"]
    found = list(conflicts(spec["names"], *taken(spec["group"], others)))
    if found:
        accepted = old.get("acceptedNames") or {"plural": "", "kind": ""}
        wanted: list[Condition] = [("NamesAccepted", "False", *found[-1])]
        if not _is_true(old, "Established"):
            message = "not all names are accepted"
            wanted.append(("Established", "False", "NotAccepted", message))
    else:
        accepted = {k: spec["names"][k] for k in _NAMES if spec["names"].get(k)}
        wanted = [("NamesAccepted", "True", "NoConflicts", "no conflicts found")]
        if not _is_true(old, "Established"):
            message = "the initial names have been accepted"
            wanted.append(("Established", "True", "InitialNamesAccepted", message))
    status = {**old, "acceptedNames": accepted}
    status["conditions"] = with_conditions(old.get("conditions") or [], wanted, now)
    return status


def with_conditions(have: list[Document], wanted: Iterable[Condition], now: str) -> list[Document]:
    """Conditions brought up to date; a time changes only with its status."""
    found = list(have)
    for type_, value, reason, message in wanted:
        at = next((i for i, c in enumerate(found) if c["type"] == type_), None)
        since = now
        if at is not None and found[at]["status"] == value:
            since = found[at].get("lastTransitionTime", now)
        condition = {
            "type": type_,
            "status": value,
            "lastTransitionTime": since,
            "reason": reason,
            "message": message,
        }
        if at is None:
            found.append(condition)
        else:
            found[at] = condition
    return found


def keep_storage_version(crd: Document) -> None:
    """A definition's status names every version in which objects may be kept."""
    state = crd["status"] = dict(crd.get("status") or {})
    named = list(state.get("storedVersions") or [])
    kept = [v["name"] for v in crd["spec"].get("versions") or () if v.get("storage")]
    state["storedVersions"] = named + [name for name in kept[:1] if name not in named]


def _is_true(status: Document, type_: str) -> bool:
    conditions = status.get("conditions") or ()
    return any(c["type"] == type_ and c["status"] == "True" for c in conditions)


def is_established(crd: Document) -> bool:
    """Whether the definition's resources are to be served."""
    return _is_true(crd.get("status") or {}, "Established")
