import copy

import pytest

from motley.api import schema, scheme, status

POD = scheme.by_kind("v1", "Pod")
CONFIG_MAP = scheme.by_kind("v1", "ConfigMap")
DEPLOYMENT = scheme.by_kind("apps/v1", "Deployment")


def pod(**spec):
    container = {"name": "c", "image": "nginx"} | spec.pop("container", {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"containers": [container], **spec},
    }


def test_every_kind_of_the_table_has_a_schema():
    for kind in scheme.kinds():
        assert {"metadata", "kind", "apiVersion"} <= set(schema.of(kind).fields)


def test_a_sound_object_passes_unchanged():
    obj = pod(nodeSelector={"disk": "ssd"})
    before = copy.deepcopy(obj)

    assert schema.check(POD, obj) == ([], [])
    assert obj == before


def test_unknown_fields_are_dropped_and_listed_in_order():
    obj = pod(container={"imag": "x", "env": [{"name": "A", "valu": "1"}]}, nosuch=1)
    obj["top"] = {}

    assert schema.check(POD, obj).unknown == [
        "spec.containers[0].imag",
        "spec.containers[0].env[0].valu",
        "spec.nosuch",
        "top",
    ]
    assert obj == pod(container={"env": [{"name": "A"}]})


def test_after_a_check_nothing_is_shared_with_the_former_content():
    labels = {"a": "b"}
    obj = pod() | {"metadata": {"name": "a", "labels": labels}}
    schema.check(POD, obj)
    obj["metadata"]["labels"]["c"] = "d"

    assert labels == {"a": "b"}


def test_nulls_and_meaningless_zeros_are_dropped():
    obj = pod(
        hostNetwork=False,
        hostname="",
        nodeSelector={},
        tolerations=[],
        affinity=None,
        terminationGracePeriodSeconds=0,
        securityContext={},
        container={"stdin": False, "livenessProbe": {"exec": {}, "periodSeconds": 0}},
    )
    schema.check(POD, obj)

    assert obj["spec"] == {
        "terminationGracePeriodSeconds": 0,
        "securityContext": {},
        "containers": [{"name": "c", "image": "nginx", "livenessProbe": {"exec": {}}}],
    }


def test_zero_replicas_are_meant():
    obj = {"spec": {"replicas": 0, "paused": False}}
    schema.check(DEPLOYMENT, obj)

    assert obj == {"spec": {"replicas": 0}}


def test_a_null_in_a_map_or_list_is_the_zero_value():
    obj = {"data": {"a": None}}
    schema.check(CONFIG_MAP, obj)
    listed = pod(container={"command": [None, "x"]})
    schema.check(POD, listed)

    assert obj == {"data": {"a": ""}}
    assert listed["spec"]["containers"][0]["command"] == ["", "x"]


def test_quantities_times_and_base64_get_their_canonical_form():
    obj = pod(container={"resources": {"requests": {"cpu": 0.1, "memory": "1.5Gi", "x/y": "1u"}}})
    obj["metadata"]["creationTimestamp"] = "2024-01-01T01:00:00.5+01:00"
    schema.check(POD, obj)
    binary = {"binaryData": {"a": "eA\n=="}}
    schema.check(CONFIG_MAP, binary)

    resources = obj["spec"]["containers"][0]["resources"]["requests"]
    assert resources == {"cpu": "100m", "memory": "1536Mi", "x/y": "1m"}
    assert obj["metadata"]["creationTimestamp"] == "2024-01-01T00:00:00Z"
    assert binary == {"binaryData": {"a": "eA=="}}


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (
            pod(hostNetwork="yes"),
            "json: cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork "
            "of type bool",
        ),
        (
            pod(terminationGracePeriodSeconds=1.5),
            "json: cannot unmarshal number 1.5 into Go struct field "
            "PodSpec.spec.terminationGracePeriodSeconds of type int64",
        ),
        (
            pod(container={"ports": [{"containerPort": 99999999999}]}),
            "json: cannot unmarshal number 99999999999 into Go struct field "
            "ContainerPort.spec.containers.ports.containerPort of type int32",
        ),
        (
            pod() | {"metadata": {"labels": {"a": 1}}},
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type "
            "string",
        ),
        (
            pod() | {"spec": {"containers": {}}},
            "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type "
            "[]v1.Container",
        ),
        (
            pod() | {"spec": "x"},
            "json: cannot unmarshal string into Go struct field Pod.spec of type v1.PodSpec",
        ),
        (
            pod(container={"resources": {"limits": {"cpu": "1x"}}}),
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            pod() | {"metadata": {"creationTimestamp": "yesterday"}},
            'parsing time "yesterday" as "2006-01-02T15:04:05Z07:00": '
            'cannot parse "yesterday" as "2006"',
        ),
        (pod(volumes=True), None),
        (pod(priority=True), None),
    ],
    ids=lambda v: (v or "")[:40] if isinstance(v, str | None) else "",
)
def test_a_wrong_type_is_told_in_the_words_of_kubernetes_decoder(obj, message):
    before = copy.deepcopy(obj)
    checked = schema.check(POD, obj)

    assert len(checked.errors) == 1
    if message is not None:
        assert checked.errors[0].message == message
    assert obj == before
    with pytest.raises(
        status.BadRequest, match=r'^Pod in version "v1" cannot be handled as a Pod: '
    ):
        checked.raise_for(POD)


