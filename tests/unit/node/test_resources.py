"""Shares, quotas, QoS, scores and admission."""

from fractions import Fraction

import pytest

from motley.api.views.pod import Pod
from motley.node import cgroups, machine, resources


def pod(*containers, uid="u", init=(), **spec):
    return Pod.of(
        {
            "metadata": {"name": uid, "uid": uid},
            "spec": {
                "containers": [{"name": f"c{i}", "resources": r} for i, r in enumerate(containers)],
                "initContainers": [{"name": f"i{i}", **r} for i, r in enumerate(init)],
                **spec,
            },
        }
    )


def both(**amounts):
    return {"requests": amounts, "limits": amounts}


@pytest.mark.parametrize(
    ("milli", "shares"), [(0, 2), (1, 2), (100, 102), (1000, 1024), (10**9, 262144)]
)
def test_shares_are_1024_for_a_cpu(milli, shares):
    assert resources.shares(milli) == shares


def test_weight_spans_the_whole_range():
    assert (resources.weight(2), resources.weight(1024), resources.weight(262144)) == (1, 39, 10000)


def test_quota_is_never_so_small_that_nothing_runs():
    assert [resources.quota_us(m) for m in (0, 1, 200, 2000)] == [0, 1000, 20000, 200000]


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        ([both(cpu="1", memory="1Gi")], "Guaranteed"),
        ([{"limits": {"cpu": "1", "memory": "1Gi"}}], "Guaranteed"),
        ([both(cpu="1", memory="1Gi"), {}], "Burstable"),
        ([both(cpu="1")], "Burstable"),
        ([{"requests": {"cpu": "0.5"}, "limits": {"cpu": "500m"}}], "Burstable"),
        ([{}, {}], "BestEffort"),
    ],
)
def test_qos_class_follows_requests_and_limits(containers, expected):
    assert resources.qos_class(pod(*containers)) == expected


def test_oom_scores_kill_best_effort_first_and_guaranteed_last():
    capacity = 16 << 30
    assert resources.oom_score_adj("Guaranteed", 1, capacity) == -997
    assert resources.oom_score_adj("BestEffort", 0, capacity) == 1000
    assert resources.oom_score_adj("Burstable", 4 << 30, capacity) == 750
    assert resources.oom_score_adj("Burstable", 0, capacity) == 999
    assert resources.oom_score_adj("Burstable", 32 << 30, capacity) == 3


def test_without_the_capability_no_score_is_negative():
    assert resources.oom_score_adj("Guaranteed", 1, 1 << 30, may_lower=False) == 0


def test_a_pod_takes_the_larger_of_its_containers_and_its_largest_init_step():
    one = {"requests": {"cpu": "200m", "memory": "100"}}
    found = pod(one, one, init=[{"resources": {"requests": {"cpu": "1", "memory": "50"}}}])
    assert resources.pod_requests(found) == {"cpu": 1000, "memory": 200}


