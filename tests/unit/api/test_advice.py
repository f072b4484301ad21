"""Warnings about what is accepted and hardly meant."""

import pytest

from motley.api import advice, scheme


def warned(api_version, kind, **obj):
    found = scheme.by_kind(api_version, kind)
    assert found is not None
    return advice.of(found, {"metadata": {"name": "a"}, **obj})


def pod(**container):
    return {"spec": {"containers": [{"name": "c", "image": "i", **container}]}}


@pytest.mark.parametrize(
    ("obj", "words"),
    [
        (
            pod(ports=[{"containerPort": 80}, {"containerPort": 80}]),
            "ports[1]: duplicate port definition with spec.containers[0].ports[0]",
        ),
        (pod(env=[{"name": "A"}, {"name": "A"}]), 'hides previous definition of "A"'),
        (pod(resources={"limits": {"memory": "100m"}}), 'fractional byte value "100m"'),
        ({**pod(), "metadata": {"name": "a.b"}}, "a DNS label is recommended"),
        (
            {
                **pod(),
                "metadata": {
                    "name": "a",
                    "annotations": {"seccomp.security.alpha.kubernetes.io/pod": "x"},
                },
            },
            "non-functional in v1.27+",
        ),
    ],
)
def test_a_doubtful_pod_is_warned_about(obj, words):
    (text,) = warned("v1", "Pod", **obj)
    assert words in text


def test_a_plain_pod_is_not_warned_about():
    assert warned("v1", "Pod", **pod(ports=[{"containerPort": 80}, {"containerPort": 81}])) == []


@pytest.mark.parametrize(
    ("api_version", "kind", "obj", "words"),
    [
        (
            "v1",
            "Secret",
            {"type": "kubernetes.io/tls", "data": {"tls.crt": "eA=="}},
            "failed to find any PEM",
        ),
        ("v1", "Service", {"spec": {"externalIPs": ["1.2.3.4"]}}, "spec.externalIPs is deprecated"),
        (
            "v1",
            "PersistentVolume",
            {"spec": {"persistentVolumeReclaimPolicy": "Recycle"}},
            "Recycle",
        ),
        (
            "v1",
            "PersistentVolumeClaim",
            {"spec": {"resources": {"requests": {"storage": "1500m"}}}},
            "spec.resources.requests[storage]: fractional",
        ),
        (
            "networking.k8s.io/v1",
            "Ingress",
            {"metadata": {"name": "a", "annotations": {"kubernetes.io/ingress.class": "x"}}},
            "spec.ingressClassName",
        ),
    ],
)
def test_other_kinds_are_warned_about(api_version, kind, obj, words):
    (text,) = warned(api_version, kind, **obj)
    assert words in text
