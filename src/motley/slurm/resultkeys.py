"""Names of files as keys of a ConfigMap: pure.

A ConfigMap takes fewer characters than a file system does. A name that it takes stays as it is,
with `__` for the `/` of folders; any other gets a key that looks like it and ends in a hash of it.
"""

import hashlib
import re

_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_OTHER = re.compile(r"[^-._a-zA-Z0-9]")
_SHOWN = 200


def is_key(text: str) -> bool:
    """Does a ConfigMap take it?"""
    return bool(_KEY.fullmatch(text)) and text != "." and not text.startswith("..")


def key_of(name: str) -> str:
    """The key of a file."""
    key = name.replace("/", "__")
    if is_key(key):
        return key
    digest = hashlib.sha256(name.encode(errors="surrogateescape")).hexdigest()[:12]
    return f"{_OTHER.sub('_', key).lstrip('.')[:_SHOWN]}-{digest}"
