"""Rules for PodCertificateRequests: whose certificate, for which key, and what a signer may answer.

The request holds a public key and the proof that whoever asks has the private one. A signer answers
once, with a certificate for that very key that lives no longer than was asked for; after that the
status stays.

Invariant: nothing here reads the clock; that a certificate begins about now is for the API server
to see.
"""

import base64
import binascii
import re
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa

from motley.api import names, pem
from motley.api.validation.errors import (
    IMMUTABLE,
    Document,
    Errors,
    duplicate,
    invalid,
    named,
    one_of,
    required,
    too_long,
    unsupported,
)
from motley.api.validation.projected import MIN_EXPIRATION_S, longest_s, user_annotations
from motley.api.validation.signer import signer_name
from motley.lib.clock import parse_rfc3339

ISSUED, DENIED, FAILED = "Issued", "Denied", "Failed"
_FINAL = (ISSUED, DENIED, FAILED)
_MAX_KEY_BYTES = 10 * 1024
_MAX_CHAIN_BYTES = 100 * 1024
_MAX_UID = 128
_REFRESH_S = 600.0  # a new certificate is asked for at least so long after and before
_OMITTED = "<value omitted>"
_CHAIN = "status.certificateChain"
_STUB, _KEY, _PROOF = "spec.stubPKCS10Request", "spec.pkixPublicKey", "spec.proofOfPossession"
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)

PublicKey = ed25519.Ed25519PublicKey | ec.EllipticCurvePublicKey | rsa.RSAPublicKey


def create(obj: Document) -> Errors:
    """A new PodCertificateRequest."""
    spec = obj.get("spec") or {}
    signer = spec.get("signerName", "")
    yield from signer_name("spec.signerName", signer)
    yield from user_annotations(
        "spec.unverifiedUserAnnotations", spec.get("unverifiedUserAnnotations")
    )
    for whose in ("pod", "serviceAccount", "node"):
        name, uid = spec.get(f"{whose}Name", ""), spec.get(f"{whose}UID", "")
        yield from named(f"spec.{whose}Name", name, names.check_dns_subdomain(name))
        if not uid:
            yield invalid(f"spec.{whose}UID", uid, "must not be empty")
        elif len(uid) > _MAX_UID:
            yield too_long(f"spec.{whose}UID", _MAX_UID)
    seconds = spec.get("maxExpirationSeconds")
    if seconds is None:
        yield required("spec.maxExpirationSeconds", "must be set")
        return
    longest = longest_s(signer)
    if not MIN_EXPIRATION_S <= seconds <= longest:
        detail = f"must be in the range [{MIN_EXPIRATION_S}, {longest}]"
        yield invalid("spec.maxExpirationSeconds", seconds, detail)
    stub, key = spec.get("stubPKCS10Request"), spec.get("pkixPublicKey")
    proof = spec.get("proofOfPossession")
    if stub and not key and not proof:
        yield from _stub(stub)
    elif key and proof and not stub:
        yield from _proven_key(key, proof, str(spec.get("podUID", "")))
    else:
        detail = (
            "exactly one of (stubPKCS10Request) or (pkixPublicKey, proofOfPossession) must be set"
        )
        yield invalid("spec", _OMITTED, detail)


def _bytes(text: Any) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


def _stub(text: str) -> Errors:
    data = _bytes(text)
    if len(data) > _MAX_KEY_BYTES:
        yield too_long(_STUB, _MAX_KEY_BYTES)
        return
    try:
        request = x509.load_der_x509_csr(data)
        key = request.public_key()
        is_signed = request.is_signature_valid
    except (ValueError, TypeError, UnsupportedAlgorithm):
        yield invalid(_STUB, _OMITTED, "must be a valid PKCS#10 CSR")
        return
    yield from _usable(_STUB, key, "P256, P384, or P521")
    if not is_signed:
        yield invalid(_STUB, _OMITTED, "invalid signature")


