"""Who owns what after creates, updates and patches."""

import copy
from typing import Any

import pytest

from motley.api import scheme
from motley.api.fields import entries, scaling, tracking

T1, T2, T3 = (f"2026-01-01T00:00:0{n}Z" for n in (1, 2, 3))


def kind(api_version: str, name: str) -> scheme.Kind:
    found = scheme.by_kind(api_version, name)
    assert found is not None
    return found


CONFIG_MAP = kind("v1", "ConfigMap")
POD = kind("v1", "Pod")
DEPLOYMENT = kind("apps/v1", "Deployment")


def created(document: dict[str, Any], by: str = "one", of: scheme.Kind = CONFIG_MAP) -> Any:
    document = copy.deepcopy(document)
    document.setdefault("metadata", {})
    tracking.created(of, document, by, T1)
    document["metadata"]["uid"] = "u"
    return document


def updated(
    old: Any, change: dict[str, Any], by: str, subresource: str = "", of: scheme.Kind = CONFIG_MAP
) -> Any:
    new = {**copy.deepcopy(old), **change}
    new["metadata"] = {**old["metadata"], **change.get("metadata", {})}
    tracking.updated(of, old, new, by, subresource, T2)
    return new


def owners(document: Any) -> dict[str, Any]:
    return {e["manager"]: e["fieldsV1"] for e in document["metadata"].get("managedFields", ())}


def test_the_creator_owns_every_field_but_the_servers_own() -> None:
    found = created(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "n", "labels": {"l": "1"}},
            "data": {"x": "1"},
        }
    )
    assert found["metadata"]["managedFields"] == [
        {
            "manager": "one",
            "operation": "Update",
            "apiVersion": "v1",
            "time": T1,
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:data": {".": {}, "f:x": {}},
                "f:metadata": {"f:labels": {".": {}, "f:l": {}}},
            },
        }
    ]
    assert list(found["metadata"]["managedFields"][0]) == [
        "manager",
        "operation",
        "apiVersion",
        "time",
        "fieldsType",
        "fieldsV1",
    ]


def test_parts_that_every_object_has_are_not_owned_themselves() -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c"}]}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    found = owners(created({"spec": spec, "status": {"replicas": 3}}, of=DEPLOYMENT))
    assert found["one"] == {
        "f:spec": {
            "f:replicas": {},
            "f:selector": {},
            "f:template": {
                "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
                "f:spec": {"f:containers": {'k:{"name":"c"}': {".": {}, "f:name": {}}}},
            },
        }
    }


def test_objects_that_look_alike_share_their_sets_and_others_do_not() -> None:
    one = created({"data": {"x": "1"}})
    assert owners(one) == owners(created({"data": {"x": "1"}}))
    assert owners(created({"data": {"y": "1"}})) == {"one": {"f:data": {".": {}, "f:y": {}}}}


def test_a_writer_takes_what_it_changes_from_those_who_had_it() -> None:
    found = updated(created({"data": {"x": "1", "y": "1"}}), {"data": {"x": "2", "y": "1"}}, "two")
    assert owners(found) == {
        "one": {"f:data": {".": {}, "f:y": {}}},
        "two": {"f:data": {"f:x": {}}},
    }
    assert [e["time"] for e in found["metadata"]["managedFields"]] == [T1, T2]


def test_what_is_gone_has_no_owner() -> None:
    found = updated(created({"data": {"x": "1", "y": "1"}}), {"data": {"y": "1"}}, "two")
    assert owners(found) == {"one": {"f:data": {".": {}, "f:y": {}}}}


def test_a_write_that_changes_nothing_leaves_owners_and_times() -> None:
    old = created({"data": {"x": "1"}})
    new = updated(old, {}, "two")
    assert new["metadata"]["managedFields"] is old["metadata"]["managedFields"]


def test_a_client_that_knows_nothing_of_owners_does_not_lose_them() -> None:
    old = created({"data": {"x": "1"}})
    new = {"metadata": {"name": "a"}, "data": {"x": "1"}}
    tracking.updated(CONFIG_MAP, old, new, "two", "", T2)
    assert owners(new) == owners(old)


@pytest.mark.parametrize("reset", [[], [{}]])
def test_a_client_can_clear_the_record(reset: Any) -> None:
    old = created({"data": {"x": "1"}})
    new = updated(old, {"metadata": {"managedFields": reset}, "data": {"x": "2"}}, "two")
    assert "managedFields" not in new["metadata"]
    again = updated(new, {"data": {"x": "3"}}, "two")
    assert "managedFields" not in again["metadata"], "nobody is recorded before the next apply"


