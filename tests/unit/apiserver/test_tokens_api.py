"""Service-account and bootstrap tokens, from asking for one to its end."""

import asyncio
import base64
import json

import pytest

from motley.lib.clock import SYSTEM

REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCOUNTS = "/api/v1/namespaces/demo/serviceaccounts"
TOKEN = f"{ACCOUNTS}/robot/token"
PODS = "/api/v1/namespaces/demo/pods"
NODE_1 = {"impersonate-user": "system:node:node-1", "impersonate-group": "system:nodes"}


@pytest.fixture
async def robot(api):
    await api.create(ACCOUNTS, {"metadata": {"name": "robot"}})
    return api


async def token(api, **spec) -> str:
    reply = await api.create(TOKEN, {"spec": spec})
    assert reply.code == 201, reply.message
    return reply.json["status"]["token"]


def claims(text: str) -> dict:
    part = text.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


async def refused_soon(api, text: str) -> None:
    """A token ends when the caches have heard of its object's end: a turn of the loop."""
    async with asyncio.timeout(20):
        while (await api.get("/apis", token=text)).code == 200:
            await SYSTEM.sleep(0.001)
    assert (await api.get("/apis", token=text)).code == 401


async def review(api, text: str, *audiences: str) -> dict:
    spec = {"token": text, **({"audiences": list(audiences)} if audiences else {})}
    reply = await api.create(REVIEWS, {"spec": spec})
    assert reply.code == 201
    return reply.json["status"]


async def test_a_token_makes_its_bearer_the_account(robot):
    text = await token(robot)

    refused = await robot.get(PODS, token=text)

    assert refused.code == 403
    assert 'User "system:serviceaccount:demo:robot" cannot list' in refused.message
    assert (await robot.get("/apis", token=text)).code == 200


async def test_a_token_says_what_kubernetes_tokens_say(robot):
    reply = (await robot.create(TOKEN, {})).json
    found = claims(reply["status"]["token"])

    issuer = "https://kubernetes.default.svc.cluster.local"
    assert reply["spec"] == {
        "audiences": [issuer],
        "expirationSeconds": 3600,
        "boundObjectRef": None,
    }
    assert (found["iss"], found["aud"]) == (issuer, [issuer])
    assert found["exp"] - found["iat"] == 3600
    assert found["sub"] == "system:serviceaccount:demo:robot"
    assert found["kubernetes.io"]["serviceaccount"]["uid"] == reply["metadata"]["uid"]


async def test_a_changed_token_is_refused(robot):
    text = await token(robot)
    head, body, signature = text.split(".")
    forged = {**claims(text), "sub": "system:serviceaccount:kube-system:default"}
    other = base64.urlsafe_b64encode(json.dumps(forged).encode()).rstrip(b"=").decode()

    for bad in (text + "x", f"{head}.{other}.{signature}", f"{head}.{body}.", "a.b.c"):
        assert (await robot.get("/apis", token=bad)).code == 401


async def test_an_unsigned_token_is_refused(robot):
    def part(value: dict) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    body = claims(await token(robot))

    assert (await robot.get("/apis", token=f"{part({'alg': 'none'})}.{part(body)}.")).code == 401


async def test_a_token_for_others_is_not_for_this_server(robot):
    text = await token(robot, audiences=["vault"])

    assert (await robot.get("/apis", token=text)).code == 401
    assert (await review(robot, text, "vault", "x"))["audiences"] == ["vault"]
    assert "is invalid for the target audiences" in (await review(robot, text))["error"]


async def test_a_token_dies_with_its_account(robot):
    text = await token(robot)
    await robot.delete(f"{ACCOUNTS}/robot")

    await refused_soon(robot, text)
    await robot.create(ACCOUNTS, {"metadata": {"name": "robot"}})
    assert (await robot.get("/apis", token=text)).code == 401  # another account of the name


async def test_a_token_dies_with_the_object_it_is_bound_to(robot):
    secrets = "/api/v1/namespaces/demo/secrets"
    await robot.create(secrets, {"metadata": {"name": "s"}})
    reference = {"apiVersion": "v1", "kind": "Secret", "name": "s"}
    text = await token(robot, boundObjectRef=reference)

    assert (await robot.get("/apis", token=text)).code == 200
    await robot.delete(f"{secrets}/s")
    await refused_soon(robot, text)


async def test_a_pods_token_tells_pod_and_node(robot, a_pod):
    await robot.create("/api/v1/nodes", {"metadata": {"name": "node-1"}})
    made = (await robot.create(PODS, a_pod("p", nodeName="node-1"))).json
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "p"}

    found = await review(robot, await token(robot, boundObjectRef=reference))

    extra = found["user"]["extra"]
    assert extra["authentication.kubernetes.io/pod-uid"] == [made["metadata"]["uid"]]
    assert extra["authentication.kubernetes.io/node-name"] == ["node-1"]


