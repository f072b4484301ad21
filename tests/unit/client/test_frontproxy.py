"""Who is believed about who is calling."""

import json

import pytest

from motley.client import frontproxy
from motley.client.frontproxy import Trust

DATA = {
    "requestheader-client-ca-file": "PEM",
    "requestheader-allowed-names": '["front-proxy-client"]',
    "requestheader-username-headers": '["X-Remote-User", "X-Other-User"]',
    "requestheader-uid-headers": '["X-Remote-Uid"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
}
NOW = 1_800_000_000.0


def certificate(name="front-proxy-client", ends="Jan  1 00:00:00 2030 GMT"):
    return {"subject": ((("commonName", name),),), "notAfter": ends}


def called(*headers, trust=None, shown=None):
    return frontproxy.caller(
        trust or frontproxy.read(DATA), shown or certificate(), headers, now=NOW
    )


def test_the_proxy_says_who_calls_with_all_that_is_known_of_them():
    assert called(
        ("x-remote-user", "anna"),
        ("X-Remote-Uid", "7"),
        ("X-Remote-Group", "a"),
        ("X-Remote-Group", "b"),
        ("X-Remote-Extra-Example.org%2Fscope", "read"),
        ("X-Remote-Extra-Example.org%2Fscope", "write"),
        ("Accept", "*/*"),
    ) == {
        "username": "anna",
        "uid": "7",
        "groups": ["a", "b"],
        "extra": {"example.org/scope": ["read", "write"]},
    }


def test_the_first_header_that_says_something_counts():
    assert called(("X-Remote-User", ""), ("X-Other-User", "ben"))["username"] == "ben"
    assert called(("X-Remote-User", "anna"), ("X-Other-User", "ben"))["username"] == "anna"


@pytest.mark.parametrize(
    "refused",
    [
        {"shown": certificate("somebody-else")},
        {"shown": certificate(ends="Jan  1 00:00:00 2026 GMT")},
        {"shown": {"subject": (), "notAfter": "Jan  1 00:00:00 2030 GMT"}},
        {"trust": frontproxy.read(DATA | {"requestheader-username-headers": '["X-User"]'})},
    ],
)
def test_a_certificate_of_another_name_or_of_yesterday_and_other_headers_count_for_nothing(refused):
    assert called(("X-Remote-User", "anna"), **refused) is None


def test_without_allowed_names_any_certificate_of_the_authority_will_do():
    trust = frontproxy.read(DATA | {"requestheader-allowed-names": "[]"})
    assert called(("X-Remote-User", "anna"), trust=trust, shown=certificate("x")) is not None


def test_nobody_is_named_without_a_user():
    assert called(("X-Remote-Group", "system:masters")) is None


def test_without_an_authority_nobody_is_trusted():
    assert frontproxy.read({}) == Trust()
    assert frontproxy.read({**DATA, "requestheader-client-ca-file": " \n"}) == Trust()


@pytest.mark.parametrize("text", ["nonsense", "{}", "[1]", '"x"'])
def test_what_cannot_be_understood_is_an_error_and_not_an_empty_list_of_names(text):
    with pytest.raises(ValueError):
        frontproxy.read({**DATA, "requestheader-allowed-names": text})
    assert json.loads(DATA["requestheader-allowed-names"])
