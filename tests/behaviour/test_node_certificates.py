"""A node's certificates against a real API server: got with a token, renewed, and refused."""

import asyncio
import os
import ssl
from contextlib import aclosing
from dataclasses import replace

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography import x509

from motley.api import status
from motley.api.views.certificates import CertificateSigningRequest
from motley.api.views.core import ConfigMap, Namespace, Node
from motley.apiserver import tls
from motley.cli import identity_options
from motley.client import kubeconfig
from motley.client.rest import Client
from motley.controllers import certificates, service
from motley.lib.clock import SYSTEM
from motley.node import csr
from motley.node.bootstrap import ClientIdentity, ServingIdentity
from motley.ops import joining, tokens
from motley.ops.config import Config
from motley.ops.failure import Failure


@pytest.fixture
def signing(shared_server):
    pki = shared_server.directory / "pki"
    return service.Options(
        leader_elect=False,
        signing_cert=pki / "ca.crt",
        signing_key=pki / "ca.key",
        controllers=("csrapproving", "csrsigning", "csrcleaner", "kubeletservingapproval"),
    )


async def invited(client, tmp_path, *, ttl_s=3600.0):
    """A bootstrap kubeconfig with a new token."""
    token = await tokens.create(client, ttl_s=ttl_s)
    config = kubeconfig.Config(server=client.config.server, ca=client.config.ca, token=token.token)
    path = tmp_path / "bootstrap.kubeconfig"
    path.write_text(kubeconfig.render(config, user="bootstrap"))
    return path


async def whoami(config):
    async with Client(config) as client:
        path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        answer = await client.raw("POST", path, body=review)
    return answer["status"]["userInfo"]["username"]


async def outcome(work):
    """What came of it, also when that is an error: a task group would end with it."""
    try:
        return await work
    except csr.BootstrapError as error:
        return error


async def requests_of(client, user):
    found = await client.list(CertificateSigningRequest)
    return [one for one in found.items if one.spec.username == user]


async def test_a_token_becomes_a_nodes_own_certificate(cluster, signing, tmp_path):
    async with cluster(options=signing, node_count=0) as c:
        bootstrap = await invited(c.client, tmp_path)
        path = tmp_path / "pki" / "node.kubeconfig"
        identity = ClientIdentity(path, bootstrap, csr.node_client("joined"))
        config = await identity.ensure()
        assert await whoami(config) == "system:node:joined"
        assert config.token is None
        assert path.stat().st_mode & 0o777 == 0o600
        assert [p.name for p in path.parent.iterdir()] == ["node.kubeconfig"]
        bootstrap.unlink()
        assert await identity.ensure() == config  # the token is needed no more


async def test_an_agent_that_is_killed_while_it_waits_goes_on_with_the_same_request(
    cluster, signing, tmp_path
):
    nobody = replace(signing, controllers=("csrcleaner",))
    path = tmp_path / "node.kubeconfig"
    async with cluster(options=nobody, node_count=0) as c:
        bootstrap = await invited(c.client, tmp_path)
        user = f"system:bootstrap:{kubeconfig.load(bootstrap).token[:6]}"
        async with asyncio.TaskGroup() as group:
            identity = ClientIdentity(path, bootstrap, csr.node_client("patient"))
            waiting = group.create_task(identity.ensure())
            await c.eventually(lambda: requests_of(c.client, user), "the request is there")
            waiting.cancel()
        assert not path.exists()
    async with cluster(options=signing, node_count=0) as c:
        config = await ClientIdentity(path, bootstrap, csr.node_client("patient")).ensure()
        assert await whoami(config) == "system:node:patient"
        assert len(await requests_of(c.client, user)) == 1


async def test_a_denied_request_and_a_bad_token_say_what_to_do(cluster, signing, tmp_path):
    nobody = replace(signing, controllers=("csrcleaner",))
    async with cluster(options=nobody, node_count=0) as c:
        bootstrap = await invited(c.client, tmp_path)
        user = f"system:bootstrap:{kubeconfig.load(bootstrap).token[:6]}"
        identity = ClientIdentity(tmp_path / "k", bootstrap, csr.node_client("unwanted"))
        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(outcome(identity.ensure()))
            (asked,) = await c.eventually(lambda: requests_of(c.client, user), "it has asked")
            body = await c.client.document(CertificateSigningRequest, asked.metadata.name)
            denial = {"type": "Denied", "status": "True", "reason": "No", "message": "not you"}
            body["status"]["conditions"] = [denial]
            await c.client.update(CertificateSigningRequest, body, subresource="approval")
        assert isinstance(waiting.result(), csr.BootstrapError)
        assert "was denied: not you" in str(waiting.result())
        await tokens.delete(c.client, user.rpartition(":")[2])
        other = ClientIdentity(tmp_path / "k2", bootstrap, csr.node_client("unwanted"))
        with pytest.raises(csr.BootstrapError, match="unknown or has expired") as caught:
            await other.ensure()
        assert "motley token create" in str(caught.value)


