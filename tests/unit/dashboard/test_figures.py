"""Figures read as people, and kubectl, write them."""

import itertools
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from motley.dashboard import figures


@pytest.mark.parametrize(
    ("x", "written"),
    [
        (0, "0"),
        (-0.1, "0"),
        (0.0004, "0.4m"),
        (0.002, "2m"),
        (0.0097, "9.7m"),
        (0.00999, "10m"),
        (0.25, "250m"),
        (0.9994, "999m"),
        (0.9996, "1"),
        (1, "1"),
        (1.25, "1.25"),
        (1.5, "1.5"),
        (16.004, "16"),
        (127.6, "128"),
        (1000, "1000"),
    ],
)
def test_cpu_is_thousandths_below_one_core_and_cores_from_there_on(x, written):
    assert figures.cores(x) == written


@pytest.mark.parametrize(
    ("n", "written"),
    [
        (0, "0 B"),
        (-1, "0 B"),
        (512, "512 B"),
        (1023.7, "1 KiB"),
        (1024, "1 KiB"),
        (12.34 * 2**20, "12.3 MiB"),
        (64 * 2**20, "64 MiB"),
        (512 * 2**20, "512 MiB"),
        (2**30 - 1, "1 GiB"),
        (1.21 * 2**30, "1.2 GiB"),
        (5000 * 2**60, "5000 EiB"),
    ],
)
def test_sizes_have_binary_units_and_three_digits(n, written):
    assert figures.size(n) == written


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (-5, "<invalid>"),
        (-1, "0s"),
        (0, "0s"),
        (45.9, "45s"),
        (119, "119s"),
        (120, "2m"),
        (192, "3m12s"),
        (600, "10m"),
        (3 * 3600 - 1, "179m"),
        (3 * 3600, "3h"),
        (5 * 3600 + 60 * 7, "5h7m"),
        (8 * 3600 + 60 * 7, "8h"),
        (47 * 3600, "47h"),
        (76 * 3600, "3d4h"),
        (72 * 3600, "3d"),
        (12 * 86400 + 3600, "12d"),
        (729 * 86400, "729d"),
        (730 * 86400, "2y"),
        (800 * 86400, "2y70d"),
        (9 * 365 * 86400 + 86400, "9y"),
    ],
)
def test_ages_are_those_of_kubectl(seconds, written):
    assert figures.age(seconds) == written


@pytest.mark.parametrize(
    ("x", "written"), [(0, "0 %"), (0.001, "<1 %"), (0.234, "23 %"), (1, "100 %"), (1.204, "120 %")]
)
def test_a_share_is_whole_percent(x, written):
    assert figures.share(x) == written


@given(st.floats(1e-9, 1e15), st.booleans())
@example(1.000000001, False)
def test_ticks_reach_the_top_in_few_equal_steps_and_not_much_further(top, binary):
    found = figures.ticks(top, binary=binary)
    step = found[1]
    assert found[0] == 0
    assert 2 <= len(found) <= 6
    assert found[-1] >= top * (1 - 1e-9)
    assert found[-2] < top  # no step too many
    assert all(math.isclose(b - a, step) for a, b in itertools.pairwise(found))


@given(st.floats(8, 1e15))
def test_binary_ticks_are_powers_of_two_apart(top):
    step = figures.ticks(top, binary=True)[1]
    assert math.log2(step).is_integer()


def test_decimal_ticks_are_the_numbers_that_are_written():
    assert figures.ticks(0.3, binary=False) == [0, 0.1, 0.2, 0.3]
    assert figures.ticks(0.26, binary=False) == [0, 0.1, 0.2, 0.3]
    assert figures.ticks(4, binary=False) == [0, 1, 2, 3, 4]
    assert figures.ticks(37, binary=False) == [0, 10, 20, 30, 40]


@pytest.mark.parametrize("top", [0.0, -1.0, math.nan, math.inf])
def test_an_axis_without_a_top_still_has_ticks(top):
    assert figures.ticks(top, binary=False) == figures.ticks(top, binary=True) == [0, 1]


@given(st.floats(0.005, 1e6))
def test_labels_of_ticks_differ_from_each_other(top):
    labels = [figures.cores(tick) for tick in figures.ticks(top, binary=False)]
    assert len(set(labels)) == len(labels)
