"""Reads an `EncryptionConfiguration`, the file of kube-apiserver's option of the same name.

    apiVersion: apiserver.config.k8s.io/v1
    kind: EncryptionConfiguration
    resources:
    - resources: [secrets]
      providers:
      - aesgcm: {keys: [{name: key1, secret: <base64 of 32 bytes>}]}
      - identity: {}

The first provider writes; all of them read. Of entries that name a resource twice the first counts.

Invariant: a file is taken as a whole or refused, with the field that is wrong; no message ever
shows a secret.
"""

import base64
import binascii
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from motley.apiserver.encryption.ciphers import KINDS, KeyCipher

API_VERSIONS = ("apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1")
PREFIX = b"k8s:enc:"
_PROVIDERS = (*KINDS, "identity")


class BadConfig(ValueError):
    """The file is wrong; the message names the field."""


@dataclass(frozen=True, slots=True)
class Provider:
    """One key of one provider; without a cipher it keeps values as they are."""

    prefix: bytes
    cipher: KeyCipher | None

    @property
    def is_identity(self) -> bool:
        """Whether values are kept as they are."""
        return self.cipher is None


IDENTITY = Provider(b"", None)


@dataclass(frozen=True, slots=True)
class Entry:
    """Which resources, and what reads them; the first provider writes."""

    resources: tuple[tuple[str, str], ...]
    """(resource, group), each possibly `*`."""
    providers: tuple[Provider, ...]

    def covers(self, resource: str, group: str) -> bool:
        """Whether the entry is about a resource."""
        return any(
            r in (resource, "*") and (g == group or (r, g) == ("*", "*")) for r, g in self.resources
        )


def load(path: Path) -> tuple[Entry, ...]:
    """Read a file. Raises `BadConfig`, OSError."""
    try:
        document = yaml.safe_load(path.read_bytes())
    except (yaml.YAMLError, UnicodeDecodeError):
        # The parser's message quotes the line, which may hold a key.
        raise BadConfig(f"{path} is not valid YAML") from None
    try:
        return tuple(parse(document))
    except BadConfig as error:
        raise BadConfig(f"{path}: {error}") from None


def parse(document: Any) -> Iterator[Entry]:
    """The entries of a document."""
    if not isinstance(document, dict) or document.get("kind") != "EncryptionConfiguration":
        raise BadConfig("kind: must be EncryptionConfiguration")
    if document.get("apiVersion") not in API_VERSIONS:
        raise BadConfig(f"apiVersion: must be {API_VERSIONS[0]}")
    _only(document, "", ("kind", "apiVersion", "resources"))
    for index, entry in enumerate(_list(document, "resources", "resources")):
        path = f"resources[{index}]"
        _mapping(entry, path)
        _only(entry, path, ("resources", "providers"))
        named = tuple(_resources(entry, f"{path}.resources"))
        providers = [
            provider
            for number, one in enumerate(_list(entry, "providers", f"{path}.providers"))
            for provider in _provider(one, f"{path}.providers[{number}]")
        ]
        yield Entry(named, tuple(providers))


def _resources(entry: dict[str, Any], path: str) -> Iterator[tuple[str, str]]:
    seen: list[tuple[str, str]] = []
    for index, text in enumerate(_list(entry, "resources", path)):
        here = f"{path}[{index}]"
        if not isinstance(text, str) or not text:
            raise BadConfig(f"{here}: must be a resource like secrets or deployments.apps")
        if text != text.lower():
            raise BadConfig(f"{here}: resource name should not contain capital letters")
        if text == "*":
            raise BadConfig(
                f"{here}: use '*.' for all resources of the core group or '*.*' for all resources"
            )
        resource, _, group = text.partition(".")
        if group == "events.k8s.io":
            raise BadConfig(f"{here}: Events are stored in the core group: use 'events'")
        if group == "*" and resource != "*":
            raise BadConfig(f"{here}: the same resource across groups is not supported")
        for other in seen:
            if other == (resource, group):
                raise BadConfig(f"{here}: the same resource cannot be specified multiple times")
            if ("*", "*") in (other, (resource, group)) or (
                other[1] == group and "*" in (other[0], resource)
            ):
                raise BadConfig(f"{here}: overlaps with another resource of the same list")
        seen.append((resource, group))
        yield resource, group


def _provider(one: Any, path: str) -> Iterator[Provider]:
    _mapping(one, path)
    if "kms" in one:
        raise BadConfig(
            f"{path}.kms: key management services are not supported; use aesgcm or secretbox with"
            " keys in this file"
        )
    _only(one, path, _PROVIDERS)
    if len(one) != 1:
        raise BadConfig(
            f"{path}: must hold exactly one of {', '.join(_PROVIDERS)}; split it into list elements"
        )
    ((name, settings),) = one.items()
    if name == "identity":
        yield IDENTITY
        return
    here = f"{path}.{name}"
    _mapping(settings, here)
    _only(settings, here, ("keys",))
    names: set[str] = set()
    for index, key in enumerate(_list(settings, "keys", f"{here}.keys")):
        yield _key(name, key, f"{here}.keys[{index}]", names)


def _key(provider: str, key: Any, path: str, names: set[str]) -> Provider:
    _mapping(key, path)
    _only(key, path, ("name", "secret"))
    name, secret = key.get("name"), key.get("secret")
    if not isinstance(name, str) or not name:
        raise BadConfig(f"{path}.name: is required")
    if ":" in name:
        raise BadConfig(f"{path}.name: must not contain ':'")
    if name in names:
        raise BadConfig(f"{path}.name: {name} is there twice")
    names.add(name)
    if not isinstance(secret, str) or not secret:
        raise BadConfig(f"{path}.secret: is required")
    try:
        raw = base64.b64decode(secret, validate=True)
    except (binascii.Error, ValueError):
        raise BadConfig(f"{path}.secret: secrets must be base64 encoded") from None
    cipher, lengths = KINDS[provider]
    if len(raw) not in lengths:
        wanted = " or ".join(map(str, lengths))
        raise BadConfig(f"{path}.secret: has {len(raw)} bytes, must have {wanted}")
    return Provider(PREFIX + f"{provider}:v1:{name}:".encode(), cipher(raw))


def _mapping(value: Any, path: str) -> None:
    if not isinstance(value, dict):
        raise BadConfig(f"{path}: must be an object")


def _only(value: dict[str, Any], path: str, known: tuple[str, ...]) -> None:
    for name in value:
        if name not in known:
            where = f"{path}.{name}" if path else str(name)
            raise BadConfig(f"{where}: unknown field, known are {', '.join(known)}")


def _list(value: dict[str, Any], name: str, path: str) -> list[Any]:
    found = value.get(name)
    if not isinstance(found, list) or not found:
        raise BadConfig(f"{path}: at least one is required")
    return found
