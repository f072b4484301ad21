import pytest

from motley.api.qos import qos_class

BOTH = {"cpu": "1", "memory": "1Gi"}


def pod(*resources, **spec):
    return {"spec": {"containers": [{"resources": r} for r in resources], **spec}}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (pod({}), "BestEffort"),
        (pod({"limits": {"example.com/gpu": "1"}}), "BestEffort"),
        (pod({"requests": {"cpu": "0"}}), "BestEffort"),
        (pod({"limits": BOTH}), "Guaranteed"),
        (pod({"limits": BOTH, "requests": {"cpu": "1000m", "memory": "1024Mi"}}), "Guaranteed"),
        (pod({"limits": BOTH, "requests": {"cpu": "500m"}}), "Burstable"),
        (pod({"limits": BOTH}, {}), "Burstable"),
        (pod({"limits": {"cpu": "1"}}), "Burstable"),
        (pod({"limits": BOTH}, initContainers=[{"resources": {}}]), "Burstable"),
        (pod({}, resources={"limits": BOTH}), "Guaranteed"),
        ({}, "BestEffort"),
    ],
)
def test_the_class_follows_requests_and_limits(given, expected):
    assert qos_class(given) == expected
