"""Roles and bindings at work: granting, revoking, limiting, not escalating, acting for others."""

import asyncio

import pytest

from motley.lib.clock import SYSTEM

RBAC = "/apis/rbac.authorization.k8s.io/v1"
DEMO = f"{RBAC}/namespaces/demo"
GROUP = "rbac.authorization.k8s.io"
WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
PODS = "/api/v1/namespaces/demo/pods"
MAPS = "/api/v1/namespaces/demo/configmaps"


def role(name: str, *rules: dict) -> dict:
    return {"metadata": {"name": name}, "rules": list(rules)}


def rule(verbs: str, resources: str, **more) -> dict:
    return {"verbs": verbs.split(), "apiGroups": [""], "resources": resources.split(), **more}


def binding(name: str, kind: str, to: str, *subjects: dict) -> dict:
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": to},
        "subjects": list(subjects) or [ALICE],
    }


ALICE = {"kind": "User", "name": "alice", "apiGroup": GROUP}
DEVELOPERS = {"kind": "Group", "name": "developers", "apiGroup": GROUP}


async def refused_soon(api, url: str, **options) -> None:
    """Rights end when the caches have heard of it, which takes a turn of the loop."""
    async with asyncio.timeout(20):
        while (await api.get(url, **options)).code == 200:
            await SYSTEM.sleep(0.001)


@pytest.fixture
async def granted(api):
    """Alice may read pods, use one ConfigMap, and write roles in `demo`."""
    found = await api.create(
        f"{DEMO}/roles",
        role(
            "reader",
            rule("get list", "pods"),
            rule("get update watch list", "configmaps", resourceNames=["only"]),
            {
                "verbs": ["create", "update", "patch", "get"],
                "apiGroups": [GROUP],
                "resources": ["roles", "rolebindings"],
            },
        ),
    )
    assert found.code == 201
    assert (await api.create(f"{DEMO}/rolebindings", binding("b", "Role", "reader"))).code == 201
    return api


async def test_a_binding_grants_at_once_and_its_deletion_revokes(granted):
    assert (await granted.get(PODS, token="alice")).code == 200
    assert (await granted.delete(f"{DEMO}/rolebindings/b")).code == 200

    await refused_soon(granted, PODS, token="alice")


async def test_a_role_grants_in_its_namespace_only(granted):
    assert (await granted.get("/api/v1/namespaces/default/pods", token="alice")).code == 403
    assert (await granted.get("/api/v1/pods", token="alice")).code == 403


async def test_a_changed_role_counts_from_then_on(granted):
    more = [rule("get list watch create", "pods")]

    assert (await granted.create(PODS, {"metadata": {"name": "x"}}, token="alice")).code == 403
    assert (await granted.patch(f"{DEMO}/roles/reader", {"rules": more})).code == 200
    # 422: the pod is nothing, but alice may.
    assert (await granted.create(PODS, {"metadata": {"name": "x"}}, token="alice")).code == 422


async def test_names_limit_a_rule(granted):
    assert (await granted.get(f"{MAPS}/only", token="alice")).code == 404
    assert (await granted.get(f"{MAPS}/other", token="alice")).code == 403
    assert (await granted.get(MAPS, token="alice")).code == 403
    one = f"{MAPS}?fieldSelector=metadata.name%3Donly"
    assert (await granted.get(one, token="alice")).code == 200


async def test_a_cluster_role_bound_in_a_namespace_holds_there_only(api):
    await api.create(f"{DEMO}/rolebindings", binding("v", "ClusterRole", "view", DEVELOPERS))

    assert (await api.get(PODS, token="alice")).code == 200
    assert (await api.get("/api/v1/namespaces/demo/secrets", token="alice")).code == 403
    assert (await api.get("/api/v1/pods", token="alice")).code == 403


async def test_a_cluster_role_binding_holds_everywhere(api):
    await api.create(f"{RBAC}/clusterrolebindings", binding("v", "ClusterRole", "view"))

    assert (await api.get("/api/v1/pods", token="alice")).code == 200
    assert (await api.get("/metrics", token="alice")).code == 403
    await api.create(
        f"{RBAC}/clusterrolebindings", binding("m", "ClusterRole", "system:monitoring")
    )
    assert (await api.get("/metrics", token="alice")).code == 200


async def test_nobody_writes_a_role_with_more_than_they_have(granted):
    more = role("esc", rule("*", "secrets"), rule("get delete", "pods"))

    refused = await granted.create(f"{DEMO}/roles", more, token="alice")
    whoami = await granted.create(WHOAMI, {}, token="alice")
    groups = " ".join(f'"{g}"' for g in whoami.json["status"]["userInfo"]["groups"])

    assert refused.code == 403
    assert refused.message == (
        'roles.rbac.authorization.k8s.io "esc" is forbidden: user "alice" '
        f"(groups=[{groups}]) is attempting to grant RBAC permissions not currently held:\n"
        '{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}\n'
        '{APIGroups:[""], Resources:["secrets"], Verbs:["*"]}'
    )
    assert "x-content-type-options" not in refused.headers
    less = role("sub", rule("get", "pods"))
    assert (await granted.create(f"{DEMO}/roles", less, token="alice")).code == 201


async def test_nobody_grows_a_role_beyond_what_they_have(granted):
    secrets = {"rules": [rule("get", "secrets")]}
    label = {"metadata": {"labels": {"a": "b"}}}

    assert (await granted.patch(f"{DEMO}/roles/reader", secrets, token="alice")).code == 403
    assert (await granted.patch(f"{DEMO}/roles/reader", label, token="alice")).code == 200


