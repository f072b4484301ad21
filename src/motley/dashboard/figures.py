"""Amounts and times as people read them: three digits that matter, and a unit. Pure.

Words follow kubectl where it has some (`250m`, `3d4h`), so that a figure found here can be looked
for there.
"""

import math

_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
_STEPS = 5  # of an axis, at most
_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86400, 365 * 86400
_SECONDS = {"s": 1, "m": _MINUTE, "h": _HOUR, "d": _DAY, "y": _YEAR}
# Below this age, so many of this unit and what remains in that one: the steps of kubectl.
_AGES = (
    (2 * _MINUTE, "s", ""),
    (10 * _MINUTE, "m", "s"),
    (3 * _HOUR, "m", ""),
    (8 * _HOUR, "h", "m"),
    (48 * _HOUR, "h", ""),
    (8 * _DAY, "d", "h"),
    (2 * _YEAR, "d", ""),
    (8 * _YEAR, "y", "d"),
    (math.inf, "y", ""),
)


def cores(x: float) -> str:
    """CPU: thousandths of a core below one core (`250m`), cores from there on (`1.25`)."""
    if x <= 0:
        return "0"
    milli = x * 1000
    if milli < 9.95:
        return f"{_plain(milli, 1)}m"
    if milli < 999.5:
        return f"{milli:.0f}m"
    return _plain(x, 2 if x < 99.995 else 0)


def size(n: float) -> str:
    """Bytes in binary units: `12.3 MiB`, `1.2 GiB`."""
    n = max(n, 0.0)
    unit = 0
    while n >= 1023.5 and unit < len(_BINARY) - 1:  # what would be written as 1024
        n /= 1024
        unit += 1
    return f"{_plain(n, 1 if unit and n < 99.95 else 0)} {_BINARY[unit]}"


def age(seconds: float) -> str:
    """How long ago, as kubectl writes it: `45s`, `3m12s`, `5h`, `3d4h`, `12d`."""
    whole = int(seconds)
    if whole < 0:  # clocks of two machines differ a little, but not by much
        return "0s" if whole >= -1 else "<invalid>"
    unit, finer = next((unit, finer) for below, unit, finer in _AGES if whole < below)
    count, rest = divmod(whole, _SECONDS[unit])
    remaining = rest // _SECONDS[finer] if finer else 0
    return f"{count}{unit}{remaining}{finer}" if remaining else f"{count}{unit}"


def share(x: float) -> str:
    """A part of a whole: `23 %`."""
    percent = x * 100
    return "<1 %" if 0 < percent < 0.5 else f"{percent:.0f} %"


def ticks(top: float, *, binary: bool) -> list[float]:
    """Where an axis from nought to at least `top` has its lines: two to five equal steps that are
    easy to read, powers of two for bytes and 1, 2 or 5 times a power of ten otherwise."""
    if not 1e-9 <= top < 1e30:  # a billionth of a core is the finest that is measured
        return [0.0, 1.0]
    if binary:
        step = 2.0 ** max(math.ceil(math.log2(top / 4)), 0)
        return [step * i for i in range(math.ceil(top / step) + 1)]
    exponent = math.floor(math.log10(top / _STEPS))
    power, part = (10.0**exponent, 1.0) if exponent >= 0 else (1.0, 10.0**-exponent)
    for factor in (1, 2, 5, 10, 20):  # the last for a logarithm that was rounded
        count = math.ceil(top / (factor * power / part) - 1e-9)
        if count <= _STEPS:
            break
    # Divided, not multiplied by a tenth: 3 / 10 is the nearest number to 0.3, 3 * 0.1 is not.
    return [i * factor * power / part for i in range(count + 1)]


def _plain(x: float, digits: int) -> str:
    """With so many digits behind the point, but no noughts at their end."""
    written = f"{x:.{digits}f}"
    return written.rstrip("0").rstrip(".") if "." in written else written
