"""What no client should send, byte by byte through the real HTTP stack: each has its refusal.

Codes and reasons are those of kube-apiserver, with two exceptions that are better than its own:
text that is no UTF-8 is refused where it would be replaced in silence, and a watch from a version
that is no number is 400 where it answers 500.
"""

import gzip
import http.client
import json
import socket
import ssl
from dataclasses import dataclass
from typing import Any

import pytest

from .test_fuzz import trust

MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
JSON, YAML = "application/json", "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
JSON_PATCH, MERGE = "application/json-patch+json", "application/merge-patch+json"
STRATEGIC, APPLY = "application/strategic-merge-patch+json", "application/apply-patch+yaml"
BAD, MEDIA, INVALID = (400, "BadRequest"), (415, "UnsupportedMediaType"), (422, "Invalid")
DEEP = 100_000


@dataclass
class Reply:
    code: int
    headers: dict[str, str]
    body: bytes

    @property
    def status(self) -> dict[str, Any]:
        found = json.loads(self.body)
        assert found["kind"] == "Status", found
        assert found["code"] == self.code
        return found

    @property
    def refusal(self) -> tuple[int, str]:
        return self.code, self.status["reason"]


class Client:
    """A connection that sends exactly what it is told."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        self._port = port
        self._context = context
        self._connection = self._connect()

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            "127.0.0.1", self._port, context=self._context, timeout=20
        )

    def __call__(
        self,
        method: str,
        url: str,
        body: bytes | None = None,
        content_type: str = JSON,
        **headers: str,
    ) -> Reply:
        sent = {"accept": JSON, **{k.replace("_", "-"): v for k, v in headers.items()}}
        if body is not None:
            sent["content-type"] = content_type
        try:
            self._connection.request(method, url, body, sent)
            response = self._connection.getresponse()
            return Reply(response.status, dict(response.getheaders()), response.read())
        except BaseException:
            self._connection.close()
            self._connection = self._connect()
            raise

    def raw(self, data: bytes) -> bytes:
        """The answer to bytes that need not be HTTP."""
        plain = socket.create_connection(("127.0.0.1", self._port), timeout=20)
        with self._context.wrap_socket(plain, server_hostname="127.0.0.1") as stream:
            stream.sendall(data)
            return stream.recv(4096)

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def client(server):
    found = Client(server.port, trust(server.kubeconfig))
    found("POST", MAPS, b'{"metadata":{"name":"here"},"data":{"a":"b"}}')
    spec = {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        },
    }
    made = found(
        "POST", DEPLOYMENTS, json.dumps({"metadata": {"name": "here"}, "spec": spec}).encode()
    )
    assert made.code == 201
    yield found
    found.close()


def named(rest: bytes = b"") -> bytes:
    return b'{"metadata":{"generateName":"odd-"}' + rest + b"}"


MALFORMED_JSON = {
    "nothing": b"",
    "a word": b"hello",
    "cut off": b'{"metadata":{"name":"a"',
    "two documents": b'{"metadata":{"name":"a"}}{}',
    "something after it": b'{"metadata":{"name":"a"}} x',
    "a comma too many": b'{"metadata":{"name":"a"},}',
    "a comment": b'{"metadata":{"name":"a"}/* */}',
    "single quotes": b"{'metadata':{'name':'a'}}",
    "a list": b"[]",
    "a text": b'"a"',
    "a byte order mark": b'\xef\xbb\xbf{"metadata":{"name":"a"}}',
    "UTF-16": '{"metadata":{"name":"a"}}'.encode("utf-16"),
    "no UTF-8": named(b',"data":{"a":"\xff\xfe"}'),
    "no UTF-8 in a key": named(b',"data":{"\xff":"a"}'),
    "half a surrogate": named(b',"data":{"a":"\\ud800"}'),
    "the other half": named(b',"data":{"a":"\\udc00"}'),
    "a null byte in a text": named(b',"data":{"a":"\x00"}'),
    "a line break in a text": named(b',"data":{"a":"\n"}'),
    "an unknown escape": b'{"metadata":{"name":"\\x61"}}',
    "not a number": b'{"metadata":{"name":"a","generation":NaN}}',
    "infinity": b'{"metadata":{"name":"a","generation":-Infinity}}',
    "a leading zero": b'{"metadata":{"name":"a","generation":01}}',
    "a number out of range": b'{"metadata":{"name":"a","generation":1e400}}',
    "a whole number out of range": b'{"metadata":{"name":"a","generation":99999999999999999999}}',
    "fifty thousand digits": b'{"metadata":{"name":"a","generation":' + b"9" * 50_000 + b"}}",
    "a fraction for a whole number": b'{"metadata":{"name":"a","generation":1.5}}',
    "lists without end": named(b',"x":' + b"[" * DEEP + b"]" * DEEP),
    "objects without end": b'{"a":' * DEEP + b"1" + b"}" * DEEP,
    "brackets that never close": b"[" * DEEP,
    "a list for an object": b'{"metadata":[]}',
    "a number for a text": b'{"metadata":{"name":5}}',
    "a text for a map": b'{"metadata":{"name":"a"},"data":"x"}',
    "another kind": b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}',
    "a kind that is no text": b'{"kind":["Pod"],"metadata":{"name":"a"}}',
    "gzip": gzip.compress(b'{"metadata":{"name":"a"}}'),
}


@pytest.mark.parametrize("body", MALFORMED_JSON.values(), ids=MALFORMED_JSON)
def test_json_that_is_refused(client, body):
    assert client("POST", MAPS, body).refusal == BAD


def bomb() -> bytes:
    """A few lines that would be a billion."""
    lines = [b"a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for level in range(1, 10):
        inner = b", ".join([b"*a%d" % (level - 1)] * 10)
        lines.append(b"a%d: &a%d [%b]" % (level, level, inner))
    return b"\n".join(lines)


MALFORMED_YAML = {
    "cut off": b"metadata: [",
    "tabs": b"metadata:\n\tname: a",
    "aliases without end": bomb(),
    "an alias of itself": b"&a {metadata: *a}",
    "an alias of nothing": b"metadata: *nope",
    "a program": b"!!python/object/apply:os.system [id]",
    "a text": b"hello",
    "no UTF-8": b'metadata: {name: "\xff"}',
    "a null byte": b'metadata: {name: "\x00"}',
    "lists without end": b"[" * DEEP,
    "objects without end": b"{a: " * DEEP,
    "blocks without end": b"\n".join(b" " * depth + b"a:" for depth in range(1000)),
    "infinity": b"metadata: {name: a, generation: .inf}",
    "a list as a key": b"? [a]\n: b",
}


@pytest.mark.parametrize("body", MALFORMED_YAML.values(), ids=MALFORMED_YAML)
def test_yaml_that_is_refused(client, body):
    assert client("POST", MAPS, body, YAML).refusal == BAD


MALFORMED_PROTOBUF = {
    "nothing": b"",
    "JSON": b"{}",
    "no magic": b"\x0a\x00",
    "cut off in the envelope": b"k8s\x00\x0a\x0f\x0a\x02v1\x12\x09Config",
    "cut off in the object": b"k8s\x00\x12\x0e\x0a\x04\x0a\x02a",
    "an endless number": b"k8s\x00" + b"\xff" * 50,
    "an unknown wire type": b"k8s\x00\x0f\x0f",
    "a number for a message": b"k8s\x00\x10\x05",
    "no UTF-8": b"k8s\x00\x12\x06\x0a\x04\x0a\x02\xff\xfe",
    "a time after all times": b"k8s\x00\x12\x0f\x0a\x0d\x42\x0b\x08" + b"\xff" * 8 + b"\x7f\x00",
    "an unknown kind": b"k8s\x00\x0a\x09\x0a\x02v1\x12\x03Foo",
}


@pytest.mark.parametrize("body", MALFORMED_PROTOBUF.values(), ids=MALFORMED_PROTOBUF)
def test_protobuf_that_is_refused(client, body):
    assert client("POST", MAPS, body, PROTOBUF).refusal == BAD


def test_keys_given_twice_are_warned_about_or_refused(client):
    twice = named(b',"data":{"a":"1","a":"2"}')
    warned = client("POST", MAPS, twice)
    assert warned.code == 201
    assert 'duplicate field \\"data.a\\"' in warned.headers["warning"]
    assert json.loads(warned.body)["data"] == {"a": "2"}
    assert client("POST", f"{MAPS}?fieldValidation=Strict", twice).refusal == BAD
    in_yaml = b"metadata: {generateName: odd-}\ndata: {a: x, a: y}\n"
    assert client("POST", f"{MAPS}?fieldValidation=Strict", in_yaml, YAML).refusal == BAD


def test_unknown_fields_of_any_name_and_number_are_warned_about(client):
    odd = json.dumps({"metadata": {"generateName": "odd-"}, "a\r\nb\x00\x07é": 1}).encode()
    warned = client("POST", MAPS, odd)
    assert (warned.code, warned.headers["warning"]) == (201, '299 - "unknown field \\"a  b  ?\\""')
    many = {f"field-{number}": 1 for number in range(10_000)}
    crowded = client("POST", MAPS, json.dumps({**json.loads(named()), **many}).encode())
    assert crowded.code == 201
    by_yaml = client("POST", MAPS, b'metadata: {generateName: odd-}\n"\\e\\b": 1\n', YAML)
    assert by_yaml.code == 201
    assert client("POST", f"{MAPS}?fieldValidation=Strict", odd).refusal == BAD


def test_a_body_beyond_the_limit_is_refused(client):
    large = named(b',"data":{"a":"' + b"x" * (3 * 1024 * 1024) + b'"}')
    refused = client("POST", MAPS, large)
    assert refused.refusal == (413, "RequestEntityTooLarge")


def test_an_object_beyond_the_limit_of_its_kind_is_refused(client):
    large = named(b',"data":{"a":"' + b"x" * (1024 * 1024 + 1) + b'"}')
    assert client("POST", MAPS, large).refusal == INVALID


@pytest.mark.parametrize(
    "media_type",
    ["text/plain", "text/json", "application/cbor", "multipart/form-data", "nonsense", MERGE],
)
def test_bodies_of_other_types_are_refused(client, media_type):
    assert client("POST", MAPS, named(), media_type).refusal == MEDIA


@pytest.mark.parametrize("media_type", [JSON, YAML, PROTOBUF, "text/plain", "nonsense"])
def test_patches_of_other_types_are_refused(client, media_type):
    assert client("PATCH", f"{MAPS}/here", b"{}", media_type).refusal == MEDIA


def test_a_compressed_body_is_not_unpacked(client):
    packed = gzip.compress(named())
    assert client("POST", MAPS, packed, content_encoding="gzip").refusal == BAD
    assert client("POST", MAPS, b"\x1f\x8b\x00", content_encoding="gzip").refusal == BAD


@pytest.mark.parametrize(
    "accept",
    [
        "text/html",
        "application/cbor",
        "nonsense",
        "application/json;as=Nothing;v=v1;g=meta.k8s.io",
        "application/json;as=Table;v=v9;g=meta.k8s.io",
    ],
)
def test_forms_that_are_not_to_be_had_are_not_acceptable(client, accept):
    assert client("GET", f"{MAPS}/here", accept=accept).refusal == (406, "NotAcceptable")


LISTS = {
    "limit=many": BAD,
    "limit=1e3": BAD,
    "limit=1_000": BAD,
    "limit=99999999999999999999": BAD,
    f"limit={'9' * 5000}": BAD,
    "limit=%00": BAD,
    "continue=nonsense": BAD,
    "continue=e30": BAD,
    "continue=e30&resourceVersion=5": BAD,
    "resourceVersion=new": BAD,
    "resourceVersion=-1": BAD,
    "resourceVersion=1.5": BAD,
    f"resourceVersion={'9' * 5000}": BAD,
    "watch=1&resourceVersion=new": BAD,
    "resourceVersionMatch=Exact": INVALID,
    "resourceVersion=1&resourceVersionMatch=Nearly": INVALID,
    "labelSelector=a%20in%20(": BAD,
    "labelSelector=%3Db": BAD,
    "labelSelector=%ff": BAD,
    f"labelSelector={'a' * 64}": BAD,
    "fieldSelector=data.a%3Db": BAD,
    "fieldSelector=nonsense": BAD,
    "timeoutSeconds=long": BAD,
    "sendInitialEvents=true": INVALID,
    "watch=1&sendInitialEvents=true": INVALID,
}


@pytest.mark.parametrize(("query", "refusal"), LISTS.items(), ids=lambda value: str(value)[:50])
def test_lists_with_wrong_parameters_are_refused(client, query, refusal):
    assert client("GET", f"{MAPS}?{query}").refusal == refusal


WRITES = {
    "dryRun=Some": INVALID,
    "dryRun=All&dryRun=Some": INVALID,
    "fieldValidation=Nearly": INVALID,
    "fieldManager=a%0Ab": INVALID,
    "fieldManager=%00": INVALID,
    f"fieldManager={'x' * 129}": INVALID,
}


@pytest.mark.parametrize(("query", "refusal"), WRITES.items(), ids=lambda value: str(value)[:50])
def test_writes_with_wrong_parameters_are_refused(client, query, refusal):
    assert client("POST", f"{MAPS}?{query}", named()).refusal == refusal


DELETES = {
    ("gracePeriodSeconds=long", None): BAD,
    ("gracePeriodSeconds=99999999999999999999", None): BAD,
    ("propagationPolicy=Sideways", None): INVALID,
    ("orphanDependents=true&propagationPolicy=Orphan", None): INVALID,
    ("dryRun=Some", None): INVALID,
    ("", b"{"): BAD,
    ("", b"[]"): BAD,
    ("", b"\xff"): BAD,
    ("", b'{"gracePeriodSeconds":"long"}'): BAD,
    ("", b'{"gracePeriodSeconds":99999999999999999999}'): BAD,
    ("", b'{"gracePeriodSeconds":1e400}'): BAD,
    ("", b'{"propagationPolicy":"Sideways"}'): INVALID,
    ("", b'{"preconditions":[]}'): BAD,
    ("", b'{"dryRun":"All"}'): BAD,
    ("", b'{"kind":"Pod","apiVersion":"v1"}'): BAD,
    ("", b'{"preconditions":{"uid":"another"}}'): (409, "Conflict"),
    ("", b'{"preconditions":{"resourceVersion":"1"}}'): (409, "Conflict"),
}


@pytest.mark.parametrize(("given", "refusal"), DELETES.items(), ids=lambda value: str(value)[:60])
def test_deletes_with_wrong_options_are_refused(client, given, refusal):
    query, body = given
    assert client("DELETE", f"{MAPS}/here?{query}", body).refusal == refusal
    assert client("GET", f"{MAPS}/here").code == 200


PATCHES = {
    JSON_PATCH: {
        b"": BAD,
        b"{": BAD,
        b"{}": BAD,
        b"1": BAD,
        b"[1]": BAD,
        b"\xff": BAD,
        b"[" * DEEP: BAD,
        b'[{"op":"melt","path":"/data"}]': INVALID,
        b'[{"op":"add"}]': INVALID,
        b'[{"op":"remove","path":"/nope"}]': INVALID,
        b'[{"op":"remove","path":"nope"}]': INVALID,
        b'[{"op":"test","path":"/data/a","value":"c"}]': INVALID,
        b'[{"op":"move","path":"/data/b"}]': INVALID,
        b'[{"op":"replace","path":"/data","value":5}]': INVALID,
        b'[{"op":"replace","path":"/metadata/name","value":"other"}]': BAD,
        b'[{"op":"replace","path":"/kind","value":"Pod"}]': INVALID,
    },
    MERGE: {
        b"": BAD,
        b"{": BAD,
        b"1": BAD,
        b'"a"': BAD,
        b"\xff": BAD,
        b"[" * DEEP: BAD,
        b'{"a":' * DEEP + b"1" + b"}" * DEEP: BAD,
        b'{"data":"x"}': INVALID,
        b'{"data":{"a":5}}': INVALID,
        b'{"metadata":[]}': INVALID,
        b'{"metadata":{"name":"other"}}': BAD,
        b'{"metadata":{"resourceVersion":"1"}}': (409, "Conflict"),
        b'{"kind":"Pod"}': INVALID,
        b'{"apiVersion":"v9"}': INVALID,
    },
    STRATEGIC: {
        b"": BAD,
        b"{": BAD,
        b"[]": BAD,
        b"1": BAD,
        b"\xff": BAD,
        b'{"$patch":"melt"}': BAD,
        b'{"data":{"$patch":5}}': BAD,
        b'{"metadata":{"$setElementOrder/finalizers":5}}': BAD,
        b'{"metadata":{"name":"other"}}': BAD,
    },
    APPLY: {
        b"": BAD,
        b"{": BAD,
        b"[]": BAD,
        b"hello": BAD,
        b"\xff": BAD,
        b"[" * DEEP: BAD,
        bomb(): BAD,
        b"{}": BAD,
        b'{"apiVersion":"v1","kind":"Pod"}': BAD,
        b'{"apiVersion":"v9","kind":"ConfigMap"}': BAD,
        b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"other"}}': BAD,
        b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"managedFields":[{}]}}': BAD,
        b'{"apiVersion":"v1","kind":"ConfigMap","data":5}': BAD,
    },
}


@pytest.mark.parametrize(
    ("media_type", "body", "refusal"),
    [(t, body, refusal) for t, cases in PATCHES.items() for body, refusal in cases.items()],
    ids=lambda value: str(value)[:50],
)
def test_patches_that_are_refused(client, media_type, body, refusal):
    before = client("GET", f"{MAPS}/here").body
    url = f"{MAPS}/here" + ("?fieldManager=tests" if media_type == APPLY else "")
    assert client("PATCH", url, body, media_type).refusal == refusal
    assert client("GET", f"{MAPS}/here").body == before


STRATEGIC_LISTS = [
    b'[{"image":"x"}]',
    b'["a"]',
    b"[null]",
    b'[{"name":{}}]',
    b'[{"name":"c","$patch":"melt"}]',
    b'[{"$patch":5}]',
]


@pytest.mark.parametrize("containers", STRATEGIC_LISTS)
def test_strategic_patches_of_lists_that_are_refused(client, containers):
    body = b'{"spec":{"template":{"spec":{"containers":' + containers + b"}}}}"
    refused = client("PATCH", f"{DEPLOYMENTS}/here", body, STRATEGIC)
    assert refused.refusal in (BAD, INVALID)


def test_an_apply_must_say_who_applies(client):
    body = b'{"apiVersion":"v1","kind":"ConfigMap"}'
    assert client("PATCH", f"{MAPS}/here", body, APPLY).refusal == INVALID


WRONG_METHODS = [
    ("PUT", MAPS),
    ("PATCH", MAPS),
    ("POST", f"{MAPS}/here"),
    ("POST", "/api/v1/configmaps"),
    ("DELETE", "/api/v1/configmaps"),
    ("DELETE", "/api/v1/namespaces"),
    ("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
    ("DELETE", f"{PODS}/here/status"),
    ("GET", f"{PODS}/here/binding"),
    ("POST", "/version"),
    ("PUT", "/api"),
]


@pytest.mark.parametrize(("method", "url"), WRONG_METHODS)
def test_methods_that_a_resource_does_not_have(client, method, url):
    assert client(method, url, b"{}").refusal == (405, "MethodNotAllowed")


@pytest.mark.parametrize("path", ["/api/v1/%zz", "/api/v1/pods%", "/api/v1/%1", f"{MAPS}/%ag"])
def test_broken_escapes_in_a_path_are_refused(client, path):
    refused = client("GET", path)
    assert (refused.code, refused.body) == (400, b"400 Bad Request")


@pytest.mark.parametrize("name", ["%00", "a%00b", "%ff", "%C3%28", "%F0%9F%98%80", "..", "%2e%2e"])
def test_names_that_nothing_can_have_are_not_found(client, name):
    assert client("GET", f"{MAPS}/{name}").code == 404


@pytest.mark.parametrize("name", ["", "A", "a_b", "a\x00b", "é", "a" * 254, "a/b", "..", " "])
def test_names_that_nothing_may_have_are_invalid(client, name):
    body = json.dumps({"metadata": {"name": name}}).encode()
    assert client("POST", MAPS, body).refusal == INVALID


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /api/v1/\xff HTTP/1.1\r\nhost: x\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: -5\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: many\r\n\r\n",
    ],
)
def test_what_is_no_http_is_refused_and_harms_nobody(client, data):
    assert client.raw(data).split(b" ")[1:2] in ([b"400"], [b"405"], [b"505"])
    assert client("GET", "/readyz").code == 200


def test_a_grace_period_of_ages_ends_with_the_calendar(client):
    spec = {"nodeName": "n", "containers": [{"name": "c", "image": "i"}]}
    pod = {"metadata": {"name": "old"}, "spec": spec}
    assert client("POST", PODS, json.dumps(pod).encode()).code == 201
    marked = client("DELETE", f"{PODS}/old?gracePeriodSeconds={2**63 - 1}")
    assert marked.code == 200
    assert json.loads(marked.body)["metadata"]["deletionTimestamp"] == "9999-12-31T23:59:59Z"
    assert client("DELETE", f"{PODS}/old?gracePeriodSeconds=0").code == 200
    assert client("GET", f"{PODS}/old").code == 404


AMOUNTS = ["1e999999999", "9" * 400, "1e-999999999", "0." + "0" * 400 + "1", "1Xi", "", "NaN"]


@pytest.mark.parametrize("amount", AMOUNTS, ids=lambda amount: amount[:20])
def test_amounts_beyond_all_measure_do_no_harm(client, amount):
    limits = {"limits": {"cpu": amount}}
    container = {"name": "c", "image": "i", "resources": limits}
    body = {"metadata": {"generateName": "much-"}, "spec": {"containers": [container]}}
    assert client("POST", f"{PODS}?dryRun=All", json.dumps(body).encode()).code in (201, 400, 422)
