"""Policies in CEL, stored as objects."""

import asyncio
import json

import pytest

from motley.apiserver import audit
from motley.lib.clock import SYSTEM

GROUP = "/apis/admissionregistration.k8s.io/v1"
MAPS = "/api/v1/namespaces/demo/configmaps"
CONFIGMAPS = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["configmaps"],
}


async def policy(api, *validations, rule=CONFIGMAPS, actions=("Deny",), name="p", **spec):
    param_ref = spec.pop("paramRef", None)
    body = {
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": list(validations),
            **spec,
        },
    }
    made = await api.create(f"{GROUP}/validatingadmissionpolicies", body)
    assert made.code == 201, made.json
    binding = {"policyName": name, "validationActions": list(actions)}
    if param_ref is not None:
        binding["paramRef"] = param_ref
    bound = {"metadata": {"name": f"{name}-binding"}, "spec": binding}
    made = await api.create(f"{GROUP}/validatingadmissionpolicybindings", bound)
    assert made.code == 201, made.json


async def configmap(api, name="a", **data):
    return await api.create(MAPS, {"metadata": {"name": name}, "data": data})


async def test_a_rule_that_does_not_hold_refuses_in_its_own_words(api):
    await policy(
        api,
        {"expression": "!('bad' in object.data)", "message": "bad key"},
        {
            "expression": "object.data.all(k, size(object.data[k]) < 5)",
            "messageExpression": "'too long in ' + object.metadata.name",
            "reason": "Forbidden",
        },
        {"expression": "!('rule' in object.data)"},
    )
    start = "ValidatingAdmissionPolicy 'p' with binding 'p-binding' denied request: "

    bad = await configmap(api, bad="1")
    long = await configmap(api, x="123456")
    plain = await configmap(api, rule="1")
    good = await configmap(api, x="1")
    changed = await api.patch(f"{MAPS}/a", {"data": {"bad": "1"}})

    assert (bad.code, bad.json["reason"]) == (422, "Invalid")
    assert bad.message == f'configmaps "a" is forbidden: {start}bad key'
    assert bad.json["details"]["causes"] == [{"message": f"{start}bad key"}]
    assert (long.code, long.json["reason"]) == (403, "Forbidden")
    assert long.message.endswith("too long in a")
    assert plain.message.endswith("failed expression: !('rule' in object.data)")
    assert good.code == 201
    assert changed.code == 422


async def test_who_may_not_create_hears_that_before_anything_about_the_version(api):
    await policy(api, {"expression": "!('bad' in object.data)", "message": "bad key"})

    def versioned(key):
        return {"metadata": {"name": "a", "resourceVersion": "3"}, "data": {key: "1"}}

    bad, good = [await api.create(MAPS, versioned(key)) for key in ("bad", "good")]

    assert bad.message.endswith("bad key")
    assert good.code == 400
    assert good.message == "resourceVersion should not be set on objects to be created"


async def test_a_binding_may_only_warn(api):
    await policy(
        api,
        {"expression": "!object.metadata.name.startsWith('w')", "message": "starts with w"},
        actions=("Warn", "Audit"),
    )

    reply = await configmap(api, "w1")

    assert reply.code == 201
    assert reply.warnings == [
        "299 - \"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p-binding': "
        'starts with w"'
    ]


async def test_parameters_variables_and_conditions_work_together(api):
    await api.create(MAPS, {"metadata": {"name": "param"}, "data": {"max": "2"}})
    deployments = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["deployments"],
    }
    await policy(
        api,
        {
            "expression": "object.spec.replicas <= variables.max",
            "messageExpression": "'at most ' + string(variables.max)",
        },
        rule=deployments,
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        variables=[{"name": "max", "expression": "int(params.data.max)"}],
        matchConditions=[
            {"name": "exempt", "expression": "!object.metadata.name.startsWith('exempt')"}
        ],
        paramRef={"name": "param", "namespace": "demo", "parameterNotFoundAction": "Deny"},
    )

    async def deploy(name, replicas):
        labels = {"app": name}
        spec = {"containers": [{"name": "c", "image": "x"}]}
        template = {"metadata": {"labels": labels}, "spec": spec}
        body = {
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": template,
            },
        }
        return await api.create("/apis/apps/v1/namespaces/demo/deployments", body)

    assert (await deploy("d3", 3)).message.endswith("denied request: at most 2")
    assert (await deploy("d2", 2)).code == 201
    assert (await deploy("exempt", 9)).code == 201
    await api.delete(f"{MAPS}/param")
    missing = await deploy("d1", 1)
    assert missing.code == 422
    assert missing.message.endswith(
        "failed to configure binding: no params found for policy binding with `Deny` "
        "parameterNotFoundAction"
    )


