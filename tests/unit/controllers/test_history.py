"""The history of StatefulSets and DaemonSets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.api.views.workloads import ControllerRevision, DaemonSet
from motley.controllers import history

OWNER = DaemonSet.of({"metadata": {"name": "agent", "namespace": "ns", "uid": "u"}})


def template(image):
    return {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"image": image}]}}


def revision(number, image="one", name=None):
    body = history.document(OWNER, template(image), number, 0, history.REVISION_LABEL)
    if name:
        body["metadata"]["name"] = name
    return ControllerRevision.of(body)


def test_a_revision_gives_its_template_back():
    made = revision(1)
    assert history.template_of(made) == template("one")
    assert made.data["spec"]["template"]["$patch"] == "replace"


def test_a_revision_carries_owner_labels_and_hash():
    made = revision(1)
    digest = history.digest_of(made)
    assert made.metadata.name == f"agent-{digest}"
    assert made.metadata.labels == {"app": "a", "controller-revision-hash": digest}
    assert made.metadata.controller().uid == "u"


def test_another_collision_count_makes_another_name():
    one = history.document(OWNER, template("one"), 1, 0, "l")
    two = history.document(OWNER, template("one"), 1, 1, "l")
    assert one["metadata"]["name"] != two["metadata"]["name"]
    assert one["data"] == two["data"]


def test_equal_templates_are_found_whatever_their_name():
    found = history.equal(
        [revision(1), revision(2, "two"), revision(3, "one", "x")], template("one")
    )
    assert [r.revision for r in found] == [1, 3]


@pytest.mark.parametrize(
    ("limit", "live", "cleaned"),
    [
        (10, (), []),
        (2, (), [1, 2]),
        (0, (), [1, 2, 3, 4]),
        (2, ("r1",), [2, 3]),
        (0, ("r2", "r4"), [1, 3]),
    ],
)
def test_history_is_cut_from_its_old_end(limit, live, cleaned):
    revisions = [revision(n, f"i{n}", f"r{n}") for n in (3, 1, 4, 2)]
    assert [r.revision for r in history.to_clean(revisions, limit, live)] == cleaned


@given(st.lists(st.integers(1, 50), max_size=8))
def test_the_next_number_is_above_all_others(numbers):
    revisions = [revision(n, name=f"r{i}") for i, n in enumerate(numbers)]
    assert all(r.revision < history.next_number(revisions) for r in revisions)
    assert history.next_number(revisions) == max(numbers, default=0) + 1
