"""When cron schedules fire, and which starts of a CronJob are due."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.api import schedule
from motley.api.views.batch import CronJob, Job
from motley.controllers import cron, cronjobs

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def at(text):
    return int(datetime.fromisoformat(text).timestamp())


def fires(text, after, zone=None):
    found = cron.read(text, zone).next(at(after))
    return None if found is None else datetime.fromtimestamp(found, UTC)


def field(low, high):
    number = st.integers(low, high)
    part = st.one_of(
        st.just("*"),
        number.map(str),
        st.tuples(number, number).map(lambda ab: f"{min(ab)}-{max(ab)}"),
        st.integers(1, high).map(lambda n: f"*/{n}"),
        st.tuples(number, st.integers(1, high)).map(lambda ns: f"{ns[0]}/{ns[1]}"),
    )
    return st.lists(part, min_size=1, max_size=3).map(",".join)


schedules = st.tuples(field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 6)).map(
    " ".join
)


def brute(text, after, limit):
    """The next firing minute, by asking every minute."""
    fields = schedule.split(text)
    minutes, hours, days, months, weekdays = schedule.parse(text)
    star = [any(p in ("*", "*/1") for p in f.split(",")) for f in (fields[2], fields[4])]
    moment = after.replace(second=0, microsecond=0) + timedelta(minutes=1)
    while moment <= limit:
        day, weekday = moment.day in days, moment.isoweekday() % 7 in weekdays
        is_day = day and weekday if any(star) else day or weekday
        if is_day and moment.month in months:
            if moment.hour in hours and moment.minute in minutes:
                return moment
            moment += timedelta(minutes=1)
        else:
            moment = moment.replace(hour=0, minute=0) + timedelta(days=1)
    return None


@given(text=schedules, offset_s=st.integers(0, 4 * 366 * 86400))
def test_the_next_time_is_the_one_that_asking_every_minute_finds(text, offset_s):
    after = BEGIN + timedelta(seconds=offset_s)
    wanted = brute(text, after, after + timedelta(days=40))
    found = cron.read(text).next(after.timestamp())
    if wanted is not None:
        assert datetime.fromtimestamp(found, UTC) == wanted
    else:
        assert found is None or found > (after + timedelta(days=40)).timestamp()


@pytest.mark.parametrize(
    ("text", "after", "wanted"),
    [
        ("*/15 * * * *", "2026-07-09T14:45:00+00:00", "2026-07-09T15:00:00+00:00"),
        ("*/15 * * * *", "2026-07-09T14:59:59.5+00:00", "2026-07-09T15:00:00+00:00"),
        ("20-35/15 * * * *", "2026-07-09T15:45:00+00:00", "2026-07-09T16:20:00+00:00"),
        ("0 0 29 2 *", "2026-03-01T00:00:00+00:00", "2028-02-29T00:00:00+00:00"),
        ("0 0 1,15 * mon", "2026-11-02T00:00:00+00:00", "2026-11-09T00:00:00+00:00"),
        ("0 0 * * Mon", "2026-11-02T00:00:00+00:00", "2026-11-09T00:00:00+00:00"),
        ("0 0 1 * ?", "2026-11-02T00:00:00+00:00", "2026-12-01T00:00:00+00:00"),
        ("0 0 */10 * Sun", "2026-11-02T00:00:00+00:00", "2026-11-08T00:00:00+00:00"),
        ("@hourly", "2026-11-02T00:00:00+00:00", "2026-11-02T01:00:00+00:00"),
        ("@weekly", "2026-11-02T00:00:00+00:00", "2026-11-08T00:00:00+00:00"),
        ("@monthly", "2026-11-02T00:00:00+00:00", "2026-12-01T00:00:00+00:00"),
        ("@yearly", "2026-11-02T00:00:00+00:00", "2027-01-01T00:00:00+00:00"),
        ("@every 1h30m", "2026-11-02T00:00:10+00:00", "2026-11-02T01:30:10+00:00"),
    ],
)
def test_schedules_fire_where_they_should(text, after, wanted):
    assert fires(text, after) == datetime.fromisoformat(wanted)


@pytest.mark.parametrize(
    ("text", "zone", "after", "wanted"),
    [
        # New York, spring 2012: 02:00 to 03:00 on 11 March does not exist.
        ("0 * * * *", "America/New_York", "2012-03-11T01:00-05:00", "2012-03-11T03:00-04:00"),
        ("30 2 * * *", "America/New_York", "2012-03-11T00:00-05:00", "2012-03-12T02:30-04:00"),
        ("30 2 11 3 *", "America/New_York", "2012-03-11T00:00-05:00", "2013-03-11T02:30-04:00"),
        ("0 0 * * *", "America/New_York", "2012-03-11T00:00-05:00", "2012-03-12T00:00-04:00"),
        # New York, autumn 2012: 01:00 to 02:00 on 4 November exists twice, and fires twice.
        ("30 1 4 11 *", "America/New_York", "2012-11-04T00:00-04:00", "2012-11-04T01:30-04:00"),
        ("30 1 4 11 *", "America/New_York", "2012-11-04T01:45-04:00", "2012-11-04T01:30-05:00"),
        ("30 1 4 11 *", "America/New_York", "2012-11-04T01:30-05:00", "2013-11-04T01:30-05:00"),
        ("0 2 * * *", "America/New_York", "2012-11-04T00:00-04:00", "2012-11-04T02:00-05:00"),
        ("0 4 * * *", "America/New_York", "2012-11-04T01:30-05:00", "2012-11-04T04:00-05:00"),
        # São Paulo 2018 and Beirut 2022: midnight itself does not exist.
        ("0 5 4 11 *", "America/Sao_Paulo", "2018-11-03T12:00-03:00", "2018-11-04T05:00-02:00"),
        ("0 5 27 3 *", "Asia/Beirut", "2022-03-26T12:00+02:00", "2022-03-27T05:00+03:00"),
        # A change of half an hour.
        ("30 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00+10:30", "2026-10-04T02:30+11:00"),
        ("0 9 * * *", "Europe/Berlin", "2026-11-16T00:00+01:00", "2026-11-16T09:00+01:00"),
    ],
)
def test_where_clocks_change_a_time_is_skipped_or_comes_twice(text, zone, after, wanted):
    assert fires(text, after, zone) == datetime.fromisoformat(wanted)


def test_a_day_that_never_comes_never_fires():
    assert fires("59 23 31 2 *", "2026-01-01T00:00:00+00:00") is None


def test_unknown_time_zones_are_refused():
    with pytest.raises(cron.UnknownTimeZone, match="unknown time zone Mars/Olympus"):
        cron.read("* * * * *", "Mars/Olympus")
    with pytest.raises(cron.UnknownTimeZone):
        cron.read("* * * * *", "../etc/passwd")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("@every 90s", 90), ("@every 1h0.5m", 3630), ("@every 10ms", 1), ("@every 1.9s", 1)],
)
def test_every_takes_durations_of_whole_seconds(text, seconds):
    assert schedule.every_s(text) == seconds


def cron_job(schedule="* * * * *", created="2026-01-01T00:00:00Z", last=None, **spec):
    document = {
        "metadata": {"name": "tick", "namespace": "ns", "uid": "u", "creationTimestamp": created},
        "spec": {"schedule": schedule, **spec},
        "status": {"lastScheduleTime": last} if last else {},
    }
    return CronJob.of(document)


def due(job, now, *, within_deadline=True):
    return cronjobs.due(job, cron.read(job.spec.schedule), at(now), within_deadline=within_deadline)


def test_nothing_is_due_before_the_first_time():
    found = due(cron_job("0 * * * *"), "2026-01-01T00:59:59Z")
    assert (found.latest, found.missed) == (None, 0)


def test_the_first_time_is_due_when_it_comes():
    found = due(cron_job("0 * * * *"), "2026-01-01T01:00:00Z")
    assert found.latest == at("2026-01-01T01:00:00Z")
    assert not found.is_many


def test_of_several_missed_times_the_latest_is_due():
    found = due(cron_job("0 * * * *"), "2026-01-01T06:30:00Z")
    assert found.latest == at("2026-01-01T06:00:00Z")
    assert found.missed == 6


def test_times_before_the_last_start_are_done_with():
    job = cron_job("0 * * * *", last="2026-01-01T06:00:00Z")
    assert due(job, "2026-01-01T06:30:00Z").latest is None


def test_the_latest_time_of_an_uneven_schedule_is_found():
    # 06:30, 10:30 and 14:30 on working days; Friday to Tuesday.
    job = cron_job("30 6-16/4 * * 1-5", last="2026-01-02T14:30:00Z")
    assert due(job, "2026-01-06T07:00:00Z").latest == at("2026-01-06T06:30:00Z")


def test_more_than_a_hundred_missed_times_are_many():
    assert due(cron_job(), "2026-01-01T01:41:00Z").is_many
    assert not due(cron_job(), "2026-01-01T01:40:00Z").is_many
    spared = cron_job(startingDeadlineSeconds=600)
    assert not due(spared, "2026-01-01T01:41:00Z").is_many


def test_a_deadline_hides_older_times_and_makes_a_start_too_late():
    job = cron_job("0 * * * *", startingDeadlineSeconds=60)
    assert due(job, "2026-01-01T05:30:00Z").latest is None
    assert due(job, "2026-01-01T05:00:30Z").latest == at("2026-01-01T05:00:00Z")
    scheduled = at("2026-01-01T05:00:00Z")
    assert not cronjobs.is_too_late(job, scheduled, scheduled + 60)
    assert cronjobs.is_too_late(job, scheduled, scheduled + 61)


def test_a_day_that_never_comes_is_an_error():
    with pytest.raises(cronjobs.NeverFires):
        due(cron_job("59 23 31 2 *"), "2026-01-01T06:30:00Z")


@pytest.mark.parametrize(
    ("last", "now", "wanted"),
    [
        (None, "2026-01-01T00:10:00Z", 50 * 60),
        (None, "2026-01-01T03:10:00Z", 50 * 60),
        ("2026-01-01T03:00:00Z", "2026-01-01T03:00:01Z", 3599),
    ],
)
def test_a_cron_job_is_looked_at_again_just_after_its_next_time(last, now, wanted):
    job = cron_job("0 * * * *", last=last)
    found = cronjobs.next_in_s(job, cron.read("0 * * * *"), at(now))
    assert found == pytest.approx(wanted + 0.1)


def test_a_start_has_one_name_and_says_when_it_was_due():
    template = {
        "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
        "spec": {"template": {"spec": {}}},
    }
    job = cron_job(timeZone="Asia/Kathmandu", jobTemplate=template)
    document = cronjobs.job_document(job, at("2026-01-01T06:00:00Z"))
    meta = document["metadata"]
    assert meta["name"] == "tick-29454120"
    assert meta["labels"] == {"a": "b"}
    assert meta["annotations"] == {
        "c": "d",
        "batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-01-01T11:45:00+05:45",
    }
    assert meta["ownerReferences"][0]["kind"] == "CronJob"
    assert document["spec"] == template["spec"]


def finished(name, type_, start):
    condition = {"type": type_, "status": "True"}
    state = {"conditions": [condition], "startTime": start, "completionTime": start}
    return Job.of({"metadata": {"name": name, "uid": name}, "status": state})


def test_the_oldest_ended_jobs_above_the_limits_are_deleted():
    job = cron_job(successfulJobsHistoryLimit=1, failedJobsHistoryLimit=0)
    jobs = [
        finished("new", "Complete", "2026-01-01T03:00:00Z"),
        finished("old", "Complete", "2026-01-01T01:00:00Z"),
        finished("bad", "Failed", "2026-01-01T02:00:00Z"),
        Job.of({"metadata": {"name": "runs", "uid": "runs"}}),
    ]
    assert [j.metadata.name for j in cronjobs.to_delete(job, jobs)] == ["old", "bad"]
    assert cronjobs.to_delete(cron_job(), jobs) == []
    assert cronjobs.last_success(None, jobs) == "2026-01-01T03:00:00Z"
    assert cronjobs.last_success("2026-02-01T00:00:00Z", jobs) == "2026-02-01T00:00:00Z"
