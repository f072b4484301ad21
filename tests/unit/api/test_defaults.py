import copy

import pytest

from motley.api import defaults, scheme
from motley.api.defaults import pod

KINDS = {kind.kind: kind for kind in scheme.kinds() if kind.stored_as is None}


def defaulted(kind, **obj):
    found = {"metadata": {"name": "a"}, **obj}
    defaults.apply(KINDS[kind], found)
    again = copy.deepcopy(found)
    defaults.apply(KINDS[kind], again)
    assert again == found, "defaulting twice differs from defaulting once"
    return found


CONTAINER = {"name": "c", "image": "nginx"}


def pod_spec(**spec):
    return defaulted("Pod", spec={"containers": [copy.deepcopy(CONTAINER)], **spec})["spec"]


def container(**more):
    return pod_spec(containers=[CONTAINER | more])["containers"][0]


def test_a_minimal_pod():
    assert pod_spec() == {
        "containers": [
            {
                "name": "c",
                "image": "nginx",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "imagePullPolicy": "Always",
            }
        ],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "securityContext": {},
        "schedulerName": "default-scheduler",
        "enableServiceLinks": True,
    }


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.25", "IfNotPresent"),
        ("host:5000/nginx", "Always"),
        ("host:5000/nginx:1", "IfNotPresent"),
        ("nginx@sha256:" + "a" * 64, "IfNotPresent"),
    ],
)
def test_a_moving_tag_is_always_pulled(image, policy):
    assert container(image=image)["imagePullPolicy"] == policy


def test_requests_come_from_limits_in_pods_but_not_in_templates():
    resources = {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}
    template = {"spec": {"containers": [CONTAINER | {"resources": copy.deepcopy(resources)}]}}
    found = defaulted("ReplicaSet", spec={"template": template})["spec"]["template"]["spec"]

    assert container(resources=copy.deepcopy(resources))["resources"]["requests"] == {
        "cpu": "500m",
        "memory": "1Gi",
    }
    assert found["containers"][0]["resources"] == resources
    assert "enableServiceLinks" not in found


def test_resources_of_the_whole_pod_sum_up_what_its_containers_ask_for():
    asking = CONTAINER | {"resources": {"requests": {"cpu": "100m"}}}
    spec = pod_spec(
        containers=[asking, copy.deepcopy(asking) | {"name": "d"}],
        resources={"limits": {"cpu": "2", "memory": "1Gi"}},
    )

    assert "requests" not in spec["resources"]  # the server's to say, once it knows them all
    pod.request_pod_level(spec)
    assert spec["resources"]["requests"] == {"cpu": "200m", "memory": "1Gi"}


def test_probes_and_hooks():
    found = container(
        livenessProbe={"httpGet": {"port": 80}},
        readinessProbe={"grpc": {"port": 9}, "periodSeconds": 3},
        lifecycle={"preStop": {"httpGet": {"port": 80}}},
    )

    assert found["livenessProbe"] == {
        "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
        "timeoutSeconds": 1,
        "periodSeconds": 10,
        "successThreshold": 1,
        "failureThreshold": 3,
    }
    assert found["readinessProbe"]["periodSeconds"] == 3
    assert found["readinessProbe"]["grpc"] == {"port": 9, "service": ""}
    assert found["lifecycle"]["preStop"]["httpGet"]["scheme"] == "HTTP"


def test_ports_take_the_hosts_number_only_on_the_hosts_network():
    port = {"containerPort": 80}
    inside = container(ports=[dict(port)])["ports"]
    on_host = pod_spec(hostNetwork=True, containers=[CONTAINER | {"ports": [dict(port)]}])

    assert inside == [{"containerPort": 80, "protocol": "TCP"}]
    assert on_host["containers"][0]["ports"][0]["hostPort"] == 80


