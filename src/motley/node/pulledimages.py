"""Which images were pulled with credentials, and with whose.

An image on the node's disk is no secret to the node, but it may be one to its pods: who could not
pull a private image must not get it because another pod could. So a pod may use what is here
without a pull only with credentials that have pulled it, or where nobody needed any. Images that
were not pulled by this node (imported by hand) are everybody's.

Invariant: credentials themselves are never written, only digests of them.
"""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from motley.lib import atomicfile, journal
from motley.registry.credentials import Login

log = journal.get(__name__)

ANYBODY = ""


def fingerprint(login: Login | None) -> str:
    """What stands for a login in the file."""
    if login is None:
        return ANYBODY
    return hashlib.sha256("\0".join(login).encode()).hexdigest()


class PulledImages:
    """The record, kept in one file; without a file only for as long as the agent lives."""

    def __init__(self, file: Path | None = None) -> None:
        self._file = file
        self._logins: dict[str, list[str]] = _read(file) if file is not None else {}

    def allows(self, image_id: str, logins: Sequence[Login]) -> bool:
        """May a pod with these logins use an image that is here?"""
        known = self._logins.get(image_id)
        if known is None or ANYBODY in known:
            return True
        return any(fingerprint(login) in known for login in logins)

    def note(self, image_id: str, login: Login | None, present: Iterable[str]) -> None:
        """An image was pulled; of all that are not `present` any more nothing is remembered."""
        kept = {*present, image_id}
        before = self._logins
        self._logins = {key: known for key, known in before.items() if key in kept}
        known = self._logins.get(image_id, [])
        self._logins[image_id] = list(dict.fromkeys([*known, fingerprint(login)]))
        if self._file is not None and self._logins != before:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            atomicfile.write(self._file, msgspec.json.encode(self._logins), mode=0o600)


def _read(file: Path) -> dict[str, list[str]]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, list[str]])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        log.warning("record of pulled images is not readable", file=file, error=error)
        return {}
