"""String formats, as Kubernetes checks them. Formats nobody knows are ignored, as there."""

import base64
import binascii
import datetime
import ipaddress
import re
from collections.abc import Callable

_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"[-+]?(?:\d+(?:\.\d*)?(?:ns|us|µs|ms|s|m|h))+|[-+]?0")
_PART = re.compile(r"(\d+(?:\.\d*)?)(ns|us|µs|ms|s|m|h)")


def duration_s(text: str) -> float | None:
    """Go's durations: `1h30m`, `250ms`."""
    if not _DURATION.fullmatch(text):
        return None
    seconds = sum(float(count) * _UNITS_S[unit] for count, unit in _PART.findall(text))
    return -seconds if text.startswith("-") else seconds


def _date_time(text: str) -> bool:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)", text):
        return False
    try:
        datetime.datetime.fromisoformat(text.upper().replace("Z", "+00:00"))
    except ValueError:
        return False
    return True


def _date(text: str) -> bool:
    try:
        return len(text) == 10 and bool(datetime.date.fromisoformat(text))
    except ValueError:
        return False


def _address(version: int) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            return ipaddress.ip_address(text).version == version
        except ValueError:
            return False

    return check


def _cidr(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


def _byte(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _matching(expression: str) -> Callable[[str], bool]:
    compiled = re.compile(expression)
    return lambda text: bool(compiled.fullmatch(text))


_HEX = "[0-9a-fA-F]"
_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
FORMATS: dict[str, Callable[[str], bool]] = {
    "date-time": _date_time,
    "datetime": _date_time,
    "date": _date,
    "duration": lambda text: duration_s(text) is not None,
    "byte": _byte,
    "ipv4": _address(4),
    "ipv6": _address(6),
    "cidr": _cidr,
    "mac": _matching(f"{_HEX}{{2}}([:-]{_HEX}{{2}}){{5}}"),
    "uuid": _matching(f"{_HEX}{{8}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{4}}-?{_HEX}{{12}}"),
    "email": _matching(r"[^@\s]+@[^@\s]+"),
    "hostname": _matching(r"[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?(\.[a-zA-Z0-9-]+)*\.?"),
    "uri": _matching(r"[a-zA-Z][a-zA-Z0-9+.-]*:\S+|/\S*"),
    "hexcolor": _matching(f"#?({_HEX}{{3}}|{_HEX}{{6}})"),
    "k8s-short-name": lambda t: len(t) <= 63 and bool(re.fullmatch(_LABEL, t)),
    "k8s-long-name": lambda t: len(t) <= 253 and bool(re.fullmatch(rf"{_LABEL}(\.{_LABEL})*", t)),
}
_VERSIONED_UUID = f"{_HEX}{{8}}-?{_HEX}{{4}}-?%s{_HEX}{{3}}-?{_HEX}{{4}}-?{_HEX}{{12}}"
for _version in "345":
    FORMATS[f"uuid{_version}"] = _matching(_VERSIONED_UUID % _version)


def is_valid(name: str, text: str) -> bool:
    """Whether a string has a format; unknown formats have no wrong strings."""
    check = FORMATS.get(name)
    return check is None or check(text)
