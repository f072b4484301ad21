"""Who may do what, and how refusals are worded."""

import asyncio

import pytest

from motley.lib.clock import SYSTEM

PODS = "/api/v1/namespaces/demo/pods"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


async def test_the_unknown_see_health_and_version_only(api):
    for path in ("/healthz", "/livez", "/readyz", "/version"):
        assert (await api.get(path, token="")).code == 200
    refused = await api.get("/api", token="")
    assert refused.code == 403
    assert refused.message == 'forbidden: User "system:anonymous" cannot get path "/api"'


async def test_wrong_credentials_are_refused_everywhere(api):
    refused = await api.get("/healthz", token="stolen")

    assert (refused.code, refused.json["reason"]) == (401, "Unauthorized")


async def test_known_users_may_discover_but_nothing_more(api):
    assert (await api.get("/apis", token="alice")).code == 200
    one = await api.get(f"{PODS}/x", token="alice")
    many = await api.get("/apis/apps/v1/deployments", token="alice")
    sub = await api.get(f"{PODS}/x/log", token="alice")

    assert one.code == many.code == sub.code == 403
    assert one.message == (
        'pods "x" is forbidden: User "alice" cannot get resource "pods" in API group "" '
        'in the namespace "demo"'
    )
    assert many.message == (
        'deployments.apps is forbidden: User "alice" cannot list resource "deployments" '
        'in API group "apps" at the cluster scope'
    )
    assert 'resource "pods/log"' in sub.message


async def test_the_scheduler_binds_but_reads_no_secrets(api, a_pod):
    await api.create(PODS, a_pod())
    binding = {"metadata": {"name": "p"}, "target": {"name": "node-1"}}

    assert (await api.get("/api/v1/nodes", token="scheduler")).code == 200
    assert (await api.create(f"{PODS}/p/binding", binding, token="scheduler")).code == 201
    assert (await api.get("/api/v1/secrets", token="scheduler")).code == 403
    assert (await api.create(PODS, a_pod("q"), token="scheduler")).code == 403


async def test_the_proxy_only_reads(api):
    services = "/api/v1/namespaces/demo/services"

    assert (await api.get("/api/v1/services", token="proxy")).code == 200
    assert (await api.get("/apis/discovery.k8s.io/v1/endpointslices", token="proxy")).code == 200
    assert (await api.create(services, {"metadata": {"name": "a"}}, token="proxy")).code == 403


@pytest.fixture
async def nodes(api, a_pod):
    """Two nodes with a pod each; the first pod uses the Secret `mine`."""
    for name in ("node-1", "node-2"):
        await api.create("/api/v1/nodes", {"metadata": {"name": name}})
    volumes = [{"name": "v", "secret": {"secretName": "mine"}}]
    await api.create(PODS, a_pod("here", nodeName="node-1", volumes=volumes))
    await api.create(PODS, a_pod("there", nodeName="node-2"))
    for name in ("mine", "theirs"):
        await api.create("/api/v1/namespaces/demo/secrets", {"metadata": {"name": name}})
    return api


async def test_a_node_reports_on_itself_and_its_pods_only(nodes):
    status = {"status": {"phase": "Running"}}

    async def patch(url: str) -> int:
        return (await nodes.patch(url, status, token="node-1")).code

    assert await patch("/api/v1/nodes/node-1/status") == 200
    assert await patch("/api/v1/nodes/node-2/status") == 403
    assert await patch(f"{PODS}/here/status") == 200
    assert await patch(f"{PODS}/there/status") == 403
    assert await patch(f"{PODS}/nowhere/status") == 404
    assert (await nodes.delete(f"{PODS}/there", token="node-1")).code == 403
    assert (await nodes.delete(f"{PODS}/here", token="node-1")).code == 200
    assert (await nodes.delete("/api/v1/nodes/node-1", token="node-1")).code == 403


async def test_a_node_watches_its_own_pods_only(nodes):
    mine = "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-1"
    theirs = "/api/v1/pods?fieldSelector=spec.nodeName%3Dnode-2"

    assert (await nodes.get(mine, token="node-1")).code == 200
    assert (await nodes.get(theirs, token="node-1")).code == 403
    refused = await nodes.get("/api/v1/pods", token="node-1")
    assert refused.message.endswith(
        "node: can only list/watch pods with spec.nodeName field selector"
    )


async def test_a_node_reads_secrets_of_its_pods_only(nodes):
    secrets = "/api/v1/namespaces/demo/secrets"

    assert (await nodes.get(f"{secrets}/mine", token="node-1")).code == 200
    assert (await nodes.get(f"{secrets}/theirs", token="node-1")).code == 403
    assert (await nodes.get(secrets, token="node-1")).code == 403


