"""Jobs in the virtual world: back-off, deadlines, policies, crashes, the clock."""

from contextlib import aclosing
from itertools import pairwise

import pytest
from world import After, Before, Behaviour, VirtualClock, simulate
from world.jobs import ENDLESS, FAILING, QUICK, events, job

from motley.api import status
from motley.api.views.batch import Job
from motley.api.views.pod import Pod
from motley.client.rest import Client
from motley.controllers.jobs.pods import INDEX, TRACKING
from motley.controllers.workload import condition
from motley.lib import clock as clocks


def indexed(name="work", completions=3, **spec):
    spec.setdefault("parallelism", completions)
    return job(name, completionMode="Indexed", completions=completions, **spec)


async def until(world, check, what, name="work", within_s=600.0):
    async def look():
        found = await world.get(Job, name)
        return found if check(found) else None

    return await world.until(look, what, within_s=within_s)


async def ended(world, name="work", type_="Complete", within_s=3600.0):
    found = await until(world, lambda j: j.ended(), f"{name} ended", name, within_s)
    end = found.ended()
    assert end.type == type_, f"{end.type}: {end.reason}: {end.message}"
    return found


def index_of(pod):
    return int(pod.metadata.annotations[INDEX])


def starts(world):
    return sorted(clocks.parse_rfc3339(p.metadata.creation_timestamp) for p in world.pods())


@simulate(nodes=1)
async def test_parallelism_bounds_how_many_pods_run_at_once(world):
    world.kubelets.script = lambda _pod: QUICK
    most = 0

    def look(_change):
        nonlocal most
        most = max(most, len(world.living()))

    world.informer(Pod).add_handler(look)
    await world.create(Job, job(completions=7, parallelism=3))
    done = await ended(world)
    assert done.status.succeeded == 7
    assert most == 3
    assert len(world.pods()) == 7
    assert not any(TRACKING in p.metadata.finalizers for p in world.pods())


@simulate(nodes=1)
async def test_failed_pods_are_replaced_later_and_later_until_the_limit(world):
    world.kubelets.script = lambda _pod: FAILING
    await world.create(Job, job(backoffLimit=3))
    done = await ended(world, type_="Failed")
    assert done.ended().reason == "BackoffLimitExceeded"
    assert done.ended().message == "Job has reached the specified backoff limit"
    assert [c.type for c in done.status.conditions] == ["FailureTarget", "Failed"]
    assert done.status.failed == 4
    made = starts(world)
    gaps = [b - a for a, b in pairwise(made)]
    for gap, wait in zip(gaps, (10, 20, 40), strict=True):
        assert wait <= gap <= wait + 8
    assert (await events(world))["BackoffLimitExceeded"] == 1


@simulate(nodes=1)
async def test_containers_restarted_in_place_count_towards_the_limit(world):
    world.kubelets.script = lambda _pod: FAILING
    await world.create(Job, job(restart="OnFailure", backoffLimit=2))
    done = await ended(world, type_="Failed")
    assert done.ended().reason == "BackoffLimitExceeded"
    assert len(starts(world)) <= 1


@simulate(nodes=1)
async def test_a_job_fails_when_it_is_active_for_too_long_and_its_pods_go(world):
    world.kubelets.script = lambda _pod: ENDLESS
    begun = world.time
    await world.create(Job, job(activeDeadlineSeconds=30, parallelism=2))
    done = await ended(world, type_="Failed")
    assert done.ended().reason == "DeadlineExceeded"
    assert done.ended().message == "Job was active longer than specified deadline"
    assert 30 <= world.time - begun <= 40
    assert (done.status.active, done.status.terminating, done.status.failed) == (0, 0, 2)
    assert not world.living()


@simulate(nodes=1)
async def test_a_failure_target_is_told_before_the_last_pod_has_gone(world):
    world.kubelets.script = lambda _pod: ENDLESS
    await world.create(Job, job(activeDeadlineSeconds=5))
    seen = await until(world, lambda j: condition(j.status.conditions, "FailureTarget"), "target")
    assert seen.ended() is None
    assert seen.status.terminating == 1
    await ended(world, type_="Failed")


@simulate(nodes=1)
async def test_an_indexed_job_gives_each_pod_its_number(world):
    world.kubelets.script = lambda _pod: QUICK
    await world.create(Job, indexed(completions=5, parallelism=2))
    done = await ended(world)
    assert done.status.completed_indexes == "0-4"
    assert done.status.succeeded == 5
    pods = sorted(world.pods(), key=index_of)
    assert [index_of(p) for p in pods] == list(range(5))
    for index, pod in enumerate(pods):
        assert pod.metadata.labels[INDEX] == str(index)
        assert pod.spec.hostname == f"work-{index}"
        assert pod.metadata.name.startswith(f"work-{index}-")
        (variable,) = pod.spec.containers[0].env
        assert variable.name == "JOB_COMPLETION_INDEX"
        assert variable.value_from.field_ref.field_path == f"metadata.labels['{INDEX}']"


