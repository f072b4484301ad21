"""Quotas: exact, also when many ask at once."""

import asyncio

import pytest

from motley.api import amounts, quota

PODS = "/api/v1/namespaces/demo/pods"
QUOTAS = "/api/v1/namespaces/demo/resourcequotas"


async def a_quota(api, used=None, name="q", **spec):
    """A quota that has been counted once, as the controller would."""
    hard = spec["hard"]
    body = {"metadata": {"name": name}, "spec": spec}
    assert (await api.create(QUOTAS, body)).code == 201
    state = {"hard": hard, "used": {what: (used or {}).get(what, "0") for what in hard}}
    reply = await api.patch(f"{QUOTAS}/{name}/status", {"status": state})
    assert reply.code == 200, reply.json


async def used(api, name="q"):
    return (await api.get(f"{QUOTAS}/{name}")).json["status"]["used"]


def asking(pod, cpu="100m", memory="128Mi"):
    resources = {"requests": {"cpu": cpu}, "limits": {"memory": memory}}
    pod["spec"]["containers"][0]["resources"] = resources
    return pod


async def test_a_write_is_charged_in_its_own_revision(api, a_pod):
    await a_quota(api, hard={"pods": "2", "requests.cpu": "1", "limits.memory": "1Gi"})

    created = await api.create(PODS, asking(a_pod(), "500m", "512Mi"))
    charged = (await api.get(f"{QUOTAS}/q")).json

    assert created.code == 201, created.json
    assert charged["status"]["used"] == {
        "limits.memory": "512Mi",
        "pods": "1",
        "requests.cpu": "500m",
    }
    version = created.json["metadata"]["resourceVersion"]
    assert charged["metadata"]["resourceVersion"] == version


async def test_what_does_not_fit_is_refused_with_the_figures(api, a_pod):
    await a_quota(
        api,
        {"requests.cpu": "500m", "limits.memory": "512Mi"},
        hard={"requests.cpu": "1", "limits.memory": "1Gi"},
    )

    reply = await api.create(PODS, asking(a_pod(), "600m", "800Mi"))

    assert reply.code == 403
    assert reply.message == (
        'pods "p" is forbidden: exceeded quota: q, '
        "requested: limits.memory=800Mi,requests.cpu=600m, "
        "used: limits.memory=512Mi,requests.cpu=500m, limited: limits.memory=1Gi,requests.cpu=1"
    )
    assert (await used(api))["requests.cpu"] == "500m"


async def test_a_pod_must_say_what_is_limited(api, a_pod):
    await a_quota(api, hard={"limits.memory": "1Gi", "requests.cpu": "1"})

    assert (await api.create(PODS, a_pod())).message == (
        'pods "p" is forbidden: failed quota: q: must specify limits.memory for: c; '
        "requests.cpu for: c"
    )


async def test_a_quota_nobody_has_counted_yet_lets_nothing_through(api, a_pod):
    await api.create(QUOTAS, {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "5"}}})

    reply = await api.create(PODS, a_pod())

    assert reply.message.endswith("status unknown for quota: q, resources: pods")


async def test_of_many_at_once_exactly_so_many_get_in(api, a_pod):
    await a_quota(api, hard={"pods": "5"})

    replies = await asyncio.gather(*(api.create(PODS, a_pod(f"p{number}")) for number in range(20)))

    codes = [reply.code for reply in replies]
    assert codes.count(201) == 5
    assert codes.count(403) == 15
    assert await used(api) == {"pods": "5"}


async def test_a_quota_that_changes_meanwhile_is_asked_again(api, a_pod):
    await a_quota(api, hard={"pods": "50"})

    async def touch():
        for number in range(10):
            label = {"metadata": {"labels": {"n": str(number)}}}
            assert (await api.patch(f"{QUOTAS}/q", label)).code == 200

    async def fill():
        for number in range(10):
            assert (await api.create(PODS, a_pod(f"p{number}"))).code == 201

    await asyncio.gather(touch(), fill())

    assert await used(api) == {"pods": "10"}


async def test_a_refused_or_dry_write_is_not_charged(api, a_pod):
    await a_quota(api, hard={"pods": "2"})
    await api.create(PODS, a_pod())

    twice = await api.create(PODS, a_pod())
    dry = await api.create(f"{PODS}?dryRun=All", a_pod("d"))

    assert (twice.code, dry.code) == (409, 201)
    assert await used(api) == {"pods": "1"}


