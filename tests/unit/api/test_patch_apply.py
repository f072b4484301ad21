"""Server-side apply: merging, owning, letting go, conflicts."""

import copy
from typing import Any

import pytest

from motley.api import scheme, status
from motley.api.fields import lastapplied, scaling, tracking
from motley.api.patch import apply as patch
from motley.api.patch.apply import Applier

NOW = "2026-01-01T00:00:00Z"
LATER = "2026-01-01T00:00:09Z"


def kind(api_version: str, name: str) -> scheme.Kind:
    found = scheme.by_kind(api_version, name)
    assert found is not None
    return found


CONFIG_MAP = kind("v1", "ConfigMap")
DEPLOYMENT = kind("apps/v1", "Deployment")
SERVICE = kind("v1", "Service")


def config_map(data: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap"}
    found["metadata"] = {"name": "a", **metadata}
    return found if data is None else {**found, "data": data}


def deployment(containers: list[dict[str, Any]], **spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": containers}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "a"},
        "spec": {"template": template, **spec},
    }


def applied(
    live: dict[str, Any] | None,
    config: dict[str, Any],
    by: str = "one",
    *,
    force: bool = False,
    of: scheme.Kind = CONFIG_MAP,
    now: str = NOW,
    subresource: str = "",
) -> dict[str, Any]:
    before = copy.deepcopy((live, config))
    found = patch.apply(of, live, config, Applier(by, now, force, subresource))
    assert (live, config) == before, "apply leaves its arguments as they were"
    return found


def owners(document: dict[str, Any]) -> dict[str, Any]:
    return {e["manager"]: e["fieldsV1"] for e in document["metadata"].get("managedFields", ())}


def conflict(*args: Any, **options: Any) -> status.Conflict:
    with pytest.raises(status.Conflict) as caught:
        applied(*args, **options)
    return caught.value


def test_an_apply_without_an_object_makes_one() -> None:
    found = applied(None, config_map({"x": "1"}))
    assert found["data"] == {"x": "1"}
    assert found["metadata"]["managedFields"] == [
        {
            "manager": "one",
            "operation": "Apply",
            "apiVersion": "v1",
            "time": NOW,
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:x": {}}},
        }
    ]


def test_applying_the_same_again_changes_nothing() -> None:
    live = applied(None, config_map({"x": "1"}))
    assert applied(live, config_map({"x": "1"}), now=LATER) == live


def test_a_change_of_ones_own_field_moves_the_time() -> None:
    live = applied(None, config_map({"x": "1"}))
    found = applied(live, config_map({"x": "2"}), now=LATER)
    assert found["data"] == {"x": "2"}
    assert found["metadata"]["managedFields"][0]["time"] == LATER


def test_different_fields_have_different_owners() -> None:
    live = applied(applied(None, config_map({"x": "1"})), config_map({"y": "2"}), "two")
    assert live["data"] == {"x": "1", "y": "2"}
    assert owners(live) == {"one": {"f:data": {"f:x": {}}}, "two": {"f:data": {"f:y": {}}}}


def test_another_value_for_anothers_field_is_a_conflict() -> None:
    live = applied(None, config_map({"x": "1", "y": "1"}))
    error = conflict(live, config_map({"x": "9"}), "two")
    assert error.message == 'Apply failed with 1 conflict: conflict with "one": .data.x'
    assert error.details["causes"] == [
        {"reason": "FieldManagerConflict", "message": 'conflict with "one"', "field": ".data.x"}
    ]


def test_several_conflicts_are_listed_by_manager() -> None:
    live = applied(applied(None, config_map({"x": "1"})), config_map({"y": "1"}), "two")
    error = conflict(live, config_map({"x": "9", "y": "9"}), "three")
    assert error.message == (
        "Apply failed with 2 conflicts: "
        'conflicts with "one":\n- .data.x\nconflicts with "two":\n- .data.y'
    )
    assert [c["field"] for c in error.details["causes"]] == [".data.x", ".data.y"]


def test_conflicts_with_other_writes_name_their_version_and_subresource() -> None:
    live = config_map({"x": "1"})
    tracking.created(CONFIG_MAP, live, "upd", NOW)
    assert conflict(live, config_map({"x": "2"})).message.endswith(
        'conflict with "upd" using v1: .data.x'
    )
    live["metadata"]["managedFields"][0]["subresource"] = "status"
    assert 'conflict with "upd" with subresource "status" using v1' in str(
        conflict(live, config_map({"x": "2"}))
    )


def test_force_takes_the_field_over() -> None:
    live = applied(None, config_map({"x": "1", "y": "1"}))
    found = applied(live, config_map({"x": "9"}), "two", force=True)
    assert found["data"] == {"x": "9", "y": "1"}
    assert owners(found) == {"one": {"f:data": {"f:y": {}}}, "two": {"f:data": {"f:x": {}}}}


def test_the_same_value_is_shared_and_outlives_one_of_its_owners() -> None:
    live = applied(applied(None, config_map({"x": "1"})), config_map({"x": "1"}), "two")
    assert live["metadata"]["managedFields"][0]["manager"] == "two"
    assert "time" not in live["metadata"]["managedFields"][0], "two changed nothing"
    found = applied(live, config_map())
    assert (found["data"], list(owners(found))) == ({"x": "1"}, ["two"])
    assert not applied(found, config_map(), "two").get("data")


def test_what_an_applier_no_longer_states_goes() -> None:
    live = applied(None, config_map({"x": "1", "y": "1"}, labels={"a": "b"}))
    found = applied(live, config_map({"y": "1"}))
    assert found["data"] == {"y": "1"}
    assert not found["metadata"].get("labels")


def test_what_nobody_owns_stays() -> None:
    live = applied(None, config_map({"x": "1", "y": "1"}))
    live["data"]["default"] = "d"
    assert applied(live, config_map({"y": "1"}))["data"] == {"y": "1", "default": "d"}


def test_items_of_keyed_lists_belong_to_those_who_state_them() -> None:
    live = applied(None, deployment([{"name": "a", "image": "x"}]), of=DEPLOYMENT)
    live = applied(live, deployment([{"name": "b", "image": "y"}]), "two", of=DEPLOYMENT)
    containers = live["spec"]["template"]["spec"]["containers"]
    assert [c["name"] for c in containers] == ["a", "b"]
    error = conflict(live, deployment([{"name": "a", "image": "z"}]), "two", of=DEPLOYMENT)
    assert error.message.endswith('"one": .spec.template.spec.containers[name="a"].image')
    env = [{"name": "E", "value": "1"}]
    live = applied(live, deployment([{"name": "a", "env": env}]), "two", of=DEPLOYMENT)
    (container,) = live["spec"]["template"]["spec"]["containers"]
    assert container == {"name": "a", "image": "x", "env": env}


def test_a_port_is_known_by_number_and_protocol_even_if_it_says_only_one() -> None:
    def service(*ports: dict[str, Any]) -> dict[str, Any]:
        frame = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}}
        return {**frame, "spec": {"ports": list(ports)}}

    live = applied(None, service({"port": 80}), of=SERVICE)
    live["spec"]["ports"][0]["protocol"] = "TCP"  # a default
    found = applied(live, service({"port": 80, "name": "web"}, {"port": 81}), of=SERVICE)
    assert found["spec"]["ports"] == [
        {"port": 80, "protocol": "TCP", "name": "web"},
        {"port": 81},
    ]