async def test_nobody_binds_a_role_with_more_than_they_have(granted):
    bindings = f"{DEMO}/rolebindings"

    async def bind(to: dict) -> tuple[int, str]:
        reply = await granted.create(bindings, to, token="alice")
        return reply.code, reply.json.get("reason", "")

    assert await bind(binding("e1", "ClusterRole", "view")) == (403, "Forbidden")
    assert await bind(binding("e2", "Role", "nosuch")) == (404, "NotFound")
    assert await bind(binding("e3", "Role", "reader", DEVELOPERS)) == (201, "")


async def test_the_verbs_escalate_and_bind_lift_the_check(granted):
    lifted = {
        "verbs": ["escalate", "bind"],
        "apiGroups": [GROUP],
        "resources": ["roles", "clusterroles"],
    }
    await granted.create(f"{DEMO}/roles", role("trusted", lifted))
    await granted.create(f"{DEMO}/rolebindings", binding("t", "Role", "trusted"))

    esc = role("esc", rule("*", "secrets"))
    assert (await granted.create(f"{DEMO}/roles", esc, token="alice")).code == 201
    admin = binding("e", "ClusterRole", "admin")
    assert (await granted.create(f"{DEMO}/rolebindings", admin, token="alice")).code == 201


async def test_a_terminal_takes_the_right_to_create_one(api):
    """Its handshake is a GET; a role that only reads must not open it."""
    await api.create(f"{DEMO}/roles", role("looker", rule("get", "pods/exec")))
    await api.create(f"{DEMO}/rolebindings", binding("l", "Role", "looker"))
    scope = {
        "type": "websocket",
        "path": f"{PODS}/x/exec",
        "query_string": b"command=sh",
        "headers": [(b"authorization", b"Bearer alice")],
        "subprotocols": ["v5.channel.k8s.io"],
        "state": {},
    }
    sent: list[dict] = []

    async def receive() -> dict:
        return {"type": "websocket.connect"}

    async def send(message: dict) -> None:
        sent.append(message)

    await api.app(scope, receive, send)

    assert sent[0]["status"] == 403
    assert b'cannot create resource \\"pods/exec\\"' in sent[1]["body"]


async def test_the_default_policy_is_there_from_the_start(api):
    view = (await api.get(f"{RBAC}/clusterroles/view")).json
    assert view["metadata"]["labels"]["kubernetes.io/bootstrapping"] == "rbac-defaults"
    assert view["rules"]
    bound = (await api.get(f"{RBAC}/clusterrolebindings/cluster-admin")).json
    assert bound["subjects"][0]["name"] == "system:masters"


AS_BOB = {"impersonate-user": "bob"}


async def test_acting_for_others_takes_the_right_to(granted):
    refused = await granted.get(PODS, token="alice", headers=AS_BOB)
    assert (refused.code, refused.headers["x-content-type-options"]) == (403, "nosniff")
    assert 'User "alice" cannot impersonate-on:user-info:list resource "pods"' in refused.message

    await granted.create(
        f"{RBAC}/clusterroles",
        role("actor", rule("impersonate", "users", resourceNames=["bob"])),
    )
    await granted.create(f"{RBAC}/clusterrolebindings", binding("actor", "ClusterRole", "actor"))

    allowed = await granted.get(PODS, token="alice", headers=AS_BOB)
    assert allowed.message.startswith('pods is forbidden: User "bob" cannot list')
    carol = await granted.get(PODS, token="alice", headers={"impersonate-user": "carol"})
    assert 'User "alice" cannot impersonate-on:user-info:list' in carol.message
    masters = {**AS_BOB, "impersonate-group": "system:masters"}
    assert (await granted.get(PODS, token="alice", headers=masters)).code == 403


async def test_constrained_impersonation_holds_for_one_thing_only(granted):
    """May be bob, but only for listing pods."""
    be_bob = {
        "verbs": ["impersonate:user-info"],
        "apiGroups": ["authentication.k8s.io"],
        "resources": ["users"],
        "resourceNames": ["bob"],
    }
    on_list = rule("impersonate-on:user-info:list", "pods")
    await granted.create(f"{RBAC}/clusterroles", role("actor", be_bob, on_list))
    await granted.create(f"{RBAC}/clusterrolebindings", binding("actor", "ClusterRole", "actor"))

    listed = await granted.get(PODS, token="alice", headers=AS_BOB)
    got = await granted.get(f"{PODS}/x", token="alice", headers=AS_BOB)

    assert 'User "bob" cannot list' in listed.message
    assert 'User "alice" cannot impersonate-on:user-info:get' in got.message


async def test_impersonation_without_a_name_makes_no_sense(api):
    refused = await api.get(PODS, headers={"impersonate-group": "g"})

    assert refused.code == 400
    assert refused.message == (
        'requested &user.DefaultInfo{Name:"", UID:"", Groups:[]string{"g"}, '
        "Extra:map[string][]string(nil)} without impersonating a user name"
    )


async def test_an_impersonated_service_account_has_its_groups(api):
    account = {"impersonate-user": "system:serviceaccount:demo:default"}

    reply = await api.create(
        "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, headers=account
    )

    assert reply.json["status"]["userInfo"]["groups"] == [
        "system:serviceaccounts",
        "system:serviceaccounts:demo",
        "system:authenticated",
    ]


async def test_an_extension_server_bound_to_the_default_role_reads_whom_to_trust(api):
    """As the charts of metrics servers do it."""
    system = f"{RBAC}/namespaces/kube-system"
    trust = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    bound = binding("metrics", "Role", "extension-apiserver-authentication-reader")
    assert (await api.get(trust, token="alice")).code == 403
    assert (await api.create(f"{system}/rolebindings", bound)).code == 201

    # There is none here, which only somebody who may look is told.
    assert (await api.get(trust, token="alice")).code == 404
