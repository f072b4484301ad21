"""Disruption budgets with a real API server: the status follows the pods, evictions obey it."""

import asyncio

from motley.api import status
from motley.api.views.pod import Pod
from motley.api.views.policy import PodDisruptionBudget
from motley.controllers.workload import Deployment

TEMPLATE = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "image": "nginx"}]},
}


def a_deployment(replicas):
    return {
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": TEMPLATE,
        },
    }


def a_budget(**spec):
    selector = {"matchLabels": {"app": "web"}}
    return {"metadata": {"name": "web"}, "spec": {"selector": selector, **spec}}


async def evict(c, name):
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return await c.client.create_subresource(Pod, name, c.namespace, "eviction", body)


async def allows(c, number):
    found = await c.get(PodDisruptionBudget, "web")
    state = found.status
    return state.observed_generation and state.disruptions_allowed == number and state


async def test_the_status_follows_the_pods_and_their_owner(cluster):
    async with cluster() as c:
        await c.create(Deployment, a_deployment(4))
        await c.create(PodDisruptionBudget, a_budget(maxUnavailable="25%"))

        state = await c.eventually(lambda: allows(c, 1), "one of four may go")
        assert (state.expected_pods, state.current_healthy, state.desired_healthy) == (4, 4, 3)

        await c.patch(Deployment, "web", {"spec": {"replicas": 8}})
        state = await c.eventually(lambda: allows(c, 2), "two of eight may go")
        assert state.expected_pods == 8


async def test_of_two_evictions_at_once_the_budget_grants_one(cluster):
    async with cluster() as c:
        await c.create(Deployment, a_deployment(3))
        await c.create(PodDisruptionBudget, a_budget(minAvailable=2))
        await c.eventually(lambda: allows(c, 1), "one may go")
        names = [p.metadata.name for p in c.living(app="web")][:2]

        outcomes = await asyncio.gather(*(evict(c, n) for n in names), return_exceptions=True)

        refused = [o for o in outcomes if isinstance(o, status.TooManyRequests)]
        assert len(refused) == 1, outcomes
        assert refused[0].details["causes"][0]["reason"] == "DisruptionBudget"
        # The Deployment replaces what went, and the budget opens again.
        await c.eventually(lambda: allows(c, 1), "one may go again")


async def test_pods_of_an_owner_without_scale_may_not_go(cluster):
    async with cluster() as c:
        owner = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": "nobody",
            "uid": "11111111-2222-3333-4444-555555555555",
            "controller": True,
        }
        await c.create(PodDisruptionBudget, a_budget(maxUnavailable=1))
        await c.create(
            Pod,
            {
                "metadata": {"name": "p", "labels": {"app": "web"}, "ownerReferences": [owner]},
                "spec": TEMPLATE["spec"],
            },
        )

        async def failed():
            found = await c.get(PodDisruptionBudget, "web")
            return next((x for x in found.status.conditions if x.reason == "SyncFailed"), None)

        condition = await c.eventually(failed, "the budget says why")
        assert "does not implement the scale subresource" in condition.message


async def test_a_pod_that_has_not_started_may_always_go(cluster):
    async with cluster(node_count=0) as c:
        await c.create(
            Pod, {"metadata": {"name": "p", "labels": {"app": "web"}}, "spec": TEMPLATE["spec"]}
        )
        await c.create(PodDisruptionBudget, a_budget(minAvailable=1))

        await evict(c, "p")

        await c.eventually(lambda: not c.living(app="web"), "the pod is gone")
