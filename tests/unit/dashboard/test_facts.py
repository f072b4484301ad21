"""Numbers and words out of documents."""

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from motley.dashboard import facts
from motley.dashboard.pages import kinds, objects, tables, workloads


def container(cpu=None, memory=None, kind="requests", **more):
    listed = {"cpu": cpu, "memory": memory}
    return {"name": "c", "resources": {kind: {k: v for k, v in listed.items() if v}}, **more}


def pod(*containers, **spec):
    return {"spec": {"containers": list(containers), **spec}}


def test_a_pod_holds_the_sum_of_its_containers_and_its_overhead():
    two = pod(container("100m", "1Gi"), container("1"), overhead={"cpu": "50m"})
    assert facts.requested(two) == pytest.approx({"cpu": 1.15, "memory": 2.0**30})


def test_a_pod_holds_what_the_largest_step_of_its_start_needs():
    sidecar = container("200m", restartPolicy="Always")
    before, after = container("2"), container("1", "3Mi")
    started = pod(container("100m"), initContainers=[before, sidecar, after])
    assert facts.requested(started) == {"cpu": 2.0, "memory": 3 * 2.0**20}
    small = pod(container("900m"), initContainers=[sidecar, container("10m")])
    assert facts.requested(small)["cpu"] == pytest.approx(1.1)


def test_a_pod_is_limited_only_where_each_container_is():
    limited = pod(container("1", "1Mi", "limits"), container("2", None, "limits"))
    assert facts.limits(limited) == {"cpu": 3.0}


def test_what_is_no_quantity_counts_for_nothing():
    assert facts.amount("plenty") == 0.0
    assert facts.amounts(None) == {}


def test_the_past_of_containers_adds_up_with_gaps_where_none_was_measured():
    item = {"series": [{"cpu": [1.0, None, None]}, {"cpu": [0.5, 2.0, None]}]}
    assert facts.summed(item, "cpu") == [1.5, 2.0, None]


def test_the_speed_of_a_node_is_the_label_or_the_estimate():
    labelled = {"labels": {"hice.kj": "2"}, "annotations": {"motley.io/estimated-speed": "1.9"}}
    assert facts.speed({"metadata": labelled}) == "2"
    assert facts.speed({"metadata": {**labelled, "labels": {}}}) == "≈ 1.9"
    assert facts.speed({"metadata": {}}) == ""


@pytest.mark.parametrize(
    ("event", "seen", "times"),
    [
        ({"lastTimestamp": "b", "count": 3}, "b", 3),
        ({"eventTime": "c", "series": {"count": 7, "lastObservedTime": "d"}}, "d", 7),
        ({"metadata": {"creationTimestamp": "e"}, "lastTimestamp": None}, "e", 1),
    ],
)
def test_events_of_both_ages_say_when_and_how_often(event, seen, times):
    assert (facts.seen(event), facts.times(event)) == (seen, times)


TEXT = st.text(
    st.characters(codec="utf-8", exclude_characters="\x85\u2028\u2029\ufeff"), max_size=40
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_a_document_shown_as_yaml_reads_back_the_same(value):
    assert yaml.safe_load(objects.yaml(value)) == value


@pytest.mark.parametrize(
    "word",
    ["yes", "NULL", "1e3", ".0", ".inf", "~", "_1", "0x1f", "2026-11-16", "a: b", "- a", "", " a"],
)
def test_words_that_yaml_would_take_for_something_else_stay_words(word):
    assert yaml.safe_load(objects.yaml({"a": word, "b": [word]})) == {"a": word, "b": [word]}


def test_text_of_several_lines_is_shown_as_it_is():
    shown = objects.yaml({"data": {"run.sh": "#!/bin/sh\nexec true\n"}})
    assert shown == "data:\n  run.sh: |\n    #!/bin/sh\n    exec true\n"


def test_what_a_secret_holds_is_not_shown():
    notes = {"kubectl.kubernetes.io/last-applied-configuration": '{"data":{"p":"aHVudGVy"}}'}
    secret = {
        "kind": "Secret",
        "metadata": {"name": "s", "annotations": notes, "managedFields": [{"manager": "me"}]},
        "data": {"password": "aHVudGVy"},
    }
    shown = objects.manifest(secret)
    assert "aHVudGVy" not in shown
    assert "password" in shown
    assert "managedFields" not in shown
    assert secret["data"] == {"password": "aHVudGVy"}, "the document itself stays as it was"


def test_a_workloads_pods_are_found_by_every_form_of_selector():
    expressions = [
        {"key": "tier", "operator": "In", "values": ["a", "b"]},
        {"key": "old", "operator": "DoesNotExist"},
        {"key": "x", "operator": "Exists"},
        {"key": "y", "operator": "NotIn", "values": ["z"]},
    ]
    selector = {"matchLabels": {"app": "web"}, "matchExpressions": expressions}
    shown = workloads._selector({"spec": {"selector": selector}})
    assert shown == "app=web,tier in (a,b),!old,x,y notin (z)"


@pytest.mark.parametrize(
    ("words", "mood"),
    [
        ("Running", "ok"),
        ("CrashLoopBackOff", "bad"),
        ("ErrImagePull", "bad"),
        ("Init:0/2", "warn"),
        ("NotReady", "bad"),
        ("Completed", "ok"),
        ("whatever", ""),
    ],
)
def test_a_status_has_the_colour_of_what_it_means(words, mood):
    assert tables.mood(words) == mood


def test_kinds_are_those_that_can_be_listed_in_the_version_preferred():
    listed = {"resource": "widgets", "responseKind": {"kind": "Widget"}, "scope": "Cluster"}
    other = {"resource": "reviews", "verbs": ["create"]}
    version = {"version": "v2", "resources": [{**listed, "verbs": ["get", "list"]}, other]}
    found = list(kinds._of("example.org", version))
    assert found == [kinds.Kind("example.org", "v2", "widgets", "Widget", False)]
