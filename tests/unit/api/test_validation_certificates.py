"""Bundles of what to trust, requests for pods' certificates, and volumes made of both."""

import base64
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from motley.api import defaults, pem, scheme, validation
from motley.lib.clock import rfc3339
from motley.node import keys

KINDS = {kind.kind: kind for kind in scheme.kinds() if kind.stored_as is None}
NOW = 1_800_000_000.0
SIGNER = "example.com/spiffe"
# An authority that says nothing of its number (0) and its time (from and to the year 1).
ODD_AUTHORITY = (
    "MIHjMIGWoAMCAQICAQAwBQYDK2VwMA8xDTALBgNVBAMMBHJvb3QwIhgPMDAwMTAxMDEwMDAwMDBaGA8wMDAxMDEwMT"
    "AwMDAwMFowDzENMAsGA1UEAwwEcm9vdDAqMAUGAytlcAMhAED8dKpxT0/JwsUw2rhPRfbwmvkDMVwDPh9CDGkckbHM"
    "oxMwETAPBgNVHRMBAf8EBTADAQH/MAUGAytlcANBAI0tz6o3jvwGhOO8RY5o4TYnaQsBiralG5zDT6utwPnv3eHWex"
    "S3vf5LdBDBzJmhcIMF3yuT2ld0K4eg6peDzwQ="
)


def problems(kind: str, obj: dict[str, Any]) -> list[str]:
    defaults.apply(KINDS[kind], obj)
    return [f"{e.field}: {e.message}" for e in validation.create(KINDS[kind], obj)]


def changes(kind: str, old: dict[str, Any], new: dict[str, Any], part: str = "") -> list[str]:
    return [f"{e.field}: {e.message}" for e in validation.update(KINDS[kind], new, old, part)]


# -- trust bundles


@pytest.fixture
def bundle(certificate_signer):
    anchor = certificate_signer().anchor

    def made(name: str, signer: str = "", text: str = anchor) -> dict[str, Any]:
        spec = {"signerName": signer, "trustBundle": text} if signer else {"trustBundle": text}
        return {"metadata": {"name": name}, "spec": spec}

    return made


def test_a_bundle_of_a_signer_bears_its_name_and_any_other_none(bundle):
    kind = "ClusterTrustBundle"

    assert problems(kind, bundle("example.com:spiffe:v1", SIGNER)) == []
    assert problems(kind, bundle("anchors")) == []
    assert problems(kind, bundle("spiffe", SIGNER)) == [
        'metadata.name: Invalid value: "spiffe": ClusterTrustBundle for signerName '
        "example.com/spiffe must be named with prefix example.com:spiffe:"
    ]
    assert problems(kind, bundle("example.com:spiffe:v1")) == [
        'metadata.name: Invalid value: "example.com:spiffe:v1": ClusterTrustBundle without signer '
        'name must not have ":" in its name'
    ]
    assert "lowercase RFC 1123" in problems(kind, bundle("example.com:spiffe:A", SIGNER))[0]
    assert problems(kind, bundle("a:b:c", "a/b"))[0].startswith("spec.signerName: Invalid value")


def test_a_bundle_holds_certificates_of_authorities_and_each_once(bundle, certificate_signer):
    authority = certificate_signer()
    leaf = authority.issue(base64.b64encode(keys.make("ECDSAP256").stub).decode(), NOW)

    def told(text: str) -> list[str]:
        head = 'spec.trustBundle: Invalid value: "<value omitted>": '
        return [p.removeprefix(head) for p in problems("ClusterTrustBundle", bundle("b", "", text))]

    headed = authority.anchor.replace("-----\n", "-----\nA: b\n\n", 1)
    assert told("") == ["at least one trust anchor must be provided"]
    assert told(pem.encode("PRIVATE KEY", b"x")) == ["entry 0 has bad block type: PRIVATE KEY"]
    assert told(authority.anchor + headed) == ["entry 1 has PEM block headers"]
    assert told(pem.encode("CERTIFICATE", b"\x30\x82")) == ["entry 0 does not parse as X.509"]
    assert told(leaf) == ["entry 0 does not have the CA bit set"]
    assert told(authority.anchor * 2) == ["duplicate trust anchor (indices [0 1])"]
    assert told(authority.anchor + certificate_signer().anchor) == []
    assert told("x" * (1 << 20) + "y")[0].endswith("may not be more than 1048576 bytes")


def test_an_anchor_is_not_asked_for_its_number_nor_its_time(bundle):
    text = pem.encode("CERTIFICATE", base64.b64decode(ODD_AUTHORITY))

    assert problems("ClusterTrustBundle", bundle("b", "", text)) == []


def test_a_bundle_keeps_its_signer_and_is_not_judged_again(bundle):
    old = bundle("example.com:spiffe:v1", SIGNER, "what an earlier server took")
    labelled = {**old, "metadata": {**old["metadata"], "labels": {"a": "b"}}}

    assert changes("ClusterTrustBundle", old, labelled) == []
    other = {**old, "spec": {**old["spec"], "trustBundle": "another"}}
    assert "at least one trust anchor" in changes("ClusterTrustBundle", old, other)[0]
    moved = {**old, "spec": {**old["spec"], "signerName": "example.com/other"}}
    assert any("field is immutable" in p for p in changes("ClusterTrustBundle", old, moved))


