"""What etcd's refusals mean to a caller of the store.

gRPC codes alone do not tell: a full database and an overloaded server share one code. So etcd's
texts are looked at, which have been stable over 3.4, 3.5 and 3.6.
"""

from dataclasses import dataclass

import grpc

from motley.store.contract import Corrupt, Failed, Full, StoreError, TooLarge

_TRANSIENT = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,  # by the server: it is going away
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,  # a stream reset in the middle of an answer
    }
)
_COMPACTED = "required revision has been compacted"
_FUTURE = "required revision is a future revision"


@dataclass(frozen=True)
class Transient:
    """Worth another try, perhaps at another server."""

    reason: str
    was_sent: bool
    """Whether the request may have been carried out nevertheless."""


class IsCompacted(StoreError):
    """etcd no longer has the asked revision; it does not say what it still has."""


class IsAhead(StoreError):
    """etcd does not have the asked revision yet."""


def meaning(code: grpc.StatusCode, details: str) -> Transient | StoreError:
    """What to do about a call that failed with this code and text."""
    if code is grpc.StatusCode.OUT_OF_RANGE:
        if _COMPACTED in details:
            return IsCompacted(details)
        if _FUTURE in details:
            return IsAhead(details)
    if "request is too large" in details or "larger than max" in details:
        return TooLarge(
            "more bytes than etcd takes in one request (its --max-request-bytes, 1.5 MiB by"
            " default): nothing was changed"
        )
    if "database space exceeded" in details:
        return Full(
            "make room in etcd (its --quota-backend-bytes is used up) with etcdctl: compact,"
            " defrag, and then alarm disarm; writes go on by themselves"
        )
    if "too many requests" in details:
        return Transient(details, was_sent=False)
    if code is grpc.StatusCode.DATA_LOSS or "corrupt" in details:
        return Corrupt(f"etcd: {details}")
    if code in _TRANSIENT:
        # gRPC's words for "no connection was ever made": then nothing can have been carried out.
        return Transient(details, was_sent="failed to connect" not in details)
    return Failed(f"etcd: {details or code.name}")
