"""Subresources that open one part of an object: resize, ephemeral containers, approval."""

import base64

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PODS = "/api/v1/namespaces/demo/pods"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
SIZE = {"requests": {"cpu": "100m", "memory": "10Mi"}, "limits": {"cpu": "1", "memory": "20Mi"}}


async def a_sized_pod(api, a_pod):
    body = a_pod()
    body["spec"]["containers"][0]["resources"] = SIZE
    assert (await api.create(PODS, body)).code == 201


def sized(**resources):
    return {"spec": {"containers": [{"name": "c", "resources": resources}]}}


async def test_a_resize_changes_resources_and_counts_a_generation(api, a_pod):
    await a_sized_pod(api, a_pod)

    done = await api.patch(f"{PODS}/p/resize", sized(requests={"cpu": "200m"}), "strategic")

    assert done.code == 200
    assert done.json["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "200m"
    assert done.json["metadata"]["generation"] == 2
    assert (await api.get(f"{PODS}/p/resize")).json == (await api.get(f"{PODS}/p")).json


async def test_a_resize_ignores_everything_else(api, a_pod):
    await a_sized_pod(api, a_pod)
    whole = (await api.get(f"{PODS}/p")).json
    whole["spec"]["containers"][0]["image"] = "other"
    whole["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "2"
    whole["metadata"]["labels"] = {"a": "b"}
    whole["status"]["phase"] = "Failed"

    done = await api.put(f"{PODS}/p/resize", whole)

    assert done.code == 200
    container = done.json["spec"]["containers"][0]
    assert (container["image"], container["resources"]["limits"]["cpu"]) == ("nginx", "2")
    assert "labels" not in done.json["metadata"]
    assert done.json["status"]["phase"] == "Pending"


async def test_a_resize_keeps_the_class_and_what_was_asked_for(api, a_pod):
    await a_sized_pod(api, a_pod)

    removed = await api.patch(f"{PODS}/p/resize", sized(requests=None, limits=None), "strategic")
    over = await api.patch(f"{PODS}/p/resize", sized(requests={"cpu": "2"}), "strategic")
    disk = await api.patch(
        f"{PODS}/p/resize", sized(requests={"ephemeral-storage": "1Gi"}), "strategic"
    )

    assert [c["message"] for c in removed.json["details"]["causes"]] == [
        'Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing',
        "Forbidden: resource requests cannot be removed",
        "Forbidden: resource limits cannot be removed",
    ]
    assert "must be less than or equal to cpu limit of 1" in over.message
    assert "only cpu and memory resources are mutable" in disk.message


async def test_a_running_pod_is_resized_only_where_its_node_reports_resources(api, a_pod):
    await a_sized_pod(api, a_pod)
    running = {"name": "c", "state": {"running": {}}, "ready": True, "restartCount": 0}
    running |= {"image": "x", "imageID": "y"}
    wanted = sized(requests={"cpu": "200m"})

    await api.patch(f"{PODS}/p/status", {"status": {"containerStatuses": [running]}})
    refused = await api.patch(f"{PODS}/p/resize", wanted, "strategic")
    reported = [{**running, "resources": SIZE}]
    await api.patch(f"{PODS}/p/status", {"status": {"containerStatuses": reported}})
    done = await api.patch(f"{PODS}/p/resize", wanted, "strategic")

    assert refused.code == 422
    assert "Pod running on node without support for resize" in refused.message
    assert done.code == 200


def debugged(**container):
    return {"spec": {"ephemeralContainers": [{"name": "dbg", "image": "busybox", **container}]}}


async def test_ephemeral_containers_are_added_with_their_defaults(api, a_pod):
    await api.create(PODS, a_pod())

    done = await api.patch(
        f"{PODS}/p/ephemeralcontainers", debugged(targetContainerName="c"), "strategic"
    )

    assert done.code == 200
    added = done.json["spec"]["ephemeralContainers"][0]
    assert added["imagePullPolicy"] == "Always"
    assert added["terminationMessagePath"] == "/dev/termination-log"
    assert done.json["metadata"]["generation"] == 2


async def test_ephemeral_containers_never_change_or_go(api, a_pod):
    await api.create(PODS, a_pod())
    url = f"{PODS}/p/ephemeralcontainers"
    await api.patch(url, debugged(), "strategic")

    changed = await api.patch(url, debugged(image="other"), "strategic")
    removed = await api.patch(url, {"spec": {"ephemeralContainers": None}})

    assert changed.code == removed.code == 422
    assert 'existing ephemeral containers "dbg" may not be changed' in changed.message
    assert 'existing ephemeral containers "dbg" may not be removed' in removed.message


async def test_ephemeral_containers_are_checked(api, a_pod):
    await api.create(PODS, a_pod())
    url = f"{PODS}/p/ephemeralcontainers"

    taken = await api.patch(url, {"spec": {"ephemeralContainers": [{"name": "c", "image": "x"}]}})
    target = await api.patch(url, debugged(targetContainerName="zz"))
    extra = await api.patch(
        url, debugged(ports=[{"containerPort": 1}], resources={"limits": {"cpu": "1"}})
    )

    assert 'spec.ephemeralContainers[0].name: Duplicate value: "c"' in taken.message
    assert 'spec.ephemeralContainers[0].targetContainerName: Not found: "zz"' in target.message
    assert [c["field"] for c in extra.json["details"]["causes"]] == [
        "spec.ephemeralContainers[0].ports",
        "spec.ephemeralContainers[0].resources",
    ]


async def test_ephemeral_containers_leave_the_rest_alone(api, a_pod):
    await api.create(PODS, a_pod())
    body = debugged() | {"metadata": {"labels": {"a": "b"}}}
    body["spec"]["containers"] = [{"name": "c", "image": "other"}]

    done = await api.patch(f"{PODS}/p/ephemeralcontainers", body, "strategic")

    assert done.json["spec"]["containers"][0]["image"] == "nginx"
    assert "labels" not in done.json["metadata"]


def certificate_request():
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "me")])
    made = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()


