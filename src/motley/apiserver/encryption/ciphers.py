"""The ciphers of Kubernetes' encryption at rest, byte for byte.

Sealed bytes lie after a prefix (`k8s:enc:aesgcm:v1:NAME:`) that says how and with which key:

    aesgcm     nonce (12) + ciphertext + tag; the place in the store is authenticated with it
    aescbc     IV (16) + ciphertext, PKCS#7; says nothing about changes, prefer the others
    secretbox  nonce (24) + XSalsa20 and Poly1305

Invariant: every call of `encrypt` draws a new nonce from the system's source.
"""

import os
from typing import Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import padding
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_GCM_NONCE = 12
_CBC_BLOCK = 16


class WrongKey(Exception):
    """The bytes were sealed with another key, for another place, or were changed since."""


class KeyCipher(Protocol):
    """One key, used one way."""

    def encrypt(self, value: bytes, place: bytes) -> bytes:
        """Seal a value for a place in the store."""

    def decrypt(self, sealed: bytes, place: bytes) -> bytes:
        """Open what was sealed. Raises `WrongKey`."""


class AesGcm:
    """AES with Galois/Counter mode."""

    def __init__(self, secret: bytes) -> None:
        self._cipher = AESGCM(secret)

    def encrypt(self, value: bytes, place: bytes) -> bytes:
        """See `KeyCipher`."""
        nonce = os.urandom(_GCM_NONCE)
        return nonce + self._cipher.encrypt(nonce, value, place)

    def decrypt(self, sealed: bytes, place: bytes) -> bytes:
        """See `KeyCipher`."""
        try:
            return self._cipher.decrypt(sealed[:_GCM_NONCE], sealed[_GCM_NONCE:], place)
        except (InvalidTag, ValueError) as error:
            raise WrongKey("the authentication tag does not fit") from error


class AesCbc:
    """AES with cipher block chaining."""

    def __init__(self, secret: bytes) -> None:
        self._algorithm = algorithms.AES(secret)

    def encrypt(self, value: bytes, place: bytes) -> bytes:
        """See `KeyCipher`."""
        first = os.urandom(_CBC_BLOCK)
        pad = padding.PKCS7(_CBC_BLOCK * 8).padder()
        padded = pad.update(value) + pad.finalize()
        cipher = Cipher(self._algorithm, modes.CBC(first)).encryptor()
        return first + cipher.update(padded) + cipher.finalize()

    def decrypt(self, sealed: bytes, place: bytes) -> bytes:
        """See `KeyCipher`."""
        try:
            cipher = Cipher(self._algorithm, modes.CBC(sealed[:_CBC_BLOCK])).decryptor()
            padded = cipher.update(sealed[_CBC_BLOCK:]) + cipher.finalize()
            pad = padding.PKCS7(_CBC_BLOCK * 8).unpadder()
            return pad.update(padded) + pad.finalize()
        except ValueError as error:
            raise WrongKey(str(error)) from error


class SecretBox:
    """NaCl's secretbox."""

    def __init__(self, secret: bytes) -> None:
        from nacl.secret import SecretBox as Box  # here: most servers use AES

        self._box = Box(secret)

    def encrypt(self, value: bytes, place: bytes) -> bytes:
        """See `KeyCipher`."""
        return bytes(self._box.encrypt(value))

    def decrypt(self, sealed: bytes, place: bytes) -> bytes:
        """See `KeyCipher`."""
        from nacl.exceptions import CryptoError

        try:
            return self._box.decrypt(sealed)
        except (CryptoError, ValueError) as error:
            raise WrongKey(str(error)) from error


# name in the configuration -> (cipher, lengths a key may have)
KINDS: dict[str, tuple[type[AesGcm] | type[AesCbc] | type[SecretBox], tuple[int, ...]]] = {
    "aesgcm": (AesGcm, (16, 24, 32)),
    "aescbc": (AesCbc, (16, 24, 32)),
    "secretbox": (SecretBox, (32,)),
}
