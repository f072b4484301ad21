"""Which serving certificates a node gets without a person's help."""

from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from motley.api.views.base import ObjectMeta
from motley.api.views.certificates import CertificateSigningRequest, SigningRequestSpec
from motley.api.views.core import Node, NodeAddress, NodeStatus
from motley.controllers import certificates
from motley.controllers.servingapproval import objection

KEY = ec.generate_private_key(ec.SECP256R1())
RESERVED = {"10.96.0.1", "10.0.0.100"}  # a Service, an API server
USAGES = ["digital signature", "server auth"]


def node(name="n1", *addresses):
    found = [NodeAddress(type=kind, address=text) for kind, text in addresses]
    return Node(metadata=ObjectMeta(name=name), status=NodeStatus(addresses=found))


OWN = node("n1", ("InternalIP", "10.0.0.1"), ("ExternalIP", "192.0.2.1"), ("Hostname", "n1.lan"))
OTHER = node("n2", ("InternalIP", "10.0.0.2"), ("Hostname", "n2.lan"))


def general(text):
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def csr(
    *names, cn="system:node:n1", user="system:node:n1", groups=("system:nodes",), usages=USAGES
):
    subject = [
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
        x509.NameAttribute(NameOID.COMMON_NAME, cn),
    ]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    if names:
        alternative = x509.SubjectAlternativeName([general(n) for n in names])
        builder = builder.add_extension(alternative, critical=False)
    pem = builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    spec = SigningRequestSpec(
        request=pem,
        signer_name=certificates.KUBELET_SERVING,
        usages=list(usages),
        username=user,
        groups=list(groups),
    )
    return CertificateSigningRequest(metadata=ObjectMeta(name="x"), spec=spec)


def judged(request, own=OWN, others=(OTHER,)):
    return objection(request, own, others, RESERVED)


@pytest.mark.parametrize(
    "names", [("n1", "10.0.0.1"), ("10.0.0.1",), ("n1", "n1.lan", "10.0.0.1", "192.0.2.1")]
)
def test_a_nodes_own_names_and_addresses_are_approved(names):
    assert judged(csr(*names)) == ""


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (csr("n1", user="jane"), "no node"),
        (csr("n1", groups=("system:authenticated",)), "no node"),
        (csr("n1", user="system:node:n2"), "subject is not the requester"),
        (csr("n1", cn="system:node:n2"), "subject is not the requester"),
        (csr(), "subjectAltName is required"),
        (csr("n1", usages=["digital signature", "client auth"]), "usages"),
        (csr("n1", "10.0.0.9"), "10.0.0.9 is not among"),
        (csr("10.0.0.1", "example.com"), "example.com is not among"),
        (csr("*.n1"), "is not among"),
        (csr("n2"), "n2 is not among"),
    ],
)
def test_anything_else_is_left_to_a_person(request_, words):
    assert words in judged(request_)


def test_without_a_node_object_nothing_is_known():
    assert "no node n1" in judged(csr("n1"), None)
    assert "not among" in judged(csr("10.0.0.1"), node("n1"))  # its status has not come yet


@pytest.mark.parametrize(
    "claimed", ["10.0.0.2", "10.96.0.1", "10.0.0.100", "127.0.0.1", "0.0.0.0", "224.0.0.1", "::1"]
)
def test_a_node_that_claims_anothers_address_gets_no_certificate_for_it(claimed):
    liar = node("n1", ("InternalIP", claimed))
    assert judged(csr(claimed), liar)


@pytest.mark.parametrize(
    "name", ["kubernetes", "kubernetes.default.svc", "web.prod.svc.cluster.local", "localhost", "*"]
)
def test_a_node_that_is_called_like_the_api_server_or_a_service_gets_none(name):
    liar = node(name, ("Hostname", name))
    request = csr(name, cn=f"system:node:{name}", user=f"system:node:{name}")
    assert "no node may have" in judged(request, liar)


def test_a_name_of_another_node_is_not_shared():
    liar = node("n1", ("Hostname", "n2"))
    assert "another node's" in judged(csr("n2"), liar)