def test_a_client_can_rewrite_the_record_on_the_main_resource_only() -> None:
    old = created({"data": {"x": "1"}})
    mine = copy.deepcopy(old["metadata"]["managedFields"])
    mine[0]["manager"] = "renamed"
    assert list(owners(updated(old, {"metadata": {"managedFields": mine}}, "two"))) == ["renamed"]
    through = updated(old, {"metadata": {"managedFields": mine}}, "two", "status")
    assert list(owners(through)) == ["one"]


@pytest.mark.parametrize(
    "broken",
    [{"operation": "Steal"}, {"apiVersion": ""}, {"fieldsType": "V2"}, {"fieldsV1": {"x": {}}}],
)
def test_a_record_that_makes_no_sense_is_not_taken(broken: Any) -> None:
    old = created({"data": {"x": "1"}})
    mine = [{**old["metadata"]["managedFields"][0], "manager": "bad", **broken}]
    assert list(owners(updated(old, {"metadata": {"managedFields": mine}}, "two"))) == ["one"]


def test_status_is_owned_through_its_subresource_only() -> None:
    old = created({"spec": {"containers": [{"name": "c"}]}}, of=POD)
    main = updated(old, {"status": {"phase": "Running"}}, "two", of=POD)
    assert list(owners(main)) == ["one"]
    found = updated(old, {"status": {"phase": "Running"}, "spec": {}}, "two", "status", of=POD)
    entry = found["metadata"]["managedFields"][1]
    assert (entry["manager"], entry["subresource"]) == ("two", "status")
    assert entry["fieldsV1"] == {"f:status": {".": {}, "f:phase": {}}}


def test_more_than_ten_updaters_become_ancient_changes() -> None:
    found = created({"data": {"0": "1"}})
    for number in range(1, 13):
        data = {**found["data"], str(number): "1"}
        found = updated(found, {"data": data}, f"m{number:02}")
    names = [e["manager"] for e in found["metadata"]["managedFields"]]
    assert len(names) == entries.MAX_UPDATERS
    assert names.count(entries.ANCIENT) == 1
    assert "m12" in names
    joined = owners(found)[entries.ANCIENT]
    assert joined["f:data"].keys() >= {".", "f:0", "f:1"}


def test_owners_in_a_version_that_is_gone_are_forgotten() -> None:
    old = created({"data": {"x": "1"}})
    old["metadata"]["managedFields"][0]["apiVersion"] = "v0"
    found = updated(old, {"data": {"x": "1", "y": "1"}}, "two")
    assert list(owners(found)) == ["two"]


def test_appliers_come_first_then_the_oldest() -> None:
    def entry(name: str, operation: str, time: str | None) -> dict[str, Any]:
        found = {"manager": name, "operation": operation, "apiVersion": "v1", "time": time}
        return {**found, "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {}}}

    mixed = [
        entry("b", "Update", T1),
        entry("a", "Update", T2),
        entry("z", "Apply", T3),
        entry("y", "Apply", None),
        entry("a", "Update", T1),
    ]
    mixed[4]["subresource"] = "status"
    ordered = entries.encode(entries.decode(mixed))
    assert [(e["manager"], e.get("time")) for e in ordered] == [
        ("y", None),
        ("z", T3),
        ("a", T1),
        ("b", T1),
        ("a", T2),
    ]


def test_times_alone_are_no_change() -> None:
    old = created({"data": {"x": "1"}})
    new = copy.deepcopy(old)
    new["metadata"]["managedFields"][0]["time"] = T3
    tracking.settle_times(old, new)
    assert new == old
    new["data"]["x"] = "2"
    new["metadata"]["managedFields"] = [{**old["metadata"]["managedFields"][0], "time": T3}]
    tracking.settle_times(old, new)
    assert new["metadata"]["managedFields"][0]["time"] == T3


def test_a_scale_has_the_owners_of_the_replica_count_and_gives_them_back() -> None:
    spec = {"replicas": 1, "paused": True}
    parent = created({"spec": spec}, of=DEPLOYMENT)["metadata"]["managedFields"]
    scale = scaling.of_scale(parent)
    assert [(e["manager"], e["apiVersion"]) for e in scale] == [("one", "autoscaling/v1")]
    assert scale[0]["fieldsV1"] == {"f:spec": {"f:replicas": {}}}
    taken = [{**scale[0], "manager": "hpa", "subresource": "scale"}]
    after = scaling.of_parent(DEPLOYMENT, parent, taken)
    assert {e["manager"]: e["fieldsV1"] for e in after} == {
        "hpa": {"f:spec": {"f:replicas": {}}},
        "one": {"f:spec": {"f:paused": {}}},
    }
    assert scaling.of_parent(DEPLOYMENT, parent, scale) == parent
