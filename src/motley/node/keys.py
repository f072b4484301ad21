"""Private keys for the certificates of pods, each with the proof that it is had.

The proof is a certificate request that says nothing: who the pod is stands in the object around it,
where the API server can check it.
"""

from collections.abc import Callable
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from motley.node.environment import ConfigError

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey

_TYPES: dict[str, Callable[[], PrivateKey]] = {
    "RSA3072": lambda: rsa.generate_private_key(public_exponent=65537, key_size=3072),
    "RSA4096": lambda: rsa.generate_private_key(public_exponent=65537, key_size=4096),
    "ECDSAP256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "ECDSAP384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "ECDSAP521": lambda: ec.generate_private_key(ec.SECP521R1()),
    "ED25519": ed25519.Ed25519PrivateKey.generate,
}
_Digest = hashes.SHA256 | hashes.SHA384 | hashes.SHA512
_DIGESTS: dict[int, type[_Digest]] = {384: hashes.SHA384, 521: hashes.SHA512}


class Made(NamedTuple):
    """A key in PEM, and the request that proves it, in DER."""

    private_key: bytes
    stub: bytes


def make(kind: str) -> Made:
    """A new key. Slow for RSA: call it in a thread. Raises ConfigError for a kind nobody knows."""
    if kind not in _TYPES:
        raise ConfigError(f'unknown key type "{kind}"')
    key = _TYPES[kind]()
    request = (
        x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, _digest(key))
    )
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return Made(text, request.public_bytes(serialization.Encoding.DER))


def _digest(key: PrivateKey) -> _Digest | None:
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return None  # it has its own
    if isinstance(key, ec.EllipticCurvePrivateKey):
        return _DIGESTS.get(key.curve.key_size, hashes.SHA256)()
    return hashes.SHA256()
