"""CronJobs in the virtual world: schedules, overlaps, missed starts, time zones, crashes."""

from collections import Counter

import pytest
from world import simulate
from world.jobs import ENDLESS, QUICK, events, job

from motley.api.views.batch import CronJob, Job
from motley.lib import clock as clocks


def cron_job(name="tick", schedule="* * * * *", **spec):
    template = {"metadata": {"labels": {"made-by": name}}, "spec": job()["spec"]}
    return {
        "metadata": {"name": name},
        "spec": {"schedule": schedule, "jobTemplate": template, **spec},
    }


def minutes(jobs):
    return sorted(int(j.metadata.name.rpartition("-")[2]) for j in jobs)


@simulate(nodes=1)
async def test_a_cron_job_starts_a_job_a_minute_and_keeps_three(world):
    world.kubelets.script = lambda _pod: QUICK
    await world.create(CronJob, cron_job())
    begun = int(world.clock.now() // 60)
    await world.sleep(5.5 * 60)
    jobs = await world.list(Job)
    assert minutes(jobs) == [begun + 3, begun + 4, begun + 5]
    newest = max(jobs, key=lambda j: j.metadata.name)
    stamp = newest.metadata.annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"]
    assert stamp == clocks.rfc3339((begun + 5) * 60)
    assert newest.metadata.labels["made-by"] == "tick"
    found = await world.get(CronJob, "tick")
    assert found.status.last_schedule_time == stamp
    assert found.status.last_successful_time == newest.status.completion_time
    assert not found.status.active
    told = await events(world, "CronJob")
    assert told["SuccessfulCreate"] == told["SawCompletedJob"] == 5
    assert told["SuccessfulDelete"] == 2
    assert not told["UnexpectedJob"]


@pytest.mark.parametrize(("policy", "active"), [("Allow", 3), ("Forbid", 1), ("Replace", 1)])
@simulate(nodes=1)
async def test_jobs_that_overlap_are_allowed_forbidden_or_replaced(world, policy, active):
    world.kubelets.script = lambda _pod: ENDLESS
    await world.create(CronJob, cron_job(concurrencyPolicy=policy))
    begun = int(world.clock.now() // 60)
    await world.sleep(3.5 * 60)
    found = await world.get(CronJob, "tick")
    assert len(found.status.active) == active
    newest = begun + (1 if policy == "Forbid" else 3)
    assert minutes(await world.list(Job))[-1] == newest
    told = await events(world, "CronJob")
    assert bool(told["JobAlreadyActive"]) == (policy == "Forbid")


@simulate(nodes=1)
async def test_after_an_outage_only_the_latest_missed_start_is_made_up_for(world):
    world.kubelets.script = lambda _pod: QUICK
    await world.create(CronJob, cron_job())
    await world.sleep(90)
    before = minutes(await world.list(Job))
    await world.kill_manager()
    await world.sleep(10 * 60)
    world.start_manager()
    await world.sleep(20)
    after = minutes(await world.list(Job))
    assert len(after) == len(before) + 1
    assert after[-1] == int(world.clock.now() // 60)


@simulate(nodes=1)
async def test_a_start_is_not_made_up_for_after_its_deadline_or_while_suspended(world):
    world.kubelets.script = lambda _pod: QUICK
    hourly = "0 * * * *"
    await world.create(CronJob, cron_job("late", hourly, startingDeadlineSeconds=120))
    await world.create(CronJob, cron_job("early", hourly))
    await world.create(CronJob, cron_job("held", hourly, suspend=True))
    await world.kill_manager()
    await world.sleep(3600 + 600)
    world.start_manager()
    await world.sleep(20)
    names = {j.metadata.name.rpartition("-")[0] for j in await world.list(Job)}
    assert names == {"early"}


@simulate(nodes=1)
async def test_more_than_a_hundred_missed_starts_are_reported(world):
    await world.create(CronJob, cron_job())
    await world.kill_manager()
    await world.sleep(102 * 60)
    world.start_manager()
    await world.sleep(10)
    assert (await events(world, "CronJob"))["TooManyMissedTimes"]
    assert len(await world.list(Job)) == 1


@simulate(nodes=1)
async def test_a_cron_job_follows_its_time_zone(world):
    # The world begins at 2026-01-01T00:00:00Z: 05:45 in Kathmandu, always 5:45 ahead.
    world.kubelets.script = lambda _pod: QUICK
    await world.create(CronJob, cron_job(schedule="0 6 * * *", timeZone="Asia/Kathmandu"))
    await world.sleep(16 * 60)
    (made,) = await world.list(Job)
    stamp = made.metadata.annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"]
    assert stamp == "2026-01-01T06:00:00+05:45"


@simulate(nodes=1)
async def test_a_start_happens_once_though_the_manager_is_killed_around_it(world):
    world.kubelets.script = lambda _pod: QUICK
    world.wire.latency_s = 0.02
    made = Counter()

    def look(change):
        if change.old is None:
            made[change.key.name] += 1

    world.informer(Job).add_handler(look)
    await world.create(CronJob, cron_job(successfulJobsHistoryLimit=20))
    begun = int(world.clock.now() // 60)
    for minute in range(1, 6):
        due = (begun + minute) * 60
        await world.sleep(due + 0.1 + world.rng.uniform(0.0, 0.2) - world.clock.now())
        await world.kill_manager()
        await world.sleep(1)
        world.start_manager()
    await world.sleep(20)
    assert minutes(await world.list(Job)) == [begun + n for n in range(1, 6)]
    assert set(made.values()) == {1}
    found = await world.get(CronJob, "tick")
    assert not found.status.active
