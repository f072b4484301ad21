"""Which platforms an image is built for: the table Hicev1 decides by.

A logical image name leads to variants, one per platform. The table is filled from a file of
the form

    list:
      - name: local-registry:5000/test-nginx:latest
        images:
          - {name: local-registry:5000/test-nginx:latest-amd64, arch: amd64, os: linux}

from ImageMap objects (`imagemaps`) and by asking registries (`imagelookup`), and only ever read
from memory while scheduling.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

import msgspec
import yaml

from motley.registry import platforms, references
from motley.registry.platforms import Platform, keyword

__all__ = [
    "ImageArchitectures",
    "ImageTable",
    "Platform",
    "Variants",
    "keyword",
    "load",
    "parse",
]


Variants = Mapping[Platform, str]


class ImageArchitectures(Protocol):
    """The table, wherever it comes from."""

    def variants(self, image: str) -> Variants | None:
        """Platform → image name to run there; None: the image is not known."""


class ImageTable:
    """An in-memory table."""

    def __init__(self, images: Mapping[str, Variants] | None = None) -> None:
        self._images: dict[str, Variants] = {}
        self._alone: dict[str, Variants] = {}
        self._written: dict[str, str] = {}  # the name each image was given here
        for name, variants in (images or {}).items():
            self.put(name, variants)

    def __iter__(self) -> Iterator[tuple[str, Variants]]:
        return ((self._written[name], variants) for name, variants in self._images.items())

    def variants(self, image: str) -> Variants | None:
        """The variants of a logical image; of a variant itself, the platform it is for."""
        name = references.canonical(image)
        return self._images.get(name) or self._alone.get(name)

    def put(self, image: str, variants: Variants) -> None:
        """Make an image known."""
        name = references.canonical(image)
        self._images[name], self._written[name] = dict(variants), references.tagged(image)
        self._alone |= alone(image, variants)


def alone(image: str, variants: Variants) -> dict[str, Variants]:
    """The names that variants have of their own: each is built for what it is listed for."""
    found: dict[str, dict[Platform, str]] = {}
    for platform, name in variants.items():
        if name != image:
            found.setdefault(references.canonical(name), {})[platform] = name
    return dict(found)


class _Variant(msgspec.Struct):
    name: str
    arch: str
    os: str = "linux"
    variant: str = ""


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
    table: dict[str, dict[Platform, str]] = {}
    for entry in document.entries:
        if entry.name in table:
            raise ValueError(f"not an image table: {entry.name} is listed twice")
        table[entry.name] = {_platform(v): v.name for v in entry.images}
    return ImageTable(table)


def _platform(variant: _Variant) -> Platform:
    arch, _, generation = variant.arch.partition("/")  # also as `arm/v7`
    return platforms.normal(variant.os, arch, variant.variant or generation)


def load(path: Path) -> ImageTable:
    """The table in a file. Raises OSError, ValueError."""
    return parse(path.read_text())