@simulate(nodes=1)
async def test_each_index_has_its_own_limit_and_the_others_go_on(world):
    world.kubelets.script = lambda pod: FAILING if index_of(pod) == 1 else QUICK
    await world.create(Job, indexed(completions=3, backoffLimitPerIndex=1))
    done = await ended(world, type_="Failed")
    assert done.ended().reason == "FailedIndexes"
    assert done.status.completed_indexes == "0,2"
    assert done.status.failed_indexes == "1"
    assert done.status.failed == 2
    tries = sorted(
        p.metadata.annotations["batch.kubernetes.io/job-index-failure-count"]
        for p in world.pods()
        if index_of(p) == 1
    )
    assert tries == ["0", "1"]


@simulate(nodes=1)
async def test_too_many_failed_indexes_end_the_job(world):
    world.kubelets.script = lambda pod: FAILING if index_of(pod) < 3 else ENDLESS
    await world.create(Job, indexed(completions=5, backoffLimitPerIndex=0, maxFailedIndexes=1))
    done = await ended(world, type_="Failed")
    assert done.ended().reason == "MaxFailedIndexesExceeded"
    assert not world.living()


@simulate(nodes=1)
async def test_a_failure_policy_can_end_the_job_ignore_a_pod_or_fail_an_index(world):
    rules = [
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
    ]
    world.kubelets.script = lambda _pod: ENDLESS
    await world.create(Job, job(backoffLimit=0, podFailurePolicy={"rules": rules}))
    await until(world, lambda j: j.status.ready == 1, "running")
    (pod,) = world.living()
    target = {"type": "DisruptionTarget", "status": "True", "reason": "Test"}
    conditions = [{"type": c.type, "status": c.status} for c in pod.status.conditions]
    change = {"status": {"conditions": [*conditions, target]}}
    await world.patch(Pod, pod.metadata.name, change, subresource="status")
    world.kubelets.finish(pod, 1)
    # Ignored: no limit is reached, another pod comes.
    await world.until(
        lambda: [p for p in world.living() if p.is_ready and p.metadata.uid != pod.metadata.uid],
        "a replacement",
    )
    (second,) = world.living()
    world.kubelets.finish(second, 42)
    done = await ended(world, type_="Failed")
    assert done.ended().reason == "PodFailurePolicy"
    assert done.ended().message == (
        f"Container c for pod default/{second.metadata.name} failed with exit code 42 matching "
        "FailJob rule at index 0"
    )
    assert done.status.failed == 1


@simulate(nodes=1)
async def test_a_success_policy_ends_the_job_and_the_other_indexes(world):
    world.kubelets.script = lambda pod: QUICK if index_of(pod) == 0 else ENDLESS
    policy = {"rules": [{"succeededIndexes": "0"}]}
    await world.create(Job, indexed(completions=3, successPolicy=policy))
    done = await ended(world)
    assert done.ended().reason == "SuccessPolicy"
    assert done.ended().message == "Matched rules at index 0"
    assert (done.status.succeeded, done.status.failed) == (1, 0)
    assert [c.type for c in done.status.conditions] == ["SuccessCriteriaMet", "Complete"]
    assert not world.living()


@simulate(nodes=1)
async def test_a_suspended_job_loses_its_pods_and_starts_anew_when_resumed(world):
    world.kubelets.script = lambda _pod: ENDLESS
    await world.create(Job, job(parallelism=2, activeDeadlineSeconds=60))
    await until(world, lambda j: j.status.ready == 2, "running")
    await world.sleep(20)
    await world.patch(Job, "work", {"spec": {"suspend": True}})
    held = await until(world, lambda j: condition(j.status.conditions, "Suspended"), "suspended")
    assert held.status.start_time is None
    assert held.status.active == 0
    idle = await until(world, lambda j: j.status.terminating == 0, "pods gone")
    assert idle.status.failed == 0
    assert not world.living()
    await world.sleep(100)  # longer than the deadline
    await world.patch(Job, "work", {"spec": {"suspend": False}})
    running = await until(world, lambda j: j.status.ready == 2, "running again")
    resumed = condition(running.status.conditions, "Suspended")
    assert (resumed.status, resumed.reason) == ("False", "JobResumed")
    assert clocks.parse_rfc3339(running.status.start_time) > world.clock.now() - 10
    found = await events(world)
    assert found["Suspended"] == found["Resumed"] == 1
    assert found["SuccessfulDelete"] == 2