async def test_renewal_changes_the_certificate_and_drops_no_watch(cluster, signing, tmp_path):
    async with cluster(options=signing, node_count=0) as c:
        bootstrap = await invited(c.client, tmp_path)
        path = tmp_path / "node.kubeconfig"
        identity = ClientIdentity(path, bootstrap, csr.node_client("renewing"))
        config = await identity.ensure()
        bootstrap.unlink()
        async with Client(config) as client:
            made = await client.create(Node, {"metadata": {"name": "renewing"}})
            stream = client.watch(
                Node,
                resource_version=made.metadata.resource_version,
                field_selector="metadata.name=renewing",
                bookmarks=False,
            )
            async with aclosing(stream) as events:
                following = asyncio.ensure_future(anext(events))
                await identity.renew(client)
                patch = {"metadata": {"labels": {"seen": "yes"}}}
                await client.patch(Node, "renewing", "", patch)  # over a new connection
                event = await asyncio.wait_for(following, 10)
            assert event.object.metadata.labels["seen"] == "yes"
            assert client.config.client_cert != config.client_cert
            assert kubeconfig.load(path).client_cert == client.config.client_cert
        assert len(await requests_of(c.client, "system:node:renewing")) == 1
        await c.client.delete(Node, "renewing")


async def test_an_agent_whose_certificate_is_near_its_end_renews_it_while_it_runs(
    cluster, shared_server, signing, tmp_path
):
    async with cluster(options=signing, node_count=0) as c:
        pki = shared_server.directory / "pki"
        authority = certificates.Authority.load(
            (pki / "ca.crt").read_bytes(), (pki / "ca.key").read_bytes()
        )
        key, wanted = csr.ensure_key(tmp_path / "key"), csr.node_client("old")
        request = x509.load_pem_x509_csr(csr.request_pem(key, wanted))
        now = SYSTEM.now()
        old = authority.sign(request, wanted.usages, 1000.0, now - 990.0, 7)  # ten seconds left
        path = tmp_path / "node.kubeconfig"
        config = replace(c.client.config, client_cert=old, client_key=csr.key_pem(key))
        path.write_text(kubeconfig.render(config, user="system:node:old"))
        given = {"bootstrap_kubeconfig": None, "rotate_certificates": True}
        identities = identity_options.Identities(str(path), given)
        async with Client(await identities.node("old")) as client:
            assert client.config.client_cert == old
            async with identities.kept(client):
                await c.eventually(lambda: client.config.client_cert != old, "it is renewed")
            made = csr.validity(kubeconfig.load(path).client_cert)
            assert made.ends - now > 86400
            assert await whoami(client.config) == "system:node:old"


async def test_a_proxy_is_vouched_for_by_its_node_and_not_by_a_token(cluster, signing, tmp_path):
    async with cluster(options=signing, node_count=0) as c:
        bootstrap = await invited(c.client, tmp_path)
        node = tmp_path / "node.kubeconfig"
        await ClientIdentity(node, bootstrap, csr.node_client("vouching")).ensure()
        wanted = csr.proxy_client()
        identity = ClientIdentity(tmp_path / "proxy", node, wanted, renews_itself=False)
        config = await identity.ensure()
        assert await whoami(config) == "system:kube-proxy"
        async with Client(config) as client:
            await identity.renew(client)
            assert client.config.client_cert != config.client_cert
            assert await whoami(client.config) == "system:kube-proxy"
        thief = ClientIdentity(tmp_path / "thief", bootstrap, wanted)
        user = f"system:bootstrap:{kubeconfig.load(bootstrap).token[:6]}"

        async def asked():
            found = await requests_of(c.client, user)
            return [one for one in found if one.spec.signer_name == csr.API_CLIENT]

        async with asyncio.TaskGroup() as group:
            waiting = group.create_task(thief.ensure())
            (request,) = await c.eventually(asked, "the thief has asked")
            # Others that come after are served: this one was looked at and left.
            await ClientIdentity(tmp_path / "n", bootstrap, csr.node_client("after")).ensure()
            left = await c.client.get(CertificateSigningRequest, request.metadata.name)
            assert not left.status.conditions
            waiting.cancel()


