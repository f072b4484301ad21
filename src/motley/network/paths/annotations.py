"""What annotations of a Route or an Ingress say, checked; pure.

motley.io/strip-prefix: "true"      the path's prefix is taken off (a Route does so always)
motley.io/ssl-redirect: "true"      http is answered with a redirection to https
motley.io/body-size: 8m             the largest body of a request; 0, the default, is any
motley.io/connect-timeout: "5"      seconds until the service has taken the connection
motley.io/read-timeout: "60"        seconds between two pieces of an answer
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from motley.network.paths.sites import Settings

PREFIX = "motley.io/"
# On a Service: the namespaces (`*`: all) whose Routes may lead to it from elsewhere.
ROUTES_FROM = "motley.io/routes-from"
_LONGEST_S = 86400


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError('must be "true" or "false"')
    return text == "true"


def _size(text: str) -> str:
    if not re.fullmatch(r"[0-9]{1,9}[kKmMgG]?", text):
        raise ValueError("must be a number of bytes, or one with k, m or g")
    return text.lower()


def _seconds(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,6}", text) or not 1 <= int(text) <= _LONGEST_S:
        raise ValueError(f"must be seconds between 1 and {_LONGEST_S}")
    return int(text)


_FIELDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "strip-prefix": ("strip_prefix", _truth),
    "ssl-redirect": ("ssl_redirect", _truth),
    "body-size": ("body_size", _size),
    "connect-timeout": ("connect_timeout_s", _seconds),
    "read-timeout": ("read_timeout_s", _seconds),
}


def read(annotations: Mapping[str, str], *, is_stripped: bool) -> tuple[Settings, list[str]]:
    """The settings, and what is wrong with the annotations that are left out."""
    found: dict[str, Any] = {"strip_prefix": is_stripped}
    wrong = []
    for name, (field, parse) in _FIELDS.items():
        text = annotations.get(PREFIX + name)
        if text is None:
            continue
        try:
            found[field] = parse(text)
        except ValueError as error:
            wrong.append(f"annotation {PREFIX}{name}: {error}; it is left out")
    return Settings(**found), wrong
