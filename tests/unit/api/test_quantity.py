from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.api import quantity

SUFFIXES = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
written = st.builds(
    lambda sign, whole, fraction, suffix: f"{sign}{whole}{fraction}{suffix}",
    st.sampled_from(["", "+", "-"]),
    st.integers(0, 10**6),
    st.just("") | st.integers(0, 10**6).map(lambda n: f".{n}"),
    st.sampled_from([*SUFFIXES, "e3", "E-2", "e+1", "e0"]),
)


@pytest.mark.parametrize(
    ("given_", "printed"),
    [
        ("0.5", "500m"),
        (0.5, "500m"),
        ("1000m", "1"),
        ("2", "2"),
        (2, "2"),
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("0.5Ki", "512"),
        ("1.0001Ki", "1024102400u"),
        ("1000Ki", "1000Ki"),
        ("1e3", "1e3"),
        ("1E3", "1e3"),
        ("1.5e3", "1500"),
        ("12E", "12E"),
        ("1000k", "1M"),
        ("0.1n", "1n"),
        ("-0.1n", "-1n"),
        ("0Gi", "0"),
        ("+1", "1"),
        (".5", "500m"),
        ("5.", "5"),
        ("128974848", "128974848"),
        ("129e6", "129e6"),
        ("16Ei", "9223372036854775807"),
    ],
)
def test_a_quantity_prints_as_kubernetes_prints_it(given_, printed):
    assert quantity.canonical(given_) == printed


@pytest.mark.parametrize("text", ["", ".", "abc", "1x", "--1", "1e3e", "1 ", " 1", "１", "1Kii"])
def test_nonsense_is_a_value_error(text):
    with pytest.raises(ValueError):
        quantity.canonical(text)


@pytest.mark.parametrize("text", ["1K", "1e", "1kk", "1e999999999"])
def test_an_unknown_suffix_is_named(text):
    with pytest.raises(ValueError, match="suffix"):
        quantity.canonical(text)


@given(written)
def test_printing_is_stable_and_keeps_the_amount(text):
    printed = quantity.canonical(text)

    assert quantity.canonical(printed) == printed
    assert quantity.parse(printed) == quantity.parse(text)


@given(written)
def test_rounding_goes_up_and_never_far(text):
    exact = quantity.parse(text)

    assert 0 <= quantity.to_int(text) - exact < 1
    assert 0 <= quantity.cpu_milli(text) - exact * 1000 < 1


@given(st.integers(0, 10**12), st.integers(0, 12))
def test_decimals_are_exact_down_to_the_nano_and_round_up_below(digits, places):
    text = f"{digits // 10**places}.{digits % 10**places:0{places}d}" if places else str(digits)
    exact = Fraction(digits, 10**places)

    assert 0 <= quantity.parse(text) - exact < Fraction(1, 10**9)


def test_entries_of_resource_lists_are_rounded_up_to_thousandths():
    assert quantity.canonical_resource("1u") == "1m"
    assert quantity.canonical_resource("0.5") == "500m"


def test_amounts_are_written_in_their_family():
    assert quantity.format_milli(1500) == "1500m"
    assert quantity.format_milli(2000) == "2"
    assert quantity.format_binary(3 * 2**30) == "3Gi"
    assert quantity.format_decimal(110) == "110"