async def test_a_node_renews_its_own_lease_only(nodes):
    own = {"metadata": {"name": "node-1"}, "spec": {"holderIdentity": "node-1"}}

    assert (await nodes.create(LEASES, own, token="node-1")).code == 201
    assert (await nodes.get(f"{LEASES}/node-2", token="node-1")).code == 403
    elsewhere = "/apis/coordination.k8s.io/v1/namespaces/demo/leases"
    assert (await nodes.create(elsewhere, own, token="node-1")).code == 403


async def test_only_administrators_may_act_for_others(api):
    as_node = {"impersonate-user": "system:node:node-1", "impersonate-group": "system:nodes"}

    acting = await api.get("/api/v1/pods", headers=as_node)
    stealing = await api.get("/api/v1/pods", headers={"impersonate-user": "admin"}, token="alice")

    assert 'User "system:node:node-1" cannot list' in acting.message
    assert 'User "alice" cannot impersonate-on:user-info:list' in stealing.message


async def test_a_node_reads_what_its_pods_need_and_nothing_else(nodes, a_pod):
    maps, claims = (
        "/api/v1/namespaces/demo/configmaps",
        "/api/v1/namespaces/demo/persistentvolumeclaims",
    )
    spec = {
        "volumes": [{"name": "c", "persistentVolumeClaim": {"claimName": "data"}}],
        "containers": [
            {
                "name": "c",
                "image": "i",
                "envFrom": [{"configMapRef": {"name": "env"}}],
            }
        ],
    }
    await nodes.create(PODS, a_pod("user", nodeName="node-1", **spec))

    async def code(url: str) -> int:
        return (await nodes.get(url, token="node-1")).code

    assert await code(f"{maps}/env") == 404
    assert await code(f"{maps}/other") == 403
    assert await code(f"{maps}?fieldSelector=metadata.name%3Denv") == 200
    assert await code(f"{claims}/data") == 404
    assert await code(f"{claims}/other") == 403
    await nodes.delete(f"{PODS}/user?gracePeriodSeconds=0")
    async with asyncio.timeout(20):
        while await code(f"{maps}/env") != 403:
            await SYSTEM.sleep(0.001)


async def test_a_node_cannot_read_other_nodes(nodes):
    refused = await nodes.get("/api/v1/nodes/node-2", token="node-1")

    assert refused.message.endswith("node 'node-1' cannot read 'node-2', only its own Node object")
    assert (await nodes.get("/api/v1/nodes", token="node-1")).code == 403
    assert (await nodes.get("/api/v1/nodes/node-1", token="node-1")).code == 200


async def test_a_node_does_not_choose_its_restricted_labels_and_taints(nodes):
    async def patch(body: dict) -> str:
        reply = await nodes.patch("/api/v1/nodes/node-1", body, token="node-1")
        return "" if reply.code == 200 else reply.message

    def labelled(key: str) -> dict:
        return {"metadata": {"labels": {key: "y"}}}

    assert await patch(labelled("node-restriction.kubernetes.io/x")) == (
        'nodes "node-1" is forbidden: is not allowed to modify labels: '
        "node-restriction.kubernetes.io/x"
    )
    assert "modify labels" in await patch(labelled("node-role.kubernetes.io/master"))
    assert await patch(labelled("kubernetes.io/arch")) == ""
    assert await patch(labelled("example.com/rack")) == ""
    taints = {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}
    assert "is not allowed to modify taints" in await patch(taints)


async def test_a_node_makes_no_pods_but_mirrors(nodes, a_pod):
    refused = await nodes.create(PODS, a_pod("q", nodeName="node-1"), token="node-1")

    assert refused.code == 403
    assert "can only create mirror pods" in refused.message


async def test_a_mirror_pod_gives_its_node_no_secrets(nodes, a_pod):
    uid = (await nodes.get("/api/v1/nodes/node-1")).json["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": uid, "controller": True}
    mirror = a_pod(
        "m", nodeName="node-1", volumes=[{"name": "v", "secret": {"secretName": "theirs"}}]
    )
    mirror["metadata"] |= {
        "annotations": {"kubernetes.io/config.mirror": "x"},
        "ownerReferences": [owner],
    }

    refused = await nodes.create(PODS, mirror, token="node-1")
    assert "can not create pods that reference secrets" in refused.message
    await nodes.create(PODS, mirror)  # even if somebody else made it
    theirs = await nodes.get("/api/v1/namespaces/demo/secrets/theirs", token="node-1")
    assert theirs.code == 403
