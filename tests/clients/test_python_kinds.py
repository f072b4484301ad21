"""The official Python client, typed and dynamic, over every kind that can be created.

One specimen of each kind makes the whole round: created from the typed model and compared field by
field, read, listed by a label, watched, replaced, patched, its status set, deleted.
"""

import json
import re
from typing import Any

import kubernetes
import pytest
from kubernetes.client.rest import ApiException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import NotFoundError

from . import specimens
from .conftest import wait_until

BUILT_IN = [kind for kind in specimens.kinds() if kind[1] != "Odd"]
# The client's Watch guesses the name of the model, and guesses wrong where two groups share it.
UNWATCHABLE = ("ResourceClaim",)
NAMESPACE = "kinds"
# The server itself writes the status of these, soon after they were created.
OBSERVED = ("ValidatingAdmissionPolicy", "FlowSchema", "PriorityLevelConfiguration")
ODD = ("fuzz.example.org/v1", "Odd")


@pytest.fixture(scope="module")
def client(server):
    configuration = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(str(server.kubeconfig), client_configuration=configuration)
    with kubernetes.client.ApiClient(configuration) as found:
        kubernetes.client.CoreV1Api(found).create_namespace({"metadata": {"name": NAMESPACE}})
        yield found


@pytest.fixture(scope="module")
def dynamic(client, custom, tmp_path_factory):
    return DynamicClient(client, cache_file=str(tmp_path_factory.mktemp("discovery") / "cache"))


@pytest.fixture(scope="module")
def custom(client):
    """A custom resource with a schema, status and scale."""
    properties = {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer", "minimum": 0},
                "replicas": {"type": "integer", "default": 2},
                "parts": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name"],
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {
                            "name": {"type": "string"},
                            "weight": {"type": "number"},
                        },
                    },
                },
            },
        },
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
    paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    definition = {
        "metadata": {"name": "odds.fuzz.example.org"},
        "spec": {
            "group": "fuzz.example.org",
            "scope": "Namespaced",
            "names": {"plural": "odds", "singular": "odd", "kind": "Odd"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}, "scale": paths},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
                }
            ],
        },
    }
    api = kubernetes.client.ApiextensionsV1Api(client)
    api.create_custom_resource_definition(definition)

    def is_established() -> bool:
        found = api.read_custom_resource_definition("odds.fuzz.example.org")
        conditions = found.status.conditions or []
        return any(c.type == "Established" and c.status == "True" for c in conditions)

    wait_until(is_established, "the definition is established")
    return kubernetes.client.CustomObjectsApi(client)


class Typed:
    """The methods of the typed client for one kind: `create_namespaced_config_map` and so on."""

    def __init__(self, client: kubernetes.client.ApiClient, api_version: str, kind: str) -> None:
        group, _, version = api_version.rpartition("/")
        words = [w for w in group.removesuffix(".k8s.io").split(".") if w] or ["core"]
        name = "".join(word.capitalize() for word in (*words, version))
        self._api = getattr(kubernetes.client, f"{name}Api")(client)
        self._client = client
        self._kind = (api_version, kind)
        self._snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", kind).lower()
        # Names that more than one group has are told apart by the group: CoreV1Event.
        names = (f"{version.capitalize()}{kind}", f"{name}{kind}")
        self.model = next(found for found in names if hasattr(kubernetes.client, found))

    def __call__(self, verb: str, *arguments: Any, part: str = "", **options: Any) -> Any:
        return self.method(verb, part)(*arguments, *self._where(verb), **options)

    def method(self, verb: str, part: str = "") -> Any:
        scope = "namespaced_" if specimens.is_namespaced(*self._kind) else ""
        suffix = f"_{part}" if part else ""
        return getattr(self._api, f"{verb}_{scope}{self._snake}{suffix}")

    def _where(self, verb: str) -> tuple[str, ...]:
        return (NAMESPACE,) if specimens.is_namespaced(*self._kind) else ()

    def create(self, body: Any) -> Any:
        where = self._where("create")
        return self.method("create")(*where, body)

    def write(self, verb: str, name: str, body: Any, part: str = "") -> Any:
        return self.method(verb, part)(name, *self._where(verb), body)

    def listed(self, **options: Any) -> Any:
        return self.method("list")(*self._where("list"), **options)

    @property
    def has_status(self) -> bool:
        scope = "namespaced_" if specimens.is_namespaced(*self._kind) else ""
        return hasattr(self._api, f"patch_{scope}{self._snake}_status")

    def of(self, document: dict[str, Any]) -> Any:
        """The document as the kind's typed model."""
        return self._client.deserialize(json.dumps(document), self.model, "application/json")


