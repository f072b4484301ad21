"""Patterns: RE2's syntax, Go's words, and no text that takes for ever."""

import pytest

from motley.api import patterns
from motley.api.patterns import PatternError


@pytest.mark.parametrize(
    ("pattern", "text", "is_in"),
    [
        ("^[a-z]+$", "abc", True),
        ("^[a-z]+$", "abc\n", False),  # the end is the end, also before a line break
        ("b", "abc", True),
        (r"a\z", "ba", True),
        (r"^[[:alnum:]]+$", "a1", True),
        ("^(?i)abc$", "ABC", True),
        (r"^\pL+$", "äöü", True),
        ("^.$", "é", True),
    ],
)
def test_patterns_are_those_of_re2(pattern, text, is_in):
    assert patterns.compiled(pattern).is_in(text) is is_in


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        ("[a", "missing closing ]: `[a`"),
        ("(a", "missing closing ): `(a`"),
        ("*a", "missing argument to repetition operator: `*`"),
        ("a**", "invalid nested repetition operator: `**`"),
        (r"\q", r"invalid escape sequence: `\q`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        ("a\\", "trailing backslash at end of expression: ``"),
    ],
)
def test_what_is_no_pattern_is_told_in_the_words_of_go(pattern, problem):
    with pytest.raises(PatternError) as found:
        patterns.compiled(pattern)
    assert str(found.value) == f"error parsing regexp: {problem}"


def test_a_pattern_that_would_backtrack_for_ever_does_not():
    assert not patterns.compiled("^(a+)+$").is_in("a" * 50_000 + "!")


def test_matches_come_from_left_to_right_in_any_script():
    assert list(patterns.compiled("[0-9]+").found("é1ü22")) == ["1", "22"]
