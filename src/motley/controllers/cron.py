"""When a cron schedule fires next. Pure.

Kubernetes' answer where clocks change: a time that does not exist on a day is skipped that day, a
time that exists twice fires twice, and a month or day begins at its first existing hour.
A moment is whole seconds since the epoch; its fields are read in the schedule's time zone.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from motley.api import schedule

_YEARS = 5  # a schedule that does not fire in five years never does (30 February)
_HOUR = 3600


class UnknownTimeZone(ValueError):
    """There is no such time zone."""


class Schedule(Protocol):
    """Something that fires."""

    def next(self, after: float) -> int | None:
        """The first moment later than this one, or None."""


@dataclass(frozen=True)
class Every:
    """Fires at a fixed distance."""

    seconds: int

    def next(self, after: float) -> int | None:
        """See `Schedule`."""
        return int(after) + self.seconds


@dataclass(frozen=True)
class Crontab:
    """Fires where all five fields agree."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]  # 0 is Sunday
    # Both days given: either will do. One of them `*`: the other decides.
    either_day: bool
    zone: ZoneInfo | None = None

    def next(self, after: float) -> int | None:
        """See `Schedule`."""
        moment = int(after) + 1
        moment += -moment % 60  # fires only at full minutes
        last_year = self._local(moment).year + _YEARS
        while True:
            local = self._local(moment)
            if local.year > last_year:
                return None
            if local.month not in self.months:
                moment = self._next_month(local)
            elif not self._is_day(local):
                moment = self._next_day(local)
            elif local.hour not in self.hours:
                moment += _HOUR - local.minute * 60
            elif local.minute not in self.minutes:
                moment += 60
            else:
                return moment

    def _is_day(self, local: datetime) -> bool:
        day = local.day in self.days
        weekday = local.isoweekday() % 7 in self.weekdays
        return (day or weekday) if self.either_day else (day and weekday)

    def _next_month(self, local: datetime) -> int:
        months = local.year * 12 + local.month
        first = local.replace(
            year=months // 12, month=months % 12 + 1, day=1, hour=0, minute=0, second=0
        )
        return self._midnight(first)

    def _next_day(self, local: datetime) -> int:
        return self._midnight(local.replace(hour=0, minute=0, second=0) + timedelta(days=1))

    def _midnight(self, local: datetime) -> int:
        """The first moment of a day; where midnight does not exist, the first hour that does."""
        moment = self._moment(local)
        hour = self._local(moment).hour
        return moment + (24 - hour) * _HOUR if hour > 12 else moment

    def _local(self, moment: int) -> datetime:
        return datetime.fromtimestamp(moment, self.zone or UTC).replace(tzinfo=None)

    def _offset_s(self, moment: int) -> int:
        shift = datetime.fromtimestamp(moment, self.zone or UTC).utcoffset()
        return int(shift.total_seconds()) if shift else 0

    def _moment(self, local: datetime) -> int:
        """The moment of a local time; of one that does not exist or exists twice, one nearby."""
        naive = int(local.replace(tzinfo=UTC).timestamp())
        return naive - self._offset_s(naive - self._offset_s(naive))


def read(text: str, zone: str | None = None) -> Schedule:
    """A CronJob's schedule, in a named time zone or in UTC. Raises ScheduleError,
    UnknownTimeZone."""
    fields = schedule.split(text)
    if text.startswith(("TZ=", "CRON_TZ=")):
        zone = text.partition(" ")[0].partition("=")[2]
    if not fields:
        return Every(schedule.every_s(text))
    minutes, hours, days, months, weekdays = schedule.parse(text)
    either = not (_is_any(fields[2]) or _is_any(fields[4]))
    return Crontab(minutes, hours, days, months, weekdays, either, time_zone(zone))


def time_zone(name: str | None) -> ZoneInfo | None:
    """A named time zone; None is UTC. Raises UnknownTimeZone."""
    if not name:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UnknownTimeZone(f"unknown time zone {name}") from None


def _is_any(field: str) -> bool:
    """Does the field say `*`? `*/2` is a choice already."""
    parts = (part.partition("/") for part in field.split(","))
    return any(span[:1] in ("*", "?") and step in ("", "1") for span, _, step in parts)