def plain(client: kubernetes.client.ApiClient, model: Any) -> dict[str, Any]:
    found: dict[str, Any] = client.sanitize_for_serialization(model)
    return found


def assert_holds(found: Any, wanted: Any, at: str = "") -> None:
    """Everything wanted is there; the server may have added to it."""
    if isinstance(wanted, dict):
        assert isinstance(found, dict), at
        for key, value in wanted.items():
            assert key in found, f"{at}.{key} is missing"
            assert_holds(found[key], value, f"{at}.{key}")
    elif at.endswith(".conditions"):  # the server may have its own beside them
        by_type = {condition["type"]: condition for condition in found}
        for condition in wanted:
            assert_holds(by_type.get(condition["type"]), condition, f"{at}.{condition['type']}")
    elif isinstance(wanted, list):
        assert len(found) == len(wanted), at
        for number, value in enumerate(wanted):
            assert_holds(found[number], value, f"{at}[{number}]")
    elif at.endswith(("Time", "Timestamp")):
        assert str(found)[:19] == str(wanted)[:19], at
    else:
        assert found == wanted, at


def is_going(read: Any) -> bool:
    """Whether an object is gone, or only waits for who protects it."""
    try:
        metadata = read().metadata
    except (ApiException, NotFoundError) as error:
        return bool(error.status == 404)
    if hasattr(metadata, "to_dict"):
        metadata = metadata.to_dict()
    return bool(metadata.get("deletion_timestamp") or metadata.get("deletionTimestamp"))


def name_of(kind: str, prefix: str) -> str:
    return f"{prefix}-{kind.lower()}"


@pytest.mark.parametrize(("api_version", "kind"), BUILT_IN, ids=[f"{v}-{k}" for v, k in BUILT_IN])
def test_a_typed_object_makes_the_round(client, api_version, kind):
    typed = Typed(client, api_version, kind)
    name = name_of(kind, "typed")
    if kind == "CSIDriver":
        name = "typed.example.org"
    document = specimens.make(api_version, kind, name, NAMESPACE)
    document["metadata"]["labels"] = {"round": name}

    made = typed.create(typed.of(document))

    assert made.metadata.uid
    assert_holds(plain(client, made), document)
    read = typed("read", name)
    if kind not in OBSERVED:
        assert read == made
    assert [o.metadata.name for o in typed.listed(label_selector=f"round={name}").items] == [name]
    assert typed.listed(label_selector=f"round!={name},round").items == []
    assert len(typed.listed(field_selector=f"metadata.name={name}").items) == 1

    replaced = replace(typed, name)
    assert replaced.metadata.annotations == {"note": "replaced"}
    assert replaced.metadata.resource_version != made.metadata.resource_version
    with pytest.raises(ApiException) as stale:
        typed.write("replace", name, made)
    assert stale.value.status == 409

    patched = typed.write("patch", name, {"metadata": {"annotations": {"note": "patched"}}})
    assert patched.metadata.annotations["note"] == "patched"
    if kind not in UNWATCHABLE:
        event = first_event(typed, name, replaced.metadata.resource_version)
        assert event["type"] == "MODIFIED"
        assert event["object"].metadata.uid == made.metadata.uid

    if typed.has_status:
        patch_status(client, typed, name)
    typed("delete", name)
    assert is_going(lambda: typed("read", name))


def replace(typed: Typed, name: str) -> Any:
    """Replace the object as clients do: what was changed meanwhile is read again."""
    for _ in range(5):
        read = typed("read", name)
        read.metadata.annotations = {"note": "replaced"}
        try:
            return typed.write("replace", name, read)
        except ApiException as error:
            if error.status != 409:
                raise
    raise AssertionError("somebody else changes it all the time")