@pytest.mark.parametrize(
    ("spec", "code", "words"),
    [
        ({"expirationSeconds": 10}, 422, "may not specify a duration less than 10 minutes"),
        ({"expirationSeconds": 1 << 33}, 422, "larger than 2^32 seconds"),
        ({"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "no"}}, 404, "not found"),
        (
            {"boundObjectRef": {"kind": "ConfigMap", "apiVersion": "v1", "name": "x"}},
            400,
            "cannot bind token to object of type /v1, Kind=ConfigMap",
        ),
        ({"expirationSeconds": "soon"}, 400, "cannot be handled as a TokenRequest"),
    ],
)
async def test_a_request_that_makes_no_sense_gets_no_token(robot, spec, code, words):
    refused = await robot.create(TOKEN, {"spec": spec})

    assert refused.code == code
    assert words in refused.message


async def test_a_node_gets_tokens_for_its_own_pods_only(robot, a_pod):
    await robot.create("/api/v1/nodes", {"metadata": {"name": "node-1"}})
    uids = {}
    for name, node in (("here", "node-1"), ("there", "node-2")):
        made = await robot.create(PODS, a_pod(name, nodeName=node, serviceAccountName="robot"))
        uids[name] = made.json["metadata"]["uid"]

    async def ask(**reference) -> int:
        spec = {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", **reference}}
        return (await robot.create(TOKEN, {"spec": spec}, token="node-1")).code

    assert await ask(name="here", uid=uids["here"]) == 201
    assert await ask(name="here") == 403
    assert await ask(name="there", uid=uids["there"]) == 403
    assert (await robot.create(TOKEN, {}, token="node-1")).code == 403


async def test_a_review_tells_a_good_token_from_a_bad_one(robot):
    good = await review(robot, await token(robot))
    static = await review(robot, "alice")

    assert good["authenticated"] is True
    assert good["user"]["username"] == "system:serviceaccount:demo:robot"
    assert static["user"]["username"] == "alice"
    assert await review(robot, "garbage") == {"user": {}, "error": "invalid bearer token"}
    assert (await robot.create(REVIEWS, {"spec": {}})).code == 400


async def test_others_can_check_our_tokens(robot):
    text = await token(robot)

    found = (await robot.get("/.well-known/openid-configuration")).json
    keys = await robot.get("/openid/v1/jwks")

    assert found["issuer"] == claims(text)["iss"]
    assert found["jwks_uri"].endswith("/openid/v1/jwks")
    assert keys.headers["content-type"] == "application/jwk-set+json"
    import jwt

    key = jwt.PyJWK(keys.json["keys"][0])
    assert jwt.decode(text, key, audience=claims(text)["aud"])["sub"].endswith(":robot")
    assert (await robot.get("/openid/v1/jwks", token="alice")).code == 403
    assert (await robot.get("/openid/v1/jwks", token=text)).code == 200


def bootstrap_secret(**changes) -> dict:
    data = {
        "token-id": "abcdef",
        "token-secret": "0123456789abcdef",
        "usage-bootstrap-authentication": "true",
        "auth-extra-groups": "system:bootstrappers:workers",
        "expiration": "2999-01-01T00:00:00Z",
        **changes,
    }
    return {
        "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {key: value for key, value in data.items() if value},
        "data": {
            key: base64.b64encode(value.encode()).decode() for key, value in data.items() if value
        },
    }


SECRETS = "/api/v1/namespaces/kube-system/secrets"


async def test_a_bootstrap_token_makes_a_bootstrapper(api):
    await api.create(SECRETS, bootstrap_secret())

    found = await review(api, "abcdef.0123456789abcdef")

    assert found["user"] == {
        "username": "system:bootstrap:abcdef",
        "groups": [
            "system:bootstrappers",
            "system:bootstrappers:workers",
            "system:authenticated",
        ],
    }
    assert (await api.get("/api/v1/nodes", token="abcdef.0123456789abcdef")).code == 403


@pytest.mark.parametrize(
    "changes",
    [
        {"token-secret": "another-secret-1"},
        {"token-id": "fedcba"},
        {"expiration": "2001-01-01T00:00:00Z"},
        {"expiration": "someday"},
        {"usage-bootstrap-authentication": "false"},
        {"auth-extra-groups": "system:masters"},
    ],
)
async def test_a_bootstrap_token_that_is_not_good_is_refused(api, changes):
    await api.create(SECRETS, bootstrap_secret(**changes))

    assert (await api.get("/healthz", token="abcdef.0123456789abcdef")).code == 401


async def test_other_schemes_than_bearer_are_nobodys(api):
    for authorization in ("Basic YTpi", "Bearer ", "Foo bar"):
        refused = await api.get(PODS, token="", headers={"authorization": authorization})
        assert 'User "system:anonymous" cannot list' in refused.message
    known = await api.get(PODS, token="", headers={"authorization": "bearer admin"})
    assert known.code == 200