@pytest.mark.parametrize(("policy", "waits"), [("TerminatingOrFailed", False), ("Failed", True)])
@simulate(nodes=1)
async def test_a_replacement_waits_for_the_old_pod_if_the_policy_says_so(world, policy, waits):
    world.kubelets.script = lambda _pod: Behaviour(
        start_s=0.5, ready_s=0.25, stop_s=20.0, stop_code=1
    )
    await world.create(Job, job(podReplacementPolicy=policy, backoffLimit=5))
    await until(world, lambda j: j.status.ready == 1, "running")
    (first,) = world.living()
    asked = world.clock.now()
    await world.delete(Pod, first.metadata.name)
    seen = await until(world, lambda j: j.status.terminating == 1, "terminating")
    assert seen.status.failed == 0 or not waits
    await until(world, lambda j: j.status.active == 1 and j.status.failed == 1, "replaced")
    (second,) = world.living()
    waited = clocks.parse_rfc3339(second.metadata.creation_timestamp) - asked
    assert (waited >= 20) == waits


@simulate(nodes=1)
async def test_an_elastic_indexed_job_grows_and_shrinks(world):
    world.kubelets.script = lambda pod: QUICK if index_of(pod) < 2 else ENDLESS
    await world.create(Job, indexed(completions=3))
    await until(world, lambda j: j.status.completed_indexes == "0,1", "two done")
    await world.patch(Job, "work", {"spec": {"completions": 5, "parallelism": 5}})
    await until(world, lambda j: j.status.active == 3, "grown")
    assert sorted(map(index_of, world.living())) == [2, 3, 4]
    await world.patch(Job, "work", {"spec": {"completions": 2, "parallelism": 2}})
    done = await ended(world)
    assert done.status.completed_indexes == "0,1"
    assert done.status.succeeded == 2


@simulate(nodes=1)
async def test_a_job_that_another_manages_is_left_alone(world):
    await world.create(Job, job(managedBy="example.com/other"))
    await world.sleep(30)
    found = await world.get(Job, "work")
    assert not found.status.conditions
    assert found.status.start_time is None
    assert not world.pods()


@simulate(nodes=1)
async def test_deleting_a_job_lets_its_pods_go(world):
    world.kubelets.script = lambda _pod: ENDLESS
    for policy in ("Background", "Foreground"):
        await world.create(Job, job(parallelism=3))
        await until(world, lambda j: j.status.ready == 3, "running")
        await world.delete(Job, "work", propagation=policy)
        await world.until(lambda: not world.pods(), f"pods gone, {policy}")

        async def gone():
            return not await world.exists(Job, "work")

        await world.until(gone, "job gone")


@simulate(nodes=1)
async def test_orphaned_pods_lose_the_finalizer_and_run_on(world):
    world.kubelets.script = lambda _pod: ENDLESS
    await world.create(Job, job(parallelism=2))
    await until(world, lambda j: j.status.ready == 2, "running")
    await world.delete(Job, "work", propagation="Orphan")
    await world.until(
        lambda: (
            len(world.living()) == 2
            and not any(p.metadata.finalizers or p.metadata.owner_references for p in world.pods())
        ),
        "orphans",
    )


@simulate(nodes=1)
async def test_a_matching_pod_without_an_owner_is_adopted_and_tracked(world):
    world.kubelets.script = lambda _pod: ENDLESS
    body = job(labels={"app": "own"}, manualSelector=True, selector={"matchLabels": {"app": "own"}})
    spec = body["spec"]["template"]["spec"]
    await world.create(Pod, {"metadata": {"name": "mine", "labels": {"app": "own"}}, "spec": spec})
    await world.until(lambda: any(p.is_ready for p in world.living()), "pod runs")
    await world.create(Job, body)
    await until(world, lambda j: j.status.ready == 1, "adopted")
    (pod,) = world.pods()
    assert pod.metadata.name == "mine"
    assert TRACKING in pod.metadata.finalizers
    world.kubelets.finish(pod, 0)
    done = await ended(world)
    assert done.status.succeeded == 1


