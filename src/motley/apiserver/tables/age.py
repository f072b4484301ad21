"""How long ago, in the few characters kubectl uses: `5s`, `3m2s`, `26h`, `3d`, `2y10d`."""

from motley.lib.clock import parse_rfc3339

UNKNOWN = "<unknown>"
_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 31536000


def age(timestamp: str | None, now: float) -> str:
    """The time since a timestamp; `<unknown>` without one."""
    if not timestamp:
        return UNKNOWN
    return duration(now - parse_rfc3339(timestamp))


def duration(seconds: float) -> str:
    """A duration with two units where the second one matters, as Kubernetes prints it."""
    if seconds < -1:
        return "<invalid>"
    whole = max(int(seconds), 0)
    if whole < 2 * _MINUTE:
        return f"{whole}s"
    minutes = whole // _MINUTE
    if minutes < 10:
        return _two(minutes, "m", whole % _MINUTE, "s")
    if minutes < 3 * 60:
        return f"{minutes}m"
    hours = whole // _HOUR
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 2 * 24:
        return f"{hours}h"
    if hours < 8 * 24:
        return _two(hours // 24, "d", hours % 24, "h")
    if hours < 2 * 365 * 24:
        return f"{hours // 24}d"
    days = whole // _DAY
    if hours < 8 * 365 * 24:
        return _two(days // 365, "y", days % 365, "d")
    return f"{whole // _YEAR}y"


def _two(major: int, major_unit: str, minor: int, minor_unit: str) -> str:
    return f"{major}{major_unit}{minor}{minor_unit}" if minor else f"{major}{major_unit}"
