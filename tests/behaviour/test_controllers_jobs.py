"""Jobs and CronJobs against a real API server, with kubectl; more in `test_jobs_virtual.py`."""

import asyncio
import subprocess
from collections import Counter

import pytest

from motley.api.views.batch import CronJob, Job
from motley.api.views.core import Event
from motley.api.views.pod import Pod
from motley.controllers.jobs.pods import TRACKING

SCRIPT = "fake.motley.io/"


def script(run_s=None, code=None, stop_s=None, **by_index):
    values = {"run-seconds": run_s, "exit-code": code, "stop-seconds": stop_s}
    values |= {f"exit-code.{name.removeprefix('i')}": value for name, value in by_index.items()}
    return {SCRIPT + name: str(value) for name, value in values.items() if value is not None}


def job(name="work", annotations=None, **spec):
    return {
        "metadata": {"name": name},
        "spec": {
            "template": {
                "metadata": {"annotations": annotations or {}},
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 5,
                    "containers": [{"name": "c", "image": "one"}],
                },
            },
            **spec,
        },
    }


async def until(c, check, what, name="work"):
    async def look():
        found = await c.get(Job, name)
        return found if check(found) else None

    return await c.eventually(look, what)


async def ended(c, name="work", type_="Complete"):
    done = await until(c, lambda j: j.ended(), f"{name} ended", name)
    end = done.ended()
    assert end.type == type_, f"{end.type}: {end.reason}: {end.message}"
    return done


@pytest.fixture
def kubectl(shared_server):
    """Run kubectl in a namespace; its output."""

    async def run(c, *arguments, fails=False):
        command = ["kubectl", "--kubeconfig", str(shared_server.kubeconfig), "-n", c.namespace]
        done = await asyncio.to_thread(
            subprocess.run, [*command, *arguments], capture_output=True, text=True, timeout=90
        )
        assert (done.returncode != 0) == fails, done.stderr
        return done.stderr if fails else done.stdout

    return run


async def test_a_job_runs_to_its_completions_and_counts_every_pod_once(cluster):
    async with cluster() as c:
        await c.create(Job, job(annotations=script(code=0), completions=5, parallelism=2))
        done = await ended(c)
        assert done.status.succeeded == 5
        assert done.status.failed == done.status.active == 0
        assert (done.status.ready, done.status.terminating) == (0, 0)
        assert done.status.completion_time
        assert [one.type for one in done.status.conditions] == ["SuccessCriteriaMet", "Complete"]
        assert done.ended().reason == "CompletionsReached"
        assert done.ended().message == "Reached expected number of succeeded pods"
        pods = await c.list(Pod)
        assert len(pods) == 5
        assert not any(TRACKING in p.metadata.finalizers for p in pods)
        held = done.status.uncounted_terminated_pods
        assert held is not None
        assert not held.succeeded

        async def told():
            found = Counter(
                e.reason for e in await c.list(Event) if e.involved_object.kind == "Job"
            )
            return found["SuccessfulCreate"] == 5 and found["Completed"] == 1

        await c.eventually(told, "events")


async def test_a_slow_watch_makes_no_pod_too_many_and_counts_none_twice(cluster):
    async with cluster(pod_lag_s=0.1) as c:
        await c.create(Job, job(annotations=script(code=0), completions=6, parallelism=3))
        done = await ended(c)
        assert done.status.succeeded == 6
        assert len(await c.list(Pod)) == 6


async def test_a_failing_index_fails_the_job_and_the_others_are_done(cluster):
    async with cluster() as c:
        body = job(
            annotations=script(code=0, i1=42),
            completionMode="Indexed",
            completions=3,
            parallelism=3,
            backoffLimitPerIndex=0,
        )
        await c.create(Job, body)
        done = await ended(c, type_="Failed")
        assert done.ended().reason == "FailedIndexes"
        assert (done.status.completed_indexes, done.status.failed_indexes) == ("0,2", "1")


