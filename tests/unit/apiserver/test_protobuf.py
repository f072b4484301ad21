"""Protobuf bodies mean what the same object in JSON means."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.api import scheme, status
from motley.apiserver import protobuf
from motley.apiserver.protobuf import table, wire

# What `kubectl create configmap a --from-literal=x=y` sends.
CONFIG_MAP = bytes.fromhex(
    "6b3873000a0f0a0276311209436f6e6669674d6170121b0a110a0161120"
    "01a0022002a0032003800420012060a01781201791a002200"
)


def varint(number: int) -> bytes:
    out = bytearray()
    while True:
        out.append(number & 0x7F | (0x80 if number > 0x7F else 0))
        number >>= 7
        if not number:
            return bytes(out)


def piece(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value & (1 << 64) - 1)
    return varint(number << 3 | 2) + varint(len(value)) + value


def body(api_version: str, kind: str, raw: bytes) -> bytes:
    type_meta = piece(1, api_version.encode()) + piece(2, kind.encode())
    return wire.MAGIC + piece(1, type_meta) + piece(2, raw)


def test_a_config_map_of_kubectl_is_read():
    document = protobuf.decode(CONFIG_MAP, "v1", "ConfigMap")

    assert (document["kind"], document["apiVersion"]) == ("ConfigMap", "v1")
    assert document["metadata"]["name"] == "a"
    assert document["data"] == {"x": "y"}


def test_inline_structs_special_types_and_negative_numbers():
    port = piece(1, 1) + piece(3, b"http")  # IntOrString of type string
    probe = piece(1, piece(2, piece(2, port))) + piece(2, -1)  # handler.httpGet.port, delay
    volume = piece(1, b"v") + piece(2, piece(1, piece(1, b"/x")))  # volumeSource.hostPath.path
    resources = piece(1, piece(1, b"cpu") + piece(2, piece(1, b"500m")))
    container = piece(1, b"c") + piece(8, resources) + piece(10, probe)
    spec = piece(1, volume) + piece(2, container)
    created = piece(1, 1_700_000_000)
    metadata = piece(1, b"p") + piece(8, created)

    pod = protobuf.decode(body("v1", "Pod", piece(1, metadata) + piece(2, spec)), "v1", "Pod")

    assert pod["metadata"]["creationTimestamp"] == "2023-11-14T22:13:20Z"
    assert pod["spec"]["volumes"] == [{"name": "v", "hostPath": {"path": "/x"}}]
    found = pod["spec"]["containers"][0]
    assert found["resources"] == {"limits": {"cpu": "500m"}}
    assert found["livenessProbe"] == {"httpGet": {"port": "http"}, "initialDelaySeconds": -1}


def test_bytes_become_base64_and_unknown_fields_are_skipped():
    data = piece(1, b"k") + piece(2, b"\x00\xff")

    secret = protobuf.decode(
        body("v1", "Secret", piece(2, data) + piece(999, b"later")), "v1", "Secret"
    )

    assert secret["data"] == {"k": base64.b64encode(b"\x00\xff").decode()}


def test_options_and_subresources_have_their_messages_too():
    options = protobuf.decode(body("v1", "DeleteOptions", piece(1, 5)), "v1", "DeleteOptions")

    assert options["gracePeriodSeconds"] == 5
    for api_version, kind in (
        ("v1", "Binding"),
        ("policy/v1", "Eviction"),
        ("autoscaling/v1", "Scale"),
    ):
        assert table.message_of(api_version, kind)


def test_every_served_kind_can_be_read():
    for kind in scheme.kinds():
        if kind.group == "apiextensions.k8s.io" or kind.definition is not None:
            continue  # its JSON has another shape, and its clients speak JSON
        known = table.message_of(kind.api_version, kind.kind)
        assert known or kind.version in ("v1beta1", "v2beta2"), kind


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"{}",
        CONFIG_MAP[:-3],
        wire.MAGIC + b"\xff" * 20,
        body("v1", "Nosuch", b""),
        body("v1", "Pod", piece(1, 7)),
    ],
)
def test_broken_bodies_are_refused(broken):
    with pytest.raises(status.BadRequest):
        protobuf.decode(broken, "v1", "ConfigMap")


@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(data):
    try:
        protobuf.decode(body("v1", "Pod", data), "v1", "Pod")
    except status.BadRequest:
        pass


POD = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {
        "name": "p",
        "namespace": "n",
        "creationTimestamp": "2026-11-15T10:00:00Z",
        "labels": {"a": "b", "c": "d"},
    },
    "spec": {
        "terminationGracePeriodSeconds": -1,
        "containers": [
            {
                "name": "c",
                "image": "i",
                "resources": {"limits": {"cpu": "500m"}},
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "livenessProbe": {"httpGet": {"path": "/", "port": "web"}, "periodSeconds": 5},
                "readinessProbe": {"tcpSocket": {"port": 80}},
            }
        ],
    },
    "status": {"phase": "Running"},
}


@pytest.mark.parametrize(
    "document",
    [
        POD,
        {
            "kind": "Secret",
            "apiVersion": "v1",
            "metadata": {"name": "s"},
            "data": {"k": base64.b64encode(b"\x00\xff").decode()},
        },
        {
            "kind": "Lease",
            "apiVersion": "coordination.k8s.io/v1",
            "metadata": {"name": "l"},
            "spec": {"holderIdentity": "h", "renewTime": "2026-11-15T10:00:00.123456Z"},
        },
        {
            "kind": "ControllerRevision",
            "apiVersion": "apps/v1",
            "metadata": {"name": "r"},
            "data": {"x": [1, 2]},
            "revision": 3,
        },
    ],
    ids=lambda document: document["kind"],
)
def test_what_is_written_is_read_back(document):
    written = protobuf.encode(document)
    assert written is not None
    assert protobuf.decode(written, "", "") == document


def test_a_list_holds_its_items_and_its_version():
    page = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}}
    written = protobuf.encode({**page, "items": [POD, POD]})
    assert written is not None
    envelope = dict(wire._pieces(written[len(wire.MAGIC) :]))
    pieces = list(wire._pieces(envelope[2]))
    assert pieces[0] == (1, piece(2, b"7"))
    assert [number for number, _ in pieces] == [1, 2, 2]


def test_a_kind_without_messages_has_no_protobuf_form():
    assert protobuf.encode({"kind": "Table", "apiVersion": "meta.k8s.io/v1"}) is None


async def test_only_who_accepts_nothing_else_gets_protobuf(api):
    maps = "/api/v1/namespaces/default/configmaps"
    await api.create(maps, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    reply = await api.get(f"{maps}/a", accept=protobuf.MEDIA_TYPE)
    assert (reply.code, reply.headers["content-type"]) == (200, protobuf.MEDIA_TYPE)
    assert protobuf.decode(reply.body, "", "")["data"] == {"k": "v"}
    both = f"{protobuf.MEDIA_TYPE}, application/json"
    assert (await api.get(f"{maps}/a", accept=both)).json["data"] == {"k": "v"}


def test_a_message_whose_only_field_is_items_is_no_list_but_a_named_list_of_texts_is():
    """Every pod has the first, in the volume of its token."""
    projection = {"downwardAPI": {"items": [{"path": "namespace"}]}}
    volume = {"name": "v", "projected": {"sources": [projection]}}
    pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"volumes": [volume]}}
    review = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "status": {"user": {"extra": {"scopes": ["a", "b"]}}},
    }

    for document in (pod, review):
        assert protobuf.decode(protobuf.encode(document), "", "") == document


def test_the_schemas_of_a_definition_come_back_as_they_were():
    """Their JSON has other names and shapes than their messages."""
    preserve = {"x-kubernetes-preserve-unknown-fields": False}
    schema = {
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": {
                "type": "object",
                "additionalProperties": {"type": "integer", "minimum": 1, "maximum": 2.5},
                "default": {"a": [1, None, "x"]},
                "x-kubernetes-validations": [{"rule": "self.a > 1", "optionalOldSelf": False}],
            },
            "closed": {"type": "object", "additionalProperties": False, **preserve},
            "open": {"type": "object", "additionalProperties": True},
            "list": {
                "type": "array",
                "items": {"enum": ["a", 1, False], "nullable": True, "default": False},
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            },
            "pair": {"items": [{"type": "string"}, {"$ref": "#/definitions/x"}]},
            "needs": {"dependencies": {"a": ["b", "c"], "d": {"type": "string"}}},
        },
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "a.b"},
        "spec": {"group": "b", "versions": [version]},
    }

    raw = protobuf.encode(crd)

    assert protobuf.decode(raw, "", "") == crd


def test_zero_values_that_go_writes_say_nothing_in_a_schema():
    schema = piece(5, b"object") + piece(6, b"") + piece(18, 0) + piece(13, 0) + piece(38, 0)
    version = piece(1, b"v1") + piece(4, piece(1, schema))
    raw = body("apiextensions.k8s.io/v1", "CustomResourceDefinition", piece(2, piece(7, version)))

    document = protobuf.decode(raw, "", "")

    assert document["spec"]["versions"][0]["schema"]["openAPIV3Schema"] == {
        "type": "object",
        "maxLength": 0,
        "x-kubernetes-preserve-unknown-fields": False,
    }
