"""What pods are to trust is published, and answered requests for certificates go."""

import base64

from world import simulate

from motley.api.views.base import Key
from motley.api.views.certificates import ClusterTrustBundle, PodCertificateRequest
from motley.controllers import service, trustbundle
from motley.node import keys

PUBLISHING = service.Options(leader_elect=False, controllers=("clustertrustbundlepublisher",))


async def test_the_authority_of_the_api_server_is_published_and_nothing_else_in_its_name(
    cluster, certificate_signer
):
    async with cluster(options=PUBLISHING) as c:
        ca = c.client.config.ca.decode()
        name = trustbundle.bundle_name(ca)
        assert name.startswith("kubernetes.io:kube-apiserver-serving:")

        async def published():
            found = await c.client.list(ClusterTrustBundle)
            return {one.metadata.name: one.spec.trust_bundle for one in found.items}

        async def is_alone():
            return await published() == {name: ca}

        await c.eventually(is_alone, "the bundle is there")
        await c.client.delete(ClusterTrustBundle, name)
        await c.eventually(is_alone, "the bundle is there again")
        earlier = "kubernetes.io:kube-apiserver-serving:earlier"
        spec = {"signerName": trustbundle.SIGNER, "trustBundle": certificate_signer().anchor}
        await c.client.create(ClusterTrustBundle, {"metadata": {"name": earlier}, "spec": spec})
        await c.eventually(is_alone, "what was published before is gone")
        await c.client.patch(ClusterTrustBundle, name, "", {"spec": spec})
        await c.eventually(is_alone, "the bundle is right again")


@simulate(nodes=0)
async def test_a_request_for_a_certificate_is_deleted_after_a_quarter_of_an_hour(world):
    spec = {
        "signerName": "example.com/s",
        "stubPKCS10Request": base64.b64encode(keys.make("ED25519").stub).decode(),
    }
    for whose in ("pod", "serviceAccount", "node"):
        spec |= {f"{whose}Name": "x", f"{whose}UID": "u"}
    made = await world.create(PodCertificateRequest, {"metadata": {"name": "req-1"}, "spec": spec})
    assert made.key == Key(world.namespace, "req-1")
    await world.sleep(14 * 60)
    assert len(await world.list(PodCertificateRequest)) == 1
    await world.sleep(2 * 60)
    assert await world.list(PodCertificateRequest) == []