def first_event(typed: Typed, name: str, version: str) -> Any:
    watching = kubernetes.watch.Watch()
    for event in watching.stream(
        typed.method("list"),
        *typed._where("list"),
        resource_version=version,
        field_selector=f"metadata.name={name}",
        timeout_seconds=10,
    ):
        watching.stop()
        return event
    raise AssertionError("no event within 10 s")


# What a status may be set to where a list of conditions is not it.
STATUS: dict[str, dict[str, Any]] = {
    "Node": {"capacity": {"cpu": "4"}},
    "Namespace": {"conditions": [{"type": "NamespaceContentRemaining", "status": "False"}]},
    "Pod": {"phase": "Running", "podIP": "10.1.2.3"},
    "Service": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}},
    "Ingress": {"loadBalancer": {"ingress": [{"hostname": "lb.example.org"}]}},
    "PersistentVolume": {"phase": "Available"},
    "PersistentVolumeClaim": {"phase": "Pending"},
    "ResourceQuota": {"hard": {"pods": "5"}, "used": {"pods": "3"}},
    "ReplicationController": {"replicas": 1},
    "ReplicaSet": {"replicas": 1, "readyReplicas": 1},
    "StatefulSet": {"replicas": 1, "currentRevision": "web-1"},
    "Deployment": {"replicas": 1, "observedGeneration": 1},
    "DaemonSet": {
        "currentNumberScheduled": 1,
        "desiredNumberScheduled": 2,
        "numberMisscheduled": 0,
        "numberReady": 1,
    },
    "Job": {"active": 1, "startTime": "2026-01-01T00:00:00Z"},
    "CronJob": {"lastScheduleTime": "2026-01-01T00:00:00Z"},
    "HorizontalPodAutoscaler": {"desiredReplicas": 2, "currentReplicas": 1},
    "PodDisruptionBudget": {
        "currentHealthy": 1,
        "desiredHealthy": 1,
        "disruptionsAllowed": 0,
        "expectedPods": 1,
    },
    "VolumeAttachment": {"attached": True},
    "ValidatingAdmissionPolicy": {"observedGeneration": 1},
    "ResourceClaim": {},
}
CONDITION = {
    "type": "Tested",
    "status": "True",
    "reason": "Tested",
    "message": "it was tested",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def patch_status(client: kubernetes.client.ApiClient, typed: Typed, name: str) -> None:
    """Set the status; the rest of the patch must not count, and the object's status stays."""
    status = STATUS.get(typed._kind[1], {"conditions": [CONDITION]})
    set_ = typed.write("patch", name, {"status": status}, part="status")
    assert_holds(plain(client, set_), {"status": status} if status else {})
    assert_holds(plain(client, typed("read", name)), {"status": status} if status else {})
    assert typed("read", name, part="status").metadata.uid == set_.metadata.uid


EVERY = [*BUILT_IN, ODD]


@pytest.mark.parametrize(("api_version", "kind"), EVERY, ids=[f"{v}-{k}" for v, k in EVERY])
def test_a_dynamic_object_makes_the_round(dynamic, api_version, kind):
    resource = dynamic.resources.get(api_version=api_version, kind=kind)
    assert resource.name == specimens.plural(api_version, kind)
    where = {"namespace": NAMESPACE} if specimens.is_namespaced(api_version, kind) else {}
    name = "dynamic.example.org" if kind == "CSIDriver" else name_of(kind, "dynamic")
    document = specimens.make(api_version, kind, name, NAMESPACE)
    document["metadata"]["labels"] = {"round": name}

    made = resource.create(body=document, **where)

    assert_holds(made.to_dict(), document)
    assert resource.get(name=name, **where).metadata.uid == made.metadata.uid
    listed = resource.get(label_selector=f"round={name}", **where)
    assert [item.metadata.name for item in listed.items] == [name]
    merge = {"body": {"metadata": {"annotations": {"note": "merged"}}}, "name": name}
    merged = resource.patch(**merge, content_type="application/merge-patch+json", **where)
    assert merged.metadata.annotations.note == "merged"
    operations = [{"op": "add", "path": "/metadata/annotations/more", "value": "json"}]
    by_json = resource.patch(
        body=operations, name=name, content_type="application/json-patch+json", **where
    )
    assert by_json.metadata.annotations.more == "json"
    replaced = by_json.to_dict()
    replaced["metadata"]["labels"]["extra"] = "yes"
    assert resource.replace(body=replaced, name=name, **where).metadata.labels.extra == "yes"

    applied = resource.server_side_apply(
        body={
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"name": name, "labels": {"applied": "yes"}},
        },
        name=name,
        field_manager="tests",
        force_conflicts=True,
        **where,
    )
    assert applied.metadata.labels.applied == "yes"
    owners = [f for f in applied.metadata.managedFields if f.manager == "tests"]
    assert [o.operation for o in owners] == ["Apply"]

    events = resource.watch(
        field_selector=f"metadata.name={name}",
        resource_version=made.metadata.resourceVersion,
        timeout=10,
        **where,
    )
    assert next(iter(events))["type"] == "MODIFIED"
    resource.delete(name=name, **where)
    assert is_going(lambda: resource.get(name=name, **where))


