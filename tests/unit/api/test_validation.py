import copy

import pytest

from motley.api import defaults, schema, scheme, validation

KINDS = {kind.kind: kind for kind in scheme.kinds() if kind.stored_as is None}
CONTAINER = {"name": "c", "image": "nginx"}
TEMPLATE = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [CONTAINER]}}
SELECTOR = {"matchLabels": {"app": "a"}}


def made(kind, **obj):
    """An object as it reaches validation: checked and defaulted."""
    row = KINDS[kind]
    found = copy.deepcopy({"metadata": {"name": "a"}, **obj})
    if row.namespaced:
        found["metadata"].setdefault("namespace", "ns")
    assert not schema.check(row, found).errors
    defaults.apply(row, found)
    return found


def problems(kind, **obj):
    return [str(e) for e in validation.create(KINDS[kind], made(kind, **obj))]


def changed(kind, old, new, subresource=""):
    errors = validation.update(KINDS[kind], made(kind, **new), made(kind, **old), subresource)
    return [str(e) for e in errors]


def pod(**spec):
    return problems("Pod", spec={"containers": [CONTAINER], **spec})


def container(**more):
    return pod(containers=[CONTAINER | more])


def deployment(**spec):
    return problems("Deployment", spec={"selector": SELECTOR, "template": TEMPLATE, **spec})


def service(**spec):
    return problems("Service", spec={"ports": [{"port": 80}], **spec})


def test_sound_objects_have_no_problems():
    assert pod() == []
    assert deployment() == []
    assert service() == []
    assert problems("ReplicaSet", spec={"selector": SELECTOR, "template": TEMPLATE}) == []
    assert problems("ConfigMap", data={"a": "b"}) == []
    assert problems("Secret", stringData={"a": "b"}) == []
    assert problems("Namespace") == []
    assert problems("Node") == []
    assert problems("Lease", spec={"leaseDurationSeconds": 40}) == []
    assert problems("ServiceAccount") == []


def test_what_passes_creation_passes_an_update_against_itself():
    spec = {"containers": [CONTAINER]}
    for kind, obj in {
        "Pod": {"spec": spec},
        "Deployment": {"spec": {"selector": SELECTOR, "template": TEMPLATE}},
        "Service": {"spec": {"ports": [{"port": 80}]}},
        "ConfigMap": {"data": {"a": "b"}, "immutable": True},
        "Node": {"spec": {"podCIDR": "10.0.0.0/24"}},
    }.items():
        assert changed(kind, obj, obj) == []


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        ({}, "metadata.name: Required value: name or generateName is required"),
        ({"name": "Bad_Name"}, 'metadata.name: Invalid value: "Bad_Name": a lowercase RFC 1123'),
        ({"name": "a", "labels": {"-bad": "x"}}, 'metadata.labels: Invalid value: "-bad": name'),
        ({"name": "a", "labels": {"a": "b c"}}, 'metadata.labels: Invalid value: "b c": a valid'),
        ({"name": "a", "annotations": {"a b": "x"}}, 'metadata.annotations: Invalid value: "a b"'),
        ({"name": "a", "annotations": {"a": "x" * 300_000}}, "metadata.annotations: Too long: "),
        (
            {"name": "a", "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "uid": "u"}]},
            "metadata.ownerReferences[0].name: Required value: must not be empty",
        ),
        (
            {"name": "a", "finalizers": ["nodomain"]},
            'metadata.finalizers[0]: Invalid value: "nodomain": name is neither',
        ),
    ],
)
def test_metadata_of_any_object(metadata, problem):
    assert problems("ConfigMap", metadata=metadata)[0].startswith(problem)


def test_only_one_owner_may_control():
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "u", "controller": True}
    found = problems("ConfigMap", metadata={"name": "a", "ownerReferences": [owner, owner]})

    assert found[0].endswith('Found "true" in references for Pod/a and Pod/a')


def test_names_follow_the_rules_of_their_kind():
    assert problems("Namespace", metadata={"name": "a.b"})[0].endswith("must not contain dots")
    assert problems("Role", metadata={"name": "system:Node"}) == []
    assert problems("Role", metadata={"name": "a/b"})[0].endswith("may not contain '/'")
    assert problems("ConfigMap", metadata={"generateName": "a-", "name": "a-x"}) == []


def test_identity_does_not_change():
    old = {"metadata": {"name": "a", "uid": "u1"}}
    new = {"metadata": {"name": "b", "uid": "u2"}}

    assert changed("ConfigMap", old, new) == [
        'metadata.name: Invalid value: "b": field is immutable',
        'metadata.uid: Invalid value: "u2": field is immutable',
    ]


