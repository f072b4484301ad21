"""Who may see a component's figures, as the API server decides."""

import pytest

from motley.api import status
from motley.client.delegation import Delegation

USERS = {"good": "prometheus", "poor": "nobody-special"}


class Reviews:
    """A server's TokenReviews and SubjectAccessReviews."""

    def __init__(self):
        self.asked = []
        self.error = None

    async def raw(self, method, path, *, body):
        self.asked.append(body)
        if self.error:
            raise self.error
        if body["kind"] == "TokenReview":
            user = USERS.get(body["spec"]["token"])
            if user is None:
                return {"status": {"authenticated": False}}
            found = {"username": user, "groups": ["g"], "extra": {"k": ["v"]}}
            return {"status": {"authenticated": True, "user": found}}
        return {"status": {"allowed": body["spec"]["user"] == "prometheus"}}


class Watch:
    time = 0.0

    def now(self):
        return self.time

    def monotonic(self):
        return self.time


@pytest.mark.parametrize(
    ("header", "code"),
    [
        ("", 401),
        ("Basic Z29vZA==", 401),
        ("Bearer", 401),
        ("Bearer unknown", 401),
        ("Bearer poor", 403),
        ("bearer good", 200),
    ],
)
async def test_a_token_is_reviewed_and_its_user_asked_about(header, code):
    server = Reviews()
    assert await Delegation(server, server).code("/metrics", header) == code


async def test_the_two_questions_go_to_their_servers_with_all_that_is_known():
    who, may = Reviews(), Reviews()
    assert await Delegation(who, may).code("/metrics", "Bearer good") == 200
    assert [b["kind"] for b in who.asked] == ["TokenReview"]
    assert may.asked[0]["spec"] == {
        "user": "prometheus",
        "uid": "",
        "groups": ["g"],
        "extra": {"k": ["v"]},
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
    }


async def test_an_answer_is_kept_for_a_while_and_for_its_path_only():
    server, clock = Reviews(), Watch()
    delegation = Delegation(server, server, clock=clock)
    for _ in range(3):
        await delegation.code("/metrics", "Bearer good")
    assert len(server.asked) == 2
    await delegation.code("/decisions", "Bearer good")
    assert len(server.asked) == 4
    clock.time = 11.0
    await delegation.code("/metrics", "Bearer good")
    assert len(server.asked) == 6


async def test_while_the_server_cannot_be_asked_nobody_gets_in():
    server = Reviews()
    server.error = status.ServiceUnavailable("away")
    delegation = Delegation(server, server)
    assert await delegation.code("/metrics", "Bearer good") == 403
    server.error = None
    assert await delegation.code("/metrics", "Bearer good") == 200