def test_objects_are_applied_from_nothing(dynamic):
    for api_version, kind in (("v1", "ConfigMap"), ("apps/v1", "Deployment"), ODD):
        resource = dynamic.resources.get(api_version=api_version, kind=kind)
        document = specimens.make(api_version, kind, "applied", NAMESPACE)
        where = {"name": "applied", "namespace": NAMESPACE}
        made = resource.server_side_apply(body=document, field_manager="one", **where)
        assert_holds(made.to_dict(), document)
        again = resource.server_side_apply(body=document, field_manager="one", **where)
        assert again.metadata.resourceVersion == made.metadata.resourceVersion


def test_custom_objects_and_their_parts(custom):
    where = ("fuzz.example.org", "v1", NAMESPACE, "odds")
    body = specimens.make(*ODD, "custom", NAMESPACE)
    made = custom.create_namespaced_custom_object(*where, body)
    assert made["spec"]["replicas"] == 2
    status = {"status": {"replicas": 1, "free": {"any": [1, 2]}}}
    set_ = custom.patch_namespaced_custom_object_status(*where, "custom", status)
    assert set_["status"]["free"] == {"any": [1, 2]}
    scale = custom.get_namespaced_custom_object_scale(*where, "custom")
    assert (scale["spec"]["replicas"], scale["status"]["replicas"]) == (2, 1)
    custom.patch_namespaced_custom_object_scale(*where, "custom", {"spec": {"replicas": 7}})
    found = custom.get_namespaced_custom_object(*where, "custom")
    assert found["spec"]["replicas"] == 7
    assert found["status"]["replicas"] == 1
    with pytest.raises(ApiException) as refused:
        custom.patch_namespaced_custom_object(*where, "custom", {"spec": {"size": -1}})
    assert refused.value.status == 422
    assert "spec.size" in refused.value.body
    custom.delete_namespaced_custom_object(*where, "custom")
    left = custom.list_namespaced_custom_object(*where)["items"]
    assert "custom" not in [item["metadata"]["name"] for item in left]


def pod(core: kubernetes.client.CoreV1Api, name: str) -> Any:
    return core.create_namespaced_pod(NAMESPACE, specimens.make("v1", "Pod", name, NAMESPACE))


def test_a_pod_is_bound(client):
    core = kubernetes.client.CoreV1Api(client)
    pod(core, "bound")
    binding = kubernetes.client.V1Binding(
        metadata=kubernetes.client.V1ObjectMeta(name="bound"),
        target=kubernetes.client.V1ObjectReference(kind="Node", name="somewhere"),
    )
    core.create_namespaced_pod_binding("bound", NAMESPACE, binding, _preload_content=False)
    assert core.read_namespaced_pod("bound", NAMESPACE).spec.node_name == "somewhere"
    with pytest.raises(ApiException) as again:
        core.create_namespaced_pod_binding("bound", NAMESPACE, binding, _preload_content=False)
    assert again.value.status == 409


