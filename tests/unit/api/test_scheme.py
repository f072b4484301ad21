import pytest

from motley.api import scheme
from motley.api.views import apps, core, pod
from motley.api.views.base import Object


def test_a_pod_is_found_by_path_and_by_kind():
    kind = scheme.resource("", "v1", "pods")

    assert kind is not None
    assert kind is scheme.by_kind("v1", "Pod")
    assert kind.key("ns", "a") == "/registry/pods/ns/a"
    assert kind.prefix("ns") == "/registry/pods/ns/"
    assert kind.list_kind == "PodList"
    assert kind.categories == ("all",)


def test_groups_stand_in_keys_and_versions():
    kind = scheme.by_kind("apps/v1", "Deployment")

    assert kind is not None
    assert kind.storage_prefix == "/registry/apps/deployments/"
    assert kind.qualified == "deployments.apps"
    assert scheme.groups()["apps"] == ["v1"]


def test_cluster_wide_kinds_have_no_namespace_in_their_keys():
    kind = scheme.by_kind("v1", "Node")

    assert kind is not None
    assert kind.key("ignored", "n1") == "/registry/nodes/n1"


def test_no_prefix_is_the_start_of_another():
    prefixes = [kind.storage_prefix for kind in scheme.kinds() if kind.stored_as is None]

    assert len(set(prefixes)) == len(prefixes)
    assert not [(a, b) for a in prefixes for b in prefixes if a != b and a.startswith(b)]


def test_short_names_and_plurals_are_unambiguous():
    # What can only be created (bindings, one or many) is never asked for by a short name.
    kept = [k for k in scheme.kinds() if k.stored_as is None and "list" in k.verbs]
    seen = [n for k in kept for n in {*k.short_names, k.plural, k.singular}]

    assert len(set(seen)) == len(seen)


def test_subresources_know_their_kind():
    kind = scheme.by_kind("apps/v1", "Deployment")
    assert kind is not None
    scale, status = kind.subresource("scale"), kind.subresource("status")

    assert scale is not None
    assert (scale.kind, scale.group, scale.version) == ("Scale", "autoscaling", "v1")
    assert status is not None
    assert (status.kind, status.group, status.version) == ("Deployment", "apps", "v1")
    assert kind.subresource("log") is None


def test_namespaces_cannot_be_deleted_in_bulk():
    kind = scheme.by_kind("v1", "Namespace")

    assert kind is not None
    assert "deletecollection" not in kind.verbs


def test_storage_version_hashes_are_kubernetes_own():
    kind = scheme.by_kind("v1", "Pod")

    assert kind is not None
    assert kind.storage_version_hash == "xPOwRZ+Yhw8="


def _views() -> list[type[Object]]:
    found = {
        value
        for module in (apps, core, pod)
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Object) and value is not Object
    }
    return sorted((v for v in found if hasattr(v, "KIND")), key=lambda v: v.KIND)


@pytest.mark.parametrize("view", _views(), ids=lambda v: v.KIND)
def test_every_view_agrees_with_its_row(view):
    kind = scheme.by_kind(view.API_VERSION, view.KIND)

    assert kind is not None
    assert (kind.plural, kind.namespaced) == (view.PLURAL, view.NAMESPACED)


def test_kinds_that_are_not_kept_have_no_verbs_that_read_the_store():
    for kind in scheme.kinds():
        if not kind.is_stored:
            assert not {"delete", "patch", "update", "watch"} & set(kind.verbs), kind


def test_the_preferred_version_of_a_group_comes_first():
    assert scheme.groups()["autoscaling"][:2] == ["v2", "v1"]
    assert list(scheme.groups())[:3] == ["", "apiregistration.k8s.io", "apps"]
