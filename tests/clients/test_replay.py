"""The replayer, and what it says about our server.

The repository's own scenarios must agree wholly. Where a recording of a real kube-apiserver lies
beside the repository, all of it is replayed too: a change may raise what agrees, never lower it.
`tools/replay --help` is the same by hand.
"""

import asyncio
import sys
from pathlib import Path

import msgspec
import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # the replayer is a package beside this file

from replay import report, scenario, server  # noqa: E402
from replay.answer import Answer  # noqa: E402
from replay.compare import Comparison  # noqa: E402
from replay.pattern import Bindings, fits  # noqa: E402
from replay.replay import replay  # noqa: E402
from replay.runner import Options  # noqa: E402

OWN = HERE.parent / "data" / "replay"
RECORDED = HERE.parents[2] / "shared" / "golden" / "api"
DIRECTORIES = [OWN, *([RECORDED] if RECORDED.is_dir() else [])]

# At least this much agrees, in percent: status code and reason, whole answers. To be raised.
AT_LEAST = {
    "basics": (100.0, 100.0),
    "streams": (100.0, 100.0),
    "setup": (100.0, 100.0),
    "discovery": (99.5, 95.5),
    "admission": (99.5, 98.5),
    "defaulting": (99.5, 97.5),
    "patch": (96.5, 90.5),
    "tables": (99.5, 97.0),
    "validation": (98.7, 97.0),
    "verbs": (99.3, 99.0),
    "watch": (95.0, 89.0),
}


@pytest.mark.parametrize("directory", DIRECTORIES, ids=lambda path: path.name)
def test_at_least_as_much_agrees_as_before(directory, tmp_path):
    options = Options(patience_s=3.0, pauses=False)
    with server.running(tmp_path) as target:
        results = asyncio.run(replay(target, scenario.load_all(directory), options))
    found = report.figures(results)
    found.pop("all")
    fallen = {
        area: (round(one.percent(one.same_status), 2), round(one.percent(one.same_whole), 2))
        for area, one in found.items()
        if one.percent(one.same_status) < AT_LEAST[area][0]
        or one.percent(one.same_whole) < AT_LEAST[area][1]
    }
    assert not fallen, f"{report.table(results)}\n{report.ranking(results)}"


@pytest.mark.parametrize(
    ("recorded", "live"),
    [
        ("as it is", "as it is"),
        ("<time>", "2026-11-15T10:00:00Z"),
        ("<microtime>", "2026-11-15T10:00:00.123456Z"),
        ("a-<suffix>", "a-x7k2p"),
        ("uid <uid:1>", "uid 6b1e3a52-6a5e-4a53-9d0c-0d7a1c9d0a11"),
        ("80:<nodePort>/TCP", "80:31234/TCP"),
        ("<none>", "<none>"),
        (
            "<pem:CERTIFICATE><pem:CERTIFICATE>",
            "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n",
        ),
    ],
)
def test_a_placeholder_stands_for_any_value_of_its_kind(recorded, live):
    assert fits(recorded, live, Bindings())


@pytest.mark.parametrize(
    ("recorded", "live"),
    [
        ("<time>", "2026-11-15"),
        ("<time>", "2026-11-15T10:00:00.123456Z"),
        ("<uid:1>", "no-uid"),
        ("a-<suffix>", "a-toolong"),
        ("<rv:1>", "0"),
        ("<none>", "<unknown>"),
    ],
)
def test_a_placeholder_stands_for_nothing_else(recorded, live):
    assert not fits(recorded, live, Bindings())


def test_equal_numbers_stand_for_equal_values_and_others_for_others():
    bindings = Bindings()
    assert fits("<rv:1>", "100", bindings)
    assert fits("<rv:7>", "105", bindings)
    assert fits("<rv:1>", "100", bindings)
    assert not fits("<rv:7>", "100", bindings)


def test_a_contradiction_is_told_once():
    bindings = Bindings()
    fits("<rv:1>", "100", bindings)
    assert not fits("<rv:1>", "101", bindings)
    assert fits("<rv:1>", "101", bindings)


