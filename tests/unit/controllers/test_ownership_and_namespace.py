import pytest

from motley.api.views.base import OwnerReference
from motley.api.views.core import ConfigMap, Namespace
from motley.controllers import discovery, namespace, ownership
from motley.controllers.ownership import Fate, Owner, Verdict


def obj(name="o", *, finalizers=(), deleted=False, owners=()):
    meta = {"name": name, "uid": name, "finalizers": list(finalizers)}
    if deleted:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    meta["ownerReferences"] = [{"uid": u, "blockOwnerDeletion": b} for u, b in owners]
    return ConfigMap.of({"metadata": meta})


def owners(*fates):
    return [Owner(OwnerReference(uid=f"u{i}"), fate) for i, fate in enumerate(fates)]


@pytest.mark.parametrize(
    ("fates", "dependents", "verdict"),
    [
        ([], False, Verdict.KEEP),
        ([Fate.SOLID], True, Verdict.KEEP),
        ([Fate.DANGLING], False, Verdict.DELETE),
        ([Fate.WAITING], False, Verdict.DELETE),
        ([Fate.SOLID, Fate.DANGLING], False, Verdict.UNLINK),
        ([Fate.SOLID, Fate.WAITING], False, Verdict.UNLINK),
        ([Fate.DANGLING, Fate.WAITING], True, Verdict.DELETE),
    ],
)
def test_an_object_lives_while_one_owner_does(fates, dependents, verdict):
    decision = ownership.judge(obj(), owners(*fates), has_dependents=dependents)
    assert decision.verdict is verdict


def test_only_useless_references_are_unlinked():
    decision = ownership.judge(
        obj(), owners(Fate.DANGLING, Fate.SOLID, Fate.WAITING), has_dependents=False
    )
    assert decision.unlink == ("u0", "u2")


@pytest.mark.parametrize(
    ("subject", "fates", "dependents", "propagation"),
    [
        (obj(), [Fate.DANGLING], True, "Background"),
        (obj(), [Fate.WAITING], True, "Foreground"),
        (obj(), [Fate.WAITING], False, "Background"),
        (obj(finalizers=["orphan"]), [Fate.DANGLING], True, "Orphan"),
        (obj(finalizers=["foregroundDeletion"]), [Fate.DANGLING], True, "Foreground"),
    ],
)
def test_how_it_is_deleted_follows_its_owner_and_its_finalizers(
    subject, fates, dependents, propagation
):
    decision = ownership.judge(subject, owners(*fates), has_dependents=dependents)
    assert decision.propagation == propagation


def test_phases_of_deletion():
    assert ownership.is_deleting_dependents(obj(deleted=True, finalizers=["foregroundDeletion"]))
    assert not ownership.is_deleting_dependents(obj(finalizers=["foregroundDeletion"]))
    assert ownership.is_orphaning(obj(deleted=True, finalizers=["orphan"]))
    assert not ownership.is_orphaning(obj(deleted=True))


def test_a_dependent_blocks_only_if_it_says_so():
    owner = obj("owner")
    assert ownership.is_blocking(obj(owners=[("owner", True)]), owner)
    assert not ownership.is_blocking(obj(owners=[("owner", False), ("x", True)]), owner)


def test_what_remains_in_a_namespace_is_described():
    left = {"pods": [obj("a"), obj("b", finalizers=["x/y"])], "configmaps": [obj("c")]}
    problems = namespace.describe(left)
    assert problems["NamespaceContentRemaining"] == (
        "SomeResourcesRemain",
        "Some resources are remaining: configmaps. has 1 resource instances, "
        "pods. has 2 resource instances",
    )
    assert "x/y in 1 resource instances" in problems["NamespaceFinalizersRemaining"][1]
    assert namespace.describe({}) == {}


def test_conditions_change_only_when_they_must():
    fresh = Namespace.of({"metadata": {"name": "n"}})
    first = namespace.conditions(fresh, {}, "t1")
    assert {c["status"] for c in first} == {"False"}
    known = Namespace.of({"metadata": {"name": "n"}, "status": {"conditions": first}})
    assert namespace.conditions(known, {}, "t2") is None
    problem = {"NamespaceContentRemaining": ("SomeResourcesRemain", "x")}
    second = namespace.conditions(known, problem, "t2")
    times = {c["type"]: c["lastTransitionTime"] for c in second}
    assert times["NamespaceContentRemaining"] == "t2"
    assert times["NamespaceFinalizersRemaining"] == "t1"


def test_a_discovered_kind_has_one_metadata_view():
    resource = discovery.Resource("a.b/v1", "Thing", "things", True, frozenset({"list", "watch"}))
    cls = discovery.view(resource)
    assert cls is discovery.view(resource)
    assert (cls.API_VERSION, cls.PLURAL, cls.NAMESPACED) == ("a.b/v1", "things", True)
    assert resource.group == "a.b"
    assert resource.can("list")
    assert not resource.can("list", "delete")
    thing = cls.of({"metadata": {"name": "x"}, "spec": {"unknown": 1}})
    assert thing.metadata.name == "x"


class Server:
    def __init__(self, answers):
        self.answers = answers

    async def raw(self, method, path, *, accept="application/json"):
        answer = self.answers[path]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_discovery_prefers_the_preferred_version_and_skips_subresources():
    from motley.api import status

    def entry(name, **more):
        return {"name": name, "kind": name, "namespaced": True, "verbs": ["list"], **more}

    group = {
        "name": "g",
        "versions": [{"groupVersion": "g/v1beta1"}, {"groupVersion": "g/v1"}],
        "preferredVersion": {"groupVersion": "g/v1"},
    }
    broken = {"name": "x", "versions": [{"groupVersion": "x/v1"}], "preferredVersion": {}}
    found = await discovery.discover(
        Server(
            {
                "/api": {"kind": "APIVersions", "versions": ["v1"]},
                "/apis": {"groups": [group, broken]},
                "/api/v1": {"resources": [entry("pods"), entry("pods/log")]},
                "/apis/g/v1": {"resources": [entry("things")]},
                "/apis/g/v1beta1": {"resources": [entry("things"), entry("olds")]},
                "/apis/x/v1": status.ServiceUnavailable("no backend"),
            }
        )
    )
    assert [(r.api_version, r.plural) for r in found.resources] == [
        ("v1", "pods"),
        ("g/v1", "things"),
        ("g/v1beta1", "olds"),
    ]
    assert found.failed == ["x/v1"]


async def test_discovery_in_one_answer_says_the_same_and_names_what_is_stale():
    def version(name, *resources, **more):
        entries = [
            {
                "resource": plural,
                "responseKind": {"kind": plural.title()},
                "scope": "Namespaced",
                "verbs": ["list"],
            }
            for plural in resources
        ]
        return {"version": name, "resources": entries, **more}

    def answer(*groups):
        items = [{"metadata": {"name": n} if n else {}, "versions": v} for n, v in groups]
        return {"kind": "APIGroupDiscoveryList", "items": items}

    versions = [version("v1", "things"), version("v1beta1", "things", "olds")]
    found = await discovery.discover(
        Server(
            {
                "/api": answer(("", [version("v1", "pods")])),
                "/apis": answer(("g", versions), ("x", [version("v1", freshness="Stale")])),
            }
        )
    )
    assert [(r.api_version, r.kind) for r in found.resources] == [
        ("v1", "Pods"),
        ("g/v1", "Things"),
        ("g/v1beta1", "Olds"),
    ]
    assert found.failed == ["x/v1"]