def _proven_key(text: str, proof_text: str, pod_uid: str) -> Errors:
    data, proof = _bytes(text), _bytes(proof_text)
    for field, size in ((_KEY, len(data)), (_PROOF, len(proof))):
        if size > _MAX_KEY_BYTES:
            yield too_long(field, _MAX_KEY_BYTES)
            return
    try:
        key = serialization.load_der_public_key(data)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        yield invalid(_KEY, text, "must be a valid PKIX-serialized public key")
        return
    wrong = list(_usable(_KEY, key, "P256 or P384"))
    if wrong:
        yield from wrong
    elif not _is_proof(key, proof, pod_uid.encode()):
        yield invalid(_PROOF, _OMITTED, "could not verify proof-of-possession signature")


def _usable(field: str, key: Any, curves: str) -> Errors:
    if isinstance(key, ec.EllipticCurvePublicKey):
        if not isinstance(key.curve, _CURVES):
            detail = f"elliptic public keys must use curve {curves}"
            yield invalid(field, f"curve {key.curve.name}", detail)
    elif isinstance(key, rsa.RSAPublicKey):
        if key.key_size not in (3072, 4096):
            detail = "RSA keys must have modulus size 3072 or 4096"
            yield invalid(field, f"{key.key_size}-bit modulus", detail)
    elif not isinstance(key, ed25519.Ed25519PublicKey):
        detail = "unknown public key type; supported types are Ed25519, ECDSA, and RSA"
        yield invalid(field, _OMITTED, detail)


def _is_proof(key: Any, proof: bytes, message: bytes) -> bool:
    try:
        if isinstance(key, ed25519.Ed25519PublicKey):
            key.verify(proof, message)
        elif isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(proof, message, ec.ECDSA(hashes.SHA256()))
        elif isinstance(key, rsa.RSAPublicKey):
            scheme = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.AUTO)
            key.verify(proof, message, scheme, hashes.SHA256())
    except InvalidSignature:
        return False
    return True


def update(new: Document, old: Document) -> Errors:
    """A changed request asks for the same."""
    if (new.get("spec") or {}) != (old.get("spec") or {}):
        yield invalid("spec", new.get("spec"), IMMUTABLE)


def status(new: Document, old: Document) -> Errors:
    """A signer's answer: given once, whole, and for the key that was asked for."""
    now, before = new.get("status") or {}, old.get("status") or {}
    conditions = now.get("conditions") or []
    wrong = list(_conditions(conditions))
    if wrong:
        yield from wrong
        return
    if _decided(before):
        if now != before:
            detail = "immutable after PodCertificateRequest is issued, denied, or failed"
            yield invalid("status", _OMITTED, detail)
        return
    decision = _decided(now)
    if decision == ISSUED:
        yield from _issued(now, old.get("spec") or {})
    elif decision:
        if any(value for key, value in now.items() if key != "conditions"):
            detail = "non-condition status fields must be empty when denying or failing the "
            yield invalid("status", _OMITTED, f"{detail}PodCertificateRequest")
    elif now != before:
        detail = 'status is immutable unless transitioning to "Issued", "Denied", or "Failed"'
        yield invalid("status", _OMITTED, detail)


def _decided(status: Document) -> str:
    found = [c.get("type", "") for c in status.get("conditions") or () if c.get("status") == "True"]
    return next((kind for kind in found if kind in _FINAL), "")


def _conditions(conditions: list[Document]) -> Errors:
    known = 0
    for index, condition in enumerate(conditions):
        field, kind = f"status.conditions[{index}]", condition.get("type", "")
        if kind not in _FINAL:
            yield unsupported(f"{field}.type", kind, _FINAL)
            continue
        known += 1
        if known > 1:
            detail = 'There may be at most one condition with type "Issued", "Denied", or "Failed"'
            yield invalid(f"{field}.type", kind, detail)
        yield from one_of(f"{field}.status", condition.get("status", ""), ("True",))
        if kind in [c.get("type") for c in conditions[:index]]:
            yield duplicate(f"{field}.type", kind)
        if not condition.get("lastTransitionTime"):
            yield required(f"{field}.lastTransitionTime")
        reason = condition.get("reason", "")
        if not reason:
            yield required(f"{field}.reason", "must not be empty")
        elif not _REASON.fullmatch(reason):
            detail = "a condition reason must start with alphabetic character"
            yield invalid(f"{field}.reason", reason, detail)