@pytest.mark.parametrize(("failure", "code"), [("Fail", 422), ("Ignore", 201)])
async def test_the_failure_policy_decides_about_rules_that_cannot_be_told(api, failure, code):
    await policy(api, {"expression": "object.data.nosuch == 'x'"}, failurePolicy=failure)

    reply = await configmap(api, x="1")

    assert reply.code == code
    if code == 422:
        assert reply.message.endswith(
            "expression 'object.data.nosuch == 'x'' resulted in error: no such key: nosuch"
        )


async def test_a_rule_knows_who_asks_where_and_what_was_before(api):
    await policy(
        api,
        {
            "expression": "request.userInfo.username == 'admin' "
            "&& 'system:masters' in request.userInfo.groups "
            "&& namespaceObject.metadata.name == 'demo' "
            "&& request.operation in ['CREATE', 'UPDATE']"
        },
        {
            "expression": "oldObject == null || oldObject.data.x == object.data.x",
            "message": "x is for ever",
        },
    )

    assert (await configmap(api, x="1")).code == 201
    assert (await api.patch(f"{MAPS}/a", {"data": {"x": "2"}})).message.endswith("x is for ever")


async def test_deletions_can_be_refused_and_policies_themselves_cannot_be_locked_in(api):
    everything = {
        "apiGroups": ["*"],
        "apiVersions": ["*"],
        "operations": ["*"],
        "resources": ["*"],
    }
    await configmap(api)
    await policy(api, {"expression": "request.operation != 'DELETE'"}, rule=everything)

    kept = await api.delete(f"{MAPS}/a")
    gone = await api.delete(f"{GROUP}/validatingadmissionpolicies/p")

    assert kept.code == 422
    assert gone.code == 200
    assert (await api.delete(f"{MAPS}/a")).code == 200


async def test_a_policy_that_cannot_work_is_not_stored(api):
    async def refused(expression):
        spec = {
            "matchConstraints": {"resourceRules": [CONFIGMAPS]},
            "validations": [{"expression": expression}],
        }
        body = {"metadata": {"name": "p"}, "spec": spec}
        reply = await api.create(f"{GROUP}/validatingadmissionpolicies", body)
        assert reply.code == 422, reply.json
        return reply.message

    assert (
        'spec.validations[0].expression: Invalid value: "object.x =": compilation failed: '
        "ERROR: <input>:1:10: Syntax error"
    ) in await refused("object.x =")
    assert "must evaluate to bool but got string" in await refused("'a'")
    assert "undeclared reference to 'variables'" in await refused("variables.x")


async def test_a_stored_policy_is_marked_as_seen(api):
    await policy(api, {"expression": "true"})

    async with asyncio.timeout(20):
        while True:
            found = (await api.get(f"{GROUP}/validatingadmissionpolicies/p")).json
            if found.get("status"):
                break
            await SYSTEM.sleep(0.01)
    assert found["status"] == {"observedGeneration": 1, "typeChecking": {}}


async def test_a_mutating_policy_merges_and_patches(api):
    secrets = {**CONFIGMAPS, "resources": ["secrets"]}
    merge = "Object{metadata: Object.metadata{labels: {'mutated': 'yes'}}}"
    patch = "[JSONPatch{op: 'add', path: '/metadata/annotations', value: {'by': 'policy'}}]"
    spec = {
        "reinvocationPolicy": "Never",
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [secrets]},
        "mutations": [
            {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": merge}},
            {"patchType": "JSONPatch", "jsonPatch": {"expression": patch}},
        ],
    }
    body = {"metadata": {"name": "m"}, "spec": spec}
    made = await api.create(f"{GROUP}/mutatingadmissionpolicies", body)
    assert made.code == 201, made.json
    binding = {"metadata": {"name": "m"}, "spec": {"policyName": "m"}}
    made = await api.create(f"{GROUP}/mutatingadmissionpolicybindings", binding)
    assert made.code == 201, made.json

    labels = {"metadata": {"name": "s", "labels": {"own": "kept"}}}
    found = (await api.create("/api/v1/namespaces/demo/secrets", labels)).json

    assert found["metadata"]["labels"] == {"own": "kept", "mutated": "yes"}
    assert found["metadata"]["annotations"] == {"by": "policy"}
    assert found["metadata"]["name"] == "s"


