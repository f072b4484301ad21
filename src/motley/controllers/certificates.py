"""What the cluster's signers will sign, and the signing itself. Pure but for the signature.

Each signer name promises what its certificates are good for; a request that asks for more is
refused with the rule it breaks. The rules are those of Kubernetes' own signers.
Invariant: a certificate never outlives the authority that signed it, nor carries a usage, a name
or an organisation that its signer does not stand for.
"""

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

KUBELET_CLIENT = "kubernetes.io/kube-apiserver-client-kubelet"
KUBELET_SERVING = "kubernetes.io/kubelet-serving"
CLIENT = "kubernetes.io/kube-apiserver-client"
LEGACY = "kubernetes.io/legacy-unknown"
PROXY = "system:kube-proxy"

_NODE_PREFIX, _NODES = "system:node:", "system:nodes"
_BACKDATE = dt.timedelta(hours=6)  # for machines whose clocks are behind, or will be put back
# Who asks for a short life wants it short on both sides: Kubernetes' limits for both.
_SHORT = dt.timedelta(hours=8)
_SHORT_BACKDATE = dt.timedelta(minutes=5)
_KEY_USAGES = {
    "digital signature": "digital_signature",
    "signing": "digital_signature",
    "content commitment": "content_commitment",
    "key encipherment": "key_encipherment",
    "key agreement": "key_agreement",
    "data encipherment": "data_encipherment",
    "cert sign": "key_cert_sign",
    "crl sign": "crl_sign",
}
_EXTENDED = {
    "client auth": ExtendedKeyUsageOID.CLIENT_AUTH,
    "server auth": ExtendedKeyUsageOID.SERVER_AUTH,
    "code signing": ExtendedKeyUsageOID.CODE_SIGNING,
    "email protection": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "timestamping": ExtendedKeyUsageOID.TIME_STAMPING,
    "ocsp signing": ExtendedKeyUsageOID.OCSP_SIGNING,
    "any": ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,
}
_CLIENT_USAGES = frozenset({"digital signature", "key encipherment", "client auth"})
_SERVER_USAGES = frozenset({"digital signature", "key encipherment", "server auth"})

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey


class Refused(Exception):
    """The signer does not sign this; the message is the rule it breaks."""


def parse(pem: bytes) -> x509.CertificateSigningRequest:
    """The request of a PEM block, its own signature checked. Raises Refused."""
    try:
        request = x509.load_pem_x509_csr(pem)
        valid = request.is_signature_valid
    except (ValueError, UnsupportedAlgorithm) as error:
        raise Refused(f"unable to parse csr: {error}") from None
    if not valid:
        raise Refused("unable to parse csr: its signature is not valid")
    return request


def validate(signer: str, request: x509.CertificateSigningRequest, usages: list[str]) -> None:
    """Raises Refused when the signer does not stand for what is asked."""
    _RULES[signer](request, frozenset(usages))


def is_node_client(request: x509.CertificateSigningRequest, usages: list[str]) -> bool:
    """Is this what a node agent asks when it joins?"""
    try:
        _kubelet_client(request, frozenset(usages))
    except Refused:
        return False
    return True


def is_proxy_client(request: x509.CertificateSigningRequest, usages: list[str]) -> bool:
    """Is this what the proxy beside a node agent asks for: its one name, and nothing more?"""
    return (
        common_name(request) == PROXY
        and len(request.subject) == 1
        and alternative_names(request) is None
        and "client auth" in usages
        and not set(usages) - _CLIENT_USAGES
    )


def common_name(request: x509.CertificateSigningRequest) -> str:
    """Whom the certificate would name."""
    names = request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if names else ""


def _organizations(request: x509.CertificateSigningRequest) -> list[str]:
    found = request.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return [str(one.value) for one in found]


def alternative_names(
    request: x509.CertificateSigningRequest,
) -> x509.SubjectAlternativeName | None:
    """What the certificate would be good for."""
    try:
        extension = request.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return None
    return extension.value


def _of_a_node(request: x509.CertificateSigningRequest) -> None:
    if _organizations(request) != [_NODES]:
        raise Refused("subject organization is not system:nodes")
    if not common_name(request).startswith(_NODE_PREFIX):
        raise Refused("subject common name does not begin with system:node: ")


def _only(usages: frozenset[str], allowed: frozenset[str], needed: str) -> None:
    if needed not in usages or usages - allowed or "digital signature" not in usages:
        raise Refused(f"usages did not match {{{', '.join(sorted(allowed))}}}")


