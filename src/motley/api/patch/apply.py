"""Server-side apply: a configuration becomes part of an object, and its applier the owner of it.

    merge → take out what the applier no longer states → whose fields does that change?

Fields that somebody else owns and that would change are conflicts, unless the applier forces them.

Invariant: a field goes only if the applier stated it last time, does not now, and nobody else owns
it.
"""

from dataclasses import dataclass
from typing import Any

from motley.api import scheme, status
from motley.api.fields import (
    baseline,
    checking,
    entries,
    lastapplied,
    merging,
    pathset,
    tracking,
    types,
    walk,
)
from motley.api.fields.entries import Managed, Manager, Owned
from motley.api.fields.pathset import PathSet
from motley.api.fields.types import Type

Document = dict[str, Any]
BEFORE_FIRST_APPLY = "before-first-apply"


@dataclass(frozen=True, slots=True)
class Applier:
    """Who applies, and how."""

    name: str
    now: str
    force: bool = False
    subresource: str = ""


def apply(kind: scheme.Kind, live: Document | None, config: Document, applier: Applier) -> Document:
    """The object after the configuration is applied, its managedFields included.

    `live` is None when there is no such object yet. Raises Conflict with every contested field,
    BadRequest where the configuration does not fit its kind.
    """
    check(kind, config)
    return apply_as(types.of(kind), kind, live, config, applier)


def check(kind: scheme.Kind, config: Document) -> None:
    """Is this a configuration of the kind? It must say so, and own nothing for others."""
    named = _gvk(config)
    if named != (kind.group, kind.version, kind.kind):
        group, version, name = named
        raise status.BadRequest(f"invalid object type: {group}/{version}, Kind={name}")
    metadata = config.get("metadata")
    if isinstance(metadata, dict) and metadata.get("managedFields") is not None:
        raise status.BadRequest("metadata.managedFields must be nil")


def apply_as(
    type_: Type, kind: scheme.Kind, live: Document | None, config: Document, applier: Applier
) -> Document:
    """As `apply`, by an explicit type, of a configuration already checked."""
    if found := checking.problems(type_, config):
        raise status.BadRequest(
            f"failed to create typed patch object ({_shown(config)}): {checking.explain(found)}"
        )
    current = live if live is not None else {"metadata": {}}
    managed = entries.decode(current["metadata"].get("managedFields"))
    if not managed and live is not None:
        managed = _before_first_apply(type_, kind, live, applier)
    outcome = _Apply(type_, kind, current, config, applier)
    try:
        merged, managed = outcome.run(managed, applier.force)
    except _ConflictsError as error:
        contested = error.contested
        if applier.name == lastapplied.KUBECTL and live is not None:
            allowed = lastapplied.allowed(type_, kind.api_version, live)
            contested = _left_over(contested, allowed)
        if contested:
            raise _conflict(contested) from None
        merged, managed = outcome.run(managed, True)
    result = {**merged, "metadata": dict(merged.get("metadata") or {})}
    if managed:
        result["metadata"]["managedFields"] = entries.encode(managed)
    else:
        result["metadata"].pop("managedFields", None)
    if applier.name == lastapplied.KUBECTL:
        lastapplied.kept_current(result, config)
    return result


def _before_first_apply(
    type_: Type, kind: scheme.Kind, live: Document, applier: Applier
) -> Managed:
    """Somebody owned what is there, though nobody wrote down who."""
    ignored = baseline.ignored(kind, applier.subresource)
    found = tracking.differences(type_, baseline.empty(kind), live, ignored)
    if not found.changed:
        return {}
    nobody = entries.manager(
        BEFORE_FIRST_APPLY, entries.UPDATE, kind.api_version, applier.subresource
    )
    return {nobody: Owned(found.changed, kind.api_version, applier.now)}


Contested = dict[Manager, PathSet]


class _ConflictsError(Exception):
    """Fields that others own and that would change."""

    def __init__(self, contested: Contested) -> None:
        super().__init__()
        self.contested = contested


