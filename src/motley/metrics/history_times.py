"""Moments and durations as people write them in a query. Pure."""

import re

from motley.lib.clock import parse_rfc3339

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def duration_s(text: str) -> float:
    """`90`, `1m30s`, `7d` in seconds. Raises ValueError."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    if not text or _PART.sub("", text):
        raise ValueError(f"{text!r} is no duration such as 90s, 5m, 1h30m or 7d")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))


def moment(text: str, now: float) -> float:
    """`now`, `-1h` before now, seconds since 1970, or RFC 3339. Raises ValueError."""
    if text == "now":
        return now
    if text.startswith("-"):
        return now - duration_s(text[1:])
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return float(text)
    try:
        return parse_rfc3339(text)
    except ValueError:
        raise ValueError(f"{text!r} is no moment: now, -1h, a Unix time or RFC 3339") from None
