"""Outcomes found again by their bytes: what is kept, and what goes first."""

from hypothesis import given
from hypothesis import strategies as st

from motley.lib.memo import Memo


def test_what_was_put_in_is_found_by_equal_bytes():
    memo = Memo[str](100)
    memo.put(b"spec", "outcome")
    assert memo.get(bytes(bytearray(b"spec"))) == "outcome"
    assert memo.get(b"other") is None


def test_the_longest_unused_goes_first():
    memo = Memo[str](12)
    for key in (b"aaaa", b"bbbb", b"cccc"):
        memo.put(key, key.decode())
    assert memo.get(b"aaaa") == "aaaa"  # used again: now `bbbb` is the longest unused
    memo.put(b"dddd", "dddd")
    assert memo.get(b"bbbb") is None
    assert [memo.get(k) for k in (b"aaaa", b"cccc", b"dddd")] == ["aaaa", "cccc", "dddd"]


def test_what_is_too_large_is_not_kept_and_pushes_nothing_out():
    memo = Memo[str](100, largest_bytes=10)
    memo.put(b"small", "kept")
    memo.put(b"large", "value", 6)
    assert memo.get(b"large") is None
    assert memo.get(b"small") == "kept"


def test_to_put_an_outcome_again_counts_it_once():
    memo = Memo[str](100)
    memo.put(b"key", "old", 10)
    memo.put(b"key", "new", 20)
    assert (memo.get(b"key"), len(memo), memo.size_bytes) == ("new", 1, 23)


@given(st.lists(st.tuples(st.binary(max_size=8), st.integers(0, 8))))
def test_the_limit_holds_whatever_is_put_in(entries: list[tuple[bytes, int]]):
    memo = Memo[int](32, largest_bytes=12)
    for key, size in entries:
        memo.put(key, size, size)
        assert memo.size_bytes <= 32
        if len(key) + size <= 12:
            assert memo.get(key) == size
