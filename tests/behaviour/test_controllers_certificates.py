"""Certificates on request: a joining node, a person, and what is refused."""

import base64
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from motley.api.views.certificates import CertificateSigningRequest
from motley.client import kubeconfig
from motley.client.kubeconfig import Impersonation
from motley.client.rest import Client
from motley.controllers import service
from motley.controllers.certificates import CLIENT, KUBELET_CLIENT

KUBECTL = shutil.which("kubectl") or str(Path(__file__).parents[2] / ".cache/bin/kubectl")
JOINING = Impersonation("system:bootstrap:abcdef", ("system:bootstrappers", "system:authenticated"))


def request(cn, org):
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, org),
            x509.NameAttribute(NameOID.COMMON_NAME, cn),
        ]
    )
    key = ec.generate_private_key(ec.SECP256R1())
    made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    pem = made.public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return base64.b64encode(pem).decode(), secret


def document(name, encoded, signer, **spec):
    usages = ["digital signature", "client auth"]
    spec = {"request": encoded, "signerName": signer, "usages": usages, **spec}
    return {"metadata": {"name": name}, "spec": spec}


@pytest.fixture
def signing(shared_server):
    pki = shared_server.directory / "pki"
    return service.Options(
        leader_elect=False,
        signing_cert=pki / "ca.crt",
        signing_key=pki / "ca.key",
        controllers=("csrapproving", "csrsigning", "csrcleaner"),
    )


async def certificate(c, name):
    async def issued():
        return (await c.client.get(CertificateSigningRequest, name)).status.certificate

    return await c.eventually(issued, f"{name} has its certificate")


async def test_a_joining_node_gets_a_certificate_it_can_work_with(cluster, shared_server, signing):
    async with cluster(options=signing) as c:
        joining = replace(c.client.config, impersonate=JOINING)
        encoded, key = request("system:node:joined", "system:nodes")
        async with Client(joining) as client:
            body = document("join", encoded, KUBELET_CLIENT, expirationSeconds=3600)
            await client.create(CertificateSigningRequest, body)
        pem = await certificate(c, "join")
        seen = await c.client.get(CertificateSigningRequest, "join")
        (approved,) = seen.status.conditions
        assert (approved.type, approved.reason) == ("Approved", "AutoApproved")
        whole = kubeconfig.load(shared_server.kubeconfig)
        node = replace(whole, client_cert=pem, client_key=key)
        async with Client(node) as client:
            path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
            review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
            answer = await client.raw("POST", path, body=review)
        assert answer["status"]["userInfo"]["username"] == "system:node:joined"
        assert "system:nodes" in answer["status"]["userInfo"]["groups"]


async def test_nobody_joins_as_an_administrator_and_a_person_decides_about_people(
    cluster, shared_server, signing
):
    def kubectl(*arguments):
        environment = {**os.environ, "KUBECONFIG": str(shared_server.kubeconfig)}
        command = [KUBECTL, *arguments]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=True
        ).stdout

    async with cluster(options=signing) as c:
        joining = replace(c.client.config, impersonate=JOINING)
        masters, _ = request("root", "system:masters")
        jane, _ = request("jane", "dev")
        async with Client(joining) as client:
            body = document("greedy", masters, KUBELET_CLIENT)
            await client.create(CertificateSigningRequest, body)
            await client.create(CertificateSigningRequest, document("jane", jane, CLIENT))
        kubectl("certificate", "approve", "jane")
        await certificate(c, "jane")
        assert "Approved,Issued" in kubectl("get", "csr", "jane")
        assert "Pending" in kubectl("get", "csr", "greedy")
        kubectl("certificate", "approve", "greedy")

        async def failed():
            return (await c.client.get(CertificateSigningRequest, "greedy")).has("Failed")

        await c.eventually(failed, "the signer refuses what its name does not stand for")
        greedy = await c.client.get(CertificateSigningRequest, "greedy")
        assert not greedy.status.certificate
        (said,) = [x for x in greedy.status.conditions if x.type == "Failed"]
        assert said.message == "subject organization is not system:nodes"
