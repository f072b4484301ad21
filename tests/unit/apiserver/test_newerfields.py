"""Fields of a newer version, which reading a patched document has dropped, come back."""

import pytest

from motley.apiserver.newerfields import put_back

STORED = {
    "spec": {
        "novel": {"a": 1},
        "containers": [
            {"name": "a", "novelty": 1, "ports": [{"containerPort": 80, "speed": "x"}]},
            {"name": "b", "novelty": 2},
        ],
        "words": [{"odd": 1}, {"odd": 2}],
    }
}


def unknown(*paths):
    return [f'unknown field "{path}"' for path in paths]


def test_what_the_store_had_is_put_back_and_no_longer_complained_of():
    patched = {
        "spec": {"containers": [{"name": "a", "image": "x", "ports": [{"containerPort": 80}]}]}
    }
    found = unknown("spec.novel", "spec.containers[0].novelty", "spec.containers[0].ports[0].speed")
    assert put_back(patched, STORED, [*found, 'duplicate field "x"']) == ['duplicate field "x"']
    (container,) = patched["spec"]["containers"]
    assert patched["spec"]["novel"] == {"a": 1}
    assert container == {
        "name": "a",
        "image": "x",
        "novelty": 1,
        "ports": [{"containerPort": 80, "speed": "x"}],
    }


def test_an_entry_of_a_list_is_found_where_it_was_before():
    patched = {"spec": {"containers": [{"name": "b"}, {"name": "a"}]}}
    assert put_back(patched, STORED, unknown("spec.containers[0].novelty")) == []
    assert patched["spec"]["containers"] == [{"name": "b", "novelty": 2}, {"name": "a"}]


def test_an_entry_without_a_name_is_known_by_its_place():
    patched = {"spec": {"words": [{}, {}]}}
    assert put_back(patched, STORED, unknown("spec.words[1].odd")) == []
    assert patched["spec"]["words"] == [{}, {"odd": 2}]


@pytest.mark.parametrize(
    "path",
    ["spec.mistyped", "spec.containers[0].mistyped", "spec.containers[7].novelty", "other.x"],
)
def test_what_the_patch_made_up_stays_a_complaint(path):
    patched = {"spec": {"containers": [{"name": "c"}]}}
    assert put_back(patched, STORED, unknown(path)) == unknown(path)
    assert patched == {"spec": {"containers": [{"name": "c"}]}}