def test_the_path_of_a_wrong_value_is_exact():
    obj = pod(container={"env": [{"name": "A"}, {"name": 5}]})

    assert schema.check(POD, obj).errors[0].field == "spec.containers[0].env[1].name"


def test_wrong_base64_is_refused():
    checked = schema.check(CONFIG_MAP, {"binaryData": {"a": "%%"}})

    assert checked.errors[0].message == "illegal base64 data at input byte 0"


def test_a_port_may_be_number_or_name_but_no_fraction():
    for port in (80, "http"):
        probe = {"tcpSocket": {"port": port}}
        assert not schema.check(POD, pod(container={"livenessProbe": probe})).errors
    probe = {"tcpSocket": {"port": 1.5}}
    assert schema.check(POD, pod(container={"livenessProbe": probe})).errors


def test_patch_strategies_come_from_the_schema():
    spec = schema.of(POD).fields["spec"].schema
    containers = spec.fields["containers"]

    assert (containers.merge_key, containers.strategies) == ("name", {"merge"})
    assert containers.map_keys == ("name",)
    assert spec.fields["volumes"].strategies == {"merge", "retainKeys"}


def test_a_kind_of_our_own_brings_its_schema():
    definition = {
        "type": "object",
        "properties": {
            "kind": {"type": "string"},
            "spec": {
                "type": "object",
                "properties": {
                    "size": {"type": "integer", "format": "int32"},
                    "port": {"x-kubernetes-int-or-string": True},
                },
                "x-kubernetes-preserve-unknown-fields": True,
            },
        },
    }
    schema.register("test.motley.io/v1", "Thing", definition)
    compiled = schema.of_type("test.motley.io/v1", "Thing")
    obj = {"kind": "Thing", "spec": {"size": 3, "port": "x", "free": {"a": None}}, "bad": 1}

    assert schema.check_as(compiled, obj).unknown == ["bad"]
    assert obj == {"kind": "Thing", "spec": {"size": 3, "port": "x", "free": {"a": None}}}
    assert schema.check_as(compiled, {"spec": {"size": "3"}}).errors


def test_an_unknown_type_has_no_schema():
    with pytest.raises(schema.UnknownKindError):
        schema.of_type("v1", "Nothing")


def test_openapi_definitions_are_free_of_the_packages_dialect():
    name = schema.definition_name("v1", "Pod")
    assert name is not None
    published = schema.openapi(name, "#/components/schemas/")

    assert published["type"] == "object"
    assert published["properties"]["spec"]["$ref"].startswith("#/components/schemas/io.k8s.")
    assert published["properties"]["kind"]["type"] == "string"
    assert "enum" not in published["properties"]["kind"]
    container = schema.openapi("io.k8s.api.core.v1.Container")["properties"]
    assert {type(p.get("type", "")) for p in container.values()} == {str}
    assert schema.openapi("io.k8s.apimachinery.pkg.api.resource.Quantity")["type"] == "string"


def test_openapi_keeps_the_marks_that_kubectl_patches_by():
    containers = schema.openapi("io.k8s.api.core.v1.PodSpec")["properties"]["containers"]

    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["items"]["$ref"] == "#/definitions/io.k8s.api.core.v1.Container"
