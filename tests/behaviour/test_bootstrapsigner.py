"""cluster-info is signed by the tokens there are, on virtual time."""

import base64

from world import simulate

from motley.api.views.core import ConfigMap, Secret
from motley.controllers import bootstrapsigner
from motley.ops import tokens

FIRST, SECOND = "aaaaaa.0123456789abcdef", "bbbbbb.0123456789abcdef"


@simulate(nodes=0)
async def test_signatures_come_and_go_with_their_tokens(world):
    world.namespace = "kube-public"
    info = {"metadata": {"name": "cluster-info"}, "data": {"kubeconfig": "the text"}}
    await world.create(ConfigMap, info)
    world.namespace = "kube-system"
    now = world.clock.now()
    await world.create(Secret, tokens.secret(FIRST, ttl_s=3600, description="", now=now))
    await world.create(Secret, tokens.secret(SECOND, ttl_s=0, description="", now=now))
    await world.sleep(60)

    async def signatures():
        world.namespace = "kube-public"
        data = (await world.get(ConfigMap, "cluster-info")).data
        assert data.pop("kubeconfig") == "the text"
        return data

    def signed(*given):
        return {
            f"jws-kubeconfig-{token[:6]}": bootstrapsigner.sign("the text", token[:6], token[7:])
            for token in given
        }

    assert await signatures() == signed(FIRST, SECOND)
    await world.sleep(3600)
    assert await signatures() == signed(SECOND)
    world.namespace = "kube-system"
    other = base64.b64encode(b"false").decode()
    change = {"data": {"usage-bootstrap-signing": other}}
    await world.patch(Secret, "bootstrap-token-bbbbbb", change)
    await world.sleep(60)
    assert await signatures() == {}
