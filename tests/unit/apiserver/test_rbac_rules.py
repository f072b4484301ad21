"""RBAC without a server: rules, what covers what, the default policy, reconciliation."""

import pytest

from motley.apiserver.authz import bootstrap, defaults, namespaced
from motley.apiserver.authz.rules import Rule, described, missing


def rule(
    verbs: str, groups: str = "", resources: str = "", names: str = "", urls: str = ""
) -> Rule:
    return Rule.of(
        {
            "verbs": verbs.split(),
            "apiGroups": [g if g != "core" else "" for g in groups.split()],
            "resources": resources.split(),
            "resourceNames": names.split(),
            "nonResourceURLs": urls.split(),
        }
    )


@pytest.mark.parametrize(
    ("rule_", "question", "expected"),
    [
        (rule("get", "core", "pods"), ("get", "", "pods", ""), True),
        (rule("get", "core", "pods"), ("list", "", "pods", ""), False),
        (rule("get", "core", "pods"), ("get", "apps", "pods", ""), False),
        (rule("get", "core", "pods"), ("get", "", "pods", "log"), False),
        (rule("get", "core", "pods/log"), ("get", "", "pods", "log"), True),
        (rule("get", "core", "pods/log"), ("get", "", "pods", ""), False),
        (rule("update", "*", "*/scale"), ("update", "apps", "deployments", "scale"), True),
        (rule("update", "*", "*/scale"), ("update", "apps", "deployments", ""), False),
        (rule("*", "*", "*"), ("impersonate", "x", "y", "z"), True),
    ],
)
def test_a_rule_covers_what_it_names(rule_, question, expected):
    assert rule_.covers_resource(*question) is expected


@pytest.mark.parametrize(
    ("urls", "path", "expected"),
    [
        ("/metrics", "/metrics", True),
        ("/metrics", "/metrics/slis", False),
        ("/healthz/*", "/healthz/etcd", True),
        ("/healthz/*", "/healthz", False),
        ("*", "/anything", True),
    ],
)
def test_a_star_ends_a_path(urls, path, expected):
    assert rule("get", urls=urls).allows_path("get", path) is expected


def test_what_is_held_piecewise_covers_the_whole():
    held = [rule("get list", "core", "pods"), rule("watch", "core", "pods")]

    assert missing(held, [rule("get watch", "core", "pods")]) == []


def test_a_right_on_one_name_does_not_cover_all_names():
    held = [rule("get", "core", "secrets", names="mine")]

    assert missing(held, [rule("get", "core", "secrets", names="mine")]) == []
    assert missing(held, [rule("get", "core", "secrets", names="mine theirs")])
    assert missing(held, [rule("get", "core", "secrets")])


def test_all_subresources_of_a_kind_cover_one():
    held = [rule("update", "core", "*/status")]

    assert missing(held, [rule("update", "core", "pods/status")]) == []
    assert missing(held, [rule("update", "core", "pods")])


def test_a_path_with_a_star_covers_a_longer_one():
    held = [rule("get", urls="/api/*")]

    assert missing(held, [rule("get", urls="/api/v1")]) == []
    assert missing(held, [rule("get", urls="/apis")])


def test_missing_rights_are_listed_by_resource_with_their_verbs():
    wanted = [
        rule("get list", "core apps", "b a", names="x"),
        rule("*", urls="/x"),
    ]

    assert described(missing([], wanted)) == [
        '{APIGroups:[""], Resources:["a"], ResourceNames:["x"], Verbs:["get" "list"]}',
        '{APIGroups:[""], Resources:["b"], ResourceNames:["x"], Verbs:["get" "list"]}',
        '{APIGroups:["apps"], Resources:["a"], ResourceNames:["x"], Verbs:["get" "list"]}',
        '{APIGroups:["apps"], Resources:["b"], ResourceNames:["x"], Verbs:["get" "list"]}',
        '{NonResourceURLs:["/x"], Verbs:["*"]}',
    ]


def roles() -> dict[str, dict]:
    return {role["metadata"]["name"]: role for role in defaults.cluster_roles()}


def test_every_default_binding_leads_to_a_default_role():
    known = roles()

    for binding in defaults.cluster_role_bindings():
        assert binding["roleRef"]["name"] in known


def test_every_default_binding_in_a_namespace_leads_to_a_role_there():
    def place(one):
        return one["metadata"]["namespace"]

    known = {(place(role), role["metadata"]["name"]) for role in namespaced.roles()}

    assert ("kube-system", "extension-apiserver-authentication-reader") in known
    for binding in namespaced.role_bindings():
        assert (place(binding), binding["roleRef"]["name"]) in known


def test_edit_includes_view_and_admin_includes_edit():
    known = {name: [Rule.of(r) for r in role["rules"]] for name, role in roles().items()}

    assert missing(known["edit"], known["view"]) == []
    assert missing(known["admin"], known["edit"]) == []
    assert missing(known["view"], known["edit"])
    assert not any("secrets" in r.resources for r in known["view"])


def test_a_restart_adds_missing_rights_and_keeps_added_ones():
    wanted = roles()["system:kube-dns"]
    own = {"verbs": ["get"], "apiGroups": [""], "resources": ["nodes"]}
    stored = {"metadata": dict(wanted["metadata"]), "rules": [own]}

    again = bootstrap.reconciled_role(stored, wanted)

    assert again is not None
    assert again["rules"] == [own, *wanted["rules"]]
    assert bootstrap.reconciled_role(again, wanted) is None


def test_a_role_that_opted_out_is_left_alone():
    wanted = roles()["system:discovery"]
    metadata = {"name": "system:discovery", "annotations": {defaults.AUTOUPDATE: "false"}}

    assert bootstrap.reconciled_role({"metadata": metadata, "rules": []}, wanted) is None


def test_a_restart_leaves_aggregated_rules_to_the_controller():
    wanted = roles()["view"]
    stored = {**wanted, "rules": [{"verbs": ["get"], "apiGroups": ["x"], "resources": ["y"]}]}

    assert bootstrap.reconciled_role(stored, wanted) is None


def test_a_restart_gives_a_binding_its_subjects_back():
    wanted = next(
        b for b in defaults.cluster_role_bindings() if b["metadata"]["name"] == "system:discovery"
    )
    stored = {**wanted, "subjects": [{"kind": "User", "name": "eve"}]}

    again = bootstrap.reconciled_binding(stored, wanted)

    assert again is not None
    assert [s["name"] for s in again["subjects"]] == ["eve", "system:authenticated"]
    assert bootstrap.reconciled_binding(again, wanted) is None
