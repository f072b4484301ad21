"""Golden traces of endings: namespaces, and what goes with its owner."""

import pytest
from world import Behaviour, Trace, simulate
from world.workloads import completed, deployment

from motley.api.views.core import ConfigMap, Namespace
from motley.api.views.pod import Pod
from motley.controllers.workload import Deployment, ReplicaSet


def tree(trace):
    """Every object of the namespace: what it is, whose, and what it still waits for."""
    world, parts = trace.world, []
    for cls in (Deployment, ReplicaSet, Pod):
        for obj in sorted(world.informer(cls).items(), key=trace.name):
            meta = obj.metadata
            if meta.namespace != world.namespace:
                continue
            owner = meta.owner_references
            marks = [*(["free"] if not owner and cls is not Deployment else [])]
            if meta.deletion_timestamp:
                marks.append("ending")
            marks += meta.finalizers
            shown = f" ({' '.join(marks)})" if marks else ""
            parts.append(f"{cls.KIND} {trace.name(obj)}{shown}")
    return ", ".join(parts) or "nothing"


@pytest.mark.parametrize("policy", ["Background", "Foreground", "Orphan"])
@simulate(nodes=2)
async def test_what_is_owned_goes_as_asked(world, golden, policy):
    world.kubelets.script = lambda _: Behaviour(stop_s=5)
    await world.create(Deployment, deployment(replicas=2))
    await completed(world)
    trace = await Trace.begin(world, tree, hide=("Scheduled", "Killing"))
    trace.say(f"delete the deployment, propagation {policy}")
    await world.delete(Deployment, "web", propagation=policy)
    await world.sleep(30)
    if policy == "Orphan":
        trace.say("delete the replica set in the background")
        await world.delete(ReplicaSet, (await world.list(ReplicaSet))[0].metadata.name)
        await world.sleep(30)
    golden(f"delete_{policy.lower()}", trace)


@simulate(nodes=2)
async def test_a_namespace_ends_when_all_in_it_has(world, golden):
    world.kubelets.script = lambda _: Behaviour(stop_s=5)
    await world.client.create(Namespace, {"metadata": {"name": "demo"}})
    world.namespace = "demo"
    await world.sleep(1)
    await world.create(Deployment, deployment(replicas=2))
    body = {"metadata": {"name": "kept", "finalizers": ["example.com/wait"]}}
    await world.create(ConfigMap, body)
    await completed(world)
    trace = await Trace.begin(world, tree, phase, hide=("Scheduled", "Killing"))
    trace.say("delete the namespace")
    await world.client.delete(Namespace, "demo")
    await world.sleep(40)
    trace.say("release the config map")
    await world.patch(ConfigMap, "kept", {"metadata": {"finalizers": None}})
    await world.sleep(60)
    golden("namespace", trace)


def phase(trace):
    found = trace.world.cached(Namespace, "demo")
    if found is None:
        return "namespace demo is gone"
    conditions = [f"{c.type}: {c.message}" for c in found.status.conditions if c.status == "True"]
    return f"namespace demo {found.status.phase} {'; '.join(sorted(conditions))}".rstrip()
