"""Expired bootstrap tokens go, on virtual time."""

import base64

from world import simulate

from motley.api.views.core import Secret
from motley.lib import clock as clocks


def token(name, expiration):
    data = {"token-id": name, "token-secret": "0123456789abcdef"}
    if expiration is not None:
        data["expiration"] = expiration
    encoded = {k: base64.b64encode(v.encode()).decode() for k, v in data.items()}
    meta = {"name": f"bootstrap-token-{name}"}
    return {"metadata": meta, "type": "bootstrap.kubernetes.io/token", "data": encoded}


@simulate(nodes=0)
async def test_a_bootstrap_token_is_deleted_when_its_time_is_over(world):
    world.namespace = "kube-system"
    now = world.clock.now()
    await world.create(Secret, token("aaaaaa", clocks.rfc3339(now + 3600)))
    await world.create(Secret, token("bbbbbb", None))
    await world.create(Secret, token("cccccc", clocks.rfc3339(now - 60)))
    await world.create(Secret, {"metadata": {"name": "other"}, "data": {"expiration": "MA=="}})
    await world.sleep(60)

    async def names():
        return [s.metadata.name.removeprefix("bootstrap-token-") for s in await world.list(Secret)]

    assert await names() == ["aaaaaa", "bbbbbb", "other"]
    await world.sleep(3600)
    assert await names() == ["bbbbbb", "other"]