async def test_a_serving_certificate_comes_when_the_nodes_status_has_its_address(
    cluster, signing, tmp_path
):
    async with cluster(options=signing, node_count=0) as c:
        bootstrap = await invited(c.client, tmp_path)
        path = tmp_path / "node.kubeconfig"
        config = await ClientIdentity(path, bootstrap, csr.node_client("serving")).ensure()
        wanted = csr.node_serving("serving", ["10.1.2.3"])
        file = tmp_path / "node-serving.pem"
        served = ServingIdentity(file, wanted, config.ca)
        async with Client(config) as client, asyncio.TaskGroup() as group:
            await client.create(Node, {"metadata": {"name": "serving"}})
            renewing = group.create_task(served.renew(client))
            (asked,) = await c.eventually(
                lambda: requests_of(c.client, "system:node:serving"), "it has asked"
            )
            assert not asked.status.conditions
            addresses = [{"type": "InternalIP", "address": "10.1.2.3"}]
            await client.patch(
                Node, "serving", "", {"status": {"addresses": addresses}}, subresource="status"
            )
        known = renewing.result()
        pem = x509.load_pem_x509_certificate(file.read_bytes())
        assert known.ends == pem.not_valid_after_utc.timestamp()
        assert file.stat().st_mode & 0o777 == 0o600
        assert served.load() == known
        await c.client.delete(Node, "serving")


async def test_a_cluster_is_discovered_by_its_hash_before_the_token_is_shown(
    cluster, signing, tmp_path
):
    async with cluster(options=signing, node_count=0) as c:
        ca = c.client.config.ca
        here = Config(root=tmp_path, node_ip="127.0.0.1")
        with pytest.raises(Failure, match="not been told to let nodes join"):
            await joining.discover(joining.Invitation(c.client.config.server, "a", ("x",)))
        await tokens.publish(c.client, here, ca)
        await tokens.publish(c.client, here, ca)  # a second time changes nothing
        token = await tokens.create(c.client, description="for a test")
        (digest,) = tokens.ca_hashes(ca)
        asked = joining.Invitation(c.client.config.server, token.token, (digest,))
        found = await joining.discover(asked)
        assert found.ca == ca
        assert found.settings.pod_cidr == here.pod_cidr
        with pytest.raises(Failure, match="is not the cluster of this join command"):
            await joining.discover(replace_hash(asked))
        assert token in await tokens.listed(c.client)
        await tokens.delete(c.client, token.token)
        with pytest.raises(Failure, match="does not know this token") as caught:
            await joining.discover(asked)
        assert "motley token create" in caught.value.advice


def replace_hash(asked):
    return joining.Invitation(asked.server, asked.token, ("sha256:" + "0" * 64,))


async def test_who_shows_the_clusters_authority_but_is_not_the_cluster_gets_no_token(tmp_path):
    real = tls.make_authority("motley-ca")[0]
    own = tls.ensure(tmp_path, addresses=["127.0.0.1"])  # signed by the impostor's authority
    info = dict(tokens.published(Config(node_ip="10.0.0.1"), real)[0][1])
    heard = []

    async def answer(request):
        heard.append((request.path, request.headers.get("Authorization")))
        return web.json_response(info)

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.cert_file, own.key_file)
    server = TestServer(web.Application(), scheme="https")
    server.app.router.add_route("*", "/{tail:.*}", answer)
    await server.start_server(ssl=context)
    try:
        url = f"https://127.0.0.1:{server.port}"
        (digest,) = tokens.ca_hashes(real)
        with pytest.raises(Failure, match="cannot be used") as caught:
            await joining.discover(joining.Invitation(url, "abcdef.0123456789abcdef", (digest,)))
        assert "certificate verify failed" in caught.value.message.lower()
    finally:
        await server.close()
    assert heard == [("/api/v1/namespaces/kube-public/configmaps/cluster-info", None)]


async def test_strangers_read_the_authority_and_nothing_else(cluster, signing, tmp_path):
    async with cluster(options=signing, node_count=0) as c:
        await tokens.publish(
            c.client, Config(root=tmp_path, node_ip="127.0.0.1"), c.client.config.ca
        )
        stranger = kubeconfig.Config(server=c.client.config.server, insecure=True)
        async with Client(stranger) as client:
            await client.get(ConfigMap, "cluster-info", "kube-public")
            for cls, name, namespace in (
                (ConfigMap, tokens.SETTINGS, "kube-system"),
                (Namespace, "default", ""),
            ):
                with pytest.raises(status.Forbidden):
                    await client.get(cls, name, namespace)
            with pytest.raises(status.Forbidden):
                await client.list(ConfigMap, namespace="kube-public")
    assert not os.listdir(tmp_path)
