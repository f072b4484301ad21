"""The DNS wire format, as far as a cluster's name server needs it.

Pure. Names are kept in wire form (length-prefixed labels), lower case, as keys; the question of a
query is echoed byte for byte, so that a resolver which plays with letter case (0x20) sees its own.
Invariant: no input makes a function here raise anything but `FormatError`.
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

A, NS, CNAME, SOA, PTR, TXT, AAAA, SRV, OPT, ANY = 1, 2, 5, 6, 12, 16, 28, 33, 41, 255
IN = 1
NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP, REFUSED = 0, 1, 2, 3, 4, 5

QR, AA, TC, RD, RA, CD = 0x8000, 0x0400, 0x0200, 0x0100, 0x0080, 0x0010
OPCODE = 0x7800

MAX_UDP = 512  # without EDNS0 (RFC 1035)
MAX_EDNS_UDP = 1232  # fits every path without fragments (DNS flag day 2020)
POINTER_TO_QUESTION = b"\xc0\x0c"

_HEADER = struct.Struct("!HHHHHH")
_RR = struct.Struct("!HHIH")


class FormatError(Exception):
    """The packet is no DNS message we can read."""


class Query(NamedTuple):
    """One question and how it may be answered."""

    id: int
    flags: int
    name: bytes  # wire form, lower case
    type: int
    class_: int
    question: bytes  # as it was sent
    udp_size: int
    edns: bool


class Record(NamedTuple):
    """A resource record without its owner name, which is the question's or given beside it."""

    type: int
    ttl: int
    data: bytes  # rdata, uncompressed


def encode_name(text: str) -> bytes:
    """The wire form of a dotted name, lower case; FormatError when it cannot be one."""
    out = bytearray()
    for label in text.rstrip(".").lower().split(".") if text.rstrip(".") else ():
        try:
            encoded = label.encode("ascii")
        except UnicodeEncodeError as error:
            raise FormatError(f"name {text!r} is not ASCII") from error
        if not 0 < len(encoded) < 64:
            raise FormatError(f"name {text!r} has a label of {len(encoded)} bytes")
        out.append(len(encoded))
        out += encoded
    out.append(0)
    if len(out) > 255:
        raise FormatError(f"name {text!r} is longer than 255 bytes")
    return bytes(out)


def decode_name(name: bytes) -> str:
    """A wire name as text with a closing dot, for logs; odd bytes are escaped."""
    return ".".join(label.decode("ascii", "backslashreplace") for label in labels(name)) + "."


def labels(name: bytes) -> list[bytes]:
    """The labels of an uncompressed wire name."""
    found = []
    at = 0
    while at < len(name) and (length := name[at]):
        found.append(name[at + 1 : at + 1 + length])
        at += 1 + length
    return found


def skip_name(packet: bytes, at: int, *, compressed: bool = True) -> int:
    """The offset behind the (perhaps compressed) name at `at`."""
    start = at
    while at < len(packet):
        length = packet[at]
        if length == 0:
            return at + 1
        if length >= 0xC0 and compressed:
            if at + 2 > len(packet):
                break
            return at + 2
        if length > 63:
            raise FormatError("label type is not known")
        at += 1 + length
        if at - start > 254:  # with the closing zero
            raise FormatError("name is longer than 255 bytes")
    raise FormatError("name runs past the end")


def parse_query(packet: bytes) -> Query:
    """Read a query's question and its EDNS0 option, if it has one."""
    if len(packet) < 12:
        raise FormatError("shorter than a header")
    id_, flags, questions, answers, authorities, additionals = _HEADER.unpack_from(packet)
    if questions != 1:
        raise FormatError(f"{questions} questions")
    end = skip_name(packet, 12, compressed=False)
    if end + 4 > len(packet):
        raise FormatError("question is cut off")
    type_, class_ = struct.unpack_from("!HH", packet, end)
    udp_size, edns = MAX_UDP, False
    at = end + 4
    for _ in range(answers + authorities + additionals):
        at = skip_name(packet, at)
        if at + 10 > len(packet):
            raise FormatError("record is cut off")
        record_type, record_class, _, length = _RR.unpack_from(packet, at)
        if record_type == OPT:
            edns, udp_size = True, min(max(record_class, MAX_UDP), MAX_EDNS_UDP)
        at += 10 + length
        if at > len(packet):
            raise FormatError("record is cut off")
    return Query(
        id_,
        flags,
        packet[12:end].lower(),
        type_,
        class_,
        packet[12 : end + 4],
        udp_size,
        edns,
    )


def encode_record(owner: bytes, record: Record) -> bytes:
    """One record on the wire; `owner` is a wire name or a pointer."""
    head = _RR.pack(record.type, IN, record.ttl, len(record.data))
    return owner + head + record.data


def encode_opt() -> bytes:
    """The EDNS0 pseudo-record: the longest UDP answer we take."""
    return b"\0" + _RR.pack(OPT, MAX_EDNS_UDP, 0, 0)


