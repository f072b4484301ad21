import copy

import pytest

from motley.api import scheme, status
from motley.api.patch import strategic

DEPLOYMENT = scheme.by_kind("apps/v1", "Deployment")
SERVICE = scheme.by_kind("v1", "Service")
TARGET = {
    "metadata": {
        "name": "d",
        "labels": {"a": "1", "b": "2"},
        "finalizers": ["x.io/a", "x.io/b"],
    },
    "spec": {
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
        "template": {
            "spec": {
                "volumes": [{"name": "v1", "emptyDir": {}}, {"name": "v2", "emptyDir": {}}],
                "containers": [
                    {
                        "name": "a",
                        "image": "a:1",
                        "args": ["1", "2"],
                        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                    },
                    {"name": "b", "image": "b:1"},
                ],
            }
        },
    },
}


def apply(patch, target=TARGET, kind=DEPLOYMENT):
    before = copy.deepcopy((target, patch))
    result = strategic.apply(kind, target, patch)
    assert (target, patch) == before
    return result


def pod_spec(patch):
    return apply({"spec": {"template": {"spec": patch}}})["spec"]["template"]["spec"]


def containers(*patch, **more):
    return pod_spec({"containers": list(patch), **more})["containers"]


def names(items):
    return [item["name"] for item in items]


def test_items_of_a_list_merge_by_their_key():
    merged = containers({"name": "b", "image": "b:2"})

    assert names(merged) == ["a", "b"]
    assert merged[0] == TARGET["spec"]["template"]["spec"]["containers"][0]
    assert merged[1] == {"name": "b", "image": "b:2"}


def test_a_new_item_comes_first_as_in_kubernetes():
    assert names(containers({"name": "c", "image": "c:1"})) == ["c", "a", "b"]


def test_an_item_is_deleted_by_its_key():
    assert names(containers({"name": "a", "$patch": "delete"})) == ["b"]


def test_nested_lists_merge_too():
    env = [{"name": "B", "value": "22"}, {"name": "C", "value": "3"}]
    merged = containers({"name": "a", "env": env})[0]["env"]

    assert merged == [{"name": "A", "value": "1"}, *env]


def test_lists_without_a_key_are_replaced():
    assert containers({"name": "a", "args": ["9"]})[0]["args"] == ["9"]


def test_a_list_is_replaced_when_the_patch_says_so():
    assert containers({"name": "z", "image": "z:1"}, {"$patch": "replace"}) == [
        {"name": "z", "image": "z:1"}
    ]


def test_null_removes_and_null_of_nothing_is_nothing():
    assert apply({"metadata": {"labels": {"a": None, "z": None}}})["metadata"]["labels"] == {
        "b": "2"
    }
    assert "x" not in apply({"metadata": {"annotations": {"x": None}}})["metadata"]["annotations"]


def test_an_object_is_replaced_or_deleted_by_directive():
    replaced = apply({"metadata": {"labels": {"$patch": "replace", "only": "this"}}})
    deleted = apply({"metadata": {"labels": {"$patch": "delete"}}})
    absent = apply({"metadata": {"annotations": {"$patch": "replace", "only": "this"}}})

    assert replaced["metadata"]["labels"] == {"only": "this"}
    assert deleted["metadata"]["labels"] == {}
    assert "annotations" not in absent["metadata"]


def test_retain_keys_drops_the_others():
    patch = {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}}

    assert apply(patch)["spec"]["strategy"] == {"type": "Recreate"}
    volume = {"name": "v2", "$retainKeys": ["name", "secret"], "secret": {"secretName": "q"}}
    assert pod_spec({"volumes": [volume]})["volumes"] == [
        {"name": "v1", "emptyDir": {}},
        {"name": "v2", "secret": {"secretName": "q"}},
    ]


def test_lists_of_texts_merge_and_lose_items():
    merged = apply({"metadata": {"finalizers": ["x.io/c", "x.io/b"]}})
    reduced = apply({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.io/a"]}})

    assert merged["metadata"]["finalizers"] == ["x.io/c", "x.io/a", "x.io/b"]
    assert reduced["metadata"]["finalizers"] == ["x.io/b"]


def test_element_order_is_set_by_directive():
    order = {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]}

    assert names(pod_spec(order)["containers"]) == ["b", "a"]
    assert names(containers({"name": "a", "image": "a:3"}, **order)) == ["b", "a"]
    new = {"$setElementOrder/containers": [{"name": "a"}, {"name": "c"}, {"name": "b"}]}
    assert names(containers({"name": "c", "image": "c"}, **new)) == ["a", "c", "b"]


def test_items_the_client_does_not_know_keep_their_place():
    order = {"$setElementOrder/containers": [{"name": "b"}]}

    assert names(containers({"name": "b", "image": "b:2"}, **order)) == ["a", "b"]


def test_a_list_that_was_not_there_enters_without_directives():
    patch = {
        "$setElementOrder/hostAliases": [{"ip": "1.1.1.1"}],
        "hostAliases": [
            {"ip": "1.1.1.1", "hostnames": ["a"]},
            {"ip": "2.2.2.2", "$patch": "delete"},
        ],
    }

    assert pod_spec(patch)["hostAliases"] == [{"ip": "1.1.1.1", "hostnames": ["a"]}]


def test_service_ports_merge_by_port():
    target = {"spec": {"ports": [{"name": "a", "port": 80}, {"name": "b", "port": 81}]}}
    patch = {"spec": {"ports": [{"port": 81, "name": "bb"}, {"port": 82, "name": "c"}]}}
    merged = apply(patch, target, SERVICE)["spec"]["ports"]

    assert [(p["name"], p["port"]) for p in merged] == [("a", 80), ("bb", 81), ("c", 82)]


@pytest.mark.parametrize(
    "patch",
    [
        {"containers": [{"image": "q"}]},
        {"containers": [{"name": "a", "$patch": "bogus"}]},
        {"containers": ["x"]},
        {"$setElementOrder/containers": "x"},
        {"$setElementOrder/containers": [{"name": "b"}], "containers": [{"name": "a"}]},
        {"$retainKeys": ["x"], "hostname": "h"},
        {"$retainKeys": "x"},
        {"securityContext": {"$patch": "frob"}},
    ],
    ids=str,
)
def test_a_malformed_patch_is_a_bad_request(patch):
    target = copy.deepcopy(TARGET)
    target["spec"]["template"]["spec"]["securityContext"] = {}
    with pytest.raises(status.BadRequest):
        apply({"spec": {"template": {"spec": patch}}}, target)


@pytest.mark.parametrize("patch", [[], "x", None])
def test_what_is_no_object_is_no_patch(patch):
    with pytest.raises(status.BadRequest):
        strategic.apply(DEPLOYMENT, TARGET, patch)


def test_untouched_parts_are_shared():
    patched = apply({"metadata": {"labels": {"a": "9"}}})

    assert patched["spec"] is TARGET["spec"]
