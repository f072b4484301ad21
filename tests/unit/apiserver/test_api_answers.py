"""The form of answers: indented, in YAML, with warnings, as tables; and what a PUT may create."""

import pytest

MAPS = "/api/v1/namespaces/default/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
A = {"metadata": {"name": "a"}, "data": {"k": "v"}}


@pytest.mark.parametrize(
    ("query", "agent", "is_indented"),
    [
        ("", "kubectl/v1.37", False),
        ("", "curl/8.0", True),
        ("?pretty=true", "kubectl/v1.37", True),
        ("?pretty=false", "curl/8.0", False),
    ],
)
async def test_people_get_indented_json(api, query, agent, is_indented):
    await api.create(MAPS, A)
    reply = await api.get(f"{MAPS}/a{query}", headers={"user-agent": agent})
    assert (b"\n  " in reply.body) is is_indented
    assert reply.json["data"] == {"k": "v"}


async def test_refusals_are_yaml_for_who_wants_yaml(api):
    reply = await api.get(f"{MAPS}/nosuch", accept="application/yaml")
    assert (reply.code, reply.headers["content-type"]) == (404, "application/yaml")
    assert b"reason: NotFound\n" in reply.body


async def test_yaml_quotes_what_would_be_read_as_something_else(api):
    await api.create(MAPS, {"metadata": {"name": "a"}, "data": {"n": "1", "t": "x\ny"}})
    text = (await api.get(f"{MAPS}/a", accept="application/yaml")).body.decode()
    assert '  "n": "1"\n  t: |-\n    x\n    y\n' in text


async def test_a_refused_request_is_warned_about_too(api):
    reply = await api.create(MAPS, {"metadata": {"name": "A_"}, "dada": {}})
    assert (reply.code, reply.warnings) == (422, ['299 - "unknown field \\"dada\\""'])


async def test_every_answer_about_endpoints_says_that_they_are_deprecated(api):
    reply = await api.get("/api/v1/namespaces/default/endpoints")
    assert "v1 Endpoints is deprecated" in reply.warnings[0]


async def test_a_put_creates_a_lease_and_no_config_map(api):
    lease = {"metadata": {"name": "new"}, "spec": {"holderIdentity": "me"}}
    assert (await api.put(f"{LEASES}/new", lease)).code == 201
    assert (await api.put(f"{MAPS}/a", A)).code == 404


async def test_a_lease_is_replaced_only_with_the_version_that_was_seen(api):
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}
    made = (await api.create(LEASES, lease)).json
    refused = await api.put(f"{LEASES}/l", lease)
    assert refused.code == 422
    assert "metadata.resourceVersion: Invalid value: 0" in refused.message
    lease["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"]
    assert (await api.put(f"{LEASES}/l", lease)).code == 200


@pytest.mark.parametrize(
    ("path", "form", "words"),
    [
        (MAPS, "PartialObjectMetadata", "is a list (*core.ConfigMapList)"),
        (f"{MAPS}/a", "PartialObjectMetadataList", "is not a list (*core.ConfigMap)"),
    ],
)
async def test_one_object_is_no_list_and_a_list_no_object(api, path, form, words):
    await api.create(MAPS, A)
    reply = await api.get(path, accept=f"application/json;as={form};v=v1;g=meta.k8s.io")
    assert reply.code == 406
    assert words in reply.message


async def test_a_scale_is_a_table_too(api):
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    spec = {"replicas": 2, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    path = "/apis/apps/v1/namespaces/default/deployments"
    await api.create(path, {"metadata": {"name": "d"}, "spec": spec})
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    table = (await api.get(f"{path}/d/scale", accept=accept)).json
    assert [c["name"] for c in table["columnDefinitions"]] == [
        "Name",
        "Desired",
        "Available",
        "Age",
    ]
    assert table["rows"][0]["cells"][:3] == ["d", 2, 0]


async def test_a_body_that_is_no_json_is_told_where(api):
    reply = await api.create(MAPS, b"kind: ConfigMap")
    assert reply.code == 400
    assert "invalid character 'k' looking for beginning of value (6b696e643a" in reply.message


async def test_a_wrong_continue_token_is_told_where(api):
    reply = await api.get(f"{MAPS}?continue=bogus")
    assert (reply.code, reply.message) == (
        400,
        "invalid continue token: continue key is not valid: illegal base64 data at input byte 4",
    )


async def test_who_asks_for_a_certificate_is_for_the_server_to_say(api):
    path = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    spec = {"request": "eA==", "signerName": "example.com/s", "usages": ["client auth"]}
    body = {"metadata": {"name": "c"}, "spec": {**spec, "username": "somebody-else"}}
    reply = await api.create(path, body)
    assert "somebody-else" not in reply.body.decode()


async def test_component_statuses_tell_of_the_store_and_of_who_does_not_answer(api):
    listed = (await api.get("/api/v1/componentstatuses")).json
    assert [c["metadata"]["name"] for c in listed["items"]] == [
        "controller-manager",
        "scheduler",
        "etcd-0",
    ]
    store = await api.get("/api/v1/componentstatuses/etcd-0")
    assert store.json["conditions"] == [{"type": "Healthy", "status": "True", "message": "ok"}]
    assert "deprecated" in store.warnings[0]
    assert (await api.get("/api/v1/componentstatuses/nosuch")).code == 404
