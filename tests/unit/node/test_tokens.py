"""Tokens of pods: asked for once, renewed in time, written as files."""

from typing import Any

import pytest

from motley.api import status
from motley.api.views.pod import Pod
from motley.lib.clock import rfc3339
from motley.node.environment import ConfigError
from motley.node.tokens import Tokens, wanted
from motley.node.volumes import payload


class Clock:
    def __init__(self) -> None:
        self.time = 1_800_000_000.0

    def now(self) -> float:
        return self.time

    monotonic = now

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        if self.time > 1_800_000_000.0 + 86_400:
            raise EOFError  # the end of the test


class Client:
    """Issues numbered tokens."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.asked: list[Any] = []
        self.refuses = False

    async def create_subresource(self, cls, name, namespace, subresource, body):
        if self.refuses:
            raise status.not_found("", "serviceaccounts", name)
        self.asked.append((namespace, name, subresource, body["spec"]))
        expires = self.clock.now() + body["spec"]["expirationSeconds"]
        return {
            "status": {
                "token": f"token-{len(self.asked)}",
                "expirationTimestamp": rfc3339(expires),
            }
        }


def pod() -> Pod:
    source = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}}
    volume = {"name": "v", "projected": {"sources": [source]}}
    return Pod.of(
        {
            "metadata": {"name": "p", "namespace": "demo", "uid": "u"},
            "spec": {"serviceAccountName": "robot", "volumes": [volume]},
        }
    )


@pytest.fixture
def world():
    clock = Clock()
    client = Client(clock)
    told: list[str] = []
    return clock, client, told, Tokens(client, told.append, clock=clock)


async def test_a_token_is_asked_for_once_and_bound_to_its_pod(world):
    _, client, _, tokens = world

    await tokens.use(pod())
    await tokens.use(pod())

    assert wanted(pod()) == {("", 3607)}
    assert client.asked == [
        (
            "demo",
            "robot",
            "token",
            {
                "audiences": [],
                "expirationSeconds": 3607,
                "boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": "u"},
            },
        )
    ]
    assert tokens.get("u", "", 3607) == "token-1"


async def test_it_is_renewed_before_it_ends_and_the_pod_is_told(world):
    clock, client, told, tokens = world
    await tokens.use(pod())

    clock.time += 3607 * 0.79
    await tokens.use(pod())
    assert len(client.asked) == 1
    clock.time += 3607 * 0.02
    with pytest.raises(EOFError):
        await tokens.renew_forever()
    assert set(told) == {"u"}
    await tokens.use(pod())
    assert tokens.get("u", "", 3607) == "token-2"


async def test_a_pod_that_is_gone_has_no_token(world):
    *_, tokens = world
    await tokens.use(pod())

    tokens.release("u")

    assert tokens.get("u", "", 3607) is None


async def test_without_a_token_the_volume_waits(world):
    _, client, _, tokens = world
    client.refuses = True
    await tokens.use(pod())

    class Lookup:
        def token(self, audience: str, lifetime_s: int) -> str | None:
            return tokens.get("u", audience, lifetime_s)

    volume = pod().spec.volumes[0]
    with pytest.raises(ConfigError, match='no token of service account "robot" yet'):
        payload.of(volume, pod(), Lookup(), {}, {})
    client.refuses = False
    await tokens.use(pod())
    files = payload.of(volume, pod(), Lookup(), {}, {})
    assert files == {"token": payload.File(b"token-1", 0o644)}
