"""What admission makes of pods, and which pods it refuses."""

import pytest

PODS = "/api/v1/namespaces/demo/pods"
TOKEN_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"


async def refused(api, pod, url=PODS):
    reply = await api.create(url, pod)
    assert reply.code == 403, reply.json
    assert reply.json["details"]["name"] == pod["metadata"]["name"]
    return reply.message


async def created(api, pod, url=PODS):
    reply = await api.create(url, pod)
    assert reply.code == 201, reply.json
    return reply.json


async def make(api, url, body):
    reply = await api.create(url, body)
    assert reply.code == 201, reply.json
    return reply.json


async def account(api, name, **fields):
    url = "/api/v1/namespaces/demo/serviceaccounts"
    await make(api, url, {"metadata": {"name": name}, **fields})


async def test_a_pod_gets_its_accounts_token_as_three_files(api, a_pod):
    found = await created(api, a_pod(initContainers=[{"name": "i", "image": "x"}]))

    [volume] = found["spec"]["volumes"]
    assert volume["name"].startswith("kube-api-access-")
    sources = volume["projected"]["sources"]
    assert [next(iter(s)) for s in sources] == ["serviceAccountToken", "configMap", "downwardAPI"]
    assert sources[0]["serviceAccountToken"] == {"expirationSeconds": 3607, "path": "token"}
    for field in ("containers", "initContainers"):
        mount = {"name": volume["name"], "readOnly": True, "mountPath": TOKEN_PATH}
        assert found["spec"][field][0]["volumeMounts"] == [mount]


async def test_pods_of_one_template_have_one_spec(api, a_pod):
    one, other = await created(api, a_pod("a")), await created(api, a_pod("b"))

    assert one["spec"] == other["spec"]


async def test_pod_and_account_can_say_no_to_the_token_and_the_pod_decides(api, a_pod):
    await account(api, "quiet", automountServiceAccountToken=False)

    own = await created(api, a_pod("a", automountServiceAccountToken=False))
    accounts = await created(api, a_pod("b", serviceAccountName="quiet"))
    wanted = a_pod("c", serviceAccountName="quiet", automountServiceAccountToken=True)
    both = await created(api, wanted)

    assert "volumes" not in own["spec"]
    assert "volumes" not in accounts["spec"]
    assert len(both["spec"]["volumes"]) == 1


async def test_a_mount_of_the_pods_own_at_the_tokens_place_stays(api, a_pod):
    own = a_pod(volumes=[{"name": "v", "emptyDir": {}}])
    own["spec"]["containers"][0]["volumeMounts"] = [{"name": "v", "mountPath": TOKEN_PATH}]

    found = await created(api, own)

    assert [v["name"] for v in found["spec"]["volumes"]] == ["v"]


