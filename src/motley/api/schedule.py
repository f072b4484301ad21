"""Reading cron schedules: five fields, names of months and days, and `@daily` and its kin.

The words for what is wrong are those of the parser Kubernetes uses.
"""

import re
from typing import NamedTuple

DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_DURATION = re.compile(r"([0-9]*\.?[0-9]+(ns|us|µs|ms|s|m|h))+")
_PART = re.compile(r"([0-9]*\.?[0-9]+)(ns|us|µs|ms|s|m|h)")
_UNITS_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}


class ScheduleError(ValueError):
    """The schedule cannot be read; the text says why."""


class _Range(NamedTuple):
    low: int
    high: int
    names: dict[str, int]


_FIELDS = (
    _Range(0, 59, {}),
    _Range(0, 23, {}),
    _Range(1, 31, {}),
    _Range(1, 12, {name: index + 1 for index, name in enumerate(_MONTHS)}),
    _Range(0, 6, {name: index for index, name in enumerate(_DAYS)}),
)


def parse(text: str) -> tuple[frozenset[int], ...]:
    """The minutes, hours, days, months and weekdays a schedule means.

    `@every` has no such fields and gives an empty tuple. Raises ScheduleError.
    """
    fields = split(text)
    return tuple(_field(given, known) for given, known in zip(fields, _FIELDS, strict=False))


def split(text: str) -> tuple[str, ...]:
    """The five fields of a schedule as they are written, `@daily` and its kin spelled out;
    none for `@every`. Raises ScheduleError."""
    spec = text.strip()
    if not spec:
        raise ScheduleError("empty spec string")
    if spec.startswith(("TZ=", "CRON_TZ=")):
        spec = spec.partition(" ")[2].strip()
    if spec.startswith("@"):
        if spec.startswith("@every "):
            every_s(spec)
            return ()
        if spec not in DESCRIPTORS:
            raise ScheduleError(f"unrecognized descriptor: {spec}")
        spec = DESCRIPTORS[spec]
    fields = spec.split()
    if len(fields) != len(_FIELDS):
        listed = " ".join(fields)
        raise ScheduleError(f"expected exactly 5 fields, found {len(fields)}: [{listed}]")
    return tuple(fields)


def every_s(text: str) -> int:
    """The whole seconds, at least one, that `@every 1h30m` means. Raises ScheduleError."""
    given = text.partition("@every ")[2].strip()
    if not _DURATION.fullmatch(given):
        raise ScheduleError(f'failed to parse duration {text}: time: invalid duration "{given}"')
    seconds = sum(float(number) * _UNITS_S[unit] for number, unit in _PART.findall(given))
    return max(1, int(seconds))


def _field(text: str, known: _Range) -> frozenset[int]:
    found: set[int] = set()
    for part in text.split(","):
        if part:
            found |= _part(part, known)
    return frozenset(found)


def _part(text: str, known: _Range) -> set[int]:
    span, slash, step_text = text.partition("/")
    if "/" in step_text:
        raise ScheduleError(f"too many slashes: {text}")
    low_text, dash, high_text = span.partition("-")
    if "-" in high_text:
        raise ScheduleError(f"too many hyphens: {text}")
    if low_text in ("*", "?"):
        low, high = known.low, known.high
    else:
        low = _number(low_text, known)
        high = _number(high_text, known) if dash else low
    step = 1
    if slash:
        step = _number(step_text, known._replace(names={}))
        if not dash and low_text not in ("*", "?"):
            high = known.high
    if low < known.low:
        raise ScheduleError(f"beginning of range ({low}) below minimum ({known.low}): {text}")
    if high > known.high:
        raise ScheduleError(f"end of range ({high}) above maximum ({known.high}): {text}")
    if low > high:
        raise ScheduleError(f"beginning of range ({low}) beyond end of range ({high}): {text}")
    if step == 0:
        raise ScheduleError(f"step of range should be a positive number: {text}")
    return set(range(low, high + 1, step))


def _number(text: str, known: _Range) -> int:
    named = known.names.get(text.lower())
    if named is not None:
        return named
    try:
        number = int(text)
    except ValueError:
        raise ScheduleError(
            f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax'
        ) from None
    if number < 0:
        raise ScheduleError(f"negative number ({number}) not allowed: {text}")
    return number