def test_a_dying_object_gains_no_finalizers():
    dying = {"name": "a", "deletionTimestamp": "2024-01-01T00:00:00Z", "finalizers": ["x.io/a"]}
    new = dying | {"finalizers": ["x.io/a", "x.io/b"]}
    found = changed("ConfigMap", {"metadata": dying}, {"metadata": new})

    assert found[0].startswith("metadata.finalizers: Forbidden: no new finalizers can be added")
    assert changed("ConfigMap", {"metadata": dying}, {"metadata": dying | {"finalizers": []}}) == []


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"containers": []}, "spec.containers: Required value"),
        ({"containers": [{"image": "x"}]}, "spec.containers[0].name: Required value"),
        ({"containers": [{"name": "c"}]}, "spec.containers[0].image: Required value"),
        (
            {"containers": [CONTAINER, CONTAINER]},
            'spec.containers[1].name: Duplicate value: "c"',
        ),
        (
            {"restartPolicy": "Sometimes"},
            'spec.restartPolicy: Unsupported value: "Sometimes": '
            'supported values: "Always", "OnFailure", "Never"',
        ),
        (
            {"dnsPolicy": "None"},
            "spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None",
        ),
        (
            {"volumes": [{"name": "v"}, {"name": "v"}]},
            'spec.volumes[1].name: Duplicate value: "v"',
        ),
        (
            {"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}}]},
            "spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
        ),
        (
            {"activeDeadlineSeconds": 0},
            "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, "
            "inclusive",
        ),
        (
            {"tolerations": [{"value": "x"}]},
            'spec.tolerations[0].operator: Invalid value: "": operator must be Exists when `key` '
            'is empty, which means "match all values and all keys"',
        ),
        (
            {"topologySpreadConstraints": [{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]},
            "spec.topologySpreadConstraints[0].topologyKey: Required value: can not be empty",
        ),
        (
            {"securityContext": {"runAsUser": -1}},
            "spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, "
            "inclusive",
        ),
        (
            {"ephemeralContainers": [CONTAINER | {"name": "e"}]},
            "spec.ephemeralContainers: Forbidden: cannot be set on create",
        ),
        (
            {"schedulingGates": [{"name": "x"}, {"name": "x"}]},
            'spec.schedulingGates[1]: Duplicate value: "x"',
        ),
    ],
)
def test_pods(spec, problem):
    assert pod(**spec) == [problem]


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (
            {"imagePullPolicy": "Maybe"},
            'imagePullPolicy: Unsupported value: "Maybe": '
            'supported values: "Always", "IfNotPresent", "Never"',
        ),
        (
            {"ports": [{"containerPort": 70000}]},
            "ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
        ),
        (
            {"ports": [{"containerPort": 1, "name": "p"}, {"containerPort": 2, "name": "p"}]},
            'ports[1].name: Duplicate value: "p"',
        ),
        (
            {"ports": [{"containerPort": 1, "hostPort": 8}, {"containerPort": 2, "hostPort": 8}]},
            'ports[1].hostPort: Duplicate value: "TCP//8"',
        ),
        (
            {"resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}},
            'resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
        ),
        (
            {"resources": {"requests": {"cpu": "-1"}}},
            'resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0',
        ),
        (
            {"resources": {"requests": {"example.com/g": "1"}}},
            "resources.limits: Required value: Limit must be set for non overcommitable resources",
        ),
        ({"env": [{"value": "x"}]}, "env[0].name: Required value"),
        (
            {"volumeMounts": [{"name": "nov", "mountPath": "/x"}]},
            'volumeMounts[0].name: Not found: "nov"',
        ),
        ({"livenessProbe": {}}, "livenessProbe: Required value: must specify a handler type"),
        (
            {"livenessProbe": {"exec": {"command": ["x"]}, "successThreshold": 2}},
            "livenessProbe.successThreshold: Invalid value: 2: must be 1",
        ),
        (
            {"livenessProbe": {"exec": {"command": ["x"]}, "tcpSocket": {"port": 1}}},
            "livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
        ),
    ],
)
def test_containers(more, problem):
    assert container(**more) == [f"spec.containers[0].{problem}"]