async def test_objects_are_counted_by_kind(api):
    await a_quota(
        api,
        hard={
            "configmaps": "1",
            "count/deployments.apps": "1",
            "services.nodeports": "1",
            "requests.storage": "2Gi",
        },
    )
    maps = "/api/v1/namespaces/demo/configmaps"
    assert (await api.create(maps, {"metadata": {"name": "a"}})).code == 201
    ports = [{"name": "a", "port": 80}, {"name": "b", "port": 81}]
    service = {"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": ports}}

    full = await api.create(maps, {"metadata": {"name": "b"}})
    greedy = await api.create("/api/v1/namespaces/demo/services", service)

    assert full.message.endswith(
        "exceeded quota: q, requested: configmaps=1, used: configmaps=1, limited: configmaps=1"
    )
    assert "requested: services.nodeports=2, used: services.nodeports=0" in greedy.message


async def test_a_service_that_grows_is_charged_for_the_growth(api):
    await a_quota(api, hard={"services.nodeports": "2"})
    url = "/api/v1/namespaces/demo/services"
    spec = {"type": "NodePort", "ports": [{"name": "a", "port": 80}]}
    await api.create(url, {"metadata": {"name": "s"}, "spec": spec})

    def ports(count):
        listed = [{"name": f"p{n}", "port": 80 + n} for n in range(count)]
        return {"spec": {"ports": listed}}

    assert (await api.patch(f"{url}/s", ports(2))).code == 200
    assert await used(api) == {"services.nodeports": "2"}
    refused = await api.patch(f"{url}/s", ports(3))
    assert refused.code == 403
    assert "requested: services.nodeports=1, used: services.nodeports=2" in refused.message


async def test_scopes_choose_pods(api, a_pod):
    await a_quota(api, hard={"pods": "0"}, scopes=["BestEffort"])

    assert (await api.create(PODS, a_pod("idle"))).code == 403
    assert (await api.create(PODS, asking(a_pod("busy")))).code == 201


@pytest.mark.parametrize(
    ("expression", "class_name", "matches"),
    [
        ({"operator": "In", "values": ["high"]}, "high", True),
        ({"operator": "In", "values": ["high"]}, "low", False),
        ({"operator": "NotIn", "values": ["high"]}, "low", True),
        ({"operator": "Exists"}, "", False),
        ({"operator": "DoesNotExist"}, "", True),
    ],
)
def test_a_scope_selector_looks_at_the_priority_class(expression, class_name, matches):
    expressions = [{"scopeName": "PriorityClass", **expression}]
    found = {"spec": {"scopeSelector": {"matchExpressions": expressions}}}
    pod = {"spec": {"priorityClassName": class_name}}

    assert quota.is_in_scope(found, "", "pods", pod) is matches
    assert quota.is_in_scope(found, "", "configmaps", {}) is False


def test_a_recount_sums_what_is_there_and_leaves_out_what_has_ended():
    def pod(phase, cpu):
        container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
        return {"spec": {"containers": [container]}, "status": {"phase": phase}}

    hard = {"pods": "9", "count/pods": "9", "requests.cpu": "9", "limits.memory": "1Gi"}
    pods = [pod("Running", "100m"), pod("Pending", "1"), pod("Succeeded", "5")]
    counted = quota.recount({"spec": {"hard": hard}}, {("", "pods"): pods})

    assert {name: str(q) for name, q in counted.items()} == {
        "pods": "2",
        "count/pods": "3",
        "requests.cpu": "1100m",
        "limits.memory": "0",
    }


def test_a_pods_need_counts_init_containers_sidecars_and_overhead():
    def container(cpu, **fields):
        return {"resources": {"requests": {"cpu": cpu}}, **fields}

    spec = {
        "containers": [container("1"), container("1")],
        "initContainers": [container("500m", restartPolicy="Always"), container("3")],
        "overhead": {"cpu": "100m"},
    }

    assert str(amounts.of_pod(spec, "requests")["cpu"]) == "3600m"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("count/deployments.apps", ("apps", "deployments")),
        ("requests.cpu", ("", "pods")),
        ("services.loadbalancers", ("", "services")),
        ("gold.storageclass.storage.k8s.io/requests.storage", ("", "persistentvolumeclaims")),
        ("secrets", ("", "secrets")),
        ("nonsense", None),
    ],
)
def test_every_limited_resource_names_the_kind_it_counts(name, kind):
    assert quota.counted_kind(name) == kind
