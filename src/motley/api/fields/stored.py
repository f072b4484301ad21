"""Reading stored objects without building their sets of fields anew.

A set has hundreds of small nodes, most of the time of decoding, and the same sets come again and
again: in every version of one object, in all pods of one template. They are never changed, so one
copy serves all: what was decoded once is found again by its bytes.

Invariant: `decode` gives what plain decoding gives; only the sets are shared.
"""

from typing import Any

import msgspec

from motley.api import codec
from motley.api.fields.pathset import PathSet

_MARK = b'"managedFields":['
# As many sets as this are kept, and none larger: about 10 MB when all are as large as a pod's.
_KEPT = 512
_KEPT_BYTES = 32 * 1024

# Below this plain decoding is quicker: leases, small config maps.
_SMALL_BYTES = 2048

_parts = msgspec.json.Decoder(dict[str, msgspec.Raw])
_entries = msgspec.json.Decoder(list[dict[str, msgspec.Raw]])
_known: dict[bytes, PathSet] = {}


def decode(value: bytes) -> dict[str, Any]:
    """The document in stored bytes."""
    if len(value) < _SMALL_BYTES or _MARK not in value:
        found: dict[str, Any] = codec.decode_own(value)
        return found
    document = {
        key: _metadata(raw) if key == "metadata" else codec.decode_own(raw)
        for key, raw in _parts.decode(value).items()
    }
    return document


def _metadata(raw: msgspec.Raw) -> dict[str, Any]:
    return {
        key: _managed_fields(inner) if key == "managedFields" else codec.decode_own(inner)
        for key, inner in _parts.decode(raw).items()
    }


def _managed_fields(raw: msgspec.Raw) -> list[dict[str, Any]]:
    return [
        {
            key: _fields(bytes(inner)) if key == "fieldsV1" else codec.decode_own(inner)
            for key, inner in entry.items()
        }
        for entry in _entries.decode(raw)
    ]


def _fields(raw: bytes) -> PathSet:
    known = _known.get(raw)
    if known is None:
        known = codec.decode_own(raw)
        if len(raw) <= _KEPT_BYTES:
            if len(_known) >= _KEPT:
                _known.clear()
            _known[raw] = known
    return known