# -- requests for certificates


def request(stub: bytes | None = None, **spec: Any) -> dict[str, Any]:
    whole = {
        "signerName": SIGNER,
        "podName": "p",
        "podUID": "u-1",
        "serviceAccountName": "default",
        "serviceAccountUID": "u-2",
        "nodeName": "node-1",
        "nodeUID": "u-3",
        "stubPKCS10Request": base64.b64encode(stub or keys.make("ECDSAP256").stub).decode(),
    }
    return {"metadata": {"name": "req-1", "namespace": "demo"}, "spec": {**whole, **spec}}


@pytest.mark.parametrize("kind", ["ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"])
def test_a_request_proves_its_key_and_is_for_a_day(kind):
    made = request(keys.make(kind).stub)

    assert problems("PodCertificateRequest", made) == []
    assert made["spec"]["maxExpirationSeconds"] == 86400


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"signerName": "spiffe"}, "spec.signerName: Invalid value"),
        ({"podUID": ""}, 'spec.podUID: Invalid value: "": must not be empty'),
        ({"nodeUID": "x" * 129}, "spec.nodeUID: Too long"),
        ({"serviceAccountName": "A"}, "spec.serviceAccountName: Invalid value"),
        ({"maxExpirationSeconds": 60}, "must be in the range [3600, 7862400]"),
        (
            {"signerName": "kubernetes.io/x", "maxExpirationSeconds": 86401},
            "must be in the range [3600, 86400]",
        ),
        ({"stubPKCS10Request": ""}, "exactly one of (stubPKCS10Request) or"),
        ({"stubPKCS10Request": "AAAA"}, "must be a valid PKCS#10 CSR"),
        ({"unverifiedUserAnnotations": {"path": "x"}}, "must be a domain-prefixed key"),
    ],
)
def test_a_request_that_breaks_a_rule_is_told_which(spec, expected):
    (told,) = problems("PodCertificateRequest", request(**spec))

    assert expected in told


def test_a_request_signed_by_another_key_proves_nothing():
    stub = bytearray(keys.make("ED25519").stub)
    stub[-1] ^= 1

    (told,) = problems("PodCertificateRequest", request(bytes(stub)))

    assert told.endswith("invalid signature")


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (rsa.generate_private_key(public_exponent=65537, key_size=2048), "2048-bit modulus"),
        (ec.generate_private_key(ec.SECP256K1()), "must use curve P256, P384, or P521"),
    ],
)
def test_a_weak_or_foreign_key_is_refused(key, expected):
    made = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    stub = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)

    (told,) = problems("PodCertificateRequest", request(stub))

    assert expected in told


def test_a_key_may_be_proven_by_signing_the_uid_of_the_pod():
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )

    def proven(message: bytes) -> list[str]:
        proof = key.sign(message, ec.ECDSA(hashes.SHA256()))
        fields = {"pkixPublicKey": public, "proofOfPossession": proof}
        encoded = {name: base64.b64encode(data).decode() for name, data in fields.items()}
        return problems("PodCertificateRequest", request(stubPKCS10Request="", **encoded))

    assert proven(b"u-1") == []
    assert "could not verify proof-of-possession signature" in proven(b"u-2")[0]


def test_what_was_asked_for_stays(certificate_signer):
    old = request()
    new = {**old, "spec": {**old["spec"], "podName": "q"}}

    assert "field is immutable" in changes("PodCertificateRequest", old, new)[0]


@pytest.fixture
def answered(certificate_signer):
    """A request and a sound answer to it."""
    old = request(maxExpirationSeconds=7200)
    chain = certificate_signer().issue(old["spec"]["stubPKCS10Request"], NOW, 7200)
    status = {
        "certificateChain": chain,
        "notBefore": rfc3339(NOW),
        "notAfter": rfc3339(NOW + 7200),
        "beginRefreshAt": rfc3339(NOW + 3600),
        "conditions": [condition("Issued")],
    }
    return old, status


def condition(kind: str, state: str = "True") -> dict[str, str]:
    when = rfc3339(NOW)
    return {"type": kind, "status": state, "reason": "Because", "lastTransitionTime": when}


