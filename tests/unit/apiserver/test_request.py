"""Reading paths, queries and Accept headers."""

import pytest

from motley.api import status
from motley.apiserver import negotiate, request

PATHS = [
    ("GET /api/v1/pods", "list", "", "v1", "", "pods", "", ""),
    ("GET /api/v1/pods/", "list", "", "v1", "", "pods", "", ""),
    ("GET /api/v1/pods?watch=1", "watch", "", "v1", "", "pods", "", ""),
    ("GET /api/v1/pods?watch", "watch", "", "v1", "", "pods", "", ""),
    ("GET /api/v1/pods?watch=false", "list", "", "v1", "", "pods", "", ""),
    ("GET /api/v1/watch/pods", "watch", "", "v1", "", "pods", "", ""),
    ("GET /api/v1/namespaces", "list", "", "v1", "", "namespaces", "", ""),
    ("GET /api/v1/namespaces/a", "get", "", "v1", "a", "namespaces", "a", ""),
    ("PUT /api/v1/namespaces/a/finalize", "update", "", "v1", "a", "namespaces", "a", "finalize"),
    ("GET /api/v1/namespaces/a/pods", "list", "", "v1", "a", "pods", "", ""),
    ("POST /api/v1/namespaces/a/pods", "create", "", "v1", "a", "pods", "", ""),
    ("DELETE /api/v1/namespaces/a/pods", "deletecollection", "", "v1", "a", "pods", "", ""),
    ("DELETE /api/v1/namespaces/a/pods/p", "delete", "", "v1", "a", "pods", "p", ""),
    ("GET /api/v1/namespaces/a/pods/p/log", "get", "", "v1", "a", "pods", "p", "log"),
    ("PATCH /api/v1/nodes/n/status", "patch", "", "v1", "", "nodes", "n", "status"),
    (
        "PUT /apis/apps/v1/namespaces/a/deployments/d",
        "update",
        "apps",
        "v1",
        "a",
        "deployments",
        "d",
        "",
    ),
]


@pytest.mark.parametrize(
    ("line", "verb", "group", "version", "namespace", "resource", "name", "sub"), PATHS
)
def test_paths_are_read_as_kubernetes_reads_them(
    line, verb, group, version, namespace, resource, name, sub
):
    method, url = line.split(" ")
    path, _, query = url.partition("?")
    info = request.parse(method, path, query.encode())

    assert info.is_resource
    assert (info.verb, info.group, info.version) == (verb, group, version)
    assert (info.namespace, info.resource, info.name) == (namespace, resource, name)
    assert info.subresource == sub


@pytest.mark.parametrize("path", ["/", "/api", "/api/v1", "/apis/apps/v1", "/version", "/x/y/z"])
def test_other_paths_are_no_resources(path):
    assert not request.parse("GET", path).is_resource


def test_numbers_in_queries_are_checked():
    query = request.Query.parse(b"limit=5&bad=x&empty=")

    assert query.integer("limit") == 5
    assert query.integer("empty") is None
    assert query.integer("absent") is None
    with pytest.raises(status.BadRequest):
        query.integer("bad")


@pytest.mark.parametrize(
    ("header", "media_type", "transform"),
    [
        ("", "application/json", ""),
        ("*/*", "application/json", ""),
        ("application/yaml", "application/yaml", ""),
        ("application/json;q=0.5,application/yaml", "application/yaml", ""),
        ("application/vnd.kubernetes.protobuf,application/json", "application/json", ""),
        (
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            "application/json",
            "Table",
        ),
        ("application/json;as=Table;v=v9;g=meta.k8s.io,application/json", "application/json", ""),
    ],
)
def test_the_first_form_we_can_make_is_taken(header, media_type, transform):
    wanted = negotiate.accept(header)

    assert (wanted.media_type, wanted.transform) == (media_type, transform)


@pytest.mark.parametrize("header", ["text/html", "application/cbor", "application/json;as=Nosuch"])
def test_forms_we_cannot_make_are_refused(header):
    with pytest.raises(status.NotAcceptable):
        negotiate.accept(header)


@pytest.mark.parametrize(
    "text", ["x", "1.5", "1e3", "1_000", "\u0661", " 1", str(2**63), "9" * 5000]
)
def test_numbers_that_go_could_not_read_are_refused(text):
    with pytest.raises(status.BadRequest, match=r"strconv\.ParseInt"):
        request.Query({"limit": [text]}).integer("limit")


@pytest.mark.parametrize(("text", "value"), [("", None), ("5", 5), ("-1", -1), ("+7", 7)])
def test_numbers_are_read_as_go_reads_them(text, value):
    assert request.Query({"limit": [text]}).integer("limit") == value


def test_a_percent_sign_must_begin_an_escape():
    assert not request.is_broken(b"/api/v1/a%20b%2F")
    for path in (b"/%", b"/%2", b"/%zz", b"/%20%"):
        assert request.is_broken(path)
