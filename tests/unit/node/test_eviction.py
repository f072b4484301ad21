"""Eviction without a node: flags, pressure over time, who goes first and what it is told."""

import pytest

from motley.api.views.pod import Pod
from motley.node import resources
from motley.node.diskusage import PodDisk, Used, tree
from motley.node.eviction import localstorage, pressure, ranking, signals, thresholds
from motley.node.eviction.pressure import Observation, Policy, Pressure, Shortage
from motley.node.eviction.thresholds import Amount, Threshold

Mi = 1 << 20
MEMORY = "memory.available"


# -- flags


def test_the_documents_flags_are_read_as_written():
    found = thresholds.parse(
        "imagefs.available<10%,memory.available<500Mi,nodefs.available<5%,nodefs.inodesFree<5%",
        "imagefs.available<30%,nodefs.available<10%",
        "imagefs.available=2m,nodefs.available=2m",
    )
    by_signal = {(t.signal, t.is_hard): t for t in found}
    assert by_signal["imagefs.available", True].value == Amount(share=0.1)
    assert by_signal[MEMORY, True].value == Amount(500 * Mi)
    assert by_signal["nodefs.available", False].grace_s == 120
    assert by_signal["allocatableMemory.available", True].value == Amount(500 * Mi)
    assert len(found) == 7


def test_the_defaults_are_the_kubelets():
    found = {t.signal: t.value for t in Policy().thresholds}
    assert found[MEMORY] == Amount(100 * Mi)
    assert found["nodefs.available"] == Amount(share=0.1)
    assert found["nodefs.inodesFree"] == Amount(share=0.05)
    assert found["imagefs.available"] == Amount(share=0.15)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (("memory.free<100Mi",), "unsupported eviction signal 'memory.free'"),
        (("memory.available>100Mi",), "SIGNAL<VALUE"),
        (("memory.available<",), "SIGNAL<VALUE"),
        (("memory.available<lots",), "memory.available"),
        (("memory.available<120%",), "from 0% to 100%"),
        (("memory.available<-1Mi",), "must not be negative"),
        (("memory.available<1Mi,memory.available<2Mi",), "twice"),
        (("", "memory.available<1Gi"), "grace period must be specified"),
        (("", "memory.available<1Gi", "memory.available=soon"), "grace period of memory"),
    ],
)
def test_a_wrong_flag_is_named(flags, complaint):
    with pytest.raises(ValueError, match=complaint):
        thresholds.parse(*flags)


def test_a_threshold_of_zero_is_none():
    assert thresholds.parse("memory.available<0%,nodefs.available<0") == ()


# -- pressure


def _step(state, left_mi, now, capacity_mi=1000):
    observed = {MEMORY: Observation(left_mi * Mi, capacity_mi * Mi)}
    return [s.threshold.signal for s in state.step(observed, now)]


def test_a_hard_threshold_acts_at_once_and_its_condition_lingers():
    state = Pressure((Threshold(MEMORY, Amount(100 * Mi)),), transition_s=60)
    assert _step(state, 101, 0) == []
    assert state.conditions == frozenset()
    assert _step(state, 99, 10) == [MEMORY]
    assert state.conditions == {"MemoryPressure"}
    assert _step(state, 500, 20) == []
    assert state.conditions == {"MemoryPressure"}
    _step(state, 500, 69)
    assert state.conditions == {"MemoryPressure"}
    _step(state, 500, 70)
    assert state.conditions == frozenset()


def test_a_soft_threshold_waits_for_its_grace_period_and_starts_over_when_relieved():
    state = Pressure((Threshold(MEMORY, Amount(share=0.3), grace_s=90),), transition_s=0)
    assert _step(state, 299, 0) == []
    assert state.conditions == {"MemoryPressure"}  # told at once
    assert _step(state, 299, 89) == []
    assert _step(state, 301, 90) == []
    assert _step(state, 299, 91) == []
    assert _step(state, 299, 180) == []
    assert _step(state, 299, 181) == [MEMORY]


