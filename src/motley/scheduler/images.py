"""Which platforms an image is built for: the table Hicev1 decides by.

A logical image name leads to variants, one per platform. The table is filled from a file of
the form

    list:
      - name: local-registry:5000/test-nginx:latest
        images:
          - {name: local-registry:5000/test-nginx:latest-amd64, arch: amd64, os: linux}

and only ever read from memory while scheduling.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import yaml

from motley.scheduler.podinfo import normalized_image

# Keywords that stand for an architecture wherever they appear in a name …
_DISTINCT = ("amd64", "arm64", "ppc64le", "s390x", "mips64le", "riscv64")
# … and those that are also part of ordinary words.
_WORD = re.compile(r"(?<![a-z0-9])(386|arm)(?:32)?(?:v[5-7])?(?![a-z0-9])")


class Platform(NamedTuple):
    """What an image is built for."""

    os: str
    arch: str

    def __str__(self) -> str:
        return f"{self.os}/{self.arch}"


class ImageArchitectures(Protocol):
    """The table, wherever it comes from."""

    def variants(self, image: str) -> Mapping[Platform, str] | None:
        """Platform → image name to run there; None: the image is not known."""


class ImageTable:
    """An in-memory table."""

    def __init__(self, images: Mapping[str, Mapping[Platform, str]] | None = None) -> None:
        self._images = {normalized_image(name): dict(v) for name, v in (images or {}).items()}

    def variants(self, image: str) -> Mapping[Platform, str] | None:
        """The variants of a logical image."""
        return self._images.get(normalized_image(image))

    def put(self, image: str, variants: Mapping[Platform, str]) -> None:
        """Make an image known."""
        self._images[normalized_image(image)] = dict(variants)


class _Variant(msgspec.Struct):
    name: str
    arch: str
    os: str = "linux"


class _Entry(msgspec.Struct):
    name: str
    images: list[_Variant] = msgspec.field(default_factory=list)


class _File(msgspec.Struct):
    entries: list[_Entry] = msgspec.field(default_factory=list, name="list")


def parse(text: str) -> ImageTable:
    """The table in an images file. Raises ValueError that says where the file is wrong."""
    try:
        document = msgspec.convert(yaml.load(text, yaml.CSafeLoader) or {}, _File)
    except (yaml.YAMLError, msgspec.ValidationError) as e:
        raise ValueError(f"not an image table: {e}") from e
    return ImageTable(
        {
            entry.name: {Platform(v.os, v.arch): v.name for v in entry.images}
            for entry in document.entries
        }
    )


def load(path: Path) -> ImageTable:
    """The table in a file. Raises OSError, ValueError."""
    return parse(path.read_text())


def keyword(image: str) -> str | None:
    """The architecture an image's name gives away, as in `nginx:1.27-arm64` or `arm64v8/nginx`.

    `arm` and `386` count only as words of their own: `alarm` names no architecture, and a
    digest is no name.
    """
    name = image.lower().partition("@")[0]
    found = next((arch for arch in _DISTINCT if arch in name), None)
    if found is None:
        word = _WORD.search(name)
        found = word[1] if word else None
    return found
