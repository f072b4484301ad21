"""Access reviews: the API's answers to "who am I" and "may they"."""

import pytest

AUTHORIZATION = "/apis/authorization.k8s.io/v1"
AUTHENTICATION = "/apis/authentication.k8s.io/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
LIST_PODS = {"namespace": "demo", "verb": "list", "resource": "pods"}


async def may(api, review: str = "selfsubjectaccessreviews", token: str = "admin", **spec) -> dict:
    reply = await api.create(f"{AUTHORIZATION}/{review}", {"spec": spec}, token=token)
    assert reply.code == 201, reply.message
    return reply.json["status"]


@pytest.fixture
async def viewer(api):
    """Alice may view `demo`."""
    await api.create(
        f"{RBAC}/namespaces/demo/rolebindings",
        {
            "metadata": {"name": "v"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "view",
            },
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}
            ],
        },
    )
    return api


async def test_everybody_known_learns_who_they_are(api):
    reply = await api.create(f"{AUTHENTICATION}/selfsubjectreviews", {}, token="alice")

    assert reply.json["status"]["userInfo"]["username"] == "alice"
    anonymous = await api.create(f"{AUTHENTICATION}/selfsubjectreviews", {}, token="")
    assert anonymous.code == 403


async def test_an_answer_says_which_binding_allows(viewer):
    assert await may(viewer, resourceAttributes=LIST_PODS) == {"allowed": True}
    assert await may(viewer, token="alice", resourceAttributes=LIST_PODS) == {
        "allowed": True,
        "reason": 'RBAC: allowed by RoleBinding "v/demo" of ClusterRole "view" to User "alice"',
    }
    elsewhere = {**LIST_PODS, "namespace": "default"}
    assert await may(viewer, token="alice", resourceAttributes=elsewhere) == {"allowed": False}


async def test_a_review_asks_about_any_user(viewer):
    async def subject(user: str, *groups: str, **attributes) -> bool:
        asked = {**LIST_PODS, **attributes}
        found = await may(
            viewer, "subjectaccessreviews", user=user, groups=list(groups), resourceAttributes=asked
        )
        return found["allowed"]

    assert await subject("alice")
    assert not await subject("bob")
    assert await subject("bob", "system:masters")
    assert not await subject("alice", verb="delete")
    assert not await subject("alice", resource="secrets")
    refused = await viewer.create(f"{AUTHORIZATION}/subjectaccessreviews", {}, token="alice")
    assert refused.code == 403


async def test_a_review_asks_about_paths(api):
    healthz = {"path": "/healthz", "verb": "get"}

    assert (await may(api, token="alice", nonResourceAttributes=healthz))["allowed"]
    metrics = {"path": "/metrics", "verb": "get"}
    assert not (await may(api, token="alice", nonResourceAttributes=metrics))["allowed"]


async def test_a_node_is_told_what_is_missing(api):
    asked = {"verb": "get", "resource": "secrets", "namespace": "demo", "name": "b"}

    found = await may(
        api,
        "subjectaccessreviews",
        user="system:node:n",
        groups=["system:nodes"],
        resourceAttributes=asked,
    )

    assert found == {
        "allowed": False,
        "reason": "node: no relationship found between node 'n' and this object",
    }


@pytest.mark.parametrize(
    ("review", "spec", "words"),
    [
        ("selfsubjectaccessreviews", {}, "spec: Invalid value: null: exactly one of"),
        (
            "selfsubjectaccessreviews",
            {"resourceAttributes": LIST_PODS, "nonResourceAttributes": {"path": "/x"}},
            'spec: Invalid value: {"Path":"/x","Verb":""}: exactly one of',
        ),
        (
            "subjectaccessreviews",
            {"resourceAttributes": LIST_PODS},
            'spec.user: Invalid value: "": at least one of user or group must be specified',
        ),
        (
            "namespaces/demo/localsubjectaccessreviews",
            {"user": "bob", "resourceAttributes": {**LIST_PODS, "namespace": "other"}},
            'Invalid value: "other": must match metadata.namespace',
        ),
    ],
)
async def test_a_review_must_ask_one_thing_about_somebody(api, review, spec, words):
    refused = await api.create(f"{AUTHORIZATION}/{review}", {"spec": spec})

    assert refused.code == 422
    assert words in refused.message


async def test_a_local_review_asks_about_its_namespace(viewer):
    local = "namespaces/demo/localsubjectaccessreviews"

    assert (await may(viewer, local, user="alice", resourceAttributes=LIST_PODS))["allowed"]
    assert not (await may(viewer, local, user="bob", resourceAttributes=LIST_PODS))["allowed"]


async def test_a_rules_review_lists_what_one_may(viewer):
    reply = await viewer.create(
        f"{AUTHORIZATION}/selfsubjectrulesreviews", {"spec": {"namespace": "demo"}}, token="alice"
    )

    status = reply.json["status"]
    assert status["incomplete"] is False
    assert any("pods" in rule["resources"] for rule in status["resourceRules"])
    assert any("/apis/*" in rule["nonResourceURLs"] for rule in status["nonResourceRules"])
    nowhere = await viewer.create(f"{AUTHORIZATION}/selfsubjectrulesreviews", {"spec": {}})
    assert (nowhere.code, nowhere.message) == (400, "no namespace on request")


async def test_reviews_are_asked_not_kept(api):
    url = f"{AUTHORIZATION}/selfsubjectaccessreviews"

    assert (await api.get(url)).code == 405
    assert (await api.create(url, {"kind": "Pod", "apiVersion": "v1"})).code == 400


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"{AUTHORIZATION}/selfsubjectaccessreviews", {"spec": {"resourceAttributes": LIST_PODS}}),
        (f"{AUTHORIZATION}/selfsubjectrulesreviews", {"spec": {"namespace": "demo"}}),
        (f"{AUTHENTICATION}/selfsubjectreviews", {}),
        (f"{AUTHENTICATION}/tokenreviews", {"spec": {"token": "x"}}),
    ],
)
async def test_a_review_has_no_rows_and_columns(api, path, body):
    table = "application/json;as=Table;v=v1;g=meta.k8s.io"
    partial = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"

    refused = await api.create(path, body, accept=table)
    plain = await api.create(path, body, accept=f"{table},application/json")
    metadata = await api.create(path, body, accept=partial)

    assert (refused.code, refused.json["reason"]) == (406, "NotAcceptable")
    assert plain.json["kind"] not in ("Table", "Status")
    assert metadata.json["kind"] == "PartialObjectMetadata"