def compared(recorded, live, *, unstable=(), status=200, live_status=200, purpose=""):
    step = scenario.Step(
        id="x#1",
        purpose=purpose,
        response=scenario.Response(status=status, contentType="application/json", body=recorded),
        unstable=unstable,
    )
    given = Answer(live_status, "application/json", raw=msgspec.json.encode(live))
    return [(d.pointer, d.what) for d in Comparison("golden-5").step(step, given)]


def test_the_order_of_keys_does_not_matter_and_that_of_items_does():
    assert compared({"a": 1, "b": [1, 2]}, {"b": [1, 2], "a": 1}) == []
    assert compared({"b": [1, 2]}, {"b": [2, 1]}) == [
        ("body/b/0", "different"),
        ("body/b/1", "different"),
    ]


def test_what_is_missing_and_what_is_too_much_is_named():
    assert compared({"a": {"b": 1}}, {"a": {"c": 1}}) == [
        ("body/a/b", "missing"),
        ("body/a/c", "extra"),
    ]


def test_a_number_is_not_a_boolean_nor_a_string():
    assert compared({"a": 1, "b": 0}, {"a": "1", "b": False}) == [
        ("body/a", "different"),
        ("body/b", "different"),
    ]


def test_unstable_places_are_not_compared():
    assert compared({"a": {"b": 1}}, {"a": {"b": 2}}, unstable=("/body/a",)) == []


def test_the_namespace_is_the_live_one():
    assert compared({"name": "${NS}-a"}, {"name": "golden-5-a"}) == []
    assert compared({"name": "${NS}-a"}, {"name": "golden-6-a"}) == [("body/name", "different")]


def test_a_different_status_is_told_before_anything_else():
    assert compared({"a": 1}, {"a": 2}, status=201, live_status=200) == [("status", "different")]


def test_a_different_reason_counts_as_a_different_status():
    recorded = {"kind": "Status", "reason": "NotFound"}
    live = {"kind": "Status", "reason": "Gone"}
    assert compared(recorded, live, status=404, live_status=404) == [("reason", "different")]


def test_managed_fields_are_a_set():
    one = {"manager": "a", "operation": "Update", "fieldsV1": {"f:x": {}}}
    other = {"manager": "b", "operation": "Apply", "fieldsV1": {"f:y": {}}}
    assert compared({"managedFields": [one, other]}, {"managedFields": [other, one]}) == []
    wrong = {**other, "fieldsV1": {}}
    assert compared({"managedFields": [one, other]}, {"managedFields": [wrong, one]}) == [
        ("body/managedFields/1/fieldsV1/f:y", "missing")
    ]


def test_independent_causes_may_come_in_any_order():
    def refusal(*fields):
        causes = [{"field": field, "message": "Required value"} for field in fields]
        listed = ", ".join(f"{field}: Required value" for field in fields)
        return {"kind": "Status", "message": f"x: [{listed}]", "details": {"causes": causes}}

    assert compared(refusal("a", "b"), refusal("b", "a"), status=422, live_status=422) == []
    assert compared(refusal("a", "b"), refusal("b", "c"), status=422, live_status=422) != []


def test_texts_about_go_types_count_to_the_first_colon():
    go = {"message": "Pod cannot be read: json: cannot unmarshal string into Go struct field X"}
    assert compared(go, {"message": "Pod cannot be read: spec is no object"}) == []
    assert compared(go, {"message": "Nothing can be read: spec is no object"}) != []


def watched(recorded, live, purpose=""):
    step = scenario.Step(
        id="x#1",
        purpose=purpose,
        watchCollect="w",
        response=scenario.Response(status=200, events=recorded, serverEnded=True),
    )
    given = Answer(200, events=live, server_ended=True)
    return [d.pointer for d in Comparison("golden-5").step(step, given)]


def test_bookmarks_may_come_at_any_time_unless_they_are_the_purpose():
    added = {"type": "ADDED", "object": {"metadata": {"name": "a"}}}
    bookmark = {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "7"}}}
    assert watched([added], [added, bookmark]) == []
    assert watched([added], [added, bookmark], purpose="no bookmark here") == ["events"]
    ended = {"k8s.io/initial-events-end": "true"}
    end = {"type": "BOOKMARK", "object": {"metadata": {"annotations": ended}}}
    assert watched([added, end], [added]) == ["events"]
