"""When a pod's other size is worth its eviction."""

import pytest

from motley.api.views.pod import Pod
from motley.api.views.verticalautoscaling import EvictionRequirement
from motley.controllers import resizing

HIGHER, LOWER = "TargetHigherThanRequests", "TargetLowerThanRequests"
BOTH = {"cpu": "500m", "memory": "100Mi"}


def asked(change, *resources):
    return EvictionRequirement(resources=list(resources), change_requirement=change)


def worth(requirements, target, *requests, speed=1.0):
    containers = [
        {"name": f"c{i}", "image": "i", "resources": {"requests": r}}
        for i, r in enumerate(requests)
    ]
    pod = Pod.of({"metadata": {"name": "p"}, "spec": {"containers": containers}})
    listed = [{"containerName": f"c{i}", "target": t} for i, t in enumerate(target)]
    document = {"status": {"recommendation": {"containerRecommendations": listed}}}
    return resizing.is_worth_eviction(pod, document, requirements, speed)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ({"cpu": "600m", "memory": "50Mi"}, (True, False, True, False)),
        ({"cpu": "400m", "memory": "150Mi"}, (False, True, True, False)),
        ({"cpu": "600m", "memory": "150Mi"}, (True, True, True, True)),
        ({"cpu": "500m", "memory": "100Mi"}, (False, False, False, False)),
    ],
)
def test_all_that_is_asked_of_any_of_its_resources(target, expected):
    cpu, memory = asked(HIGHER, "cpu"), asked(HIGHER, "memory")
    either = asked(HIGHER, "cpu", "memory")
    wanted = ([cpu], [memory], [either], [cpu, memory])
    assert tuple(worth(one, [target], BOTH) for one in wanted) == expected


def test_nothing_asked_is_always_enough():
    assert worth([], [BOTH], BOTH)


def test_one_container_is_enough_and_one_without_a_recommendation_does_not_count():
    smaller, larger = {"cpu": "1m", "memory": "1Mi"}, {"cpu": "2", "memory": "1Gi"}
    assert worth([asked(HIGHER, "cpu")], [smaller, larger], BOTH, BOTH)
    assert not worth([asked(HIGHER, "cpu")], [smaller], BOTH, {"cpu": "1m", "memory": "1Mi"})


def test_what_requests_nothing_is_evicted_whatever_is_asked():
    assert worth([asked(LOWER, "cpu")], [BOTH], {"cpu": "1m"})


def test_cpu_is_compared_as_work_not_as_cores():
    target = {"cpu": "500m", "memory": "100Mi"}
    assert worth([asked(HIGHER, "cpu")], [target], {"cpu": "600m", "memory": "1Mi"}, speed=0.5)
    assert not worth([asked(HIGHER, "cpu")], [target], {"cpu": "600m", "memory": "1Mi"})
