"""Moments and spans, in Go's notation."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from motley.api.cel.errors import CelError
from motley.api.cel.functions.operators import no_overload
from motley.api.cel.values import Duration, Timestamp, duration, timestamp
from motley.lib.clock import parse_rfc3339

_UNITS_US = {
    "ns": 0.001,
    "us": 1,
    "µs": 1,
    "ms": 1e3,
    "s": 1e6,
    "m": 60e6,
    "h": 3600e6,
}
_DURATION = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:ns|us|µs|ms|s|m|h))+")
_PART = re.compile(r"([0-9.]+)(ns|us|µs|ms|s|m|h)")
_OFFSET = re.compile(r"([+-]?)([0-9]{2}):([0-9]{2})")


def parse_duration(text: str) -> Duration:
    """`1h30m`, `1.5s`, `0`."""
    if text == "0":
        return duration(timedelta())
    if not _DURATION.fullmatch(text):
        raise CelError(f'time: invalid duration "{text}"')
    micro = sum(float(number) * _UNITS_US[unit] for number, unit in _PART.findall(text))
    return duration(timedelta(microseconds=-micro if text[0] == "-" else micro))


def duration_text(span: timedelta) -> str:
    """Seconds, as protobuf's JSON has them: `5400s`, `1.5s`."""
    seconds = span.total_seconds()
    return f"{int(seconds)}s" if seconds == int(seconds) else f"{seconds:g}s"


def parse_timestamp(value: str | int) -> Timestamp:
    """RFC 3339, or seconds since 1970."""
    try:
        seconds = parse_rfc3339(value) if isinstance(value, str) else value
        return timestamp(datetime.fromtimestamp(seconds, UTC))
    except (ValueError, OverflowError, OSError):
        raise CelError(f"invalid timestamp: {value}") from None


def timestamp_text(moment: Timestamp) -> str:
    """RFC 3339 in UTC."""
    text = moment.strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f".{moment.microsecond:06d}".rstrip("0") if moment.microsecond else ""
    return f"{text}{fraction}Z"


def _zone(name: str) -> tzinfo:
    found = _OFFSET.fullmatch(name)
    if found:
        offset = timedelta(hours=int(found[2]), minutes=int(found[3]))
        return timezone(-offset if found[1] == "-" else offset)
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise CelError(f"unknown time zone {name}") from None


def _getter(
    of_moment: Callable[[datetime], int], of_span: Callable[[timedelta], int] | None = None
) -> Callable[..., int]:
    def get(value: Any, zone: str = "UTC") -> int:
        if isinstance(value, Timestamp):
            return of_moment(value.astimezone(_zone(zone)))
        if isinstance(value, Duration) and of_span is not None:
            return of_span(value)
        raise no_overload(value)

    return get


_SECOND = timedelta(seconds=1)
GLOBAL: dict[str, Callable[..., Any]] = {}
METHODS: dict[str, Callable[..., Any]] = {
    "getFullYear": _getter(lambda t: t.year),
    "getMonth": _getter(lambda t: t.month - 1),
    "getDate": _getter(lambda t: t.day),
    "getDayOfMonth": _getter(lambda t: t.day - 1),
    "getDayOfWeek": _getter(lambda t: t.isoweekday() % 7),
    "getDayOfYear": _getter(lambda t: t.timetuple().tm_yday - 1),
    "getHours": _getter(lambda t: t.hour, lambda d: int(d.total_seconds() / 3600)),
    "getMinutes": _getter(lambda t: t.minute, lambda d: int(d.total_seconds() / 60)),
    "getSeconds": _getter(lambda t: t.second, lambda d: int(d.total_seconds())),
    "getMilliseconds": _getter(
        lambda t: t.microsecond // 1000, lambda d: int((d % _SECOND) / timedelta(milliseconds=1))
    ),
}
RESULTS = dict.fromkeys(METHODS, "int")