class _Apply:
    """One configuration on one object."""

    def __init__(
        self,
        type_: Type,
        kind: scheme.Kind,
        live: Document,
        config: Document,
        applier: Applier,
    ) -> None:
        self.type = type_
        self.kind = kind
        self.live = live
        self.config = config
        self.now = applier.now
        self.manager = entries.manager(
            applier.name, entries.APPLY, kind.api_version, applier.subresource
        )
        self.ignored = baseline.ignored(kind, applier.subresource)

    def run(self, managed: Managed, force: bool) -> tuple[Document, Managed]:
        """The merged object and its owners; raises _ConflictsError."""
        last = managed.get(self.manager)
        stated = baseline.ownable(walk.stated(self.type, self.config), self.ignored)
        owners = dict(managed)
        owners[self.manager] = Owned(stated, self.kind.api_version, last.time if last else None)
        merged = merging.merge(self.type, self.live, self.config)
        if last is not None and last.fields:
            merged = self._pruned(merged, last.fields, owners)
        found = tracking.differences(self.type, self.live, merged, self.ignored)
        others = {m: o for m, o in owners.items() if m != self.manager}
        contested = {
            m: fields
            for m, owned in others.items()
            if entries.is_served(self.kind, owned.api_version)
            and (fields := pathset.intersection(owned.fields, found.changed))
        }
        if contested and not force:
            raise _ConflictsError(contested)
        after = tracking.released(self.kind, others, found)
        if stated:
            after[self.manager] = owners[self.manager]
            if self.live != merged:
                after[self.manager] = owners[self.manager]._replace(time=self.now)
        return merged, after

    def _pruned(self, merged: Document, last: PathSet, owners: Managed) -> Document:
        """Without what only this applier stated, and states no more."""
        type_ = self.type

        def named(fields: PathSet) -> PathSet:
            return walk.with_containers(type_, fields)

        everything = named(walk.stated(type_, merged))
        last = named(last)
        rest = merging.remove(type_, merged, last) or {}
        owned: PathSet = {}
        for owner in owners.values():
            if entries.is_served(self.kind, owner.api_version):
                owned = pathset.union(owned, owner.fields)
        kept = pathset.union(named(walk.stated(type_, rest)), named(owned))
        rest = merging.remove(type_, merged, pathset.difference(everything, kept)) or {}
        gone = pathset.difference(everything, named(walk.stated(type_, rest)))
        doomed = pathset.intersection(gone, last)
        return merging.remove(type_, merged, doomed) or {} if doomed else merged


def _left_over(contested: Contested, allowed: PathSet) -> Contested:
    found = {m: pathset.difference(fields, allowed) for m, fields in contested.items()}
    return {m: fields for m, fields in found.items() if fields}


def _conflict(contested: Contested) -> status.Conflict:
    listed = [
        (manager.shown, pathset.shown(path))
        for manager, fields in sorted(contested.items())
        for path in pathset.paths(fields)
    ]
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": field}
        for who, field in listed
    ]
    if len(listed) == 1:
        message = f"Apply failed with 1 conflict: conflict with {listed[0][0]}: {listed[0][1]}"
    else:
        lines: list[str] = []
        for who in dict.fromkeys(who for who, _ in listed):
            lines.append(f"conflicts with {who}:")
            lines += [f"- {field}" for named, field in listed if named == who]
        text = "\n".join(lines)
        message = f"Apply failed with {len(listed)} conflicts: {text}"
    return status.Conflict(message, details={"causes": causes})


def _gvk(config: Document) -> tuple[str, str, str]:
    api_version = config.get("apiVersion")
    group, _, version = str(api_version or "").rpartition("/")
    return group, version, str(config.get("kind") or "")


def _shown(config: Document) -> str:
    metadata = config.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    group, version, name = _gvk(config)
    namespace = metadata.get("namespace") or ""
    return f"{namespace}/{metadata.get('name') or ''}; {group}/{version}, Kind={name}"
