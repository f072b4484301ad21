"""The official Python client against a real server."""

import threading

import kubernetes
import pytest
from kubernetes.client.rest import ApiException


@pytest.fixture
def core(server):
    """Typed access to the core group."""
    configuration = kubernetes.client.Configuration()
    kubernetes.config.load_kube_config(str(server.kubeconfig), client_configuration=configuration)
    with kubernetes.client.ApiClient(configuration) as client:
        yield kubernetes.client.CoreV1Api(client)


@pytest.fixture
def apps(core):
    return kubernetes.client.AppsV1Api(core.api_client)


def config_map(name: str, **data: str) -> kubernetes.client.V1ConfigMap:
    metadata = kubernetes.client.V1ObjectMeta(name=name)
    return kubernetes.client.V1ConfigMap(metadata=metadata, data=data)


def test_typed_objects_make_the_round_trip(core):
    made = core.create_namespaced_config_map("default", config_map("py", a="1"))
    assert made.metadata.uid

    made.data["b"] = "2"
    replaced = core.replace_namespaced_config_map("py", "default", made)
    assert replaced.data == {"a": "1", "b": "2"}
    patched = core.patch_namespaced_config_map("py", "default", {"data": {"a": None}})
    assert patched.data == {"b": "2"}
    names = [m.metadata.name for m in core.list_namespaced_config_map("default").items]
    assert "py" in names
    core.delete_namespaced_config_map("py", "default")
    with pytest.raises(ApiException) as gone:
        core.read_namespaced_config_map("py", "default")
    assert gone.value.status == 404


def test_a_stale_object_is_a_conflict(core):
    made = core.create_namespaced_config_map("default", config_map("stale"))
    core.patch_namespaced_config_map("stale", "default", {"data": {"x": "y"}})

    with pytest.raises(ApiException) as conflict:
        core.replace_namespaced_config_map("stale", "default", made)

    assert (conflict.value.status, conflict.value.reason) == (409, "Conflict")


def test_pods_and_deployments_parse(core, apps):
    container = kubernetes.client.V1Container(
        name="c",
        image="nginx",
        resources=kubernetes.client.V1ResourceRequirements(limits={"cpu": "1", "memory": "1Gi"}),
    )
    pod = core.create_namespaced_pod(
        "default",
        kubernetes.client.V1Pod(
            metadata=kubernetes.client.V1ObjectMeta(generate_name="py-"),
            spec=kubernetes.client.V1PodSpec(containers=[container]),
        ),
    )
    assert pod.status.phase == "Pending"
    assert pod.status.qos_class == "Guaranteed"
    labels = {"app": "py"}
    deployment = apps.create_namespaced_deployment(
        "default",
        kubernetes.client.V1Deployment(
            metadata=kubernetes.client.V1ObjectMeta(name="py"),
            spec=kubernetes.client.V1DeploymentSpec(
                selector=kubernetes.client.V1LabelSelector(match_labels=labels),
                template=kubernetes.client.V1PodTemplateSpec(
                    metadata=kubernetes.client.V1ObjectMeta(labels=labels),
                    spec=kubernetes.client.V1PodSpec(containers=[container]),
                ),
            ),
        ),
    )
    assert deployment.spec.replicas == 1
    scale = apps.read_namespaced_deployment_scale("py", "default")
    scale.spec.replicas = 4
    apps.replace_namespaced_deployment_scale("py", "default", scale)
    assert apps.read_namespaced_deployment("py", "default").spec.replicas == 4


def test_a_watch_sees_the_life_of_an_object(core):
    seen: list[tuple[str, str]] = []
    version = core.list_namespaced_config_map("default").metadata.resource_version
    watching = kubernetes.watch.Watch()

    def collect() -> None:
        events = watching.stream(
            core.list_namespaced_config_map,
            "default",
            resource_version=version,
            field_selector="metadata.name=seen",
            timeout_seconds=20,
        )
        for event in events:
            seen.append((event["type"], event["object"].metadata.name))
            if event["type"] == "DELETED":
                watching.stop()

    thread = threading.Thread(target=collect)
    thread.start()
    core.create_namespaced_config_map("default", config_map("seen"))
    core.create_namespaced_config_map("default", config_map("unseen"))
    core.patch_namespaced_config_map("seen", "default", {"data": {"x": "y"}})
    core.delete_namespaced_config_map("seen", "default")
    thread.join(25)

    assert seen == [("ADDED", "seen"), ("MODIFIED", "seen"), ("DELETED", "seen")]


def test_lists_come_in_pages(core):
    for number in range(5):
        core.create_namespaced_secret(
            "default",
            kubernetes.client.V1Secret(
                metadata=kubernetes.client.V1ObjectMeta(name=f"page-{number}")
            ),
        )

    found: list[str] = []
    token = None
    while True:
        page = core.list_namespaced_secret("default", limit=2, _continue=token)
        found += [s.metadata.name for s in page.items]
        token = page.metadata._continue
        if not token:
            break

    assert found == [f"page-{number}" for number in range(5)]
