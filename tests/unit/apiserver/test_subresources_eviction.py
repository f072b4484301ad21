"""Evictions ask the pod's disruption budget."""

import asyncio

import pytest

PODS = "/api/v1/namespaces/demo/pods"
BUDGETS = "/apis/policy/v1/namespaces/demo/poddisruptionbudgets"


def eviction(name="p", **options):
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name},
        **({"deleteOptions": options} if options else {}),
    }


async def a_running_pod(api, a_pod, name="p", *, ready=True):
    body = a_pod(name, nodeName="n1")
    body["metadata"]["labels"] = {"app": "x"}
    await api.create(PODS, body)
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    state = {"phase": "Running", "conditions": conditions}
    assert (await api.patch(f"{PODS}/{name}/status", {"status": state})).code == 200


async def a_budget(api, name="b", status=None, **spec):
    body = {
        "metadata": {"name": name},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}, **spec},
    }
    assert (await api.create(BUDGETS, body)).code == 201
    if status is not None:
        state = {"observedGeneration": 1, "desiredHealthy": 1, "currentHealthy": 1, **status}
        await api.patch(f"{BUDGETS}/{name}/status", {"status": state})


async def test_a_budget_that_nobody_counted_yet_says_come_back(api, a_pod):
    await a_running_pod(api, a_pod)
    await a_budget(api)

    refused = await api.create(f"{PODS}/p/eviction", eviction())

    assert refused.code == 429
    assert refused.headers["retry-after"] == "10"
    assert refused.message == "Cannot evict pod as it would violate the pod's disruption budget."
    assert refused.json["details"] == {
        "causes": [
            {
                "reason": "DisruptionBudget",
                "message": "The disruption budget b is still being processed by the server.",
            }
        ],
        "retryAfterSeconds": 10,
    }


async def test_an_exhausted_budget_says_what_it_needs(api, a_pod):
    await a_running_pod(api, a_pod)
    await a_budget(api, status={"disruptionsAllowed": 0})

    refused = await api.create(f"{PODS}/p/eviction", eviction())

    assert refused.code == 429
    cause = refused.json["details"]["causes"][0]
    assert cause["message"] == "The disruption budget b needs 1 healthy pods and has 1 currently"
    assert "deletionTimestamp" not in (await api.get(f"{PODS}/p")).json["metadata"]


async def test_a_granted_eviction_is_charged_and_marks_the_pod(api, a_pod):
    await a_running_pod(api, a_pod)
    await a_budget(api, status={"disruptionsAllowed": 1, "currentHealthy": 2})

    done = await api.create(f"{PODS}/p/eviction", eviction())

    assert (done.code, done.json["status"]) == (201, "Success")
    state = (await api.get(f"{BUDGETS}/b")).json["status"]
    assert state["disruptionsAllowed"] == 0
    assert list(state["disruptedPods"]) == ["p"]
    assert state["conditions"][0]["reason"] == "InsufficientPods"
    pod = (await api.get(f"{PODS}/p")).json
    assert pod["metadata"]["deletionTimestamp"]
    target = pod["status"]["conditions"][-1]
    assert (target["type"], target["reason"]) == ("DisruptionTarget", "EvictionByEvictionAPI")


async def test_the_last_disruption_is_given_once(api, a_pod):
    names = [f"p{i}" for i in range(8)]
    for name in names:
        await a_running_pod(api, a_pod, name)
    await a_budget(api, status={"disruptionsAllowed": 3, "currentHealthy": 8})

    replies = await asyncio.gather(
        *(api.create(f"{PODS}/{n}/eviction", eviction(n)) for n in names)
    )

    assert sorted(r.code for r in replies) == [201] * 3 + [429] * 5
    state = (await api.get(f"{BUDGETS}/b")).json["status"]
    assert (state["disruptionsAllowed"], len(state["disruptedPods"])) == (0, 3)


async def test_a_dry_run_asks_and_changes_nothing(api, a_pod):
    await a_running_pod(api, a_pod)
    await a_budget(api, status={"disruptionsAllowed": 1})

    done = await api.create(f"{PODS}/p/eviction?dryRun=All", eviction())

    assert done.code == 201
    assert (await api.get(f"{BUDGETS}/b")).json["status"]["disruptionsAllowed"] == 1
    pod = (await api.get(f"{PODS}/p")).json
    assert "deletionTimestamp" not in pod["metadata"]
    assert all(c["type"] != "DisruptionTarget" for c in pod["status"]["conditions"])


async def test_two_budgets_are_too_many(api, a_pod):
    await a_running_pod(api, a_pod)
    await a_budget(api, "b", status={"disruptionsAllowed": 1})
    await a_budget(api, "c", status={"disruptionsAllowed": 1})

    refused = await api.create(f"{PODS}/p/eviction", eviction())

    assert refused.code == 500
    assert "more than one PodDisruptionBudget" in refused.message
    assert "reason" not in refused.json


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
async def test_pods_that_serve_nobody_go_without_asking(api, a_pod, phase):
    await a_running_pod(api, a_pod)
    await api.patch(f"{PODS}/p/status", {"status": {"phase": phase}})
    await a_budget(api)

    assert (await api.create(f"{PODS}/p/eviction", eviction())).code == 201


@pytest.mark.parametrize(
    ("policy", "healthy", "code"),
    [("AlwaysAllow", 0, 201), ("IfHealthyBudget", 0, 429), ("IfHealthyBudget", 1, 201)],
)
async def test_a_pod_that_is_not_ready_goes_as_the_policy_says(api, a_pod, policy, healthy, code):
    await a_running_pod(api, a_pod, ready=False)
    state = {"disruptionsAllowed": 0, "currentHealthy": healthy}
    await a_budget(api, status=state, unhealthyPodEvictionPolicy=policy)

    assert (await api.create(f"{PODS}/p/eviction", eviction())).code == code


async def test_an_eviction_with_another_uid_charges_nothing(api, a_pod):
    await a_running_pod(api, a_pod)
    await a_budget(api, status={"disruptionsAllowed": 1})

    refused = await api.create(
        f"{PODS}/p/eviction",
        eviction(preconditions={"uid": "9" * 8 + "-0000-1111-2222-" + "3" * 12}),
    )

    assert refused.code == 409
    assert (await api.get(f"{BUDGETS}/b")).json["status"]["disruptionsAllowed"] == 1


async def test_a_budget_without_selector_or_for_others_has_no_say(api, a_pod):
    await a_running_pod(api, a_pod)
    await a_budget(api, "others", selector={"matchLabels": {"app": "y"}})
    await a_budget(api, "none", selector=None)

    assert (await api.create(f"{PODS}/p/eviction", eviction())).code == 201


async def test_a_budget_that_could_not_be_counted_says_why(api, a_pod):
    await a_running_pod(api, a_pod)
    failed = {
        "type": "DisruptionAllowed",
        "status": "False",
        "reason": "SyncFailed",
        "message": "no scale",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    await a_budget(api, status={"disruptionsAllowed": 0, "conditions": [failed]})

    refused = await api.create(f"{PODS}/p/eviction", eviction())

    assert refused.json["details"]["causes"][0]["message"].endswith("failed sync: no scale")
