import pytest

from motley.api import schedule


@pytest.mark.parametrize(
    ("text", "field", "values"),
    [
        ("*/15 * * * *", 0, {0, 15, 30, 45}),
        ("5 4-6 * * *", 1, {4, 5, 6}),
        ("0 0 1,15 * *", 2, {1, 15}),
        ("0 0 * jan,Mar *", 3, {1, 3}),
        ("0 0 * * mon-fri", 4, {1, 2, 3, 4, 5}),
        ("10/20 * * * *", 0, {10, 30, 50}),
        ("@daily", 1, {0}),
        ("? * * * *", 0, set(range(60))),
    ],
)
def test_a_schedule_means_these_moments(text, field, values):
    assert schedule.parse(text)[field] == values


def test_an_interval_has_no_fields():
    assert schedule.parse("@every 1h30m") == ()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "empty spec string"),
        ("every day", "expected exactly 5 fields, found 2: [every day]"),
        ("@nosuch", "unrecognized descriptor: @nosuch"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("*/1/2 * * * *", "too many slashes: */1/2"),
        ("a * * * *", 'failed to parse int from a: strconv.Atoi: parsing "a": invalid syntax'),
        ("@every x", 'failed to parse duration @every x: time: invalid duration "x"'),
    ],
)
def test_what_cannot_be_read_is_told(text, problem):
    with pytest.raises(schedule.ScheduleError) as error:
        schedule.parse(text)

    assert str(error.value) == problem