YES = {"type": "Approved", "status": "True", "reason": "R", "message": "m"}


async def a_request(api):
    body = {
        "metadata": {"name": "r"},
        "spec": {
            "signerName": "example.com/s",
            "usages": ["client auth"],
            "request": certificate_request(),
        },
    }
    assert (await api.create(REQUESTS, body)).code == 201


async def test_an_approval_is_dated_and_stays(api):
    await a_request(api)

    approved = await api.patch(f"{REQUESTS}/r/approval", {"status": {"conditions": [YES]}})
    denied = await api.patch(
        f"{REQUESTS}/r/approval",
        {"status": {"conditions": [{"type": "Denied", "status": "True", "reason": "R"}]}},
    )

    condition = approved.json["status"]["conditions"][0]
    assert condition["lastUpdateTime"] == condition["lastTransitionTime"]
    assert denied.code == 422
    assert 'updates may not remove a condition of type "Approved"' in denied.message


async def test_who_approves_may_label_but_change_nothing_else(api):
    await a_request(api)
    body = {
        "metadata": {"annotations": {"by": "me"}, "labels": {"a": "b"}, "generation": 9},
        "spec": {"signerName": "example.com/other"},
        "status": {"conditions": [YES], "certificate": "eA=="},
    }

    done = (await api.patch(f"{REQUESTS}/r/approval", body)).json

    assert done["metadata"]["annotations"] == {"by": "me"}
    assert done["metadata"]["labels"] == {"a": "b"}
    assert "generation" not in done["metadata"]
    assert done["spec"]["signerName"] == "example.com/s"
    assert "certificate" not in done["status"]


async def test_who_signs_may_not_therefore_approve(api):
    await a_request(api)
    url = f"{REQUESTS}/r/status"
    failed = {"type": "Failed", "status": "True", "reason": "R"}

    approved = await api.patch(url, {"status": {"conditions": [YES]}})
    await api.patch(f"{REQUESTS}/r/approval", {"status": {"conditions": [YES]}})
    taken_back = await api.patch(url, {"status": {"conditions": [failed]}})
    changed = {**YES, "message": "other"}
    done = await api.patch(
        url, {"metadata": {"labels": {"a": "b"}}, "status": {"conditions": [changed, failed]}}
    )

    assert 'updates may not add a condition of type "Approved"' in approved.message
    assert 'updates may not remove a condition of type "Approved"' in taken_back.message
    assert done.json["metadata"]["labels"] == {"a": "b"}
    first, second = done.json["status"]["conditions"]
    assert first["message"] == "m"  # a decision is kept as it was made
    assert second["lastUpdateTime"]


async def test_a_certificate_that_was_issued_is_not_replaced(api):
    await a_request(api)
    url = f"{REQUESTS}/r/status"

    def pem(text):
        block = f"-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n"
        return {"status": {"certificate": base64.b64encode(block.encode()).decode()}}

    issued, again = await api.patch(url, pem("AAAA")), await api.patch(url, pem("BBBB"))

    assert issued.code == 200
    assert "updates may not modify existing certificate content" in again.message


METADATA = {
    "labels": {"a": "b"},
    "annotations": {"c": "d"},
    "finalizers": ["example.com/f"],
    "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "u"}],
}
# With a write of the status nothing of the metadata changes, or everything but some of it.
KEPT_WITH_STATUS = {
    ("api/v1", "nodes", ""): set(),
    ("api/v1", "persistentvolumes", ""): set(),
    ("api/v1", "pods", "demo"): {"ownerReferences"},
    ("api/v1", "services", "demo"): set(),
    ("apis/apps/v1", "deployments", "demo"): {"labels"},
    ("apis/apps/v1", "replicasets", "demo"): set(),
    ("apis/flowcontrol.apiserver.k8s.io/v1", "flowschemas", ""): set(METADATA),
    ("apis/networking.k8s.io/v1", "servicecidrs", ""): set(METADATA),
    ("apis/storage.k8s.io/v1", "volumeattachments", ""): set(METADATA),
}


