"""Fields that a newer version of the server has stored, and this one does not know.

During an upgrade, and after one that was taken back, objects hold fields that the schema of this
version has no name for. Reading a patched document drops what nobody knows; what was in the store
before the patch is put back here, so that a change of one thing never costs another. Pure.
"""

import re
from collections.abc import Sequence
from typing import Any

Document = dict[str, Any]

_UNKNOWN = re.compile(r'unknown field "(.+)"')
_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
# By what entries of lists are known, most exact first; a list without any is known by position.
_IDENTITIES = (
    "name",
    "containerPort",
    "port",
    "mountPath",
    "devicePath",
    "ip",
    "type",
    "uid",
    "key",
)


def put_back(patched: Document, stored: Document, found: Sequence[str]) -> list[str]:
    """Restore, in place, what the store had of the fields that were dropped; the other complaints.

    `found` are complaints about the patched document, of which some name unknown fields.
    """
    return [
        text
        for text in found
        if not (named := _UNKNOWN.fullmatch(text)) or not _restore(patched, stored, named[1])
    ]


def _restore(patched: Document, stored: Document, path: str) -> bool:
    steps = [name or int(index) for name, index in _STEP.findall(path)]
    new: Any = patched
    old: Any = stored
    for step in steps[:-1]:
        new, old = _down(new, old, step)
        if new is None or old is None:
            return False
    last = steps[-1]
    if not isinstance(new, dict) or not isinstance(old, dict) or last not in old:
        return False
    new[last] = old[last]
    return True


def _down(new: Any, old: Any, step: str | int) -> tuple[Any, Any]:
    """One step into both; the same entry of a list, wherever it now is."""
    if isinstance(step, str):
        if isinstance(new, dict) and isinstance(old, dict):
            return new.get(step), old.get(step)
        return None, None
    if not isinstance(new, list) or not isinstance(old, list) or step >= len(new):
        return None, None
    entry = new[step]
    if isinstance(entry, dict):
        for identity in _IDENTITIES:
            if identity in entry:
                same = [
                    o for o in old if isinstance(o, dict) and o.get(identity) == entry[identity]
                ]
                return entry, same[0] if same else None
    return entry, old[step] if step < len(old) else None