async def test_a_deleted_pod_that_stops_slowly_holds_the_job_open(cluster):
    async with cluster() as c:
        body = job(annotations=script(stop_s=2), activeDeadlineSeconds=1)
        await c.create(Job, body)
        seen = await until(c, lambda j: j.status.terminating, "terminating")
        assert seen.ended() is None
        done = await ended(c, type_="Failed")
        assert done.ended().reason == "DeadlineExceeded"
        assert done.status.failed == 1


async def test_kubectl_creates_waits_for_and_lists_jobs(cluster, kubectl):
    async with cluster() as c:
        await kubectl(c, "create", "job", "hello", "--image=one", "--", "true")
        row = (await kubectl(c, "get", "jobs")).splitlines()
        assert row[0].split() == ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"]
        assert row[1].split()[:3] == ["hello", "Running", "0/1"]
        await until(c, lambda j: j.status.ready == 1, "running", "hello")
        (pod,) = c.living()
        await kubectl(c, "annotate", "pod", pod.metadata.name, f"{SCRIPT}exit-code=0")
        said = await kubectl(c, "wait", "--for=condition=complete", "job/hello", "--timeout=30s")
        assert "condition met" in said
        row = (await kubectl(c, "get", "jobs")).splitlines()[1].split()
        assert row[:3] == ["hello", "Complete", "1/1"]
        shown = await kubectl(c, "describe", "job", "hello")
        assert "0 Active (0 Ready) / 1 Succeeded / 0 Failed" in shown
        assert "SuccessfulCreate" in shown
        logs = await kubectl(c, "get", "pods", "-l", "job-name=hello", "-o", "name")
        assert logs.split() == [f"pod/{pod.metadata.name}"]
        await kubectl(c, "delete", "job", "hello", "--timeout=30s")
        await c.eventually(lambda: not c.living(), "pods gone")


async def test_kubectl_suspends_and_resumes_a_job(cluster, kubectl):
    async with cluster() as c:
        await c.create(Job, job(parallelism=2))
        await until(c, lambda j: j.status.ready == 2, "running")
        patch = '{"spec": {"suspend": %s}}'
        await kubectl(c, "patch", "job", "work", "-p", patch % "true")
        await kubectl(c, "wait", "--for=condition=suspended", "job/work", "--timeout=30s")
        assert (await kubectl(c, "get", "jobs")).splitlines()[1].split()[1] == "Suspended"
        await c.eventually(lambda: not c.living(), "no pods")
        await kubectl(c, "patch", "job", "work", "-p", patch % "false")
        await until(c, lambda j: j.status.ready == 2, "running again")


async def test_kubectl_makes_cron_jobs_and_jobs_from_them(cluster, kubectl):
    async with cluster() as c:
        schedule = "--schedule=@yearly"
        await kubectl(c, "create", "cronjob", "yearly", "--image=one", schedule, "--", "true")
        lines = (await kubectl(c, "get", "cronjobs")).splitlines()
        heads = ["NAME", "SCHEDULE", "TIMEZONE", "SUSPEND", "ACTIVE", "LAST", "SCHEDULE", "AGE"]
        assert lines[0].split() == heads
        assert lines[1].split()[:4] == ["yearly", "@yearly", "<none>", "False"]
        await kubectl(c, "create", "job", "now", "--from=cronjob/yearly")
        made = await until(c, lambda j: j.status.ready == 1, "running", "now")
        assert made.metadata.annotations["cronjob.kubernetes.io/instantiate"] == "manual"
        assert made.metadata.controller().name == "yearly"

        async def told():
            return any(e.reason == "UnexpectedJob" for e in await c.list(Event))

        await c.eventually(told, "the CronJob has seen a job it did not make")
        assert not (await c.get(CronJob, "yearly")).status.active
        await kubectl(c, "delete", "cronjob", "yearly", "--timeout=30s")

        async def gone():
            return not await c.exists(Job, "now")

        await c.eventually(gone, "its jobs go with it")
        refused = await kubectl(
            c, "create", "cronjob", "bad", "--image=one", "--schedule=61 * * * *", fails=True
        )
        assert "end of range (61) above maximum (59)" in refused