@simulate(nodes=1)
async def test_the_work_queue_kind_of_job_ends_with_its_first_success(world):
    world.kubelets.script = lambda _pod: ENDLESS
    await world.create(Job, job(parallelism=3, completions=None))
    await until(world, lambda j: j.status.ready == 3, "running")
    first, *others = world.living()
    world.kubelets.finish(first, 0)
    await until(world, lambda j: j.status.succeeded == 1, "one succeeded")
    await world.sleep(60)
    assert len(world.living()) == 2  # no new pod, and the others may finish
    for pod in others:
        world.kubelets.finish(pod, 0)
    done = await ended(world)
    assert done.status.succeeded == 3


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", ["NonIndexed", "Indexed"])
def test_no_pod_is_counted_twice_or_lost_when_the_manager_is_killed(seed, mode):
    @simulate(nodes=2, seed=seed, latency_s=0.05)
    async def run(world):
        flaky = {}

        def play(pod):
            # Every third pod fails: the counters must end exactly there.
            number = flaky.setdefault(pod.metadata.uid, len(flaky))
            return FAILING if number % 3 == 2 else QUICK

        world.kubelets.script = play
        failed, succeeded = set(), set()

        def look(change):
            pod = change.new
            if pod is not None and pod.is_terminal:
                ended = succeeded if pod.status.phase == "Succeeded" else failed
                ended.add(pod.metadata.uid)

        def disturb(asked):
            if asked.who != "controllers" or asked.method not in ("PATCH", "DELETE"):
                return None
            chance = world.rng.random()
            if chance < 0.05:
                return Before(status.ServiceUnavailable("try again"))
            return After() if chance < 0.1 else None

        world.informer(Pod).add_handler(look)
        world.wire.fault = disturb
        await world.create(
            Job, job(completions=12, parallelism=4, backoffLimit=50, completionMode=mode)
        )
        for _ in range(12):
            await world.sleep(world.rng.uniform(0.05, 4.0))
            await world.kill_manager()
            await world.sleep(world.rng.uniform(0.0, 0.5))
            world.start_manager()
        done = await ended(world, within_s=7200.0)
        assert done.status.succeeded == 12
        assert len(succeeded) == 12
        assert done.status.failed == len(failed)
        assert not any(TRACKING in p.metadata.finalizers for p in world.pods())

    run()


@pytest.mark.parametrize("lagged", [Pod, Job])
@pytest.mark.parametrize("policy", ["TerminatingOrFailed", "Failed"])
def test_watches_that_lag_by_seconds_make_no_pod_too_many_and_count_none_twice(
    lagged, policy, monkeypatch
):
    watch = Client.watch

    async def lagging(self, cls, **options):
        async with aclosing(watch(self, cls, **options)) as events:
            async for event in events:
                if self._transport._who == "controllers" and cls is lagged:
                    await VirtualClock().sleep(1.5)
                yield event

    monkeypatch.setattr(Client, "watch", lagging)

    @simulate(nodes=2)
    async def run(world):
        world.kubelets.script = lambda _pod: Behaviour(
            start_s=0.5, ready_s=0.25, stop_s=5.0, stop_code=1
        )
        made, ended_pods = set(), {"Succeeded": set(), "Failed": set()}
        most = 0

        def look(change):
            nonlocal most
            made.add(change.object.metadata.uid)
            if change.new is not None and change.new.is_terminal:
                ended_pods[change.new.status.phase].add(change.new.metadata.uid)
            most = max(most, len(world.living()))

        world.informer(Pod).add_handler(look)
        await world.create(
            Job, job(completions=6, parallelism=2, backoffLimit=50, podReplacementPolicy=policy)
        )
        for step in range(400):
            if (await world.get(Job, "work")).ended():
                break
            ready = [p for p in world.living() if p.is_ready]
            if ready and step == 3:
                await world.delete(Pod, ready[0].metadata.name)
            elif ready:
                world.kubelets.finish(ready[0], int(step % 4 == 2))
            await world.sleep(3)
        done = await ended(world)
        assert most == 2
        assert done.status.succeeded == len(ended_pods["Succeeded"]) == 6
        assert done.status.failed == len(ended_pods["Failed"]) > 0
        assert len(made) == 6 + done.status.failed

    run()


@simulate(nodes=1)
async def test_an_ended_job_is_deleted_when_its_time_is_over(world):
    world.kubelets.script = lambda _pod: QUICK
    await world.create(Job, job(ttlSecondsAfterFinished=30))
    done = await ended(world)

    async def gone():
        return not await world.exists(Job, "work")

    await world.until(gone, "job deleted")
    waited = world.clock.now() - clocks.parse_rfc3339(done.status.completion_time)
    assert 30 <= waited <= 40
    await world.until(lambda: not world.pods(), "its pods too")


@simulate(nodes=1)
async def test_more_time_given_to_an_ended_job_counts(world):
    world.kubelets.script = lambda _pod: QUICK
    await world.create(Job, job(ttlSecondsAfterFinished=30))
    await ended(world)
    await world.sleep(20)
    await world.patch(Job, "work", {"spec": {"ttlSecondsAfterFinished": 100}})
    await world.sleep(40)
    assert await world.exists(Job, "work")