def test_once_crossed_the_minimum_reclaim_must_be_reached():
    limit = Threshold(MEMORY, Amount(100 * Mi), min_reclaim=Amount(50 * Mi))
    state = Pressure((limit,))
    assert _step(state, 120, 0) == []  # never crossed: above the threshold is enough
    assert _step(state, 99, 1) == [MEMORY]
    assert _step(state, 149, 2) == [MEMORY]
    assert _step(state, 150, 3) == []
    assert _step(state, 149, 4) == []


def test_memory_is_relieved_first_and_hard_before_soft():
    observed = {
        "nodefs.available": Observation(1, 100),
        MEMORY: Observation(1, 100),
    }
    soft = Threshold(MEMORY, Amount(share=0.5), grace_s=0.0)
    limits = (Threshold("nodefs.available", Amount(50)), soft, Threshold(MEMORY, Amount(50)))
    state = Pressure(limits)
    found = [(s.threshold.signal, s.threshold.is_hard) for s in state.step(observed, 0)]
    assert found == [(MEMORY, True), (MEMORY, False), ("nodefs.available", True)]
    assert state.conditions == {"MemoryPressure", "DiskPressure"}


def test_what_cannot_be_observed_says_nothing():
    state = Pressure((Threshold("imagefs.available", Amount(share=0.15)),))
    assert state.step({}, 0) == []
    assert state.conditions == frozenset()


@pytest.mark.parametrize(
    ("conditions", "best_effort", "tolerates", "refused"),
    [
        ((), True, False, False),
        (("MemoryPressure",), True, False, True),
        (("MemoryPressure",), True, True, False),
        (("MemoryPressure",), False, False, False),
        (("DiskPressure",), False, False, True),
        (("DiskPressure", "MemoryPressure"), False, True, True),
    ],
)
def test_a_node_under_pressure_takes_only_whom_it_promised_something(
    conditions, best_effort, tolerates, refused
):
    said = pressure.refusal(conditions, is_best_effort=best_effort, tolerates_memory=tolerates)
    assert bool(said) is refused
    if refused:
        assert said == f"The node had condition: [{' '.join(sorted(conditions))}]. "


# -- ranking


def _pod(name, *, memory="", limit="", cpu="", priority=None, **metadata):
    requests = {k: v for k, v in (("memory", memory), ("cpu", cpu)) if v}
    limits = {"memory": limit, "cpu": cpu} if limit else {}
    return Pod.of(
        {
            "metadata": {"name": name, "namespace": "default", "uid": name, **metadata},
            "spec": {
                "priority": priority,
                "containers": [
                    {"name": "main", "resources": {"requests": requests, "limits": limits}}
                ],
            },
        }
    )


def _using(pod, mi, resource="memory"):
    return ranking.Candidate(pod, ranking.Usage({resource: mi * Mi}, {"main": {resource: mi * Mi}}))


def _order(*candidates, resource="memory"):
    return [c.pod.metadata.name for c in ranking.rank(candidates, resource)]


def test_best_effort_goes_first_then_who_exceeds_its_request_and_guaranteed_last():
    guaranteed = _pod("guaranteed", memory="500Mi", limit="500Mi", cpu="1")
    assert resources.qos_class(guaranteed) == "Guaranteed"
    found = _order(
        _using(guaranteed, 499),
        _using(_pod("within", memory="300Mi"), 200),
        _using(_pod("over", memory="100Mi"), 300),
        _using(_pod("nothing-asked"), 10),
    )
    assert found == ["nothing-asked", "over", "within", "guaranteed"]


def test_in_one_class_the_largest_share_of_the_own_request_goes_first():
    found = _order(
        _using(_pod("a-lot-over", memory="1000Mi"), 1500),  # 500 Mi over, 150 %
        _using(_pod("thrice", memory="100Mi"), 300),  # 200 Mi over, 300 %
        _using(_pod("little-idle", memory="100Mi"), 10),
        _using(_pod("much-idle", memory="100Mi"), 90),
    )
    assert found == ["thrice", "a-lot-over", "much-idle", "little-idle"]