def test_everything_that_is_wrong_is_told_at_once():
    found = pod(
        containers=[{"name": "", "image": "", "imagePullPolicy": "Z"}],
        restartPolicy="X",
        dnsPolicy="Y",
    )

    assert [p.split(":")[0] for p in found] == [
        "spec.containers[0].name",
        "spec.containers[0].image",
        "spec.containers[0].imagePullPolicy",
        "spec.restartPolicy",
        "spec.dnsPolicy",
    ]


def pod_change(new, old=None, subresource=""):
    base = {"containers": [CONTAINER]}
    return changed("Pod", {"spec": base | (old or {})}, {"spec": base | new}, subresource)


def test_of_a_pod_almost_nothing_changes():
    image = {"containers": [CONTAINER | {"image": "other"}]}
    toleration = {"tolerations": [{"key": "z", "operator": "Exists"}]}

    assert pod_change(image) == []
    assert pod_change(toleration) == []
    assert pod_change({"activeDeadlineSeconds": 5}, {"activeDeadlineSeconds": 10}) == []
    assert pod_change({"nodeName": "n"})[0].startswith(
        "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,"
    )
    assert pod_change({}, toleration)[0].startswith("spec.tolerations: Forbidden: ")
    assert pod_change({"activeDeadlineSeconds": 11}, {"activeDeadlineSeconds": 10}) == [
        "spec.activeDeadlineSeconds: Invalid value: 11: must be less than or equal to previous "
        "value"
    ]
    assert pod_change({"containers": [CONTAINER, CONTAINER | {"name": "d"}]}) == [
        "spec.containers: Forbidden: pod updates may not add or remove containers"
    ]


def test_a_binding_may_set_the_node():
    assert pod_change({"nodeName": "n"}, subresource="binding") == []


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"selector": {"matchLabels": {"app": "b"}}},
            [
                'spec.template.metadata.labels: Invalid value: {"app":"a"}: '
                "`selector` does not match template `labels`"
            ],
        ),
        (
            {"selector": {}},
            ["spec.selector: Invalid value: {}: empty selector is invalid for deployment"],
        ),
        (
            {"replicas": -1},
            ["spec.replicas: Invalid value: -1: must be greater than or equal to 0"],
        ),
        (
            {"strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}},
            [
                "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: "
                "may not be 0 when `maxSurge` is 0"
            ],
        ),
        (
            {"strategy": {"rollingUpdate": {"maxUnavailable": "150%"}}},
            [
                'spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "150%": '
                "must not be greater than 100%"
            ],
        ),
        (
            {"progressDeadlineSeconds": 5, "minReadySeconds": 10},
            [
                "spec.progressDeadlineSeconds: Invalid value: 5: must be greater than "
                "minReadySeconds"
            ],
        ),
    ],
)
def test_deployments(spec, expected):
    assert deployment(**spec) == expected


def test_pods_of_a_workload_are_checked_where_they_stand():
    template = copy.deepcopy(TEMPLATE)
    template["spec"] |= {"containers": [{"name": "c"}], "restartPolicy": "Never"}

    assert deployment(template=template) == [
        "spec.template.spec.containers[0].image: Required value",
        'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"',
    ]


def test_a_selector_never_changes():
    template = copy.deepcopy(TEMPLATE)
    template["metadata"]["labels"]["b"] = "c"
    old = {"spec": {"selector": SELECTOR, "template": template}}
    new = {"spec": {"selector": {"matchLabels": {"b": "c"}}, "template": template}}

    assert changed("ReplicaSet", old, new) == [
        'spec.selector: Invalid value: {"matchLabels":{"b":"c"}}: field is immutable'
    ]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"ports": []}, "spec.ports: Required value"),
        ({"type": "X"}, 'spec.type: Unsupported value: "X"'),
        ({"ports": [{"port": 70000, "targetPort": 1}]}, "spec.ports[0].port: Invalid value: 70000"),
        ({"ports": [{"port": 1}, {"port": 2, "name": "b"}]}, "spec.ports[0].name: Required value"),
        (
            {"ports": [{"port": 1, "targetPort": "80"}]},
            'spec.ports[0].targetPort: Invalid value: "80"',
        ),
        ({"ports": [{"port": 1, "nodePort": 30001}]}, "spec.ports[0].nodePort: Forbidden: may not"),
        ({"type": "ExternalName"}, "spec.externalName: Required value"),
        ({"type": "NodePort", "clusterIP": "None"}, 'spec.clusterIPs[0]: Invalid value: "None"'),
        ({"clusterIP": "x"}, 'spec.clusterIPs[0]: Invalid value: "x": must be a valid IP address'),
        ({"externalTrafficPolicy": "Local"}, "spec.externalTrafficPolicy: Invalid value"),
        (
            {"externalIPs": ["127.0.0.1"]},
            'spec.externalIPs[0]: Invalid value: "127.0.0.1": may not',
        ),
        ({"selector": {"a": "b c"}}, 'spec.selector: Invalid value: "b c"'),
        ({"sessionAffinity": "X"}, 'spec.sessionAffinity: Unsupported value: "X"'),
    ],
)
def test_services(spec, problem):
    found = service(**spec)

    assert len(found) == 1
    assert found[0].startswith(problem)


