"""The decisions of a Job: indexes, policies, back-off, the plan, and the ledger."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.api.views.batch import Job
from motley.api.views.pod import Pod
from motley.controllers import fakescript, ttlafterfinished
from motley.controllers.jobs import backoff, ledger, plan, pods, policies
from motley.controllers.jobs.census import take
from motley.controllers.jobs.indexes import Indexes
from motley.controllers.jobs.ledger import Ledger
from motley.lib import clock as clocks

NOW = 1_767_225_600.0
STAMP = clocks.rfc3339(NOW)
NUMBERS = st.sets(st.integers(0, 60), max_size=30)


def job(status=None, deleting=False, template=None, **spec):
    meta = {"name": "work", "namespace": "ns", "uid": "job-uid"}
    if deleting:
        meta["deletionTimestamp"] = STAMP
    body = {"spec": {"containers": [{"name": "c"}]}} if template is None else template
    return Job.of({"metadata": meta, "spec": {"template": body, **spec}, "status": status or {}})


def indexed(completions=3, **options):
    options.setdefault("parallelism", completions)
    return job(completionMode="Indexed", completions=completions, **options)


def pod(
    uid,
    phase="Running",
    index=None,
    *,
    tracked=True,
    ready=False,
    deleting=False,
    code=None,
    at=NOW,
    failures=None,
    conditions=(),
):
    meta = {"name": f"p-{uid}", "namespace": "ns", "uid": uid, "creationTimestamp": STAMP}
    meta["annotations"] = {} if index is None else {pods.INDEX: str(index)}
    if failures is not None:
        meta["annotations"]["batch.kubernetes.io/job-index-failure-count"] = str(failures)
    if tracked:
        meta["finalizers"] = ["x/other", pods.TRACKING]
    if deleting:
        meta["deletionTimestamp"] = clocks.rfc3339(at)
    state = {"phase": phase, "conditions": list(conditions)}
    if ready:
        state["conditions"].append({"type": "Ready", "status": "True"})
    if phase in ("Failed", "Succeeded"):
        number = code if code is not None else int(phase == "Failed")
        end = {"exitCode": number, "finishedAt": clocks.rfc3339(at)}
        state["containerStatuses"] = [{"name": "c", "state": {"terminated": end}}]
    return Pod.of({"metadata": meta, "spec": {"nodeName": "n"}, "status": state})


# -- indexes ----------------------------------------------------------------------------------


@given(numbers=NUMBERS)
def test_a_set_of_indexes_is_read_back_from_its_text(numbers):
    made = Indexes.of(numbers)
    assert list(made) == sorted(numbers)
    assert len(made) == len(numbers)
    assert Indexes.parse(str(made), 100) == made


@given(a=NUMBERS, b=NUMBERS, count=st.integers(0, 40), below=st.integers(0, 70))
def test_sets_of_indexes_behave_like_sets(a, b, count, below):
    one, other = Indexes.of(a), Indexes.of(b)
    assert list(one | other) == sorted(a | b)
    assert one.overlap(other) == len(a & b)
    assert [n for n in range(70) if n in one] == sorted(a)
    assert one.first_missing(count, below) == [n for n in range(below) if n not in a][:count]
    assert list(Indexes.parse(str(one), below)) == sorted(n for n in a if n < below)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [((), ""), ((3,), "3"), ((0, 1), "0,1"), ((0, 1, 2), "0-2"), ((0, 2, 3, 4, 7), "0,2-4,7")],
)
def test_indexes_are_written_as_kubernetes_writes_them(numbers, text):
    assert str(Indexes.of(numbers)) == text


def test_what_is_not_an_index_is_left_out():
    assert list(Indexes.parse("0,x,2-y,4", 10)) == [0, 4]


# -- policies ---------------------------------------------------------------------------------


def exit_rule(action, operator, *codes, container=None):
    rule = {"operator": operator, "values": list(codes)}
    if container:
        rule["containerName"] = container
    return {"action": action, "onExitCodes": rule}


def condition_rule(action, type_, status="True"):
    return {"action": action, "onPodConditions": [{"type": type_, "status": status}]}


@pytest.mark.parametrize(
    ("rules", "code", "action"),
    [
        ([exit_rule("FailJob", "In", 3, 4)], 3, "FailJob"),
        ([exit_rule("FailJob", "In", 3, 4)], 5, ""),
        ([exit_rule("Ignore", "NotIn", 3)], 5, "Ignore"),
        ([exit_rule("Ignore", "NotIn", 3)], 3, ""),
        ([exit_rule("FailJob", "In", 3, container="other")], 3, ""),
        ([exit_rule("FailJob", "In", 3, container="c")], 3, "FailJob"),
        ([exit_rule("Count", "In", 3), exit_rule("FailJob", "In", 3)], 3, "Count"),
        (
            [condition_rule("Ignore", "DisruptionTarget"), exit_rule("FailJob", "In", 1)],
            1,
            "Ignore",
        ),
        ([condition_rule("Ignore", "Other")], 1, ""),
        ([], 1, ""),
    ],
)
def test_the_first_matching_rule_decides_about_a_failed_pod(rules, code, action):
    target = [{"type": "DisruptionTarget", "status": "True"}]
    failed = pod("a", "Failed", code=code, conditions=target)
    found = policies.rule_on(job(podFailurePolicy={"rules": rules}), failed)
    assert found.action == action
    assert found.counts == (action != "Ignore")


def test_a_rule_that_fails_the_job_says_why():
    rules = [exit_rule("Ignore", "In", 9), exit_rule("FailJob", "In", 3)]
    found = policies.rule_on(job(podFailurePolicy={"rules": rules}), pod("a", "Failed", code=3))
    assert found.message == (
        "Container c for pod ns/p-a failed with exit code 3 matching FailJob rule at index 1"
    )
    rules = [condition_rule("FailJob", "Sad")]
    sad = pod("a", "Failed", conditions=[{"type": "Sad", "status": "True"}])
    found = policies.rule_on(job(podFailurePolicy={"rules": rules}), sad)
    assert found.message == "Pod ns/p-a has condition Sad matching FailJob rule at index 0"


@pytest.mark.parametrize(
    ("rule", "succeeded", "met"),
    [
        ({"succeededCount": 2}, "0,4", True),
        ({"succeededCount": 3}, "0,4", False),
        ({"succeededIndexes": "0-2"}, "0-2,5", True),
        ({"succeededIndexes": "0-2"}, "0,1,5", False),
        ({"succeededIndexes": "0-2", "succeededCount": 1}, "2,5", True),
        ({"succeededIndexes": "0-2", "succeededCount": 1}, "5", False),
        ({"succeededIndexes": "0-2", "succeededCount": 9}, "0-2", True),
        ({"succeededIndexes": "50-60"}, "0-9", False),
    ],
)
def test_a_success_policy_is_met_by_indexes_or_their_number(rule, succeeded, met):
    policy = {"rules": [{"succeededCount": 99}, rule]}
    why = policies.success(indexed(10, successPolicy=policy), Indexes.parse(succeeded, 10))
    assert why == ("Matched rules at index 1" if met else "")


# -- pods -------------------------------------------------------------------------------------


def test_a_pod_of_an_indexed_job_carries_its_index_everywhere():
    template = {
        "metadata": {"labels": {"a": "b"}, "finalizers": ["x/y"]},
        "spec": {
            "initContainers": [{"name": "i"}],
            "containers": [{"name": "c", "env": [{"name": "JOB_COMPLETION_INDEX", "value": "7"}]}],
        },
    }
    made = pods.document(indexed(template=template), 2)
    meta, spec = made["metadata"], made["spec"]
    assert meta["labels"] == {"a": "b", pods.INDEX: "2"}
    assert meta["annotations"] == {pods.INDEX: "2"}
    assert meta["finalizers"] == ["x/y", pods.TRACKING]
    assert meta["generateName"] == "work-2-"
    assert meta["ownerReferences"][0]["uid"] == "job-uid"
    assert spec["hostname"] == "work-2"
    assert spec["containers"][0]["env"] == [{"name": "JOB_COMPLETION_INDEX", "value": "7"}]
    source = spec["initContainers"][0]["env"][0]["valueFrom"]["fieldRef"]["fieldPath"]
    assert source == "metadata.labels['batch.kubernetes.io/job-completion-index']"
    assert "hostname" not in template["spec"]  # the Job's own template is as it was


def test_a_replacement_takes_over_the_count_of_its_indexs_failures():
    work = indexed(backoffLimitPerIndex=3)
    count = "batch.kubernetes.io/job-index-failure-count"
    assert pods.document(work, 1)["metadata"]["annotations"][count] == "0"
    before = pod("a", "Failed", 1, failures=1)
    assert pods.document(work, 1, before)["metadata"]["annotations"][count] == "2"
    rules = [exit_rule("Ignore", "In", 1)]
    lenient = indexed(backoffLimitPerIndex=3, podFailurePolicy={"rules": rules})
    annotations = pods.document(lenient, 1, before)["metadata"]["annotations"]
    assert annotations[count] == "1"
    assert annotations["batch.kubernetes.io/job-index-ignored-failure-count"] == "1"


def test_a_long_name_leaves_room_for_what_the_server_adds():
    work = indexed()
    work.metadata.name = "n" * 63
    assert len(pods.document(work, 12)["metadata"]["generateName"]) == 58
    assert pods.document(work, 12)["metadata"]["generateName"].endswith("-12-")
    assert len(pods.document(work)["metadata"]["generateName"]) == 58


# -- back-off ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("failures", "wait"), [(0, 0), (1, 10), (2, 20), (3, 40), (6, 320), (7, 600), (99, 600)]
)
def test_the_wait_doubles_from_ten_seconds_to_ten_minutes(failures, wait):
    assert backoff.wait_s(failures, NOW, NOW) == wait
    assert backoff.wait_s(failures, NOW, NOW + wait) == 0


def test_a_success_starts_the_back_off_anew():
    record = backoff.Record().after(
        [], [pod("a", "Failed", at=NOW), pod("b", "Failed", at=NOW + 5)]
    )
    assert record == backoff.Record(2, NOW + 5)
    assert record.after([], []) is record
    assert record.after([pod("c", "Succeeded", at=NOW + 6)], []) == backoff.Record()
    later = record.after(
        [pod("c", "Succeeded", at=NOW + 6)],
        [pod("d", "Failed", at=NOW + 5), pod("e", "Failed", at=NOW + 9)],
    )
    assert later == backoff.Record(1, NOW + 9)


# -- the plan ---------------------------------------------------------------------------------


def planned(work, *owned, now=NOW, record=None):
    return plan.pods_for(work, take(work, owned), record or backoff.Record(), now)


def test_as_many_pods_are_made_as_may_run_and_are_still_needed():
    work = job(completions=5, parallelism=3)
    assert len(planned(work).create) == 3
    assert len(planned(work, pod("a")).create) == 2
    done = [pod(f"s{n}", "Succeeded") for n in range(4)]
    assert len(planned(work, *done).create) == 1
    assert planned(work, *done, pod("a")) == plan.Plan()


def test_surplus_pods_are_deleted_and_those_that_do_least_go_first():
    work = job(completions=5, parallelism=1)
    owned = [pod("ready", ready=True), pod("pending", "Pending"), pod("running")]
    assert [p.metadata.uid for p in planned(work, *owned).delete] == ["pending", "running"]


def test_a_suspended_job_deletes_every_active_pod():
    work = job(parallelism=3, suspend=True)
    assert len(planned(work, pod("a"), pod("b"), pod("c", deleting=True)).delete) == 2


def test_no_pod_is_made_before_the_back_off_is_over():
    work = job(parallelism=2)
    record = backoff.Record(1, NOW - 4)
    assert planned(work, record=record) == plan.Plan(wait_s=6.0)
    assert len(planned(work, record=record, now=NOW + 6).create) == 2


def test_missing_indexes_are_made_lowest_first():
    work = indexed(6, parallelism=3, status={"completedIndexes": "0,2"})
    assert planned(work, pod("a", index=3)).create == [1, 4]


def test_pods_without_an_index_of_the_job_or_with_the_same_one_are_deleted():
    work = indexed(3)
    owned = [
        pod("none"),
        pod("far", index=3),
        pod("b1", index=1),
        pod("b2", index=1, ready=True),
        pod("c", index=2),
    ]
    assert {p.metadata.uid for p in planned(work, *owned).delete} == {"none", "far", "b1"}


def test_an_index_waits_for_its_own_back_off_while_others_start():
    work = indexed(3, backoffLimitPerIndex=5)
    failed = pod("a", "Failed", 0, failures=1)
    assert planned(work, failed).create == [1, 2]
    busy = [pod("b", index=1), pod("c", index=2)]
    waiting = planned(work, failed, *busy)
    assert (waiting.create, waiting.wait_s) == ([], 20.0)
    assert planned(work, failed, *busy, now=NOW + 20).create == [0]


def test_with_the_failed_policy_a_leaving_pod_still_takes_its_place():
    leaving = pod("a", deleting=True)
    assert planned(job(podReplacementPolicy="Failed"), leaving).create == ()
    assert len(planned(job(), leaving).create) == 1
    work = indexed(2, podReplacementPolicy="Failed")
    assert planned(work, pod("a", index=0, deleting=True)).create == [1]


def verdict(work, *owned, started=NOW, now=NOW):
    found = plan.verdict(work, take(work, owned), started, now)
    return (found.type, found.reason) if found else None


def test_failures_beyond_the_limit_end_a_job():
    work = job(backoffLimit=1, status={"failed": 1})
    assert verdict(work) is None
    assert verdict(work, pod("a", "Failed")) == ("Failed", "BackoffLimitExceeded")
    # A counted pod, or one in the uncounted list, does not count again.
    assert verdict(work, pod("a", "Failed", tracked=False)) is None
    held = job(backoffLimit=1, status={"failed": 0, "uncountedTerminatedPods": {"failed": ["a"]}})
    assert verdict(held, pod("a", "Failed")) is None


def test_a_deadline_ends_a_job_that_is_not_suspended():
    assert verdict(job(activeDeadlineSeconds=10), now=NOW + 9) is None
    assert verdict(job(activeDeadlineSeconds=10), now=NOW + 10) == ("Failed", "DeadlineExceeded")
    assert verdict(job(activeDeadlineSeconds=10, suspend=True), now=NOW + 99) is None


def test_what_was_decided_stays_decided():
    interim = {"type": "SuccessCriteriaMet", "status": "True", "reason": "SuccessPolicy"}
    work = job(backoffLimit=0, status={"conditions": [interim]})
    assert verdict(work, pod("a", "Failed")) == ("Complete", "SuccessPolicy")
    interim = {"type": "FailureTarget", "status": "True", "reason": "DeadlineExceeded"}
    assert verdict(job(status={"conditions": [interim]})) == ("Failed", "DeadlineExceeded")


def test_failed_indexes_end_a_job_when_nothing_is_left_or_too_many_are():
    work = indexed(3, backoffLimitPerIndex=0, backoffLimit=99)
    assert verdict(work, pod("a", "Failed", 0)) is None
    done = [pod("b", "Succeeded", 1), pod("c", "Succeeded", 2)]
    assert verdict(work, pod("a", "Failed", 0), *done) == ("Failed", "FailedIndexes")
    few = indexed(3, backoffLimitPerIndex=0, backoffLimit=99, maxFailedIndexes=0)
    assert verdict(few, pod("a", "Failed", 0)) == ("Failed", "MaxFailedIndexesExceeded")


def test_a_fail_index_rule_fails_the_index_before_its_limit():
    rules = [exit_rule("FailIndex", "In", 7)]
    work = indexed(3, backoffLimitPerIndex=5, backoffLimit=99, podFailurePolicy={"rules": rules})
    assert take(work, [pod("a", "Failed", 0, code=7)]).failed_indexes == Indexes.of([0])
    assert not take(work, [pod("a", "Failed", 0, code=1)]).failed_indexes


# -- the ledger -------------------------------------------------------------------------------


def entered(work, *owned, finish=None):
    book = Ledger.of(work)
    entry = ledger.enter(work, take(work, owned), book, finish)
    return book, {p.metadata.uid for p in entry.release}


def test_a_pod_that_ended_is_held_by_uid_until_its_finalizer_is_off():
    work = job(completions=3)
    owned = [pod("s", "Succeeded"), pod("f", "Failed"), pod("r")]
    book, release = entered(work, *owned)
    assert release == {"s", "f"}
    assert (book.uncounted_succeeded, book.uncounted_failed) == (["s"], ["f"])
    assert (book.succeeded, book.failed) == (0, 0)
    book.settle({"f", "r"})  # the finalizer of "f" could not be taken off
    assert (book.succeeded, book.failed) == (1, 0)
    assert (book.uncounted_succeeded, book.uncounted_failed) == ([], ["f"])


def test_after_a_crash_each_pod_is_counted_from_where_it_stood():
    held = {"succeeded": ["s1", "s2"], "failed": ["f1"]}
    work = job(completions=9, status={"succeeded": 3, "uncountedTerminatedPods": held})
    # "s1" has lost its finalizer, "f1" is gone, "s2" still has its own.
    book, release = entered(
        work, pod("s1", "Succeeded", tracked=False), pod("s2", "Succeeded"), pod("new", "Succeeded")
    )
    assert (book.succeeded, book.failed) == (4, 1)
    assert book.uncounted_succeeded == ["s2", "new"]
    assert release == {"s2", "new"}


def test_succeeded_indexes_need_no_uid():
    work = indexed(4, status={"completedIndexes": "1", "succeeded": 1})
    book, release = entered(
        work, pod("a", "Succeeded", 0), pod("b", "Succeeded", 1), pod("c", index=2)
    )
    assert release == {"a", "b"}
    assert book.completed_indexes == "0,1"
    assert book.succeeded == 2
    assert book.uncounted_succeeded == []


def test_the_last_failed_pod_of_an_index_is_kept_until_it_is_replaced():
    work = indexed(2, backoffLimitPerIndex=3, backoffLimit=99)
    old, new = pod("a", "Failed", 0, failures=0), pod("b", "Failed", 0, failures=1, at=NOW + 9)
    assert entered(work, old, new)[1] == {"a"}
    assert entered(work, old, new, pod("c", index=0, failures=2))[1] == {"a", "b"}


def test_a_job_that_failed_counts_its_running_pods_as_failed():
    end = plan.Finish("Failed", "DeadlineExceeded", "")
    book, release = entered(job(parallelism=2), pod("a"), pod("b", "Succeeded"), finish=end)
    assert release == {"a", "b"}
    assert (book.uncounted_failed, book.uncounted_succeeded) == (["a"], ["b"])
    end = plan.Finish("Complete", "SuccessPolicy", "")
    assert entered(job(parallelism=2), pod("a"), finish=end)[0].uncounted_failed == []


def test_pods_of_a_deleted_job_are_let_go_uncounted():
    book, release = entered(job(deleting=True), pod("a"))
    assert release == {"a"}
    assert book.uncounted_failed == []


def test_ignored_failures_are_let_go_uncounted():
    rules = [exit_rule("Ignore", "In", 1)]
    book, release = entered(job(podFailurePolicy={"rules": rules}), pod("a", "Failed"))
    assert release == {"a"}
    assert book.uncounted_failed == []


def test_a_status_holds_at_most_500_uncounted_pods():
    work = job(completions=900)
    book = Ledger.of(work)
    owned = [pod(str(n), "Succeeded") for n in range(600)]
    entry = ledger.enter(work, take(work, owned), book, None)
    assert (len(entry.release), entry.is_whole) == (500, False)


def test_a_job_ends_only_when_every_pod_is_counted_and_gone():
    end = plan.Finish("Complete", "CompletionsReached", "")
    book = Ledger.of(job())
    book.terminating = 1
    assert not book.close(end, NOW)
    book.terminating, book.uncounted_failed = 0, ["x"]
    assert not book.close(end, NOW)
    book.uncounted_failed = []
    assert book.close(end, NOW)
    assert book.completion_time == STAMP


def test_a_condition_that_never_was_does_not_become_false():
    book = Ledger.of(job())
    assert not book.set_condition("Suspended", "False", "JobResumed", "", NOW)
    assert book.conditions == []
    assert book.set_condition("Suspended", "True", "JobSuspended", "", NOW)
    assert not book.set_condition("Suspended", "True", "JobSuspended", "", NOW + 5)
    assert book.set_condition("Suspended", "False", "JobResumed", "", NOW + 5)
    assert len(book.conditions) == 1


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["Running", "Succeeded", "Failed"]),
            st.booleans(),  # the finalizer's removal succeeds
            st.booleans(),  # the write after it succeeds
        ),
        max_size=12,
    )
)
def test_whatever_fails_on_the_way_every_ended_pod_is_counted_once(script):
    """Passes over the same pods, each of which may stop after any step."""
    tracked = {f"p{n}": phase for n, (phase, _, _) in enumerate(script)}
    state = {}
    for released, stored in [*((r, s) for _, r, s in script), (True, True), (True, True)]:
        work = job(completions=99, status=state)
        owned = [pod(uid, phase) for uid, phase in tracked.items()]
        book = Ledger.of(work)
        entry = ledger.enter(work, take(work, owned), book, None)
        state = _stored(book)
        gone = {p.metadata.uid for p in entry.release} if released else set()
        tracked = {uid: phase for uid, phase in tracked.items() if uid not in gone}
        book.settle(set(tracked))
        if stored:
            state = _stored(book)
    phases = [phase for phase, _, _ in script]
    assert state.get("succeeded", 0) == phases.count("Succeeded")
    assert state.get("failed", 0) == phases.count("Failed")


def _stored(book):
    document = {k: v for k, v in book.document().items() if v is not None}
    held = document["uncountedTerminatedPods"]
    document["uncountedTerminatedPods"] = {k: v for k, v in held.items() if v}
    return document


# -- time to live, and the fake nodes' script -------------------------------------------------


def test_an_ended_job_expires_when_it_says():
    end = {"type": "Failed", "status": "True", "lastTransitionTime": STAMP}
    state = {"conditions": [end]}
    assert ttlafterfinished.expires_at(job(state, ttlSecondsAfterFinished=30)) == NOW + 30
    assert ttlafterfinished.expires_at(job(state)) is None
    assert ttlafterfinished.expires_at(job(ttlSecondsAfterFinished=30)) is None
    assert ttlafterfinished.expires_at(job(state, deleting=True, ttlSecondsAfterFinished=0)) is None


def scripted(restart="Never", index=None, started=NOW, restarts=0, **script):
    annotations = {f"fake.motley.io/{k.replace('_', '-')}": v for k, v in script.items()}
    if index is not None:
        annotations[pods.INDEX] = index
    run = {"name": "c", "restartCount": restarts}
    run["state"] = {"running": {"startedAt": clocks.rfc3339(started)}}
    return Pod.of(
        {
            "metadata": {"name": "p", "uid": "u", "annotations": annotations},
            "spec": {"restartPolicy": restart, "containers": [{"name": "c"}]},
            "status": {"phase": "Running", "containerStatuses": [run]},
        }
    )


def test_a_fake_pod_runs_for_ever_unless_told_otherwise():
    assert fakescript.ends_in_s(scripted(), NOW) is None
    assert fakescript.ends_in_s(scripted(exit_code="3"), NOW) == 0
    assert fakescript.ends_in_s(scripted(run_seconds="5"), NOW + 2) == 3
    assert fakescript.ends_in_s(scripted(run_seconds="soon"), NOW) is None


@pytest.mark.parametrize(
    ("restart", "code", "phase"),
    [
        ("Never", "0", "Succeeded"),
        ("Never", "3", "Failed"),
        ("OnFailure", "0", "Succeeded"),
        ("OnFailure", "3", "Running"),
        ("Always", "0", "Running"),
    ],
)
def test_the_restart_policy_decides_what_a_fake_pods_end_means(restart, code, phase):
    after = fakescript.ended(scripted(restart, exit_code=code), NOW)
    assert after["phase"] == phase
    (container,) = after["containerStatuses"]
    assert container["restartCount"] == (1 if phase == "Running" else 0)


def test_a_fake_pods_code_can_depend_on_its_index():
    script = {"exit_code": "0", "exit_code.2": "7"}
    assert fakescript.exit_code(scripted(index="2", **script)) == 7
    assert fakescript.exit_code(scripted(index="1", **script)) == 0