def response(
    query: Query,
    *,
    code: int = NOERROR,
    answers: Sequence[bytes] = (),
    authorities: Sequence[bytes] = (),
    additionals: Sequence[bytes] = (),
    authoritative: bool = True,
    truncated: bool = False,
    limit: int | None = None,
) -> bytes:
    """The answer to `query` from encoded records.

    Where `limit` is given and the answer is longer, additional records are left out first; when
    that is not enough, everything is, and the TC bit asks the client to come back by TCP.
    """
    flags = QR | RA | (query.flags & (OPCODE | RD | CD)) | code
    if authoritative:
        flags |= AA
    if truncated:
        flags |= TC
    opt = encode_opt() if query.edns else b""
    fixed = 12 + len(query.question) + len(opt)
    size = fixed + sum(map(len, answers)) + sum(map(len, authorities))
    if limit is not None:
        if size > limit:
            answers = authorities = additionals = ()
            flags |= TC
        elif size + sum(map(len, additionals)) > limit:
            additionals = ()
    extra = len(additionals) + (1 if opt else 0)
    header = _HEADER.pack(query.id, flags, 1, len(answers), len(authorities), extra)
    return b"".join((header, query.question, *answers, *authorities, *additionals, opt))


def is_truncated(packet: bytes) -> bool:
    """Does this response ask to be asked again by TCP?"""
    return len(packet) >= 12 and bool(packet[2] & (TC >> 8))


def failure(packet: bytes, code: int) -> bytes | None:
    """An answer to a packet that could not be read; None when even its id is missing.

    Answers are never answered, or two servers could keep each other busy for ever.
    """
    if len(packet) < 12:
        return None
    id_, flags = struct.unpack_from("!HH", packet)
    if flags & QR:
        return None
    return _HEADER.pack(id_, QR | RA | (flags & (OPCODE | RD)) | code, 0, 0, 0, 0)


def a_data(address: str) -> bytes:
    """The rdata of an A record."""
    parts = address.split(".")
    if len(parts) != 4 or not all(p.isascii() and p.isdigit() and int(p) < 256 for p in parts):
        raise FormatError(f"{address!r} is no IPv4 address")
    return bytes(int(part) for part in parts)


def srv_data(priority: int, weight: int, port: int, target: bytes) -> bytes:
    """The rdata of an SRV record."""
    return struct.pack("!HHH", priority, weight, port) + target


def soa_data(primary: bytes, mailbox: bytes, minimum_s: int) -> bytes:
    """The rdata of a SOA record, of which resolvers read only the last field.

    The serial never changes: nobody copies this zone, every node makes it from the API.
    """
    return primary + mailbox + struct.pack("!IIIII", 1, 7200, 1800, 86400, minimum_s)


def reverse_name(address: str) -> bytes:
    """`4.3.2.1.in-addr.arpa.` of 1.2.3.4."""
    a_data(address)
    return encode_name(".".join(reversed(address.split("."))) + ".in-addr.arpa")


def ttl_offsets(packet: bytes) -> tuple[list[int], int | None]:
    """Where a response's TTLs are, and the smallest (for a cache); OPT's flags are not a TTL."""
    if len(packet) < 12:
        raise FormatError("shorter than a header")
    _, _, questions, answers, authorities, additionals = _HEADER.unpack_from(packet)
    at = 12
    for _ in range(questions):
        at = skip_name(packet, at) + 4
    offsets: list[int] = []
    smallest: int | None = None
    for _ in range(answers + authorities + additionals):
        at = skip_name(packet, at)
        if at + 10 > len(packet):
            raise FormatError("record is cut off")
        type_, _, ttl, length = _RR.unpack_from(packet, at)
        if type_ != OPT:
            offsets.append(at + 4)
            smallest = ttl if smallest is None else min(smallest, ttl)
        at += 10 + length
        if at > len(packet):
            raise FormatError("record is cut off")
    return offsets, smallest


def read_name(packet: bytes, at: int) -> bytes:
    """The name at `at` in wire form without compression."""
    out = bytearray()
    jumps = 0
    while True:
        if at >= len(packet):
            raise FormatError("name runs past the end")
        length = packet[at]
        if length == 0:
            return bytes(out) + b"\0"
        if length >= 0xC0:
            jumps += 1
            if at + 2 > len(packet) or jumps > 64:
                raise FormatError("name's compression makes no sense")
            at = ((length & 0x3F) << 8) | packet[at + 1]
            continue
        out += packet[at : at + 1 + length]
        at += 1 + length
        if length > 63 or len(out) > 254:
            raise FormatError("name is too long")


def addresses_of(packet: bytes) -> tuple[int, list[bytes]]:
    """A response's code, and its A, AAAA and CNAME answers as records that stand alone."""
    if len(packet) < 12:
        raise FormatError("shorter than a header")
    _, flags, questions, answers, _, _ = _HEADER.unpack_from(packet)
    at = 12
    for _ in range(questions):
        at = skip_name(packet, at) + 4
    found = []
    for _ in range(answers):
        owner = read_name(packet, at)
        at = skip_name(packet, at)
        if at + 10 > len(packet):
            raise FormatError("record is cut off")
        type_, _, ttl, length = _RR.unpack_from(packet, at)
        at += 10
        data = packet[at : at + length]
        if type_ == CNAME:
            found.append(encode_record(owner, Record(CNAME, ttl, read_name(packet, at))))
        elif type_ in (A, AAAA):
            found.append(encode_record(owner, Record(type_, ttl, data)))
        at += length
        if at > len(packet):
            raise FormatError("record is cut off")
    return flags & 0xF, found