@pytest.mark.parametrize(("where", "kept"), KEPT_WITH_STATUS.items())
async def test_metadata_changes_with_a_status_only_where_kubernetes_lets_it(
    api, a_pod, where, kept
):
    prefix, plural, namespace = where
    labels = {"app": "x"}
    template = {"metadata": {"labels": labels}, "spec": a_pod()["spec"]}
    workload = {"selector": {"matchLabels": labels}, "template": template}
    level = {"name": "catch-all"}
    specs = {
        "pods": a_pod()["spec"],
        "deployments": workload,
        "replicasets": workload,
        "services": {"ports": [{"port": 80}]},
        "servicecidrs": {"cidrs": ["10.77.0.0/24"]},
        "flowschemas": {"priorityLevelConfiguration": level},
        "persistentvolumes": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/x"},
        },
        "volumeattachments": {
            "attacher": "d",
            "nodeName": "n",
            "source": {"persistentVolumeName": "v"},
        },
    }
    url = f"/{prefix}/namespaces/{namespace}/{plural}" if namespace else f"/{prefix}/{plural}"
    made = await api.create(url, {"metadata": {"name": "x"}, "spec": specs.get(plural, {})})
    assert made.code == 201, made.json

    done = await api.patch(f"{url}/x/status", {"metadata": METADATA})

    assert done.code == 200, done.json
    assert {name for name in METADATA if name not in done.json["metadata"]} == kept


async def test_a_volume_says_since_when_it_is_in_its_phase(api):
    url = "/api/v1/persistentvolumes"
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]}
    body = {"metadata": {"name": "v"}, "spec": {**spec, "hostPath": {"path": "/x"}}}
    name = {"metadata": {"name": "v"}}
    long_ago = {"phase": "Pending", "lastPhaseTransitionTime": "2020-01-01T00:00:00Z"}
    await api.create(url, body)
    await api.put(f"{url}/v/status", {**name, "status": long_ago})

    same = await api.put(f"{url}/v/status", {**name, "status": {"phase": "Pending"}})
    other = await api.patch(f"{url}/v/status", {"status": {"phase": "Available"}})

    assert same.json["status"]["lastPhaseTransitionTime"] == "2020-01-01T00:00:00Z"
    assert other.json["status"]["lastPhaseTransitionTime"] > "2020-01-01T00:00:00Z"


async def test_a_status_that_forgets_the_class_of_a_pod_keeps_it(api, a_pod):
    await api.create(PODS, a_pod())

    done = await api.put(
        f"{PODS}/p/status", {"metadata": {"name": "p"}, "status": {"phase": "Running"}}
    )

    assert done.json["status"] == {"phase": "Running", "qosClass": "BestEffort"}


async def test_a_namespace_keeps_its_name_as_a_label_also_through_its_status(api):
    url = "/api/v1/namespaces/demo"
    name = {"kubernetes.io/metadata.name": "x"}

    done = await api.patch(f"{url}/status", {"metadata": {"labels": {**name, "a": "b"}}})

    assert done.json["metadata"]["labels"] == {"kubernetes.io/metadata.name": "demo", "a": "b"}


async def test_a_pod_is_bound_by_the_old_path_too(api, a_pod):
    await api.create(PODS, a_pod())
    body = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}

    done = await api.create("/api/v1/namespaces/demo/bindings", body)

    assert done.code == 201
    assert (await api.get(f"{PODS}/p")).json["spec"]["nodeName"] == "n1"


async def test_a_status_may_not_contradict_the_rest(api, a_pod):
    await api.create(PODS, a_pod())

    classed = await api.patch(f"{PODS}/p/status", {"status": {"qosClass": "Guaranteed"}})
    ending = await api.patch("/api/v1/namespaces/demo/status", {"status": {"phase": "Terminating"}})

    assert "status.qosClass" in classed.message
    assert "may only be 'Active' if `deletionTimestamp` is empty" in ending.message


async def test_counts_of_replicas_are_not_larger_than_the_whole(api, a_pod):
    url = "/apis/apps/v1/namespaces/demo/replicasets"
    labels = {"app": "x"}
    template = {"metadata": {"labels": labels}, "spec": a_pod()["spec"]}
    spec = {"selector": {"matchLabels": labels}, "template": template}
    await api.create(url, {"metadata": {"name": "r"}, "spec": spec})

    right = {"replicas": 2, "readyReplicas": 2, "availableReplicas": 1}
    accepted = await api.patch(f"{url}/r/status", {"status": right})
    refused = await api.patch(f"{url}/r/status", {"status": {"replicas": 1}})
    negative = await api.patch(f"{url}/r/status", {"status": {"replicas": -1}})

    assert (accepted.code, refused.code, negative.code) == (200, 422, 422)
    assert "status.readyReplicas: Invalid value: 2: cannot be greater than" in refused.message
    assert "status.replicas: Invalid value: -1: must be greater than or equal to 0" in (
        negative.message
    )


async def test_ephemeral_containers_do_not_come_through_the_pod_itself(api, a_pod):
    await api.create(PODS, a_pod())

    refused = await api.patch(f"{PODS}/p", debugged(), "strategic")

    assert refused.code == 422
    assert "pod updates may not change fields other than" in refused.message
