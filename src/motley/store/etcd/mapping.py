"""Keys, transactions and answers of the store, as etcd's messages. Decides, but does not talk.

Values lie in etcd unstamped, since the revision is known only when etcd has given it; they are
stamped whenever they are read. Expectations become comparisons of `mod_revision`, which is 0 for a
key that does not exist, so etcd checks them exactly as the other stores do.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from motley.lib import journal
from motley.store import sealing
from motley.store.contract import (
    Committed,
    Compacted,
    Delete,
    Event,
    Failed,
    Mismatch,
    Op,
    Put,
    Record,
    Revision,
    Stamp,
)
from motley.store.etcd import etcd_pb2 as pb

log = journal.get(__name__)

EVERYTHING = b"\0"  # as key and as end: every key there is


class Mapper:
    """One store's part of an etcd: what lies below its prefix."""

    def __init__(self, prefix: str, stamp: Stamp, seal: sealing.Seal = sealing.PLAIN) -> None:
        self._root = prefix.rstrip("/").encode()
        if self._root and not self._root.startswith(b"/"):
            raise ValueError(f"etcd prefix {prefix!r} must begin with /")
        self._stamp = stamp
        self._seal = seal

    def key(self, key: str) -> bytes:
        """Where a key of the store lies in etcd."""
        return self._root + key.encode()

    @property
    def format_key(self) -> bytes:
        """Where the format is noted: beside our keys, so that no listing and no watch shows it."""
        return self._root + b".format"

    def bounds(self, prefix: str, start: str) -> tuple[bytes, bytes]:
        """First key and end of a listing; the end is `EVERYTHING` when there is none."""
        # All keys begin with a slash: without it a neighbour's prefix would be listed as well.
        begin = self.key(prefix or "/")
        return max(begin, self.key(start)) if start else begin, after(begin)

    def is_ours(self, key: bytes) -> bool:
        """Whether a key of etcd belongs to this store."""
        return key.startswith(self._root + b"/")

    def record(self, kv: Any) -> Record:
        """A key's state, stamped."""
        revision = Revision(kv.mod_revision)
        value = self._stamp(self._opened(kv), revision)
        return Record(self._name(kv), value, revision, Revision(kv.create_revision))

    def events(self, found: Sequence[Any]) -> list[Event]:
        """Our events among those of etcd; raises `Compacted` when a state is lost."""
        try:
            return [self._event(event) for event in found if self.is_ours(event.kv.key)]
        except sealing.Unreadable as gone:  # by a key that is gone: lists tell, if it lasts
            log.warning("an event of etcd cannot be read", reason=str(gone))
            raise Compacted(Revision(found[-1].kv.mod_revision)) from gone

    def _event(self, event: Any) -> Event:
        kv = event.kv
        revision = Revision(kv.mod_revision)
        is_put = event.type == pb.Event.PUT
        is_new = is_put and kv.create_revision == kv.mod_revision
        if not is_new and not event.HasField("prev_kv"):
            # etcd looks the state before up when it tells an event; compaction was quicker.
            raise Compacted(revision)
        previous = self.record(event.prev_kv) if event.HasField("prev_kv") else None
        if is_put:
            value = self._stamp(self._opened(kv), revision)
            created = Revision(kv.create_revision)
            return Event(revision, self._name(kv), value, previous, value, created)
        assert previous is not None
        shown = self._stamp(self._opened(event.prev_kv), revision)
        return Event(revision, self._name(kv), None, previous, shown, previous.created)

    def transaction(self, ops: Sequence[Op]) -> pb.TxnRequest:
        """The operations, to be done only if every expectation holds; else what is there."""
        request = pb.TxnRequest()
        for op in ops:
            if not op.key.startswith("/"):
                raise ValueError(f"key {op.key!r}: keys in etcd begin with /")
            key = self.key(op.key)
            expectations = _expectations(op, key)
            if expectations:
                request.compare.extend(expectations)
                request.failure.add(request_range=pb.RangeRequest(key=key))
            if isinstance(op, Put):
                # The state before tells when the key was created; a new key needs no telling.
                kept = self._seal.seal(op.key, op.value, key)
                put = pb.PutRequest(key=key, value=kept, prev_kv=op.expect != 0)
                request.success.add(request_put=put)
            else:
                delete = pb.DeleteRangeRequest(key=key, prev_kv=True)
                request.success.add(request_delete_range=delete)
        return request

    def committed(self, ops: Sequence[Op], answer: Any) -> Committed:
        """What a transaction did."""
        revision = Revision(answer.header.revision)
        records = []
        for op, response in zip(ops, answer.responses, strict=True):
            if isinstance(op, Put):
                put = response.response_put
                created = put.prev_kv.create_revision if put.HasField("prev_kv") else revision
                value = op.value
            else:
                (before,) = response.response_delete_range.prev_kvs
                value, created = self._opened(before), before.create_revision
            records.append(
                Record(op.key, self._stamp(value, revision), revision, Revision(created))
            )
        return Committed(revision, tuple(records))

    def mismatch(self, ops: Sequence[Op], answer: Any) -> Mismatch | Failed:
        """Which expectation of a refused transaction does not hold."""
        found = _found(answer)
        for op in ops:
            kv = found.get(self.key(op.key))
            current = kv.mod_revision if kv is not None else 0
            is_missing = isinstance(op, Delete) and kv is None
            if is_missing or (op.expect is not None and op.expect != current):
                return Mismatch(op.key, self.record(kv) if kv is not None else None)
        return Failed("etcd refused a transaction whose expectations hold")

    def done_before(self, ops: Sequence[Op], answer: Any) -> Committed | None:
        """The outcome of a refused transaction that was sent twice, if the first did it.

        It did when every key holds our value at one revision: a transaction is one revision, and
        expectations keep it from being done a second time. Of deletions nothing is left to tell.
        """
        found = _found(answer)
        kvs = [found.get(self.key(op.key)) for op in ops]
        for op, kv in zip(ops, kvs, strict=True):
            if not isinstance(op, Put) or kv is None or self._opened(kv) != op.value:
                return None
        if len({kv.mod_revision for kv in kvs if kv is not None}) != 1:
            return None
        records = tuple(self.record(kv) for kv in kvs)
        return Committed(records[0].revision, records)

    def _opened(self, kv: Any) -> bytes:
        return self._seal.open(self._name(kv), kv.value, kv.key)

    def _name(self, kv: Any) -> str:
        key: bytes = kv.key
        return key[len(self._root) :].decode()


def after(prefix: bytes) -> bytes:
    """The first key after all that begin with a prefix; `EVERYTHING` when nothing is."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else EVERYTHING


def _found(answer: Any) -> Mapping[bytes, Any]:
    """The states that a refused transaction read."""
    return {kv.key: kv for response in answer.responses for kv in response.response_range.kvs}


def _expectations(op: Op, key: bytes) -> list[pb.Compare]:
    found = []
    if op.expect is not None:
        found.append(_compare(key, pb.Compare.EQUAL, op.expect))
    if isinstance(op, Delete) and not op.expect:
        found.append(_compare(key, pb.Compare.GREATER, 0))
    return found


def _compare(key: bytes, result: Any, revision: int) -> pb.Compare:
    return pb.Compare(key=key, target=pb.Compare.MOD, result=result, mod_revision=revision)
