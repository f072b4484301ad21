"""Durations as Go writes them in configuration files: `15s`, `1m30s`, `500ms`."""

import re

_UNIT_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|ms|s|m|h)")


def seconds(text: str) -> float:
    """The duration in seconds. Raises ValueError."""
    if not text or _PART.sub("", text):
        raise ValueError(f"{text!r} is no duration such as '15s'")
    return sum(float(number) * _UNIT_S[unit] for number, unit in _PART.findall(text))