def _kubelet_client(request: x509.CertificateSigningRequest, usages: frozenset[str]) -> None:
    _of_a_node(request)
    if alternative_names(request):
        raise Refused("DNS, IP, email and URI subjectAltNames are not allowed")
    _only(usages, _CLIENT_USAGES, "client auth")


def _kubelet_serving(request: x509.CertificateSigningRequest, usages: frozenset[str]) -> None:
    _of_a_node(request)
    names = alternative_names(request)
    dns = names.get_values_for_type(x509.DNSName) if names else []
    addresses = names.get_values_for_type(x509.IPAddress) if names else []
    if not dns and not addresses:
        raise Refused("DNS or IP subjectAltName is required")
    if names and len(dns) + len(addresses) != len(names):
        raise Refused("email and URI subjectAltNames are not allowed")
    _only(usages, _SERVER_USAGES, "server auth")


def _client(request: x509.CertificateSigningRequest, usages: frozenset[str]) -> None:
    allowed = _CLIENT_USAGES | {"any"}
    if "client auth" not in usages or usages - allowed:
        raise Refused("usages did not match {client auth}")


def _anything(request: x509.CertificateSigningRequest, usages: frozenset[str]) -> None:
    """`legacy-unknown` promises nothing, so nothing is against its promise."""


_RULES: dict[str, Callable[[x509.CertificateSigningRequest, frozenset[str]], None]] = {
    KUBELET_CLIENT: _kubelet_client,
    KUBELET_SERVING: _kubelet_serving,
    CLIENT: _client,
    LEGACY: _anything,
}
SIGNERS = tuple(_RULES)


@dataclass(frozen=True)
class Authority:
    """A certificate authority with its key."""

    certificate: x509.Certificate
    key: PrivateKey
    chain: bytes = b""

    @classmethod
    def load(cls, certificate: bytes, key: bytes) -> "Authority":
        """From PEM files. Raises ValueError when they are none, or do not belong together."""
        # The newest comes first in a bundle of several; it is the one that signs.
        first = x509.load_pem_x509_certificates(certificate)[0]
        private = serialization.load_pem_private_key(key, None)
        if not isinstance(private, PrivateKey):
            raise ValueError("the signing key is neither EC, RSA nor Ed25519")
        if private.public_key() != first.public_key():
            raise ValueError("the signing key is not the key of the signing certificate")
        return cls(first, private)

    def sign(
        self,
        request: x509.CertificateSigningRequest,
        usages: list[str],
        lasts_s: float,
        now: float,
        serial: int,
    ) -> bytes:
        """A certificate of what was asked, in PEM. Raises Refused for a usage nobody knows."""
        unknown = [u for u in usages if u not in _KEY_USAGES and u not in _EXTENDED]
        if unknown:
            raise Refused(f"unrecognized usage values: {unknown}")
        begins = dt.datetime.fromtimestamp(int(now), dt.UTC)
        lasts = dt.timedelta(seconds=int(lasts_s))
        ends = begins + lasts
        backdate = _BACKDATE if lasts > _SHORT else _SHORT_BACKDATE
        builder = (
            x509.CertificateBuilder()
            .subject_name(request.subject)
            .issuer_name(self.certificate.subject)
            .public_key(request.public_key())
            .serial_number(serial)
            .not_valid_before(max(begins - backdate, self.certificate.not_valid_before_utc))
            .not_valid_after(min(ends, self.certificate.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(usages), critical=True)
        )
        extended = [_EXTENDED[u] for u in usages if u in _EXTENDED]
        if extended:
            builder = builder.add_extension(x509.ExtendedKeyUsage(extended), critical=False)
        names = alternative_names(request)
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = builder.add_extension(identifier, critical=False)
        digest = None if isinstance(self.key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
        return builder.sign(self.key, digest).public_bytes(serialization.Encoding.PEM)


def _key_usage(usages: list[str]) -> x509.KeyUsage:
    bits = {_KEY_USAGES[u]: True for u in usages if u in _KEY_USAGES}
    agreement = "key_agreement" in bits
    return x509.KeyUsage(
        digital_signature="digital_signature" in bits,
        content_commitment="content_commitment" in bits,
        key_encipherment="key_encipherment" in bits,
        data_encipherment="data_encipherment" in bits,
        key_agreement=agreement,
        key_cert_sign="key_cert_sign" in bits,
        crl_sign="crl_sign" in bits,
        encipher_only=agreement and "encipher only" in usages,
        decipher_only=agreement and "decipher only" in usages,
    )


def expires(pem: bytes) -> float | None:
    """When the first certificate of a PEM text ends, or None when it holds none."""
    try:
        return x509.load_pem_x509_certificates(pem)[0].not_valid_after_utc.timestamp()
    except ValueError:
        return None
