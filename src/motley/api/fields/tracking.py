"""Who owns what after a write that is not an apply: every create, update and patch.

The writer owns the fields it changed; whoever owned them before does no more. Objects whose owners
were never recorded, or were cleared by a client, stay so until somebody applies.

Invariant: when a write changes no field, the recorded owners and their times do not change.
"""

from typing import Any

from motley.api import codec, scheme
from motley.api.fields import baseline, entries, pathset, types, walk
from motley.api.fields.baseline import Ignored
from motley.api.fields.entries import Managed, Manager, Owned
from motley.api.fields.pathset import PathSet
from motley.api.fields.types import Type
from motley.api.fields.walk import Changes

Document = dict[str, Any]


def created(kind: scheme.Kind, new: Document, manager: str, now: str) -> None:
    """Record the creator of a new object, in its metadata."""
    _track(kind, None, new, manager, "", now)


def updated(
    kind: scheme.Kind, old: Document, new: Document, manager: str, subresource: str, now: str
) -> None:
    """Record who made `new` of `old`, in the metadata of `new`."""
    _track(kind, old, new, manager, subresource, now)


def _track(
    kind: scheme.Kind,
    old: Document | None,
    new: Document,
    manager: str,
    subresource: str,
    now: str,
) -> None:
    metadata = new["metadata"]
    recorded = old["metadata"].get("managedFields") if old is not None else None
    managed = _before(recorded, metadata, subresource)
    if managed is not None and not managed and old is not None:
        metadata.pop("managedFields", None)
        return
    ignored = baseline.ignored(kind, subresource)
    if old is None:
        found = Changes(_appeared(kind, new, ignored), {})
    else:
        found = differences(types.of(kind), old, new, ignored)
    if managed is None and not found and recorded:
        metadata["managedFields"] = recorded
        return
    if managed is None:
        managed = entries.decode(recorded)
    writer = entries.manager(manager, entries.UPDATE, kind.api_version, subresource)
    after = entries.encode(entries.capped(taken(kind, managed, found, writer, now)))
    if after:
        metadata["managedFields"] = after
    else:
        metadata.pop("managedFields", None)


def _before(recorded: Any, metadata: Document, subresource: str) -> Managed | None:
    """Whom the write finds as owners. None: those recorded (the usual case, not yet decoded)."""
    given = metadata.get("managedFields")
    if given is None or subresource or given == recorded:
        return None if recorded else {}
    if entries.is_reset(given):
        return {}
    return entries.read(given) or (None if recorded else {})


def differences(type_: Type, live: Document, new: Document, ignored: Ignored) -> Changes:
    """What a write changes, save for what it cannot change."""
    changed: PathSet = {}
    removed: PathSet = {}
    for name in sorted({**live, **new}):
        if name in ignored.top:
            continue
        before, after = live.get(name), new.get(name)
        if before is after or before == after:
            continue
        inner = type_.child(name)
        more: PathSet | None = None
        less: PathSet | None = None
        if name == "metadata":
            more, less = walk.between(
                inner, _own_metadata(before, ignored), _own_metadata(after, ignored)
            )
        elif name not in live:
            more = walk.whole(inner, after)
        elif name not in new:
            less = walk.whole(inner, before)
        else:
            more, less = walk.between(inner, before, after)
        if more is not None:
            changed[f"f:{name}"] = more
        if less is not None:
            removed[f"f:{name}"] = less
    if "f:status" in ignored.deeper and "status" not in ignored.top:
        changed = pathset.without_below(changed, ignored.deeper)
        removed = pathset.without_below(removed, ignored.deeper)
    return Changes(changed, removed)


# Pods of one template, leases, events: what is created next often looks like what was created
# before, and then has the same fields. This many parts, none larger, are remembered.
_REMEMBERED = 256
_REMEMBERED_BYTES = 16 * 1024
_seen: dict[tuple[Type, str, bytes], PathSet | None] = {}
_NOTHING: Any = object()


def _appeared(kind: scheme.Kind, new: Document, ignored: Ignored) -> PathSet:
    """The fields of a new object: as `differences` from nothing, but quicker the second time."""
    empty = baseline.empty(kind)
    type_ = types.of(kind)
    found: PathSet = {}
    for name in sorted(new):
        value = new[name]
        before = empty.get(name, _NOTHING)
        if name in ignored.top or value == before:
            continue
        if name == "metadata":
            own = baseline.implied_metadata(kind, _own_metadata(value, ignored))
            more = walk.between(type_.child(name), {}, own)[0]
        else:
            looks = (type_, name, codec.encode(value))
            if looks in _seen:
                more = _seen[looks]
            else:
                more = _parts(type_.child(name), before, value)
                if len(_seen) >= _REMEMBERED:
                    _seen.clear()
                if len(looks[2]) <= _REMEMBERED_BYTES:
                    _seen[looks] = more
        if more is not None:
            found[f"f:{name}"] = more
    return found


def _parts(type_: Type, before: Any, value: Any) -> PathSet | None:
    if before is _NOTHING:
        return walk.whole(type_, value)
    return walk.between(type_, before, value)[0]


def _own_metadata(metadata: Document | None, ignored: Ignored) -> Document:
    return {k: v for k, v in (metadata or {}).items() if k not in ignored.metadata}


def released(kind: scheme.Kind, managed: Managed, found: Changes) -> Managed:
    """The owners without what was changed or removed under them."""
    after: Managed = {}
    for manager, owned in managed.items():
        if not entries.is_served(kind, owned.api_version):
            continue
        fields = pathset.difference(owned.fields, found.changed)
        fields = pathset.difference(fields, found.removed)
        if fields:
            after[manager] = owned if fields is owned.fields else owned._replace(fields=fields)
    return after


def taken(
    kind: scheme.Kind, managed: Managed, found: Changes, writer: Manager, now: str
) -> Managed:
    """The owners after the writer has taken what it changed."""
    if not found and all(entries.is_served(kind, o.api_version) for o in managed.values()):
        return managed
    after = released(kind, managed, found)
    if found.changed:
        had = after.get(writer)
        fields = pathset.union(had.fields, found.changed) if had else found.changed
        after[writer] = Owned(fields, kind.api_version, now)
    return after


def settle_times(old: Document, new: Document) -> None:
    """Where only the times of owners differ nothing was written: keep the times too."""
    before = old["metadata"].get("managedFields")
    after = new["metadata"].get("managedFields")
    if before is None or after is None or before is after:
        return
    if _same_but_owners(old, new) and entries.same_but_times(before, after):
        new["metadata"]["managedFields"] = before


def _same_but_owners(old: Document, new: Document) -> bool:
    if any(old.get(k) != v for k, v in new.items() if k != "metadata") or old.keys() != new.keys():
        return False
    before, after = old["metadata"], new["metadata"]
    return before.keys() == after.keys() and all(
        before[k] == v for k, v in after.items() if k != "managedFields"
    )
