"""The note of a store's format in etcd, as SQLite files have one in their header.

Several API servers, of different versions during an upgrade, share one etcd: the first that comes
writes the note, all others compare. A newer version that changes the format raises the note before
it writes anything else, so that older servers which start later refuse.
"""

import msgspec

from motley.store import format as formats
from motley.store.contract import Corrupt, Revision
from motley.store.etcd import etcd_pb2 as pb
from motley.store.etcd.connection import RANGE, TXN, Connection
from motley.store.etcd.mapping import Mapper


class Note(msgspec.Struct):
    """What is written; fields of newer versions are ignored."""

    version: int
    readable_from: int = msgspec.field(name="readableFrom")


async def ensure(connection: Connection, mapper: Mapper) -> Revision:
    """Check the note, or write it where there is none; the revision of that.

    Raises `Newer`, or `Corrupt` for a note that cannot be read.
    """
    key = mapper.format_key
    read = pb.RangeRequest(key=key)
    answer = await connection.call(RANGE, read)
    kept = answer.kvs
    if not kept:  # a full etcd refuses even a transaction that would find one: so only now
        compare = pb.Compare(
            key=key, target=pb.Compare.MOD, result=pb.Compare.EQUAL, mod_revision=0
        )
        request = pb.TxnRequest(compare=[compare])
        put = pb.PutRequest(key=key, value=msgspec.json.encode(Note(*formats.OURS)))
        request.success.add(request_put=put)
        request.failure.add(request_range=read)
        answer = await connection.call(TXN, request)
        kept = () if answer.succeeded else answer.responses[0].response_range.kvs
    for one in kept:
        where = f"etcd below {key.decode().removesuffix('.format') or '/'}"
        try:
            note = msgspec.json.decode(one.value, type=Note)
        except msgspec.MsgspecError as error:
            raise Corrupt(f"{where}: the note {key.decode()} of its format: {error}") from None
        formats.check(formats.Format(note.version, note.readable_from), where)
    return Revision(answer.header.revision)
