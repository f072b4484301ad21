"""Kubernetes' timestamps, written and read."""

import pytest

from motley.lib import clock

MOMENT = 1_794_700_800.0  # 2026-11-15T00:00:00Z


def test_times_are_written_in_utc_with_whole_seconds():
    assert clock.rfc3339(MOMENT) == "2026-11-15T00:00:00Z"
    assert clock.rfc3339(MOMENT + 0.999) == "2026-11-15T00:00:00Z"


def test_years_have_four_digits():
    first = clock.parse_rfc3339("0001-01-01T00:00:02Z")
    assert clock.rfc3339(first) == "0001-01-01T00:00:02Z"
    assert clock.rfc3339_micro(first) == "0001-01-01T00:00:02.000000Z"


def test_micro_times_always_have_six_digits():
    assert clock.rfc3339_micro(MOMENT) == "2026-11-15T00:00:00.000000Z"
    assert clock.rfc3339_micro(MOMENT + 0.25) == "2026-11-15T00:00:00.250000Z"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-15T00:00:00Z", MOMENT),
        ("2026-11-15T00:00:00.5Z", MOMENT + 0.5),
        ("2026-11-15T00:00:00.123456789Z", MOMENT + 0.123456),
        ("2026-11-15T02:00:00+02:00", MOMENT),
        ("2026-11-15T02:00:00.250000000+02:00", MOMENT + 0.25),
        ("2026-11-14T19:00:00.1-05:00", MOMENT + 0.1),
    ],
)
def test_every_spelling_of_a_time_is_read(text, seconds):
    assert clock.parse_rfc3339(text) == pytest.approx(seconds, abs=1e-6)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2026-13-01T00:00:00Z",
        "2026-11-15T00:00:00.xZ",
        "2026-11-15T00:00:00",
        "2026-11-15",
    ],
)
def test_what_is_no_time_is_refused(text):
    with pytest.raises(ValueError):
        clock.parse_rfc3339(text)


def test_what_is_written_is_read_back():
    for seconds in (0.0, MOMENT, MOMENT + 0.000001, 4_102_444_799.0):
        assert clock.parse_rfc3339(clock.rfc3339_micro(seconds)) == pytest.approx(seconds, abs=1e-6)
        assert clock.parse_rfc3339(clock.rfc3339(seconds)) == int(seconds)


async def test_the_system_clock_moves_forward_while_sleeping():
    before = clock.SYSTEM.monotonic()
    await clock.SYSTEM.sleep(0.01)
    assert clock.SYSTEM.monotonic() - before >= 0.009
    assert clock.SYSTEM.now() > MOMENT - 10 * 365 * 86400
