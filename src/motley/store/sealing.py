"""What lies on the disk may be sealed; what the store hands out is always open.

A seal is put on at the last moment before bytes leave the process and taken off as they come back,
so caches, watches and stamps never meet it. A backup is a copy of the file and stays sealed.

Invariant: a value that cannot be opened is never handed out as it is, and never overwritten by
somebody who could not read it: `Unreadable` says which key, and what is missing.
"""

from typing import Protocol

from motley.store.contract import StoreError


class Unreadable(StoreError):
    """A stored value cannot be opened with the keys this server was given; nothing was changed."""


class Seal(Protocol):
    """Turns values into what is kept, and back. Called from the thread that talks to the disk."""

    def seal(self, key: str, value: bytes, place: bytes) -> bytes:
        """The bytes to keep for a key; `place` is where they will lie, so that a sealed value
        copied elsewhere does not open."""

    def open(self, key: str, kept: bytes, place: bytes) -> bytes:
        """The value in kept bytes. Raises `Unreadable`."""


class _Plain:
    """Keeps values as they are."""

    def seal(self, key: str, value: bytes, place: bytes) -> bytes:
        return value

    def open(self, key: str, kept: bytes, place: bytes) -> bytes:
        return kept


PLAIN: Seal = _Plain()
