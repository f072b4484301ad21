"""Platforms from what a registry answers: indexes, manifests and configurations. Pure.

An index (OCI) or manifest list (Docker) names its platforms. A plain manifest does not, its
configuration does. Registries are other people's machines: whatever is not as it should be is an
`Unreadable`, never another error.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from motley.registry import platforms
from motley.registry.platforms import Platform
from motley.registry.references import DIGEST

_INDEXES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
_MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_OLD = "application/vnd.docker.distribution.manifest.v1+prettyjws"
# An old manifest is taken only where there is no newer.
ACCEPT = ", ".join((*_INDEXES, *_MANIFESTS, f"{_OLD};q=0.1"))
_CONFIGS = (
    "application/vnd.oci.image.config.v1+json",
    "application/vnd.docker.container.image.v1+json",
    "application/octet-stream",  # what some old builders wrote
)
_MOST_ENTRIES = 512  # the largest index in use has a few dozen
_UNKNOWN = "unknown"  # the platform of an attestation, which is no image


class Unreadable(Exception):
    """The answer is no image, or not one that can be understood; the text says why."""


class Part(NamedTuple):
    """Something else that must be fetched before its platform is known."""

    digest: str
    is_manifest: bool  # else a configuration


class Entry(NamedTuple):
    """An image that an index lists; no platform: its manifest must be asked."""

    digest: str
    platform: Platform | None


class Reading(NamedTuple):
    """What one answer says."""

    platforms: tuple[Platform, ...]
    parts: tuple[Part, ...] = ()


def manifest(body: bytes) -> Reading:
    """An index or a manifest of any kind."""
    document = _object(body)
    if document.get("schemaVersion") == 1:
        return Reading((_platform({"os": "linux", **document}),))
    if isinstance(document.get("manifests"), list):
        return _index(document["manifests"])
    described = document.get("config")
    if not isinstance(described, dict):
        raise Unreadable("the answer is neither an index nor a manifest")
    kind = described.get("mediaType") or _CONFIGS[0]
    if kind not in _CONFIGS:
        raise Unreadable(f"an artifact of type {str(kind)[:80]!r}, not an image")
    return Reading((), (Part(_digest(described), is_manifest=False),))


def entries(body: bytes) -> tuple[Entry, ...] | None:
    """The images an index lists, in its order; None: the answer is no index."""
    listed = _object(body).get("manifests")
    if not isinstance(listed, list):
        return None
    return tuple(_listed(listed))


def configuration(body: bytes) -> Platform:
    """An image's configuration."""
    return _platform(_object(body))


def _index(entries: list[Any]) -> Reading:
    listed = list(_listed(entries))
    if not listed:
        raise Unreadable("an index without images")
    found = dict.fromkeys(one.platform for one in listed if one.platform is not None)
    parts = (Part(one.digest, is_manifest=True) for one in listed if one.platform is None)
    return Reading(tuple(found), tuple(parts))


def _listed(entries: list[Any]) -> Iterator[Entry]:
    if len(entries) > _MOST_ENTRIES:
        raise Unreadable(f"an index of {len(entries)} entries")
    for entry in _objects(entries):
        said = entry.get("platform")
        if isinstance(said, dict) and said.get("architecture"):
            if _UNKNOWN not in (said.get("architecture"), said.get("os")):
                yield Entry(_digest(entry), _platform({"os": "linux", **said}))
        elif not _is_attached(entry):
            yield Entry(_digest(entry), None)


def _is_attached(entry: dict[str, Any]) -> bool:
    """Signatures and the like lie in the index beside the images they are about."""
    annotations = entry.get("annotations")
    named = isinstance(annotations, dict) and "vnd.docker.reference.type" in annotations
    kind = entry.get("mediaType") or _MANIFESTS[0]
    return named or "artifactType" in entry or kind not in (*_INDEXES, *_MANIFESTS)


def _object(body: bytes) -> dict[str, Any]:
    try:
        document = msgspec.json.decode(body)
    except (ValueError, RecursionError) as error:  # also of bytes that are no text
        raise Unreadable(f"not JSON: {error}") from None
    if not isinstance(document, dict):
        raise Unreadable(f"not an object but a {type(document).__name__}")
    return document


def _objects(entries: list[Any]) -> Iterator[dict[str, Any]]:
    for entry in entries:
        if not isinstance(entry, dict):
            raise Unreadable("an index whose entries are no objects")
        yield entry


def _digest(described: dict[str, Any]) -> str:
    digest = described.get("digest")
    if not isinstance(digest, str) or not DIGEST.fullmatch(digest):
        raise Unreadable("a descriptor without a digest")
    return digest


def _platform(said: dict[str, Any]) -> Platform:
    words = [said.get(name) or "" for name in ("os", "architecture", "variant")]
    if not all(isinstance(word, str) and len(word) <= 64 for word in words) or not words[1]:
        raise Unreadable("an image that does not say its architecture")
    return platforms.normal(*words)
