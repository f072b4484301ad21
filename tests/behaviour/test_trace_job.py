"""How Jobs fail and recover, moment by moment, as text."""

from world import Behaviour, Trace, simulate
from world.trace import pods

from motley.api.views.batch import Job
from motley.controllers.jobs.pods import index_of


def job(**spec):
    body = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "one"}]}
    return {"metadata": {"name": "work"}, "spec": {"template": {"spec": body}, **spec}}


def state(trace):
    """The Job's own words."""
    found = trace.world.cached(Job, "work")
    if found is None:
        return ""
    now = found.status
    counts = f"active {now.active} ready {now.ready} terminating {now.terminating}"
    counts += f" succeeded {now.succeeded} failed {now.failed}"
    if found.is_indexed:
        counts += f" done [{now.completed_indexes}] failed [{now.failed_indexes or ''}]"
    held = now.uncounted_terminated_pods
    if held and (held.succeeded or held.failed):
        counts += f" uncounted {len(held.succeeded)}+{len(held.failed)}"
    conditions = " ".join(c.type for c in now.conditions if c.status == "True")
    return f"work {counts} {conditions}".rstrip()


async def ended(world):
    await world.until(
        lambda: (found := world.cached(Job, "work")) and found.ended(), "ended", within_s=3600
    )
    await world.sleep(2)


@simulate(nodes=2)
async def test_a_job_that_always_fails(world, golden):
    world.kubelets.script = lambda _pod: Behaviour(start_s=1, ready_s=1, run_s=3, exit_code=1)
    world.informer(Job)
    trace = await Trace.begin(world, pods, state)
    trace.say("create job: backoffLimit 3")
    await world.create(Job, job(backoffLimit=3))
    await ended(world)
    golden("job_backoff", trace)


@simulate(nodes=2)
async def test_an_indexed_job_of_which_one_index_fails(world, golden):
    def play(pod):
        return Behaviour(start_s=1, ready_s=1, run_s=3, exit_code=int(index_of(pod) == 1))

    world.kubelets.script = play
    world.informer(Job)
    trace = await Trace.begin(world, pods, state)
    trace.say("create job: 4 indexes, 2 at once, each may fail once")
    await world.create(
        Job, job(completionMode="Indexed", completions=4, parallelism=2, backoffLimitPerIndex=1)
    )
    await ended(world)
    golden("job_indexes", trace)


@simulate(nodes=2)
async def test_a_job_that_is_suspended_resumed_and_runs_out_of_time(world, golden):
    world.kubelets.script = lambda _pod: Behaviour(start_s=1, ready_s=1, stop_s=3, stop_code=143)
    world.informer(Job)
    trace = await Trace.begin(world, pods, state)
    trace.say("create job: 2 pods, 20 s")
    await world.create(Job, job(parallelism=2, activeDeadlineSeconds=20))
    await world.sleep(10)
    trace.say("suspend")
    await world.patch(Job, "work", {"spec": {"suspend": True}})
    await world.sleep(30)
    trace.say("resume")
    await world.patch(Job, "work", {"spec": {"suspend": False}})
    await ended(world)
    golden("job_suspended", trace)
