"""What a transaction would change, decided from values alone.

Every store checks expectations and stamps values here, so they cannot differ in it. The result
says what to write and what to announce; the store does both.
"""

from collections.abc import Callable, Sequence

from motley.store.contract import (
    MAX_OPS,
    Committed,
    Event,
    Mismatch,
    Op,
    Put,
    Range,
    Record,
    Revision,
    Stamp,
)


def check(ops: Sequence[Op]) -> None:
    """Refuse a transaction that makes no sense whatever the state, with ValueError."""
    if len(ops) == 1:
        keys = {ops[0].key}
    elif not ops:
        raise ValueError("a transaction needs at least one operation")
    elif len(ops) > MAX_OPS:
        raise ValueError(f"{len(ops)} operations in one transaction, at most {MAX_OPS}")
    else:
        keys = {op.key for op in ops}
        if len(keys) < len(ops):
            raise ValueError("a transaction names a key twice")
    for key in keys:
        if not key or not key.isascii():
            _check_text(key)


def _check_text(key: str) -> None:
    if not key:
        raise ValueError("a key cannot be empty")
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"key {key!r} is not valid text") from error


def prepare(
    ops: Sequence[Op], current: Callable[[str], Record | None], revision: Revision, stamp: Stamp
) -> tuple[Committed, list[Event]]:
    """The outcome of `ops` as `revision` on top of `current`, or `Mismatch`."""
    befores = []
    for op in ops:
        before = current(op.key)
        if op.expect is not None and op.expect != (before.revision if before else 0):
            raise Mismatch(op.key, before)
        if before is None and not isinstance(op, Put):
            raise Mismatch(op.key, None)
        befores.append(before)
    records = []
    events = []
    for op, before in zip(ops, befores, strict=True):
        if isinstance(op, Put):
            value = shown = stamp(op.value, revision)
            created = before.created if before else revision
            event = Event(revision, op.key, value, before, value, created)
        else:
            assert before is not None
            shown = stamp(before.value, revision)
            created = before.created
            event = Event(revision, op.key, None, before, shown, created)
        records.append(Record(op.key, shown, revision, created))
        events.append(event)
    return Committed(revision, tuple(records)), events


def rewind(
    records: Sequence[Record], later: Sequence[Event], prefix: str, start: str
) -> Sequence[Record]:
    """The listing `records` (all of `prefix` from `start`) as it was before the `later` events.

    The first later event of a key knows the state before it; untouched keys are as they are.
    """
    undo: dict[str, Record | None] = {}
    for event in later:
        if event.key.startswith(prefix) and event.key >= start:
            undo.setdefault(event.key, event.previous)
    if not undo:
        return records
    kept = [r for r in records if r.key not in undo]
    kept += [r for r in undo.values() if r is not None]
    kept.sort(key=lambda r: r.key)
    return kept


def page(records: Sequence[Record], limit: int, revision: Revision) -> Range:
    """The first `limit` (0: all) of a whole listing that was true at `revision`."""
    shown = records[:limit] if limit else records
    remaining = len(records) - len(shown)
    return Range(shown, revision, remaining > 0, remaining)
