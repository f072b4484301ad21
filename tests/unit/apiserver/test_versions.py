"""The same objects in several versions, through the whole server."""

HPA = "/namespaces/demo/horizontalpodautoscalers"
TARGET = {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}
EVENTS = "/apis/events.k8s.io/v1/namespaces/demo/events"


def event(name="e"):
    return {
        "metadata": {"name": name},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "action": "Act",
        "reason": "R",
        "type": "Normal",
        "note": "words",
        "reportingController": "example.com/c",
        "reportingInstance": "c-1",
        "regarding": {"kind": "Pod", "name": f"pod-{name}", "namespace": "demo"},
    }


async def test_an_event_can_be_read_in_both_groups(api):
    made = await api.create(EVENTS, event())
    assert made.code == 201
    assert made.json["apiVersion"] == "events.k8s.io/v1"
    assert (made.json["note"], made.json["regarding"]["name"]) == ("words", "pod-e")

    old = (await api.get("/api/v1/namespaces/demo/events/e")).json

    assert old["apiVersion"] == "v1"
    assert (old["message"], old["involvedObject"]["name"]) == ("words", "pod-e")
    assert old["metadata"]["uid"] == made.json["metadata"]["uid"]


async def test_lists_and_selectors_speak_the_version_of_the_path(api):
    for name in ("a", "b"):
        await api.create(EVENTS, event(name))

    found = (await api.get(f"{EVENTS}?fieldSelector=regarding.name=pod-b")).json

    assert (found["kind"], found["apiVersion"]) == ("EventList", "events.k8s.io/v1")
    assert [(e["metadata"]["name"], e["note"]) for e in found["items"]] == [("b", "words")]


async def test_a_watch_speaks_the_version_of_the_path(api):
    version = (await api.get(EVENTS)).json["metadata"]["resourceVersion"]
    async with api.watch(f"{EVENTS}?watch=1&resourceVersion={version}") as watching:
        await api.create(EVENTS, event())
        seen = await watching.event()

    assert seen["object"]["apiVersion"] == "events.k8s.io/v1"
    assert seen["object"]["note"] == "words"


async def test_a_missing_object_is_named_by_the_group_of_the_path(api):
    answer = await api.get(f"{EVENTS}/nosuch")

    assert (answer.code, answer.message) == (404, 'events.events.k8s.io "nosuch" not found')


async def test_an_autoscaler_of_the_oldest_version_is_kept_in_the_newest(api):
    body = {"metadata": {"name": "a"}, "spec": {"maxReplicas": 3, "scaleTargetRef": TARGET}}
    made = await api.create(f"/apis/autoscaling/v1{HPA}", body)

    assert made.code == 201
    assert made.json["spec"]["targetCPUUtilizationPercentage"] == 80
    new = (await api.get(f"/apis/autoscaling/v2{HPA}/a")).json
    target = {"type": "Utilization", "averageUtilization": 80}
    assert new["spec"]["metrics"] == [
        {"type": "Resource", "resource": {"name": "cpu", "target": target}}
    ]


async def test_a_patch_in_one_version_changes_the_other(api):
    body = {"metadata": {"name": "a"}, "spec": {"maxReplicas": 3, "scaleTargetRef": TARGET}}
    await api.create(f"/apis/autoscaling/v2{HPA}", body)

    change = {"spec": {"targetCPUUtilizationPercentage": 50}}
    changed = await api.patch(f"/apis/autoscaling/v1{HPA}/a", change)

    assert changed.code == 200
    assert changed.json["apiVersion"] == "autoscaling/v1"
    new = (await api.get(f"/apis/autoscaling/v2{HPA}/a")).json
    assert new["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 50
    assert new["metadata"]["generation"] == 2


async def test_a_put_and_a_delete_in_one_version_reach_the_other(api):
    path = f"/apis/autoscaling/v1{HPA}"
    body = {"metadata": {"name": "a"}, "spec": {"maxReplicas": 3, "scaleTargetRef": TARGET}}
    made = (await api.create(path, body)).json
    made["spec"]["maxReplicas"] = 7

    put = await api.put(f"{path}/a", made)

    assert (put.code, put.json["spec"]["maxReplicas"]) == (200, 7)
    assert (await api.get(f"/apis/autoscaling/v2{HPA}/a")).json["spec"]["maxReplicas"] == 7
    assert (await api.delete(f"{path}/a")).code == 200
    assert (await api.get(f"/apis/autoscaling/v2{HPA}/a")).code == 404


async def test_a_rule_broken_in_an_old_version_is_told(api):
    body = {"metadata": {"name": "a"}, "spec": {"maxReplicas": 0, "scaleTargetRef": TARGET}}

    answer = await api.create(f"/apis/autoscaling/v1{HPA}", body)

    assert answer.code == 422
    assert "spec.maxReplicas: Required value" in answer.message


async def test_a_deployment_from_long_ago_is_accepted(api):
    body = {
        "apiVersion": "extensions/v1beta1",
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {
            "template": {
                "metadata": {"labels": {"app": "d"}},
                "spec": {"containers": [{"name": "c", "image": "x"}]},
            }
        },
    }

    made = await api.create("/apis/extensions/v1beta1/namespaces/demo/deployments", body)

    assert (made.code, made.json["apiVersion"]) == (201, "extensions/v1beta1")
    kept = (await api.get("/apis/apps/v1/namespaces/demo/deployments/d")).json
    assert kept["spec"]["selector"] == {"matchLabels": {"app": "d"}}


async def test_a_table_is_the_same_for_every_version(api):
    body = {"metadata": {"name": "a"}, "spec": {"maxReplicas": 3, "scaleTargetRef": TARGET}}
    await api.create(f"/apis/autoscaling/v1{HPA}", body)
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"

    shown = [
        (await api.get(f"/apis/autoscaling/{v}{HPA}", accept=table)).json for v in ("v1", "v2")
    ]

    assert shown[0]["columnDefinitions"] == shown[1]["columnDefinitions"]
    assert shown[0]["rows"][0]["cells"][:5] == shown[1]["rows"][0]["cells"][:5]
