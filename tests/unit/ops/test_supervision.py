"""The supervisor's rules, on a clock that only the test moves."""

from random import Random

import msgspec

from motley.ops import supervision
from motley.ops.processes import Process
from motley.ops.supervision import Action, Outcome, Phase, Spec, decide

A = Spec(name="a", command=("a",), probe="unix:/a")
B = Spec(name="b", command=("b",), probe="unix:/b", after=("a",))


def units(*specs):
    return supervision.merge({}, specs, Random(1))


def started(one, now=0.0, pid=7):
    supervision.started(one, Process(pid, 1), now)


def running(one, now=0.0, pid=7):
    started(one, now, pid)
    supervision.probed(one, Outcome.READY, now)


def test_a_component_starts_when_what_it_needs_is_ready():
    all_ = units(A, B)
    assert decide(all_, 0.0) == [Action("start", "a")]
    started(all_["a"])
    assert decide(all_, 0.1) == []
    assert all_["b"].phase is Phase.WAITING
    assert all_["b"].reason == "waits for a"
    supervision.probed(all_["a"], Outcome.READY, 0.2)
    assert decide(all_, 0.2) == [Action("start", "b")]


def test_a_component_keeps_running_when_what_it_needs_ends():
    all_ = units(A, B)
    running(all_["a"])
    running(all_["b"])
    supervision.exited(all_["a"], "exit code 1", 1.0)
    assert decide(all_, 1.0) == []
    assert all_["b"].phase is Phase.RUNNING


def test_a_crash_is_followed_by_a_start_after_a_growing_wait():
    all_ = units(A)
    one, waits, now = all_["a"], [], 0.0
    for _ in range(6):
        running(one, now)
        supervision.exited(one, "killed by SIGKILL", now)
        assert one.phase is Phase.BACKOFF
        assert decide(all_, one.start_at - 0.001) == []
        assert decide(all_, one.start_at) == [Action("start", "a")]
        waits.append(one.start_at - now)
        now = one.start_at
    assert all(later > earlier for earlier, later in zip(waits, waits[2:], strict=False))
    assert waits[0] <= supervision.BASE_S
    assert one.restarts == 6


def test_a_component_that_stood_long_enough_is_restarted_quickly_again():
    one = units(A)["a"]
    for _ in range(8):
        started(one)
        supervision.exited(one, "", 0.0)
    assert one.start_at > supervision.BASE_S * 10
    running(one, 100.0)
    supervision.exited(one, "", 100.0 + supervision.STABLE_S + 1)
    assert one.start_at - (101.0 + supervision.STABLE_S) <= supervision.BASE_S


def test_a_silent_component_is_killed_but_an_unready_one_is_not():
    all_ = units(A)
    one = all_["a"]
    running(one)
    late = supervision.SILENT_S + 1
    supervision.probed(one, Outcome.NOT_READY, late)
    assert one.phase is Phase.UNREADY
    assert decide(all_, late) == []
    supervision.probed(one, Outcome.SILENT, late * 2)
    assert decide(all_, late * 2 + 1) == [Action("kill", "a")]


def test_a_changed_command_replaces_the_process_without_counting_a_restart():
    all_ = units(A)
    running(all_["a"])
    changed = msgspec.structs.replace(A, command=("a", "--new"))
    all_ = supervision.merge(all_, [changed], Random(1))
    assert decide(all_, 1.0) == [Action("terminate", "a")]
    supervision.terminated(all_["a"], 1.0)
    supervision.exited(all_["a"], "exit code 0", 1.5)
    assert decide(all_, 1.5) == [Action("start", "a")]
    assert all_["a"].restarts == 0


def test_a_new_version_replaces_components_one_by_one_and_stops_where_one_does_not_come_up():
    all_ = units(A, B)
    running(all_["a"])
    running(all_["b"])
    newer = [msgspec.structs.replace(spec, version="2") for spec in (A, B)]
    all_ = supervision.merge(all_, newer, Random(1))
    assert decide(all_, 1.0) == [Action("terminate", "a")]
    supervision.terminated(all_["a"], 1.0)
    assert decide(all_, 1.1) == []
    supervision.exited(all_["a"], "exit code 0", 1.2)
    assert decide(all_, 1.2) == [Action("start", "a")]
    started(all_["a"], 1.3)
    assert decide(all_, 1.4) == []
    supervision.exited(all_["a"], "exit code 1", 1.5)
    assert decide(all_, 1.5) == []  # the new one failed: the old b stays
    started(all_["a"], 2.0)
    supervision.probed(all_["a"], Outcome.READY, 2.1)
    assert decide(all_, 2.1) == [Action("terminate", "b")]


def test_what_never_came_up_is_replaced_without_waiting_its_turn():
    all_ = units(A, B)
    started(all_["a"])
    started(all_["b"])
    newer = [msgspec.structs.replace(spec, version="2") for spec in (A, B)]
    all_ = supervision.merge(all_, newer, Random(1))
    assert decide(all_, 1.0) == [Action("terminate", "a"), Action("terminate", "b")]


def test_the_same_command_in_a_new_generation_is_another_process():
    assert A.fingerprint() == msgspec.structs.replace(A, probe="", grace_s=1.0).fingerprint()
    assert A.fingerprint() != msgspec.structs.replace(A, generation=1).fingerprint()
    assert A.fingerprint() != msgspec.structs.replace(A, version="2").fingerprint()


def test_components_stop_in_reverse_order():
    all_ = units(A, B)
    running(all_["a"])
    running(all_["b"])
    assert decide(all_, 1.0, stopping=True) == [Action("terminate", "b")]
    supervision.terminated(all_["b"], 1.0)
    assert decide(all_, 1.1, stopping=True) == []
    supervision.exited(all_["b"], "exit code 0", 1.2, stopping=True)
    assert decide(all_, 1.2, stopping=True) == [Action("terminate", "a")]


def test_a_component_that_does_not_end_in_its_time_is_killed():
    all_ = units(A)
    running(all_["a"])
    supervision.terminated(all_["a"], 1.0)
    assert decide(all_, 1.0 + A.grace_s - 0.1, stopping=True) == []
    assert decide(all_, 1.0 + A.grace_s, stopping=True) == [Action("kill", "a")]


def test_a_component_no_longer_asked_for_is_stopped():
    all_ = units(A, B)
    running(all_["a"])
    running(all_["b"])
    all_ = supervision.merge(all_, [A], Random(1))
    assert decide(all_, 1.0) == [Action("terminate", "b")]


def test_a_new_list_ends_the_wait_of_a_crashed_component():
    all_ = units(A)
    for _ in range(8):
        started(all_["a"])
        supervision.exited(all_["a"], "", 0.0)
    assert decide(all_, 0.1) == []
    all_ = supervision.merge(all_, [A], Random(1))
    assert decide(all_, 0.1) == [Action("start", "a")]


def test_an_adopted_process_of_another_command_is_replaced():
    all_ = units(A)
    supervision.adopted(all_["a"], Process(9, 9), "of-an-older-command", 3, 0.0)
    assert decide(all_, 0.0) == [Action("terminate", "a")]
    assert all_["a"].restarts == 3