def test_the_less_important_goes_before_the_greedier():
    found = _order(
        _using(_pod("important", priority=1000), 900),
        _using(_pod("modest", priority=0), 1),
        _using(_pod("greedy", priority=0), 2),
    )
    assert found == ["greedy", "modest", "important"]


def test_what_the_node_cannot_do_without_stays():
    static = _pod("static", annotations={"kubernetes.io/config.source": "file"})
    critical = _pod("critical", priority=2_000_001_000)
    assert _order(_using(static, 900), _using(critical, 900), _using(_pod("any"), 1)) == ["any"]


def test_processes_count_for_everyone_alike():
    found = _order(
        _using(_pod("few", memory="1Mi"), 1, "pids"),
        _using(_pod("many", memory="1Mi"), 5, "pids"),
        resource="pids",
    )
    assert found == ["many", "few"]


def test_the_evicted_are_told_what_was_short_and_what_they_used():
    shortage = Shortage(Threshold(MEMORY, Amount(100 * Mi)), Observation(80 * Mi, 1000 * Mi))
    said = ranking.message(_using(_pod("p", memory="10Mi"), 64), [shortage], "memory")
    assert said == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 80Mi. "
        "Container main was using 64Mi, request is 10Mi, has larger consumption of memory. "
    )


def test_grace_is_capped_and_none_where_the_threshold_is_hard():
    pod = _pod("p")
    assert ranking.grace_s(pod, is_hard=True, max_pod_grace_s=60) == 0
    assert ranking.grace_s(pod, is_hard=False, max_pod_grace_s=60) == 30
    assert ranking.grace_s(pod, is_hard=False, max_pod_grace_s=5) == 5


# -- signals and disks


def test_signals_are_read_from_the_kernels_own_words():
    meminfo = "MemTotal: 1000 kB\nMemFree: 300 kB\nInactive(file): 200 kB\n"
    assert signals.memory(meminfo) == Observation(500 * 1024, 1000 * 1024)
    assert signals.pids("0.00 0.01 0.05 2/345 6789\n", "32768\n") == Observation(32423, 32768)


def test_a_tree_is_counted_in_blocks_and_every_file_once(tmp_path):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    (inner / "data").write_bytes(b"x" * 50_000)
    (tmp_path / "again").hardlink_to(inner / "data")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 30)
    used = tree(tmp_path)
    assert 50_000 <= used.bytes < 100_000
    assert used.inodes == 5  # three directories, the data, the sparse file
    assert tree(tmp_path / "missing") == Used()


def _limited(**limits):
    return Pod.of(
        {
            "metadata": {"name": "p", "namespace": "default", "uid": "p"},
            "spec": {
                "volumes": [{"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}}],
                "containers": [
                    {"name": "a", "resources": {"limits": limits}},
                    {"name": "b", "resources": {"limits": limits}},
                ],
            },
        }
    )


@pytest.mark.parametrize(
    ("volume_mi", "a_mi", "b_mi", "said"),
    [
        (0, 2, 2, ""),
        (2, 0, 0, 'Usage of EmptyDir volume "scratch" exceeds the limit "1Mi". '),
        (0, 3, 0, 'Container a exceeded its local ephemeral storage limit "2Mi". '),
        (1, 2, 2, "Pod ephemeral local storage usage exceeds the total limit of containers 4Mi. "),
    ],
)
def test_who_breaks_its_own_disk_limit_is_found(volume_mi, a_mi, b_mi, said):
    pod = _limited(**{"ephemeral-storage": "2Mi"})
    assert localstorage.has_limits(pod)
    disk = PodDisk(
        {"scratch": Used(volume_mi * Mi, 1)},
        {"a": Used(a_mi * Mi, 1), "b": Used(b_mi * Mi, 1)},
    )
    assert localstorage.broken(pod, disk) == said
