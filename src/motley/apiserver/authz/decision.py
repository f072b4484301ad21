"""A decision, and a refusal in the words Kubernetes uses."""

from typing import NamedTuple

from motley.apiserver import refusal
from motley.apiserver.authn.user import User
from motley.apiserver.refusal import Denied
from motley.apiserver.request import RequestInfo

__all__ = ["Decision", "Denied", "forbidden"]


class Decision(NamedTuple):
    """Whether, and why: who allowed it, or what was missing."""

    allowed: bool
    reason: str = ""


def forbidden(user: User, info: RequestInfo, name: str, reason: str = "") -> Denied:
    """See `refusal.forbidden`."""
    return refusal.forbidden(user.name, info, name, reason)
