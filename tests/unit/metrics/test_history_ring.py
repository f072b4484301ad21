"""The ring on disk: what is written is read, whatever happens in between."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from motley.metrics.history_ring import COARSE, FINE, QUANTITIES, Ring

NOW = 1_800_000_000  # a multiple of 300


def a_sample(cpu, memory=0.0):
    return (cpu, cpu, memory, cpu, memory, 1.0)


def cpus(records):
    return [round(float(v), 4) for v in records.means[:, 0]]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "history.ring"


def test_what_was_written_is_there_after_opening_again(path):
    ring = Ring(path, 4)
    for i in range(40):
        ring.write(NOW + 10 * i, {"a": a_sample(i), "b": a_sample(2 * i)})
    ring.close()
    again = Ring(path, 4)
    assert again.torn == 0
    assert again.listed() == ["a", "b"]
    assert cpus(again.read("a", FINE, NOW, NOW + 400)) == list(range(40))
    coarse = again.read("b", COARSE, NOW, NOW + 400)
    assert cpus(coarse) == [29.0, 69.0]
    assert list(coarse.highest[:, 0]) == [58.0, 78.0]
    assert list(coarse.counts) == [30, 10]
    again.close()


def test_samples_of_one_interval_become_their_mean_and_their_highest():
    ring = Ring(None, 1)
    for second, cpu in ((0, 1.0), (3, 5.0), (9, 3.0), (10, 7.0)):
        ring.write(NOW + second, {"a": a_sample(cpu)})
    found = ring.read("a", FINE, NOW, NOW + 60)
    assert cpus(found) == [3.0, 7.0]
    assert list(found.highest[:, 0]) == [5.0, 7.0]
    assert list(found.starts) == [NOW, NOW + 10]


def test_an_hour_is_known_by_ten_seconds_and_a_week_by_five_minutes():
    ring = Ring(None, 1)
    for i in range(0, 8 * 86400, 100):
        ring.write(NOW + i, {"a": a_sample(i)})
    end = NOW + 8 * 86400
    fine, coarse = (ring.read("a", level, 0, end) for level in (FINE, COARSE))
    assert end - 3600 <= fine.starts[0] <= end - 3500
    assert coarse.starts[0] == end - 7 * 86400
    assert len(coarse.starts) == 2016


def test_the_series_that_was_quiet_longest_makes_room():
    ring = Ring(None, 3, busy_s=0)
    for i, key in enumerate("abc"):
        ring.write(NOW + 10 * i, {key: a_sample(1.0)})
    ring.write(NOW + 30, {"a": a_sample(2.0)})
    ring.write(NOW + 40, {"d": a_sample(3.0)})
    assert sorted(ring.listed()) == ["a", "c", "d"]
    assert cpus(ring.read("d", FINE, 0, NOW + 60)) == [3.0], "nothing of what was there before"
    assert cpus(ring.read("a", FINE, 0, NOW + 60)) == [1.0, 2.0]
    ring.write(NOW + 50, {"b": a_sample(4.0)})
    assert cpus(ring.read("b", FINE, 0, NOW + 60)) == [4.0]


def test_series_that_are_still_written_do_not_oust_each_other():
    ring = Ring(None, 3)
    for i in range(5):
        ring.write(NOW + 10 * i, {key: a_sample(1.0) for key in "abcdef"})
    assert sorted(ring.listed()) == ["a", "b", "c"]
    assert ring.refused == 3
    assert len(ring.read("a", FINE, 0, NOW + 60).starts) == 5
    ring.write(NOW + 400, {"d": a_sample(1.0)})
    assert len(ring.listed()) == 3
    assert "d" in ring


def test_what_matters_more_takes_the_place_of_what_matters_less():
    ring = Ring(None, 3, matters_less=lambda key: key.startswith("pod/"))
    ring.write(NOW, {key: a_sample(1.0) for key in ("pod/a", "pod/b", "pod/c")})
    ring.write(NOW + 10, {key: a_sample(1.0) for key in ("pod/a", "pod/d", "node/x", "node/y")})
    assert sorted(ring.listed()) == ["node/x", "node/y", "pod/a"]


def test_a_file_never_grows(path):
    ring = Ring(path, 2, busy_s=0)
    size = path.stat().st_size
    for i in range(50):
        ring.write(NOW + i, {f"series-{i}": a_sample(1.0)})
    assert path.stat().st_size == size
    assert len(ring.listed()) == 2
    ring.close()


def test_a_file_of_another_size_is_put_aside(path):
    Ring(path, 2).close()
    ring = Ring(path, 5)
    assert path.with_name("history.ring.old").exists()
    ring.write(NOW, {"a": a_sample(1.0)})
    ring.close()


def test_what_is_no_ring_at_all_is_put_aside(path):
    path.write_bytes(b"something else")
    ring = Ring(path, 2)
    assert ring.listed() == []
    ring.close()
    assert path.with_name("history.ring.old").read_bytes() == b"something else"


def test_a_full_disk_lets_the_oldest_make_room(path, monkeypatch):
    ring = Ring(path, 5, busy_s=0)
    ring.write(NOW, {"a": a_sample(1.0)})
    ring.write(NOW + 10, {"b": a_sample(2.0)})

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    ring.write(NOW + 20, {"c": a_sample(3.0)})
    assert sorted(ring.listed()) == ["b", "c"]
    ring.close()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_torn_record_costs_that_sample_and_nothing_else(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("torn") / "history.ring"
    steps = data.draw(st.integers(1, 60), "steps")
    ring = Ring(path, 2)
    for i in range(steps):
        ring.write(NOW + 10 * i, {"a": a_sample(float(i)), "b": a_sample(100.0 + i)})
    ring.close()
    # One record of `a` is left half written, as by a crash in the midst of it.
    words = np.memmap(path, np.uint32, "r+")
    record = 15
    rows = np.flatnonzero(words == np.uint32((NOW + 10 * (steps - 1)) // 10))
    at = int(data.draw(st.sampled_from(rows[:1].tolist()))) + data.draw(st.integers(0, record - 1))
    before = int(words[at])
    words[at] = data.draw(st.integers(0, 2**32 - 1).filter(lambda v: v != before))
    words.flush()
    del words
    again = Ring(path, 2)
    assert cpus(again.read("a", FINE, 0, NOW + 10_000)) == [float(i) for i in range(steps - 1)]
    assert cpus(again.read("b", FINE, 0, NOW + 10_000)) == [100.0 + i for i in range(steps)]
    again.close()


def test_five_minutes_that_were_torn_are_made_again_from_their_samples(path):
    ring = Ring(path, 1)
    for i in range(45):
        ring.write(NOW + 10 * i, {"a": a_sample(float(i))})
    ring.close()
    words = np.memmap(path, np.uint32, "r+")
    at = int(np.flatnonzero(words == np.uint32((NOW + 300) // 300))[0])
    words[at + 2] ^= 1
    words.flush()
    del words
    again = Ring(path, 1)
    assert again.torn == 1
    coarse = again.read("a", COARSE, 0, NOW + 10_000)
    assert cpus(coarse) == [14.5, 37.0]
    assert list(coarse.counts) == [30, 15]
    again.close()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 120), st.sampled_from("abcdef"), st.floats(0, 1e6, width=32)),
        max_size=80,
    )
)
def test_the_ring_says_the_same_as_a_plain_record_of_everything(steps):
    ring = Ring(None, 3, busy_s=0)
    known: dict[str, dict[int, list[float]]] = {}
    last: dict[str, int] = {}
    now = NOW
    for wait, key, value in steps:
        now += wait
        if key not in known and len(known) == 3:
            quiet = min(known, key=lambda k: last[k])
            # Of two that were quiet equally long either may go.
            if list(last.values()).count(last[quiet]) > 1:
                return
            del known[quiet], last[quiet]
        known.setdefault(key, {}).setdefault(now // 10 * 10, []).append(value)
        last[key] = now
        ring.write(now, {key: a_sample(value)})
    assert sorted(ring.listed()) == sorted(known)
    for key, slots in known.items():
        found = ring.read(key, FINE, now - 3590, now + 1)
        wanted = {at: v for at, v in slots.items() if at >= now - 3590}
        assert set(wanted) <= set(found.starts.tolist())
        for at, mean, high in zip(
            found.starts, found.means[:, 0], found.highest[:, 0], strict=True
        ):
            if at in wanted:
                values = wanted[at]
                assert math.isclose(mean, sum(values) / len(values), rel_tol=1e-4, abs_tol=1e-4)
                assert high == max(values)


def test_every_quantity_has_its_place():
    ring = Ring(None, 1)
    sample = tuple(float(i + 1) for i in range(len(QUANTITIES)))
    ring.write(NOW, {"a": sample})
    assert list(ring.read("a", FINE, 0, NOW + 1).means[0]) == list(sample)
