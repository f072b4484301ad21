"""What the signers sign and refuse, and how long requests are kept."""

from ipaddress import ip_address

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from motley.api.views.certificates import CertificateSigningRequest, RequestCondition
from motley.apiserver import tls
from motley.controllers import certificates
from motley.controllers.certificates import CLIENT, KUBELET_CLIENT, KUBELET_SERVING, Refused
from motley.controllers.csrsigning import ends
from motley.lib import clock as clocks

NOW = 1_800_000_000.0
CLIENT_USAGES = ["digital signature", "client auth"]
SERVER_USAGES = ["digital signature", "key encipherment", "server auth"]


def request(cn="system:node:n1", org="system:nodes", names=()):
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, org)] if org else []
    subject.append(x509.NameAttribute(NameOID.COMMON_NAME, cn))
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(subject))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(list(names)), critical=False)
    key = ec.generate_private_key(ec.SECP256R1())
    return builder.sign(key, hashes.SHA256())


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    pki = tls.ensure(tmp_path_factory.mktemp("pki"), addresses=["127.0.0.1"])
    return certificates.Authority.load(pki.ca_pem, pki.ca_key_pem)


def test_a_nodes_client_certificate_says_who_and_what_for(authority):
    pem = authority.sign(request(), CLIENT_USAGES, 3600, NOW, 7)
    made = x509.load_pem_x509_certificate(pem)
    made.verify_directly_issued_by(authority.certificate)
    assert made.subject.rfc4514_string() == "CN=system:node:n1,O=system:nodes"
    usage = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    bits = made.extensions.get_extension_for_class(x509.KeyUsage).value
    assert (bits.digital_signature, bits.key_encipherment, bits.key_cert_sign) == (
        True,
        False,
        False,
    )
    assert not made.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert made.not_valid_after_utc.timestamp() == NOW + 3600
    assert made.serial_number == 7


@pytest.mark.parametrize(("lasts_s", "since_s"), [(3600, 300), (8 * 3600, 300), (86400, 6 * 3600)])
def test_a_short_life_begins_just_now_and_a_long_one_hours_ago(authority, lasts_s, since_s):
    pem = authority.sign(request(), CLIENT_USAGES, lasts_s, NOW, 7)
    made = x509.load_pem_x509_certificate(pem)
    assert made.not_valid_before_utc.timestamp() == NOW - since_s


def test_no_certificate_outlives_its_authority(authority):
    pem = authority.sign(request(), CLIENT_USAGES, 100 * 365 * 86400.0, NOW, 1)
    made = x509.load_pem_x509_certificate(pem)
    assert made.not_valid_after_utc == authority.certificate.not_valid_after_utc


def test_a_serving_certificate_keeps_its_names(authority):
    names = [x509.DNSName("n1"), x509.IPAddress(ip_address("10.0.0.1"))]
    asked = request(names=names)
    certificates.validate(KUBELET_SERVING, asked, SERVER_USAGES)
    made = x509.load_pem_x509_certificate(authority.sign(asked, SERVER_USAGES, 60, NOW, 1))
    found = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert list(found) == names


@pytest.mark.parametrize(
    ("signer", "asked", "usages", "words"),
    [
        (KUBELET_CLIENT, {"org": "system:masters"}, CLIENT_USAGES, "not system:nodes"),
        (KUBELET_CLIENT, {"org": ""}, CLIENT_USAGES, "not system:nodes"),
        (KUBELET_CLIENT, {"cn": "jane"}, CLIENT_USAGES, "does not begin with system:node:"),
        (KUBELET_CLIENT, {}, SERVER_USAGES, "usages did not match"),
        (KUBELET_CLIENT, {}, [*CLIENT_USAGES, "server auth"], "usages did not match"),
        (KUBELET_CLIENT, {"names": [x509.DNSName("x")]}, CLIENT_USAGES, "not allowed"),
        (KUBELET_SERVING, {}, SERVER_USAGES, "subjectAltName is required"),
        (
            KUBELET_SERVING,
            {"names": [x509.DNSName("x"), x509.RFC822Name("a@b")]},
            SERVER_USAGES,
            "email and URI",
        ),
        (KUBELET_SERVING, {"names": [x509.DNSName("x")]}, CLIENT_USAGES, "usages did not match"),
        (CLIENT, {"cn": "jane", "org": "dev"}, SERVER_USAGES, "usages did not match"),
    ],
)
def test_what_a_signer_does_not_stand_for_is_refused(signer, asked, usages, words):
    with pytest.raises(Refused, match=words):
        certificates.validate(signer, request(**asked), usages)


def test_a_person_may_have_a_client_certificate():
    certificates.validate(CLIENT, request(cn="jane", org="dev"), ["client auth"])


def test_nonsense_and_a_forged_request_are_refused():
    with pytest.raises(Refused, match="unable to parse"):
        certificates.parse(b"nonsense")
    der = bytearray(request().public_bytes(serialization.Encoding.DER))
    at = bytes(der).index(b"system:node:n1")
    der[at + 13] = ord("2")  # another node's name under the same signature
    forged = x509.load_der_x509_csr(bytes(der)).public_bytes(serialization.Encoding.PEM)
    with pytest.raises(Refused, match="signature"):
        certificates.parse(forged)


def test_an_unknown_usage_is_refused(authority):
    with pytest.raises(Refused, match="unrecognized usage values: \\['magic'\\]"):
        authority.sign(request(), ["magic"], 60, NOW, 1)


def test_a_key_of_another_certificate_is_no_authority(authority):
    other = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    pem = authority.certificate.public_bytes(serialization.Encoding.PEM)
    with pytest.raises(ValueError, match="not the key of"):
        certificates.Authority.load(pem, other)


@pytest.mark.parametrize(
    ("condition", "certificate", "kept_s"),
    [(None, False, 24 * 3600), ("Denied", False, 3600), ("Failed", False, 3600)],
)
def test_requests_are_kept_as_long_as_people_look_at_them(condition, certificate, kept_s):
    conditions = [{"type": condition, "lastUpdateTime": clocks.rfc3339(NOW)}] if condition else []
    csr = CertificateSigningRequest.of(
        {
            "metadata": {"name": "a", "creationTimestamp": clocks.rfc3339(NOW)},
            "status": {"conditions": conditions},
        }
    )
    assert ends(csr) == NOW + kept_s


def test_an_issued_request_goes_after_an_hour_or_with_its_certificate(authority):
    def issued(lasts_s):
        pem = authority.sign(request(), CLIENT_USAGES, lasts_s, NOW, 1)
        csr = CertificateSigningRequest.of({"metadata": {"name": "a"}})
        csr.metadata.creation_timestamp = clocks.rfc3339(NOW)
        csr.status.certificate = pem
        csr.status.conditions = [
            certificate_condition("Approved"),
        ]
        return csr

    assert ends(issued(86400)) == NOW + 3600
    assert ends(issued(600)) == NOW + 600


def certificate_condition(kind):
    return RequestCondition(type=kind, status="True", last_update_time=clocks.rfc3339(NOW))