def _issued(status: Document, spec: Document) -> Errors:
    chain = status.get("certificateChain") or ""
    if len(chain.encode()) > _MAX_CHAIN_BYTES:
        yield too_long(_CHAIN, _MAX_CHAIN_BYTES)
        return
    blocks = list(pem.blocks(chain))
    if not blocks:
        detail = "issued certificate chain must contain at least one certificate"
        yield invalid(_CHAIN, chain, detail)
        return
    if any(block.kind != pem.CERTIFICATE for block in blocks):
        detail = "issued certificate chain must consist entirely of CERTIFICATE PEM blocks"
        yield invalid(_CHAIN, chain, detail)
        return
    parsed = []
    for index, block in enumerate(blocks):
        which = "intermediate" if index else "leaf"
        try:
            certificate = x509.load_der_x509_certificate(block.data)
            if not index:  # read lazily, and of the leaf more is asked below
                _ = certificate.extensions, certificate.not_valid_before_utc
            parsed.append((certificate, _public(certificate.public_key())))
        except (ValueError, TypeError, UnsupportedAlgorithm):
            yield invalid(_CHAIN, chain, f"{which} certificate does not parse as valid X.509")
            return
    leaf, key = parsed[0]
    yield from _leaf_names(leaf)
    if key != _requested_key(spec):
        detail = "leaf certificate was not issued to the requested public key"
        yield invalid(_CHAIN, chain, detail)
        return
    yield from _times(status, spec, leaf)


def _public(key: Any) -> bytes:
    data: bytes = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return data


def _requested_key(spec: Document) -> bytes:
    if stub := spec.get("stubPKCS10Request"):
        return _public(x509.load_der_x509_csr(_bytes(stub)).public_key())
    return _public(serialization.load_der_public_key(_bytes(spec.get("pkixPublicKey", ""))))


def _leaf_names(leaf: x509.Certificate) -> Errors:
    try:
        found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return
    for name in found.get_values_for_type(x509.DNSName):
        if not name:
            yield invalid(_CHAIN, name, "leaf certificate should not contain empty DNSName")
        if ".." in name:
            detail = "leaf certificate's DNSName should not contain '..'"
            yield invalid(_CHAIN, name, detail)
        if name.startswith(".") or name.endswith("."):
            detail = "leaf certificate's DNSName should not start or end with '.'"
            yield invalid(_CHAIN, name, detail)


def _times(status: Document, spec: Document, leaf: x509.Certificate) -> Errors:
    consistent = "must be present and consistent with the issued certificate"
    details = {
        "notBefore": consistent,
        "notAfter": consistent,
        "beginRefreshAt": "must be present and in the range [notbefore+10min, notafter-10min]",
    }
    missing = [name for name in details if not status.get(name)]
    for name in missing:
        yield required(f"status.{name}", details[name])
    if missing:
        return
    begins, ends = leaf.not_valid_before_utc.timestamp(), leaf.not_valid_after_utc.timestamp()
    for name, own, encoded in (("notBefore", begins, "NotBefore"), ("notAfter", ends, "NotAfter")):
        if parse_rfc3339(status[name]) != own:
            detail = f"must be set to the {encoded} time encoded in the leaf certificate"
            yield invalid(f"status.{name}", status[name], detail)
            return
    life_s, longest = ends - begins, spec.get("maxExpirationSeconds") or 0
    if life_s < MIN_EXPIRATION_S:
        yield invalid(_CHAIN, f"{life_s:.0f}s", "leaf certificate lifetime must be >= 1 hour")
        return
    if life_s > longest:
        detail = f"leaf certificate lifetime must be <= spec.maxExpirationSeconds ({longest})"
        yield invalid(_CHAIN, f"{life_s:.0f}s", detail)
        return
    refresh = parse_rfc3339(status["beginRefreshAt"])
    if refresh < begins + _REFRESH_S:
        detail = "must be at least 10 minutes after status.notBefore"
        yield invalid("status.beginRefreshAt", status["beginRefreshAt"], detail)
    elif refresh > ends - _REFRESH_S:
        detail = "must be at least 10 minutes before status.notAfter"
        yield invalid("status.beginRefreshAt", status["beginRefreshAt"], detail)
