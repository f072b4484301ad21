"""What objects state and what changes touch, by the schemas of real kinds."""

from typing import Any

from motley.api import scheme
from motley.api.fields import merging, pathset, types, walk


def kind(api_version: str, name: str) -> scheme.Kind:
    found = scheme.by_kind(api_version, name)
    assert found is not None
    return found


POD = types.of(kind("v1", "Pod"))
SERVICE = types.of(kind("v1", "Service"))
META = POD.child("metadata")
SPEC = POD.child("spec")


def test_a_configuration_states_its_leaves_and_the_items_of_its_lists() -> None:
    config = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}
    assert walk.stated(POD, config) == {
        "f:metadata": {"f:labels": {"f:a": {}}},
        "f:spec": {"f:containers": {'k:{"name":"c"}': {".": {}, "f:name": {}}}},
    }


def test_an_empty_container_is_stated_as_such() -> None:
    assert walk.stated(POD, {"spec": {"securityContext": {}, "volumes": []}}) == {
        "f:spec": {"f:securityContext": {}}
    }


def test_a_key_left_out_has_its_default() -> None:
    ports = walk.stated(
        SERVICE, {"spec": {"ports": [{"port": 80}, {"port": 53, "protocol": "UDP"}]}}
    )
    assert list(ports["f:spec"]["f:ports"]) == [
        'k:{"port":53,"protocol":"UDP"}',
        'k:{"port":80,"protocol":"TCP"}',
    ]


def test_atomic_parts_are_one_field() -> None:
    spec = {
        "selector": {"a": "b"},
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}},
    }
    assert walk.stated(SERVICE, {"spec": spec}) == {
        "f:spec": {
            "f:selector": {},
            "f:sessionAffinityConfig": {"f:clientIP": {"f:timeoutSeconds": {}}},
        }
    }
    tolerations = {"spec": {"tolerations": [{"key": "a"}]}}
    assert walk.stated(POD, tolerations) == {"f:spec": {"f:tolerations": {}}}


def test_sets_are_owned_value_by_value() -> None:
    stated = walk.stated(POD, {"metadata": {"finalizers": ["b", "a"]}})
    assert stated == {"f:metadata": {"f:finalizers": {'v:"a"': {}, 'v:"b"': {}}}}


def test_what_appears_is_owned_with_its_containers() -> None:
    changed, removed = walk.between(META, {}, {"labels": {"a": "b"}})
    assert (changed, removed) == ({"f:labels": {".": {}, "f:a": {}}}, None)


def test_only_what_differs_counts_as_changed() -> None:
    old = {"containers": [{"name": "a", "image": "x:1"}, {"name": "b", "image": "y"}]}
    new = {"containers": [{"name": "b", "image": "y"}, {"name": "a", "image": "x:2"}]}
    changed, removed = walk.between(SPEC, old, new)
    assert (changed, removed) == ({"f:containers": {'k:{"name":"a"}': {"f:image": {}}}}, None)


def test_what_goes_is_removed_with_all_its_parts() -> None:
    old = {"containers": [{"name": "a", "image": "x"}], "hostname": "h"}
    _, removed = walk.between(SPEC, old, {"containers": []})
    item = {".": {}, "f:image": {}, "f:name": {}}
    assert removed == {"f:containers": {'k:{"name":"a"}': item}, "f:hostname": {}}


def test_twins_in_a_keyed_list_are_owned_as_one() -> None:
    twins = {"containers": [{"name": "a", "image": "x"}, {"name": "a", "image": "y"}]}
    assert walk.whole(SPEC, twins)["f:containers"]['k:{"name":"a"}'] == {}
    single = {"containers": [{"name": "a", "image": "x"}]}
    changed, removed = walk.between(SPEC, single, twins)
    assert changed == {"f:containers": {'k:{"name":"a"}': {}}}
    assert removed is not None
    assert walk.between(SPEC, twins, twins) == (None, None)


def test_without_a_schema_objects_are_divided_by_their_keys() -> None:
    old: Any = {"a": {"b": 1, "c": [1]}}
    changed, removed = walk.between(types.DEDUCED, old, {"a": {"b": 1, "c": [2]}, "d": 1})
    assert (changed, removed) == ({"f:a": {"f:c": {}}, "f:d": {}}, None)
    changed, removed = walk.between(types.DEDUCED, old, {"a": "text"})
    assert changed == {"f:a": {}}
    assert removed == {"f:a": {"f:b": {}, "f:c": {}}}


def merged(live: list[str], config: list[str]) -> list[str]:
    found = merging.merge(
        SPEC,
        {"containers": [{"name": n} for n in live]},
        {"containers": [{"name": n} for n in config]},
    )
    return [item["name"] for item in found["containers"]]


def test_merged_lists_have_the_configurations_order_and_keep_the_rest() -> None:
    assert merged(["a", "b", "c"], ["d"]) == ["a", "b", "c", "d"]
    assert merged(["a", "b", "c"], ["c", "a"]) == ["b", "c", "a"]
    assert merged(["a", "b"], ["b", "x", "a"]) == ["b", "x", "a"]
    assert merged([], ["b", "a"]) == ["b", "a"]


def test_merging_leaves_both_sides_as_they_were() -> None:
    live = {"containers": [{"name": "a", "image": "x", "env": [{"name": "E", "value": "1"}]}]}
    config = {"containers": [{"name": "a", "env": [{"name": "E", "value": "2"}]}]}
    found = merging.merge(SPEC, live, config)
    assert found["containers"][0] == {
        "name": "a",
        "image": "x",
        "env": [{"name": "E", "value": "2"}],
    }
    assert live["containers"][0]["env"] == [{"name": "E", "value": "1"}]


def test_removing_takes_out_items_and_fields() -> None:
    pod = {"spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b"}], "hostname": "h"}}
    fields = pathset.union(
        pathset.of_path(("f:spec", "f:containers", 'k:{"name":"b"}')),
        pathset.of_path(("f:spec", "f:hostname")),
    )
    assert merging.remove(POD, pod, fields) == {
        "spec": {"containers": [{"name": "a", "image": "x"}]}
    }


def test_recursive_kinds_have_a_type() -> None:
    crd = types.of(kind("apiextensions.k8s.io/v1", "CustomResourceDefinition"))
    assert crd.child("spec").child("versions").scalar == "list"


def test_a_value_that_is_not_what_the_schema_says_is_one_field() -> None:
    """Custom objects are tracked before they are validated, and schemas change under objects."""
    for odd in ("text", 5, ["a"]):
        assert walk.whole(SPEC, odd) == {}
    assert walk.whole(SPEC.child("containers"), {"name": "c"}) == {}
    was, now = {"containers": [{"name": "c"}]}, ["a"]
    assert walk.between(SPEC, was, now)[0] == {}
    assert walk.between(SPEC, now, was)[0] == {}
    assert walk.between(SPEC.child("containers"), "text", [{"name": "c"}])[0] == {}