def test_a_pod_is_evicted(client):
    core = kubernetes.client.CoreV1Api(client)
    pod(core, "evicted")
    eviction = kubernetes.client.V1Eviction(
        metadata=kubernetes.client.V1ObjectMeta(name="evicted", namespace=NAMESPACE)
    )
    core.create_namespaced_pod_eviction("evicted", NAMESPACE, eviction, _preload_content=False)
    assert is_going(lambda: core.read_namespaced_pod("evicted", NAMESPACE))


def test_an_account_gets_a_token_that_works(client, server):
    core = kubernetes.client.CoreV1Api(client)
    core.create_namespaced_service_account(NAMESPACE, {"metadata": {"name": "robot"}})
    request = kubernetes.client.AuthenticationV1TokenRequest(
        spec=kubernetes.client.V1TokenRequestSpec(
            audiences=["https://kubernetes.default.svc.cluster.local"], expiration_seconds=600
        )
    )
    given = core.create_namespaced_service_account_token("robot", NAMESPACE, request).status
    assert given.expiration_timestamp
    review = kubernetes.client.AuthenticationV1Api(client).create_token_review(
        kubernetes.client.V1TokenReview(
            spec=kubernetes.client.V1TokenReviewSpec(
                token=given.token, audiences=["https://kubernetes.default.svc.cluster.local"]
            )
        )
    )
    assert review.status.authenticated
    assert review.status.user.username == f"system:serviceaccount:{NAMESPACE}:robot"


def test_scales_are_read_replaced_and_patched(client):
    apps = kubernetes.client.AppsV1Api(client)
    apps.create_namespaced_stateful_set(
        NAMESPACE, specimens.make("apps/v1", "StatefulSet", "scaled", NAMESPACE)
    )
    scale = apps.read_namespaced_stateful_set_scale("scaled", NAMESPACE)
    assert scale.spec.replicas == 1
    scale.spec.replicas = 4
    replaced = apps.replace_namespaced_stateful_set_scale("scaled", NAMESPACE, scale)
    assert replaced.spec.replicas == 4
    apps.patch_namespaced_stateful_set_scale("scaled", NAMESPACE, {"spec": {"replicas": 0}})
    assert apps.read_namespaced_stateful_set("scaled", NAMESPACE).spec.replicas == 0


def test_access_reviews_say_who_may_do_what(client):
    api = kubernetes.client.AuthorizationV1Api(client)
    attributes = kubernetes.client.V1ResourceAttributes(
        verb="create", resource="pods", namespace=NAMESPACE
    )
    mine = api.create_self_subject_access_review(
        kubernetes.client.V1SelfSubjectAccessReview(
            spec=kubernetes.client.V1SelfSubjectAccessReviewSpec(resource_attributes=attributes)
        )
    )
    assert mine.status.allowed
    theirs = api.create_subject_access_review(
        kubernetes.client.V1SubjectAccessReview(
            spec=kubernetes.client.V1SubjectAccessReviewSpec(
                user="nobody", resource_attributes=attributes
            )
        )
    )
    assert theirs.status.allowed is False
    rules = api.create_self_subject_rules_review(
        kubernetes.client.V1SelfSubjectRulesReview(
            spec=kubernetes.client.V1SelfSubjectRulesReviewSpec(namespace=NAMESPACE)
        )
    )
    assert any("*" in rule.verbs for rule in rules.status.resource_rules)


def test_collections_are_deleted_by_their_labels(client):
    core = kubernetes.client.CoreV1Api(client)
    for number in range(3):
        labels = {"set": "all" if number else "one"}
        body = {"metadata": {"name": f"some-{number}", "labels": labels}}
        core.create_namespaced_config_map(NAMESPACE, body)
    core.delete_collection_namespaced_config_map(NAMESPACE, label_selector="set=all")
    left = core.list_namespaced_config_map(NAMESPACE, label_selector="set").items
    assert [m.metadata.name for m in left] == ["some-0"]