def test_atomic_parts_are_replaced_and_contested_as_a_whole() -> None:
    live = applied(
        None, deployment([{"name": "a"}], selector={"matchLabels": {"a": "b"}}), of=DEPLOYMENT
    )
    other = deployment([], selector={"matchLabels": {"c": "d"}})
    assert conflict(live, other, "two", of=DEPLOYMENT).message.endswith('"one": .spec.selector')
    found = applied(live, other, "two", of=DEPLOYMENT, force=True)
    assert found["spec"]["selector"] == {"matchLabels": {"c": "d"}}


def test_sets_hold_the_items_of_all_their_owners() -> None:
    live = applied(None, config_map(finalizers=["a/x"]))
    live = applied(live, config_map(finalizers=["a/y"]), "two")
    assert live["metadata"]["finalizers"] == ["a/x", "a/y"]
    assert applied(live, config_map())["metadata"]["finalizers"] == ["a/y"]


def test_an_object_without_recorded_owners_belongs_to_those_before() -> None:
    live = config_map({"x": "1", "y": "1"})
    live["metadata"]["uid"] = "u"
    error = conflict(live, config_map({"x": "2"}))
    assert 'conflict with "before-first-apply" using v1: .data.x' in error.message
    found = applied(live, config_map({"x": "2"}), force=True)
    assert owners(found) == {
        "one": {"f:data": {"f:x": {}}},
        "before-first-apply": {"f:data": {".": {}, "f:y": {}}},
    }