def test_volumes():
    found = pod_spec(
        volumes=[
            {"name": "a"},
            {"name": "b", "configMap": {"name": "x"}},
            {"name": "c", "hostPath": {"path": "/x"}},
            {"name": "d", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
            {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        ]
    )["volumes"]

    assert found[0] == {"name": "a", "emptyDir": {}}
    assert found[1]["configMap"]["defaultMode"] == 0o644
    assert found[2]["hostPath"]["type"] == ""
    assert found[3]["projected"]["sources"][0]["serviceAccountToken"]["expirationSeconds"] == 3600
    assert found[4]["ephemeral"]["volumeClaimTemplate"]["spec"]["volumeMode"] == "Filesystem"


def test_a_negative_grace_period_means_one_second():
    assert pod_spec(terminationGracePeriodSeconds=-5)["terminationGracePeriodSeconds"] == 1


def test_the_old_name_of_the_service_account_mirrors_the_new_one():
    for name in ("serviceAccount", "serviceAccountName"):
        spec = pod_spec(**{name: "sa"})
        assert (spec["serviceAccount"], spec["serviceAccountName"]) == ("sa", "sa")


def test_a_cluster_ip_service():
    found = defaulted("Service", spec={"ports": [{"port": 80}]})["spec"]

    assert found == {
        "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
        "type": "ClusterIP",
        "sessionAffinity": "None",
        "internalTrafficPolicy": "Cluster",
    }


def test_services_for_the_outside():
    node_port = defaulted("Service", spec={"type": "NodePort", "ports": [{"port": 1}]})["spec"]
    balanced = defaulted("Service", spec={"type": "LoadBalancer"})["spec"]
    outside = defaulted("Service", spec={"externalIPs": ["1.2.3.4"]})["spec"]
    elsewhere = defaulted("Service", spec={"type": "ExternalName"})["spec"]

    assert node_port["externalTrafficPolicy"] == "Cluster"
    assert balanced["allocateLoadBalancerNodePorts"] is True
    assert outside["externalTrafficPolicy"] == "Cluster"
    assert "internalTrafficPolicy" not in elsewhere


def test_client_affinity_lasts_three_hours():
    spec = defaulted("Service", spec={"sessionAffinity": "ClientIP"})["spec"]

    assert spec["sessionAffinityConfig"] == {"clientIP": {"timeoutSeconds": 10800}}


def test_an_endpoint_slice_shows_its_lists_and_names_its_ports():
    empty = defaulted("EndpointSlice", addressType="IPv4", endpoints=[])
    full = defaulted("EndpointSlice", endpoints=[{"addresses": ["10.0.0.1"]}], ports=[{"port": 1}])

    assert (empty["endpoints"], empty["ports"]) == (None, None)
    assert full["ports"] == [{"port": 1, "name": "", "protocol": "TCP"}]
    assert full["endpoints"] == [{"addresses": ["10.0.0.1"], "conditions": {}}]


def test_a_deployment():
    found = defaulted("Deployment", spec={"template": {"spec": {"containers": [CONTAINER]}}})

    assert {k: v for k, v in found["spec"].items() if k != "template"} == {
        "replicas": 1,
        "strategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
        },
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
    }
    assert found["spec"]["template"]["spec"]["restartPolicy"] == "Always"


def test_recreating_needs_no_rolling_update():
    found = defaulted("Deployment", spec={"strategy": {"type": "Recreate"}})

    assert found["spec"]["strategy"] == {"type": "Recreate"}


def test_a_stateful_set_and_a_daemon_set():
    stateful = defaulted("StatefulSet", spec={})["spec"]
    daemons = defaulted("DaemonSet", spec={})["spec"]

    assert stateful["podManagementPolicy"] == "OrderedReady"
    assert stateful["updateStrategy"]["rollingUpdate"] == {"partition": 0, "maxUnavailable": 1}
    assert daemons["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}


def test_jobs_run_once_unless_one_number_is_given():
    assert defaulted("Job", spec={})["spec"]["completions"] == 1
    assert "completions" not in defaulted("Job", spec={"parallelism": 2})["spec"]


def test_string_data_of_a_secret_wins_and_is_never_kept():
    found = defaulted("Secret", data={"a": "b2xk"}, stringData={"a": "new", "b": "x"})

    assert found["data"] == {"a": "bmV3", "b": "eA=="}
    assert "stringData" not in found
    assert found["type"] == "Opaque"


def test_a_namespace_carries_its_name_as_a_label():
    assert defaulted("Namespace")["metadata"]["labels"] == {"kubernetes.io/metadata.name": "a"}


def test_a_node_gives_out_what_it_has():
    found = defaulted("Node", spec={"podCIDR": "10.0.0.0/24"}, status={"capacity": {"cpu": "4"}})

    assert found["status"]["allocatable"] == {"cpu": "4"}
    assert found["spec"]["podCIDRs"] == ["10.0.0.0/24"]


@pytest.mark.parametrize("kind", scheme.kinds(), ids=lambda kind: kind.kind)
def test_every_kind_can_be_defaulted_from_nothing(kind):
    defaulted(kind.kind)


@pytest.mark.parametrize(
    ("kind", "given", "path", "expected"),
    [
        ("ReplicationController", {"spec": {"template": {}}}, "spec.replicas", 1),
        (
            "ReplicationController",
            {"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}},
            "spec.selector",
            {"a": "b"},
        ),
        ("PodTemplate", {"template": {}}, "template.spec.restartPolicy", "Always"),
        ("CSIDriver", {}, "spec.volumeLifecycleModes", ["Persistent"]),
        (
            "MutatingWebhookConfiguration",
            {"webhooks": [{"name": "a"}]},
            "webhooks.0.reinvocationPolicy",
            "Never",
        ),
        (
            "ValidatingWebhookConfiguration",
            {"webhooks": [{"clientConfig": {"service": {}}}]},
            "webhooks.0.clientConfig.service.port",
            443,
        ),
        (
            "ValidatingAdmissionPolicy",
            {"spec": {"matchConstraints": {"resourceRules": [{}]}}},
            "spec.matchConstraints.resourceRules.0.scope",
            "*",
        ),
        ("FlowSchema", {}, "spec.matchingPrecedence", 1000),
        (
            "PriorityLevelConfiguration",
            {"spec": {"limited": {"limitResponse": {"queuing": {}}}}},
            "spec.limited.limitResponse.queuing.queues",
            64,
        ),
        (
            "ResourceClaim",
            {"spec": {"devices": {"requests": [{"exactly": {"deviceClassName": "c"}}]}}},
            "spec.devices.requests.0.exactly.count",
            1,
        ),
        (
            "CustomResourceDefinition",
            {"spec": {"names": {"kind": "Foo"}}},
            "spec.names.listKind",
            "FooList",
        ),
        ("APIService", {"spec": {"service": {"name": "s"}}}, "spec.service.port", 443),
    ],
)
def test_kinds_fill_in_what_nobody_says(kind, given, path, expected):
    found = defaulted(kind, **given)
    for part in path.split("."):
        found = found[int(part)] if isinstance(found, list) else found[part]

    assert found == expected


def test_fields_without_an_empty_form_always_show():
    assert defaulted("CSINode", spec={})["spec"]["drivers"] is None
    assert defaulted("ClusterRole", rules=[])["rules"] is None
    pod = defaulted("Pod", status={"containerStatuses": [{"name": "c"}]})
    shown = pod["status"]["containerStatuses"][0]
    assert (shown["state"], shown["lastState"], shown["restartCount"]) == ({}, {}, 0)
