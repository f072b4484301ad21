"""The key that signs service-account tokens: made at first start, beside the cluster's authority.

RSA, because every library that checks such tokens knows RS256. What was signed yesterday must be
good today, so the key stays for as long as its file does; a second file `sa-old.pub` may hold the
public key of a predecessor whose tokens are still to be accepted.

Invariant: the private key is never on disk with more rights than 0600.
"""

import base64
import contextlib
import hashlib
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

ALGORITHM = "RS256"
_BITS = 2048


@dataclass(frozen=True)
class PublicKey:
    """A key that tokens are checked with."""

    key: rsa.RSAPublicKey

    @cached_property
    def id(self) -> str:
        """The `kid` of tokens signed with it: a digest of the key itself, as Kubernetes' is."""
        der = self.key.public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return _base64url(hashlib.sha256(der).digest())

    @property
    def jwk(self) -> dict[str, Any]:
        """The key as others fetch it."""
        numbers = self.key.public_numbers()
        return {
            "use": "sig",
            "kty": "RSA",
            "kid": self.id,
            "alg": ALGORITHM,
            "n": _base64url(numbers.n.to_bytes((numbers.n.bit_length() + 7) // 8, "big")),
            "e": _base64url(numbers.e.to_bytes((numbers.e.bit_length() + 7) // 8, "big")),
        }


class Keys:
    """The signing key, and every key whose tokens are accepted.

    Without a directory the key is made when it is first needed and lives in memory only.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory

    @cached_property
    def private(self) -> rsa.RSAPrivateKey:
        """What tokens are signed with."""
        if self._directory is None:
            return rsa.generate_private_key(65537, _BITS)
        path = self._directory / "sa.key"
        if not path.exists():
            _write_first(path, _pem(rsa.generate_private_key(65537, _BITS)))
        loaded = serialization.load_pem_private_key(path.read_bytes(), None)
        if not isinstance(loaded, rsa.RSAPrivateKey):
            raise ValueError(f"{path}: expected an RSA key")
        return loaded

    @cached_property
    def public(self) -> tuple[PublicKey, ...]:
        """The keys tokens are checked with, the current one first."""
        found = [PublicKey(self.private.public_key())]
        old = self._directory / "sa-old.pub" if self._directory is not None else None
        if old is not None and old.exists():
            loaded = serialization.load_pem_public_key(old.read_bytes())
            if not isinstance(loaded, rsa.RSAPublicKey):
                raise ValueError(f"{old}: expected an RSA public key")
            found.append(PublicKey(loaded))
        return tuple(found)

    def load(self) -> None:
        """Read the keys, or make the first; ValueError and OSError are better heard at start."""
        _ = self.public

    def by_id(self, kid: str) -> PublicKey | None:
        """The key a token says it was signed with."""
        return next((key for key in self.public if key.id == kid), None)


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _pem(key: rsa.RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def _write_first(path: Path, data: bytes) -> None:
    """The file appears whole or not at all, and only if there is none: servers of one cluster that
    start together must come to the same key."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.unlink(missing_ok=True)
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    with contextlib.suppress(FileExistsError):  # then another server was quicker: its key counts
        os.link(aside, path)
    aside.unlink()