def test_kubectl_takes_over_what_client_side_apply_set() -> None:
    live = config_map({"x": "1", "y": "1"})
    text = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"x":"1"}}'
    live["metadata"]["annotations"] = {lastapplied.ANNOTATION: text}
    tracking.created(CONFIG_MAP, live, "kubectl-client-side-apply", NOW)
    assert conflict(live, config_map({"x": "2"}), "another")
    found = applied(live, config_map({"x": "2"}), "kubectl")
    assert found["data"] == {"x": "2", "y": "1"}
    assert found["metadata"]["annotations"][lastapplied.ANNOTATION] == (
        '{"apiVersion":"v1","data":{"x":"2"},"kind":"ConfigMap","metadata":{"name":"a"}}\n'
    )
    error = conflict(live, config_map({"x": "2", "y": "2"}), "kubectl")
    assert [c["field"] for c in error.details["causes"]] == [".data.y"]


@pytest.mark.parametrize("subresource", ["", "status"])
def test_an_apply_owns_only_what_its_resource_can_write(subresource: str) -> None:
    config = deployment([{"name": "a"}], replicas=1)
    config["status"] = {"replicas": 3}
    live = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a", "uid": "u"}}
    found = applied(live, config, of=DEPLOYMENT, subresource=subresource)
    mine = owners(found)["one"]
    assert list(mine) == (["f:status"] if subresource else ["f:spec"])
    assert found["metadata"]["managedFields"][0].get("subresource", "") == subresource


def test_the_servers_metadata_is_nobodys() -> None:
    given = config_map(creationTimestamp=NOW, generation=3, uid="u", labels={"a": "b"})
    assert owners(applied(None, given)) == {"one": {"f:metadata": {"f:labels": {"f:a": {}}}}}
    assert owners(applied(None, config_map())) == {}


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({**config_map(), "nosuch": 1}, ".nosuch: field not declared in schema"),
        ({**config_map(), "data": "x"}, ".data: expected map, got &{x}"),
        (
            config_map({"a": 5}),
            ".data.a: expected string, got &value.valueUnstructured{Value:5}",
        ),
        (config_map(finalizers="x"), ".metadata.finalizers: expected list, got &{x}"),
        (config_map(finalizers=["x", "x"]), 'duplicate entries for key [="x"]'),
        (config_map(generation="x"), ".metadata.generation: expected numeric (int or float), got"),
        ({**config_map(), "immutable": "x"}, ".immutable: expected boolean, got &{x}"),
        (config_map(finalizers=[{}]), "has an element that's a map type"),
    ],
)
def test_a_configuration_must_fit_its_kind(config: dict[str, Any], problem: str) -> None:
    with pytest.raises(status.BadRequest) as caught:
        applied(None, config)
    assert caught.value.message.startswith(
        "failed to create typed patch object (/a; /v1, Kind=ConfigMap): "
    )
    assert problem in caught.value.message


def test_twins_in_a_configuration_are_refused() -> None:
    twins = deployment([{"name": "a", "image": "x"}, {"name": "a", "image": "y"}])
    with pytest.raises(
        status.BadRequest, match=r'containers: duplicate entries for key \[name="a"'
    ):
        applied(None, twins, of=DEPLOYMENT)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "invalid object type: /, Kind="),
        ({"kind": "ConfigMap"}, "invalid object type: /, Kind=ConfigMap"),
        ({"apiVersion": "v1", "kind": "Secret"}, "invalid object type: /v1, Kind=Secret"),
        ({"apiVersion": "a/v2", "kind": "ConfigMap"}, "invalid object type: a/v2, Kind=ConfigMap"),
        (config_map(managedFields=[]), "metadata.managedFields must be nil"),
    ],
)
def test_a_configuration_says_what_it_is_of(config: dict[str, Any], message: str) -> None:
    with pytest.raises(status.BadRequest) as caught:
        applied(None, config)
    assert caught.value.message == message


def test_a_scale_can_be_applied() -> None:
    live = {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "a", "uid": "u"},
        "spec": {"replicas": 1},
        "status": {"replicas": 1},
    }
    config = {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 3}}
    found = applied(live, config, of=scaling.SCALE, subresource="scale", force=True)
    assert found["spec"] == {"replicas": 3}
    assert owners(found)["one"] == {"f:spec": {"f:replicas": {}}}
