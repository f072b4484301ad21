"""JSON merge patch (RFC 7386): objects merge, null removes, everything else replaces.

Invariant: neither target nor patch is changed; unchanged parts of the target are shared.
"""

from typing import Any


def apply(target: Any, patch: Any) -> Any:
    """The target with the patch merged into it."""
    if not isinstance(patch, dict):
        return patch
    found: dict[str, Any] = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = apply(found.get(key), value)
    return found
