import random
import re
import uuid

import pytest

from motley.api import names


@pytest.mark.parametrize("text", ["a", "a-b", "0", "1a", "a" * 63])
def test_dns_labels(text):
    assert names.is_dns_label(text)


@pytest.mark.parametrize("text", ["", "-a", "a-", "A", "a_b", "a" * 64, "ä", "a\n"])
def test_no_dns_labels(text):
    assert not names.is_dns_label(text)


def test_a_label_with_dots_is_told_so():
    assert names.check_dns_label("a.b") == ["must not contain dots"]


@pytest.mark.parametrize(("text", "ok"), [("a.b", True), ("a..b", False), ("a" * 254, False)])
def test_dns_subdomains(text, ok):
    assert names.is_dns_subdomain(text) is ok


def test_a_1035_label_starts_with_a_letter():
    assert names.is_dns_1035_label("a1")
    assert not names.is_dns_1035_label("1a")


@pytest.mark.parametrize(
    ("text", "ok"),
    [
        ("app", True),
        ("example.com/App_1.x", True),
        ("/a", False),
        ("a/", False),
        ("a/b/c", False),
        ("A_/b", False),
        ("-a", False),
        ("x" * 64, False),
    ],
)
def test_qualified_names(text, ok):
    assert names.is_qualified_name(text) is ok


def test_label_values_may_be_empty_and_are_counted_in_bytes():
    assert names.is_label_value("")
    assert names.check_label_value("x" * 64) == ["must be no more than 63 bytes"]


@pytest.mark.parametrize(
    ("text", "ok"),
    [("http", True), ("h-2", True), ("80", False), ("a--b", False), ("-a", False), ("A", False)],
)
def test_port_names(text, ok):
    assert (not names.check_port_name(text)) is ok


@pytest.mark.parametrize(("text", "ok"), [("A_B", True), ("a.b-c", True), ("a=b", False)])
def test_environment_names(text, ok):
    assert (not names.check_env_name(text)) is ok


@pytest.mark.parametrize("text", [".", "..", "..a", "a b", "", "a" * 254])
def test_config_keys_never_leave_their_directory(text):
    assert names.check_config_key(text)


def test_generated_names_fit_a_label_and_have_no_vowels():
    name = names.generate("x" * 100 + "-", random.Random(1))

    assert len(name) == 63
    assert re.fullmatch("x{58}[bcdfghjklmnpqrstvwxz2456789]{5}", name)
    assert names.generate("a-", random.Random(1)) == names.generate("a-", random.Random(1))


def test_uids_are_random_uuids_of_version_4():
    first = uuid.UUID(names.new_uid(random.Random(1)))

    assert first.version == 4
    assert first.variant == uuid.RFC_4122
    assert str(first) != names.new_uid(random.Random(2))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("10.0.0.1", ""),
        ("fe80::42:1dff:fe84:f9e2", ""),
        ("2001:DB8::1", 'must be in canonical form ("2001:db8::1")'),
        ("2001:db8:0::1", 'must be in canonical form ("2001:db8::1")'),
        ("010.0.0.1", "must not have leading 0s"),
        ("::ffff:1.2.3.4", "must not be an IPv4-mapped IPv6 address"),
        ("fe80::1%eth0", names.BAD_IP),
        ("300.0.0.1", names.BAD_IP),
        ("web", names.BAD_IP),
    ],
)
def test_an_address_has_one_form(text, problem):
    assert names.check_address(text) == ([problem] if problem else [])