async def test_a_policy_may_ask_what_the_author_of_a_request_may_do(api):
    await policy(
        api,
        {
            "expression": "authorizer.group('').resource('secrets').namespace('demo')"
            ".check('delete').allowed()",
            "message": "needs secrets",
        },
        {
            "expression": "authorizer.requestResource.check('bless').allowed()"
            " || !object.metadata.name.startsWith('holy')",
            "message": "needs blessing",
        },
        {
            "expression": "!authorizer.serviceAccount('demo', 'nobody')"
            ".path('/metrics').check('get').allowed()",
        },
    )
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}]
    await api.create(f"{rbac}/clusterroles", {"metadata": {"name": "maps"}, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "maps"}
    subjects = [{"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}]
    bound = {"metadata": {"name": "maps"}, "roleRef": reference, "subjects": subjects}
    await api.create(f"{rbac}/clusterrolebindings", bound)

    async def as_alice(name):
        body = {"metadata": {"name": name}}
        return await api.create(MAPS, body, headers={"impersonate-user": "alice"})

    assert (await configmap(api, "holy-admin")).code == 201
    assert (await as_alice("a1")).message.endswith("denied request: needs secrets")

    rules.append({"apiGroups": [""], "resources": ["secrets"], "verbs": ["delete"]})
    await api.patch(f"{rbac}/clusterroles/maps", {"rules": rules})

    assert (await as_alice("a1")).code == 201
    assert (await as_alice("holy")).message.endswith("denied request: needs blessing")


async def test_what_a_policy_notes_goes_to_the_audit_log_not_to_the_client(api):
    events = []
    api.app._auditor = audit.Auditor(events.append, SYSTEM)
    await policy(
        api,
        {"expression": "object.metadata.name != 'odd'", "message": "odd name"},
        actions=("Audit",),
        auditAnnotations=[
            {"key": "size", "valueExpression": "'has ' + string(size(object.data))"},
            {"key": "nothing", "valueExpression": "null"},
        ],
    )

    reply = await configmap(api, "odd", a="1", b="2")

    assert (reply.code, reply.warnings) == (201, [])
    annotations = events[-1]["annotations"]
    assert annotations["p/size"] == "has 2"
    assert "p/nothing" not in annotations
    assert json.loads(annotations["validation.policy.admission.k8s.io/validation_failure"]) == [
        {
            "message": "odd name",
            "policy": "p",
            "binding": "p-binding",
            "expressionIndex": 0,
            "validationActions": ["Audit"],
        }
    ]


async def test_a_note_that_fails_refuses_unless_failures_are_ignored(api):
    broken = [{"key": "k", "valueExpression": "object.data.nosuch"}]
    await policy(api, {"expression": "true"}, auditAnnotations=broken)

    assert (await configmap(api, "a", x="1")).message.endswith(
        "expression 'object.data.nosuch' resulted in error: no such key: nosuch"
    )


async def test_expressions_that_do_not_fit_the_kind_are_named_in_the_status(api):
    deployments = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["deployments"],
    }
    await policy(
        api,
        {"expression": "object.spec.replicas > 1"},
        {"expression": "object.spec.nosuch > 1"},
        {
            "expression": "object.spec.template.spec.containers.all(c, c.image != 1)",
            "messageExpression": "object.metadata.labels.anything",
        },
        rule=deployments,
    )

    async def looked_at():
        found = await api.get(f"{GROUP}/validatingadmissionpolicies/p")
        return found.json.get("status") or {}

    deadline = SYSTEM.monotonic() + 5
    while not (status := await looked_at()).get("observedGeneration"):
        assert SYSTEM.monotonic() < deadline
        await SYSTEM.sleep(0.01)

    first, second = status["typeChecking"]["expressionWarnings"]
    assert first["fieldRef"] == "spec.validations[1].expression"
    assert first["warning"] == (
        "apps/v1, Kind=Deployment: compilation failed: "
        "ERROR: <input>:1:12: undefined field 'nosuch'\n"
        " | object.spec.nosuch > 1\n"
        " | ...........^\n"
    )
    assert second["fieldRef"] == "spec.validations[2].expression"
    assert "found no matching overload for '_!=_' applied to '(string, int)'" in second["warning"]