async def test_pull_secrets_come_from_the_account_unless_the_pod_has_its_own(api, a_pod):
    await account(api, "puller", imagePullSecrets=[{"name": "registry"}])

    taken = await created(api, a_pod("a", serviceAccountName="puller"))
    own = a_pod("b", serviceAccountName="puller", imagePullSecrets=[{"name": "mine"}])
    kept = await created(api, own)

    assert taken["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    assert kept["spec"]["imagePullSecrets"] == [{"name": "mine"}]


async def test_an_account_that_does_not_exist_is_refused_but_default_may_come_later(api, a_pod):
    assert await refused(api, a_pod("f", serviceAccountName="nosuch")) == (
        'pods "f" is forbidden: error looking up service account demo/nosuch: '
        'serviceaccount "nosuch" not found'
    )
    assert (await created(api, a_pod()))["spec"]["serviceAccountName"] == "default"


async def limits(api, *items):
    url = "/api/v1/namespaces/demo/limitranges"
    await make(api, url, {"metadata": {"name": "lr"}, "spec": {"limits": list(items)}})


CONTAINER_LIMITS = {
    "type": "Container",
    "default": {"cpu": "500m", "memory": "256Mi"},
    "defaultRequest": {"cpu": "100m", "memory": "256Mi"},
    "min": {"cpu": "50m"},
    "max": {"cpu": "1", "memory": "1Gi"},
    "maxLimitRequestRatio": {"cpu": "8"},
}


def with_resources(pod, **resources):
    pod["spec"]["containers"][0]["resources"] = resources
    return pod


async def test_a_limit_range_fills_in_and_says_so(api, a_pod):
    await limits(api, CONTAINER_LIMITS)

    found = await created(api, with_resources(a_pod(), requests={"cpu": "200m"}))

    assert found["spec"]["containers"][0]["resources"] == {
        "requests": {"cpu": "200m", "memory": "256Mi"},
        "limits": {"cpu": "500m", "memory": "256Mi"},
    }
    assert found["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: memory request for container c; cpu, memory limit for container c"
    )
    assert found["status"]["qosClass"] == "Burstable"  # decided after the filling in


@pytest.mark.parametrize(
    ("resources", "problem"),
    [
        (
            {"requests": {"cpu": "10m"}, "limits": {"cpu": "10m"}},
            "minimum cpu usage per Container is 50m, but request is 10m",
        ),
        (
            {"limits": {"cpu": "2"}},
            "[maximum cpu usage per Container is 1, but limit is 2, "
            "maximum cpu usage per Pod is 1500m, but limit is 2]",
        ),
        (
            {"requests": {"cpu": "50m"}, "limits": {"cpu": "1"}},
            "cpu max limit to request ratio per Container is 8, but provided ratio is 20.000000",
        ),
        (
            {"limits": {"memory": "2Gi"}},
            "maximum memory usage per Container is 1Gi, but limit is 2Gi",
        ),
    ],
)
async def test_bounds_of_a_limit_range_hold(api, a_pod, resources, problem):
    await limits(api, CONTAINER_LIMITS, {"type": "Pod", "max": {"cpu": "1500m"}})

    assert await refused(api, with_resources(a_pod(), **resources)) == (
        f'pods "p" is forbidden: {problem}'
    )


async def test_claims_are_bounded_too(api):
    bounds = {"min": {"storage": "1Gi"}, "max": {"storage": "5Gi"}}
    await limits(api, {"type": "PersistentVolumeClaim", **bounds})
    url = "/api/v1/namespaces/demo/persistentvolumeclaims"

    def claim(size):
        resources = {"requests": {"storage": size}}
        return {
            "metadata": {"name": "c"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": resources},
        }

    start = 'persistentvolumeclaims "c" is forbidden: '
    assert await refused(api, claim("500Mi"), url) == (
        f"{start}minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 500Mi"
    )
    assert await refused(api, claim("6Gi"), url) == (
        f"{start}maximum storage usage per PersistentVolumeClaim is 5Gi, but request is 6Gi"
    )
    found = await created(api, claim("2Gi"), url)
    assert found["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]


CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


async def test_the_class_decides_the_priority(api, a_pod):
    body = {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"}
    await make(api, CLASSES, body)

    found = (await created(api, a_pod(priorityClassName="high")))["spec"]
    system = (await created(api, a_pod("s", priorityClassName="system-node-critical")))["spec"]
    plain = (await created(api, a_pod("n")))["spec"]

    assert (found["priority"], found["preemptionPolicy"]) == (1000, "Never")
    assert system["priority"] == 2_000_001_000
    assert (plain["priority"], plain["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    assert await refused(api, a_pod("u", priorityClassName="nosuch")) == (
        'pods "u" is forbidden: no PriorityClass with name nosuch was found'
    )
    assert "integer value of priority (5) must not be provided" in await refused(
        api, a_pod("d", priorityClassName="high", priority=5)
    )
    assert "computed PreemptLowerPriority" in await refused(
        api, a_pod("e", preemptionPolicy="Never")
    )


async def test_there_is_one_default_class_and_system_classes_stay(api, a_pod):
    await make(api, CLASSES, {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True})

    spec = (await created(api, a_pod()))["spec"]
    second = {"metadata": {"name": "other"}, "value": 8, "globalDefault": True}
    deleted = await api.delete(f"{CLASSES}/system-cluster-critical")

    assert (spec["priorityClassName"], spec["priority"]) == ("usual", 7)
    assert "PriorityClass usual is already marked as default" in await refused(api, second, CLASSES)
    assert deleted.code == 403
    assert deleted.message.endswith("this is a system priority class and cannot be deleted")


async def test_an_update_that_leaves_out_what_admission_set_does_not_clear_it(api, a_pod):
    found = await created(api, a_pod())
    spec = found["spec"]
    for field in ("priority", "preemptionPolicy"):
        del spec[field]
    spec["tolerations"] = [t for t in spec["tolerations"] if "unreachable" in t["key"]]

    changed = await api.put(f"{PODS}/p", found)

    assert changed.code == 200, changed.json
    assert changed.json["spec"]["priority"] == 0
    assert len(changed.json["spec"]["tolerations"]) == 2


async def test_a_runtime_class_brings_overhead_and_placement(api, a_pod):
    scheduling = {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "operator": "Exists"}]}
    body = {
        "metadata": {"name": "sandboxed"},
        "handler": "h",
        "overhead": {"podFixed": {"cpu": "100m"}},
        "scheduling": scheduling,
    }
    await make(api, "/apis/node.k8s.io/v1/runtimeclasses", body)

    spec = (await created(api, a_pod(runtimeClassName="sandboxed")))["spec"]

    assert spec["overhead"] == {"cpu": "100m"}
    assert spec["nodeSelector"] == {"a": "b"}
    assert {"key": "k", "operator": "Exists"} in spec["tolerations"]
    conflict = a_pod("x", runtimeClassName="sandboxed", nodeSelector={"a": "z"})
    assert (await refused(api, conflict)).endswith(
        "conflict: runtimeClass.scheduling.nodeSelector[a] = b; pod.spec.nodeSelector[a] = z"
    )
    assert (await refused(api, a_pod("y", runtimeClassName="no"))).endswith(
        'pod rejected: RuntimeClass "no" not found'
    )
    assert "Pod Overhead set without" in await refused(api, a_pod("z", overhead={"cpu": "1"}))


async def test_a_dry_run_is_admitted_like_a_real_one(api, a_pod):
    found = await created(api, a_pod("dry"), f"{PODS}?dryRun=All")

    assert found["spec"]["priority"] == 0
    assert found["spec"]["volumes"]
    assert (await api.get(f"{PODS}/dry")).code == 404


async def test_new_nodes_take_no_pods_before_they_are_ready(api):
    found = await make(api, "/api/v1/nodes", {"metadata": {"name": "n"}})

    assert found["spec"]["taints"] == [
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    ]
