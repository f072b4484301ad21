"""Exclusive cores: who gets which, and what survives the agent."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.api.views.pod import Pod
from motley.node import cpus
from motley.node.cpus import CpuManager, Place

# Two sockets of two cores of two threads, numbered as Linux does: siblings are four apart.
PLACES = {cpu: Place(cpu % 4 // 2, cpu % 4) for cpu in range(8)}


def _pod(name, *requests, guaranteed=True):
    containers = []
    for number, cpu in enumerate(requests):
        amounts = {"cpu": cpu, "memory": "64Mi"}
        resources = {"requests": amounts, "limits": amounts if guaranteed else {}}
        containers.append({"name": f"c{number}", "resources": resources})
    return Pod.of({"metadata": {"name": name, "uid": name}, "spec": {"containers": containers}})


@pytest.fixture
def manager(tmp_path):
    return CpuManager(tmp_path / "cpu_manager_state", PLACES, frozenset({0, 4}), is_static=True)


@pytest.mark.parametrize(
    ("text", "cpus_"), [("", set()), ("3", {3}), ("0-2,5,7-8", {0, 1, 2, 5, 7, 8})]
)
def test_sets_are_read_and_written_as_the_kernel_does(text, cpus_):
    assert cpus.parse(text) == cpus_
    assert cpus.text(cpus_) == text


@pytest.mark.parametrize(
    ("free", "count", "chosen"),
    [
        (range(8), 4, "0-1,4-5"),  # a whole socket
        (range(8), 2, "0,4"),  # a whole core
        (range(8), 1, "0"),
        (range(8), 6, "0-2,4-6"),  # a socket and a core
        ({1, 2, 3, 5, 6, 7}, 4, "2-3,6-7"),  # socket 1 is whole, socket 0 is not
        ({0, 1, 2, 3}, 2, "0-1"),  # no core is whole: threads
        ({0, 1}, 3, None),
    ],
)
def test_whole_sockets_come_before_whole_cores_before_threads(free, count, chosen):
    found = cpus.take(PLACES, free, count)
    assert (cpus.text(found) if found is not None else None) == chosen


def test_only_guaranteed_containers_with_whole_cpus_get_their_own(manager):
    burstable, fraction = _pod("burstable", "2", guaranteed=False), _pod("fraction", "1500m")
    mixed = _pod("mixed", "2", "500m")
    for pod in (burstable, fraction, mixed):
        assert manager.admit(pod) == ""
    assert manager.of(burstable, "c0") == manager.of(fraction, "c0") == manager.shared
    assert cpus.text(manager.of(mixed, "c0")) == "1,5"
    assert manager.of(mixed, "c1") == manager.shared
    assert cpus.text(manager.shared) == "0,2-4,6-7"


def test_the_reserved_are_never_given_away_and_a_pod_gets_all_or_nothing(manager):
    assert manager.admit(_pod("most", "5")) == ""
    refusal = manager.admit(_pod("both", "1", "1"))
    assert "requested=1, available=0" in refusal
    assert {0, 4} <= manager.shared
    assert len(manager.shared) == 3  # nothing of the refused pod was kept


def test_cpus_come_back_with_the_end_of_the_pod(manager):
    told = []
    manager.changed = lambda: told.append(cpus.text(manager.shared))
    manager.admit(_pod("p", "2"))
    manager.release("p")
    manager.release("p")
    assert told == ["0,2-4,6-7", "0-7"]


def test_an_init_container_may_use_the_cpus_of_its_pod(manager):
    pod = Pod.of(
        {
            "metadata": {"name": "p", "uid": "p"},
            "spec": {
                "initContainers": [{"name": "first", "resources": _resources("1")}],
                "containers": [{"name": "main", "resources": _resources("2")}],
            },
        }
    )
    assert manager.admit(pod) == ""
    assert manager.of(pod, "first") == manager.of(pod, "main") != manager.shared


def _resources(cpu):
    amounts = {"cpu": cpu, "memory": "64Mi"}
    return {"requests": amounts, "limits": amounts}


def test_the_next_agent_knows_who_has_what(manager):
    kept, gone = _pod("kept", "2"), _pod("gone", "1")
    manager.admit(kept)
    manager.admit(gone)
    again = CpuManager(manager.checkpoint, PLACES, manager.reserved, is_static=True)
    assert again.of(kept, "c0") == manager.of(kept, "c0")
    assert again.shared == manager.shared
    again.keep_only({"kept"})
    assert again.of(gone, "c0") == again.shared
    state = msgspec.json.decode(manager.checkpoint.read_bytes())
    assert (state["policyName"], state["defaultCpuSet"]) == ("static", "0,2-4,6-7")
    assert state["entries"] == {"kept": {"c0": "1,5"}}


@pytest.mark.parametrize("damage", [b"{", b'{"policyName":"static","entries":{},"checksum":1}'])
def test_a_damaged_checkpoint_is_not_believed(manager, damage):
    manager.admit(_pod("p", "2"))
    manager.checkpoint.write_bytes(damage)
    again = CpuManager(manager.checkpoint, PLACES, manager.reserved, is_static=True)
    assert again.shared == PLACES.keys()


def test_reserved_cpus_are_those_named_or_as_many_as_are_reserved():
    assert cpus.reserved("1-2", {}, PLACES) == {1, 2}
    assert cpus.reserved("", {"cpu": "1500m"}, PLACES) == {0, 4}
    with pytest.raises(ValueError, match="this machine has 0-7"):
        cpus.reserved("9", {}, PLACES)
    with pytest.raises(ValueError, match="needs --reserved-cpus"):
        cpus.reserved("", {}, PLACES)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=12))
def test_no_cpu_is_ever_given_twice(tmp_path_factory, steps):
    directory = tmp_path_factory.mktemp("cpus")
    manager = CpuManager(directory / "state", PLACES, frozenset({0, 4}), is_static=True)
    pods = []
    for number, (count, leaves) in enumerate(steps):
        pod = _pod(f"p{number}", str(count))
        if manager.admit(pod) == "":
            pods.append(pod)
            assert len(manager.of(pod, "c0")) == count
        if leaves and pods:
            manager.release(pods.pop(0).metadata.uid)
    given_ = [cpu for pod in pods for cpu in manager.of(pod, "c0")]
    assert len(given_) == len(set(given_))
    assert not set(given_) & (manager.shared | manager.reserved)