def test_sidecars_count_beside_the_containers_and_beside_later_init_steps():
    one = {"requests": {"cpu": "200m"}}
    side = {"restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}}
    step = {"resources": {"requests": {"cpu": "250m"}}}
    assert resources.pod_requests(pod(one, init=[side, step])) == {"cpu": 350}
    assert resources.pod_requests(pod(one, init=[side])) == {"cpu": 300}


def test_a_pod_is_limited_only_where_all_its_containers_are():
    found = pod({"limits": {"cpu": "1", "memory": "64Mi"}}, {"limits": {"memory": "64Mi"}})
    assert resources.pod_limits(found) == {"memory": 128 << 20}


def test_admission_counts_what_is_there():
    room = {"cpu": 1000, "memory": 1 << 30, "pods": 3}
    half = {"requests": {"cpu": "500m"}}
    assert resources.admit(pod(half, uid="a"), [], room) is None
    assert resources.admit(pod(half, uid="b"), [pod(half, uid="a")], room) is None
    full = [pod(half, uid="a"), pod(half, uid="b")]
    refused = resources.admit(pod(half, uid="c"), full, room)
    assert refused is not None
    assert refused.reason == "OutOfcpu"
    assert "requested: 500, used: 1000, capacity: 1000" in refused.message
    assert resources.admit(pod(half, uid="b"), full, room) is None, "it does not count itself twice"


def test_what_others_announced_counts_as_long_as_they_do():
    one = {"requests": {"example.com/card": "1"}, "limits": {"example.com/card": "1"}}
    there = [pod(one, uid="a")]
    assert resources.admit(pod(one, uid="b"), there, {"example.com/card": 2}) is None
    refused = resources.admit(pod(one, uid="b"), there, {"example.com/card": 1})
    assert refused is not None
    assert refused.reason == "OutOfexample.com/card"
    assert resources.admit(pod(one, uid="b"), there, {}) is None


def test_admission_counts_pods():
    refused = resources.admit(pod({}, uid="b"), [pod({}, uid="a")], {"pods": 1})
    assert refused is not None
    assert refused.reason == "OutOfpods"


def test_a_node_that_agrees_takes_more_requests_than_it_has_but_not_of_guaranteed_pods():
    room, twice = {"cpu": 1000, "pods": 10}, {"cpu": Fraction(2)}
    half = {"requests": {"cpu": "500m"}}
    firm = {"requests": {"cpu": "500m", "memory": "1"}, "limits": {"cpu": "500m", "memory": "1"}}
    room["memory"] = 10
    full = [pod(half, uid="a"), pod(half, uid="b")]
    assert resources.admit(pod(half, uid="c"), full, room) is not None
    assert resources.admit(pod(half, uid="c"), full, room, twice) is None
    assert resources.admit(pod(firm, uid="c"), full, room, twice) is None
    more = [*full, pod(half, uid="c"), pod(half, uid="d")]
    refused = resources.admit(pod(half, uid="e"), more, room, twice)
    assert refused is not None
    assert "requested: 500, used: 2000, capacity: 2000" in refused.message
    firmly = [pod(firm, uid="a"), pod(firm, uid="b")]
    refused = resources.admit(pod(firm, uid="c"), firmly, room, twice)
    assert refused is not None
    assert "requested: 500, used: 1000, capacity: 1000" in refused.message
    assert resources.admit(pod(half, uid="c"), firmly, room, twice) is None


V1 = """\
30 25 0:26 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
31 30 0:27 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
32 30 0:28 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
33 30 0:29 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
34 30 0:30 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
V2 = "30 25 0:26 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"


def test_v1_is_used_where_its_controllers_are_mounted():
    found = cgroups.detect(V1)
    assert not found.is_v2
    assert str(found.controllers["memory"]) == "/sys/fs/cgroup/memory"
    assert [p.name for p in found.every] == ["cpu", "memory", "systemd"]


def test_v2_is_used_where_it_is_all_there_is():
    found = cgroups.detect(V2)
    assert found.is_v2
    assert str(found.every[0]) == "/sys/fs/cgroup"


def test_a_pods_group_is_under_its_class():
    assert cgroups.pod_path("motley", "Burstable", "1") == "/motley/burstable/pod1"
    assert cgroups.pod_path("/motley/", "Guaranteed", "1") == "/motley/pod1"


@pytest.mark.parametrize("is_v2", [False, True])
def test_pod_groups_are_made_set_and_removed(tmp_path, is_v2):
    points = [tmp_path] if is_v2 else [tmp_path / "cpu", tmp_path / "memory"]
    for point in points:
        point.mkdir(exist_ok=True)
    controllers = {} if is_v2 else {p.name: p for p in points}
    tree = cgroups.Cgroups("motley", cgroups.Hierarchies(is_v2, controllers, tuple(points)))
    path = cgroups.pod_path("motley", "Burstable", "u1")
    tree.ensure_pod(path, {"cpu": 500}, {"cpu": 1000, "memory": 4096})
    if is_v2:
        group = tmp_path / "motley/burstable/podu1"
        assert (group / "cpu.max").read_text() == "100000 100000"
        assert (group / "memory.max").read_text() == "4096"
        assert (tmp_path / "motley" / "cgroup.subtree_control").exists()
    else:
        group = tmp_path / "cpu/motley/burstable/podu1"
        assert (group / "cpu.shares").read_text() == "512"
        assert (group / "cpu.cfs_quota_us").read_text() == "100000"
    assert tree.pods() == {"u1"}
    for point in points:  # a real cgroup's files need no removal
        for file in (point / "motley").rglob("*"):
            if file.is_file():
                file.unlink()
    tree.remove_pod("u1")
    assert tree.pods() == set()


def test_the_capability_is_read_from_proc():
    assert cgroups.may_lower_oom_score("Name:\tx\nCapEff:\t000001ffffffffff\n")
    assert not cgroups.may_lower_oom_score("CapEff:\t000001fffeffffff\n")


def test_allocatable_is_capacity_less_what_is_reserved():
    about = machine.Machine("amd64", "6", "Debian", "m", "b", "s", "h", 2, 4 << 30, 100 << 30)
    reserved = {"cpu": "100m", "memory": "256Mi"}
    found = machine.resources(about, reserved, 110, may_lower_oom_score=True)
    assert machine.quantities(found.capacity)["cpu"] == "2"
    assert machine.quantities(found.allocatable) == {
        "cpu": "1900m",
        "memory": f"{(4 << 20) - (256 << 10)}Ki",
        "ephemeral-storage": f"{100 << 20}Ki",
        "pods": "110",
    }