def test_a_signer_answers_once_and_whole(answered):
    old, status = answered

    def told(status: dict[str, Any], before: dict[str, Any] | None = None) -> list[str]:
        known = {**old, "status": before} if before else old
        return changes("PodCertificateRequest", known, {**old, "status": status}, "status")

    assert told(status) == []
    assert told({"conditions": [condition("Denied")]}) == []
    assert told(status, before=status) == []
    late = {**status, "beginRefreshAt": rfc3339(NOW + 3601)}
    assert told(late, before=status)[0].endswith("is issued, denied, or failed")
    assert told({**status, "conditions": []})[0].startswith("status: ")
    assert told({**status, "conditions": [condition("Failed")]})[0].startswith("status: ")
    two = {**status, "conditions": [condition("Issued"), condition("Denied")]}
    assert "There may be at most one condition" in told(two)[0]
    assert "Unsupported value" in told({"conditions": [condition("Issued", "False")]})[0]
    assert "Unsupported value" in told({"conditions": [condition("Approved")]})[0]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"certificateChain": ""}, "must contain at least one certificate"),
        ({"certificateChain": pem.encode("KEY", b"x")}, "entirely of CERTIFICATE PEM blocks"),
        ({"certificateChain": pem.encode("CERTIFICATE", b"x")}, "does not parse as valid X.509"),
        ({"notBefore": None}, "status.notBefore: Required value"),
        ({"notAfter": rfc3339(NOW + 7201)}, "the NotAfter time encoded in the leaf certificate"),
        ({"beginRefreshAt": rfc3339(NOW + 599)}, "at least 10 minutes after status.notBefore"),
        ({"beginRefreshAt": rfc3339(NOW + 6601)}, "at least 10 minutes before status.notAfter"),
    ],
)
def test_an_answer_that_does_not_hold_together_is_refused(answered, change, expected):
    old, status = answered

    (told,) = changes(
        "PodCertificateRequest", old, {**old, "status": {**status, **change}}, "status"
    )

    assert expected in told


def test_a_certificate_is_for_the_key_and_the_time_asked_for(answered, certificate_signer):
    old, status = answered
    signer = certificate_signer()

    def told(chain: str, lasts_s: float) -> str:
        new = {**status, "certificateChain": chain, "notAfter": rfc3339(NOW + lasts_s)}
        (one,) = changes("PodCertificateRequest", old, {**old, "status": new}, "status")
        return one

    stub = old["spec"]["stubPKCS10Request"]
    other = request()["spec"]["stubPKCS10Request"]
    assert "not issued to the requested public key" in told(signer.issue(other, NOW, 7200), 7200)
    assert "must be <= spec.maxExpirationSeconds (7200)" in told(
        signer.issue(stub, NOW, 7201), 7201
    )
    assert "lifetime must be >= 1 hour" in told(signer.issue(stub, NOW, 3599), 3599)


# -- volumes


def volume(*sources: dict[str, Any]) -> list[str]:
    spec = {
        "containers": [{"name": "c", "image": "x"}],
        "volumes": [{"name": "v", "projected": {"sources": list(sources)}}],
    }
    obj = {"metadata": {"name": "p", "namespace": "demo"}, "spec": spec}
    return [
        p.removeprefix("spec.volumes[0].projected").lstrip(".")
        for p in problems("Pod", obj)
        if not p.startswith("spec.containers")
    ]


def certificate(**changed: Any) -> dict[str, Any]:
    sound = {"signerName": SIGNER, "keyType": "ED25519", "credentialBundlePath": "c.pem"}
    return {"podCertificate": {**sound, **changed}}


def trust(**changed: Any) -> dict[str, Any]:
    return {"clusterTrustBundle": {"path": "t.pem", **changed}}


def test_volumes_of_bundles_and_certificates_may_stand_in_a_pod():
    everything = {"labelSelector": {}, "signerName": SIGNER}
    named = trust(name="example.com:spiffe:v1", path="n.pem")

    assert volume(certificate(), trust(**everything), named) == []


@pytest.mark.parametrize(
    ("sources", "expected"),
    [
        ([trust()], "clusterTrustBundle: Required value: either name or signerName"),
        ([trust(name="a", signerName=SIGNER)], "only one of name and signerName may be used"),
        ([trust(name="a:b:C")], "not a valid clustertrustbundlename"),
        ([trust(name="a", labelSelector={})], "labelSelector must be unset if name is specified"),
        ([trust(name="a", path="..data")], "must not start with '..'"),
        ([trust(name="a", path="/etc")], "must be a relative path"),
        ([trust(name="a"), trust(name="b")], 'Invalid value: "t.pem": conflicting duplicate paths'),
        ([trust(name="a") | certificate()], "may not specify more than 1 volume type per source"),
        ([certificate(keyType="DSA")], 'keyType: Unsupported value: "DSA"'),
        ([certificate(signerName="x")], "podCertificate.signerName: Invalid value"),
        ([certificate(maxExpirationSeconds=3599)], "maxExpirationSeconds must be >= 3600"),
        ([certificate(maxExpirationSeconds=7862401)], "maxExpirationSeconds must be <= 7862400"),
        (
            [certificate(signerName="kubernetes.io/x", maxExpirationSeconds=86401)],
            "maxExpirationSeconds must be <= 86400",
        ),
        ([certificate(credentialBundlePath="")], "specify at least one of credentialBundlePath"),
        ([certificate(keyPath="c.pem")], "conflicting duplicate paths"),
        ([certificate(userAnnotations={"x": "y"})], "must be a domain-prefixed key"),
    ],
)
def test_a_volume_that_breaks_a_rule_is_told_which(sources, expected):
    (told,) = volume(*sources)

    assert expected in told
