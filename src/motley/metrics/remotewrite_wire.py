"""Prometheus' remote-write 1.0 on the wire: a protobuf `WriteRequest` in a Snappy block. Pure.

    WriteRequest { 1: TimeSeries { 1: Label { 1: name, 2: value }
                                   2: Sample { 1: double, 2: milliseconds } } }

The compressor looks for repetitions of at least four bytes and no further back than Snappy's blocks
reach; labels repeat so much that nothing cleverer is needed.
"""

import struct
from collections.abc import Iterable

from motley.metrics.export import Point

_BLOCK = 1 << 16  # Snappy's: references reach no further back
_LEAST_MATCH = 4
_LONGEST_COPY = 64


def request(points: Iterable[tuple[Point, float]], more: Iterable[tuple[str, str]] = ()) -> bytes:
    """Points, each with its moment in seconds; `more` labels are put on all of them."""
    extra = dict(more)
    parts = []
    for point, at in points:
        labels = {**extra, **dict(point.labels), "__name__": point.name}
        # The receiver wants them in the order of their names.
        listed = b"".join(
            _piece(1, _piece(1, name.encode()) + _piece(2, value.encode()))
            for name, value in sorted(labels.items())
        )
        sample = b"\x09" + struct.pack("<d", point.value) + b"\x10" + _varint(int(at * 1000))
        parts.append(_piece(1, listed + _piece(2, sample)))
    return b"".join(parts)


def _piece(number: int, body: bytes) -> bytes:
    return bytes((number << 3 | 2,)) + _varint(len(body)) + body


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def snappy(data: bytes) -> bytes:
    """The data as one Snappy stream (block format, as remote-write has it)."""
    out = bytearray(_varint(len(data)))
    for start in range(0, len(data), _BLOCK):
        _compress(data[start : start + _BLOCK], out)
    return bytes(out)


def _compress(block: bytes, out: bytearray) -> None:
    seen: dict[bytes, int] = {}
    kept = at = 0  # what lies between the two is not written yet
    end = len(block) - _LEAST_MATCH
    while at <= end:
        start = block[at : at + _LEAST_MATCH]
        before = seen.get(start)
        seen[start] = at
        if before is None:
            at += 1
            continue
        length = _LEAST_MATCH
        while at + length < len(block) and block[before + length] == block[at + length]:
            length += 1
        _literal(block[kept:at], out)
        _copy(at - before, length, out)
        at += length
        kept = at
    _literal(block[kept:], out)


def _literal(data: bytes, out: bytearray) -> None:
    if not data:
        return
    length = len(data) - 1
    if length < 60:
        out.append(length << 2)
    else:
        out.append(61 << 2)
        out += length.to_bytes(2, "little")
    out += data


def _copy(offset: int, length: int, out: bytearray) -> None:
    while length > 0:
        part = min(length, _LONGEST_COPY)
        out.append((part - 1) << 2 | 2)
        out += offset.to_bytes(2, "little")
        length -= part
