"""New pods of a workload that a VerticalPodAutoscaler looks after."""

import pytest

PODS = "/api/v1/namespaces/demo/pods"
SCALERS = "/apis/autoscaling.k8s.io/v1/namespaces/demo/verticalpodautoscalers"
LIMITS = "/api/v1/namespaces/demo/limitranges"


async def a_scaler(api, name, memory, mode="Recreate"):
    spec = {
        "targetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"},
        "updatePolicy": {"updateMode": mode},
    }
    reply = await api.create(SCALERS, {"metadata": {"name": name}, "spec": spec})
    assert reply.code == 201, reply.json
    target = {"cpu": "300m", "memory": memory}
    listed = [{"containerName": "c", "target": target}]
    state = {"status": {"recommendation": {"containerRecommendations": listed}}}
    reply = await api.patch(f"{SCALERS}/{name}/status", state)
    assert reply.code == 200, reply.json


async def a_pod_of(api, a_pod, name="web-0"):
    owner = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "name": "web",
        "uid": "11111111-2222-3333-4444-555555555555",
        "controller": True,
    }
    memory = {"requests": {"memory": "60Mi"}, "limits": {"memory": "60Mi"}}
    body = a_pod(name, containers=[{"name": "c", "image": "x", "resources": memory}])
    body["metadata"]["ownerReferences"] = [owner]
    reply = await api.create(PODS, body)
    assert reply.code == 201, reply.json
    resources = reply.json["spec"]["containers"][0]["resources"]
    return resources["requests"]["memory"], resources["limits"]["memory"]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ([], "90Mi"),
        ([{"type": "Container", "max": {"memory": "80Mi"}}], "80Mi"),
        ([{"type": "Container", "max": {"memory": "200Mi"}}], "90Mi"),
        ([{"type": "Pod", "max": {"memory": "80Mi"}}], "60Mi"),
    ],
)
async def test_a_recommendation_never_makes_a_pod_that_is_refused(api, a_pod, limits, expected):
    if limits:
        await api.create(LIMITS, {"metadata": {"name": "l"}, "spec": {"limits": limits}})
    await a_scaler(api, "web", "90Mi")
    assert await a_pod_of(api, a_pod) == (expected, expected)


async def test_of_two_the_eldest_that_is_not_off_counts(api, a_pod):
    sizes = {"c": "70Mi", "b": "90Mi", "a": "80Mi"}
    for name, memory in sizes.items():
        await a_scaler(api, name, memory, mode="Off" if name == "c" else "Recreate")
    made = {name: (await api.get(f"{SCALERS}/{name}")).json["metadata"] for name in "ab"}
    eldest = min("ab", key=lambda name: (made[name]["creationTimestamp"], name))
    assert await a_pod_of(api, a_pod) == (sizes[eldest], sizes[eldest])