def test_a_service_keeps_its_address_until_it_needs_none():
    def spec(**more):
        return {"spec": {"ports": [{"port": 80}], **more}}

    old = spec(clusterIP="10.96.0.5", clusterIPs=["10.96.0.5"])
    assert changed("Service", old, spec(clusterIP="10.96.0.6", clusterIPs=["10.96.0.6"])) == [
        'spec.clusterIPs[0]: Invalid value: ["10.96.0.6"]: may not change once set'
    ]
    assert changed("Service", old, spec(type="ExternalName", externalName="a.b")) == []


def test_headless_services_need_no_ports():
    assert service(ports=[], clusterIP="None", clusterIPs=["None"]) == []


def test_endpoint_slices():
    def slice_(*addresses, kind="IPv4"):
        return problems("EndpointSlice", addressType=kind, endpoints=[{"addresses": [*addresses]}])

    assert slice_("10.0.0.1") == []
    assert slice_("::1")[0] == (
        'endpoints[0].addresses: Invalid value: "::1": must be an IPv4 address'
    )
    assert "loopback" in slice_("127.0.0.1")[0]
    assert problems("EndpointSlice") == ["addressType: Required value"]


def test_config_maps():
    assert problems("ConfigMap", data={"..": "x"}) == [
        "data[..]: Invalid value: \"..\": must not be '..'"
    ]
    assert problems("ConfigMap", data={"a": "x"}, binaryData={"a": "AA=="}) == [
        'data[a]: Invalid value: "a": duplicate of key present in binaryData'
    ]
    assert problems("ConfigMap", data={"a": "x" * 2**20, "b": "y"}) == [
        "[]: Too long: may not be more than 1048576 bytes"
    ]


def test_what_calls_itself_immutable_is():
    old = {"data": {"a": "b"}, "immutable": True}

    assert changed("ConfigMap", old, {"data": {"a": "c"}, "immutable": True}) == [
        "data: Forbidden: field is immutable when `immutable` is set"
    ]
    assert changed("ConfigMap", old, {"data": {"a": "b"}}) == [
        "immutable: Forbidden: field is immutable when `immutable` is set"
    ]


def test_secrets_of_a_type_hold_what_it_promises():
    assert problems("Secret", type="kubernetes.io/tls") == [
        "data[tls.crt]: Required value",
        "data[tls.key]: Required value",
    ]
    assert changed("Secret", {}, {"type": "other"}) == [
        'type: Invalid value: "other": field is immutable'
    ]


def test_a_secret_is_never_shown():
    key = ".dockerconfigjson"
    found = problems("Secret", type="kubernetes.io/dockerconfigjson", stringData={key: "{s3cr3t"})

    assert len(found) == 1
    assert "s3cr3t" not in found[0]
    assert "redacted" in found[0]


def test_nodes():
    taint = {"key": "k", "effect": "NoSchedule"}
    old = {"spec": {"podCIDR": "10.0.0.0/24"}}

    assert problems("Node", spec={"taints": [taint, taint]})[0].startswith(
        'metadata.taints[1]: Duplicate value: {"Key":"k"'
    )
    assert problems("Node", spec={"podCIDR": "x"})[0].startswith("spec.podCIDRs[0]: Invalid value")
    assert changed("Node", old, {"spec": {"podCIDR": "10.0.1.0/24"}}) == [
        'spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid'
    ]
    assert changed("Node", {}, old) == []


def test_leases_and_events():
    assert problems("Lease", spec={"leaseDurationSeconds": 0}) == [
        "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0"
    ]
    assert problems("Event", involvedObject={"namespace": "other"}) == [
        'involvedObject.namespace: Invalid value: "other": does not match event.namespace'
    ]
    about_node = {
        "metadata": {"name": "a", "namespace": "default"},
        "involvedObject": {"name": "n"},
    }
    assert problems("Event", **about_node) == []
