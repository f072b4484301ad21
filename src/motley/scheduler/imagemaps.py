"""ImageMap objects as one table: what the cluster knows of images.

Several objects may speak of one image. What a person wrote counts before what a registry said, and
that before what was only guessed; among equals the object whose name comes first.
Invariant: the table is what the objects say now; an object that goes takes its words with it.
"""

from typing import NamedTuple

from motley.api.views.motley import BY_HAND, RESOLVER_LABEL, ImageMap, MappedImage
from motley.client.informer import Change
from motley.lib import journal
from motley.registry import platforms, references
from motley.registry.resolver import REGISTRY
from motley.scheduler import events
from motley.scheduler.feed import Feed
from motley.scheduler.images import Variants, alone

log = journal.get(__name__)

_CERTAIN = ("", BY_HAND, REGISTRY)


class Known(NamedTuple):
    """One object's word about one image; the least is believed."""

    rank: int
    of: str
    variants: Variants

    @property
    def is_by_hand(self) -> bool:
        """Did a person say so?"""
        return self.rank < _CERTAIN.index(REGISTRY)


class ImageMaps:
    """The book of one scheduler."""

    def __init__(self) -> None:
        self._said: dict[str, dict[str, Known]] = {}  # image → object → its word
        self._of_object: dict[str, tuple[str, ...]] = {}
        self._resolvers: set[str] = set()

    @property
    def has_resolver(self) -> bool:
        """Does somebody look unknown images up?"""
        return bool(self._resolvers)

    def follow(self, feed: Feed) -> None:
        """Keep the book as the API has it, and tell the queue of what changes."""
        feed.informer(ImageMap, optional=True).add_handler(self.changed)
        if feed.once(ImageMap):
            feed.informer(ImageMap).add_handler(lambda _: feed.happened(events.ImageMapChanged()))

    def known(self, image: str) -> Known | None:
        """The best word about an image."""
        said = self._said.get(references.canonical(image))
        return min(said.values()) if said else None

    def variants(self, image: str) -> Variants | None:
        """Platform → image name to run there; None: no object speaks of the image."""
        known = self.known(image)
        return known.variants if known else None

    def changed(self, change: Change[ImageMap]) -> None:
        """Take one object's words, instead of what it said before."""
        name = change.key.name
        for image in self._of_object.pop(name, ()):
            del self._said[image][name]
            if not self._said[image]:
                del self._said[image]
        self._resolvers.discard(name)
        if change.new is None:
            return
        if RESOLVER_LABEL in change.new.metadata.labels:
            self._resolvers.add(name)
        # Where an object names an image twice (its keys differ in spelling), the last counts.
        said: dict[str, Known] = {}
        for one in change.new.spec.images:
            if not one.architectures:
                continue  # that is no word about it
            word = Known(_rank(one.source), name, _variants(one))
            for image, variants in alone(one.name, word.variants).items():
                said.setdefault(image, word._replace(variants=variants))
            said[references.canonical(one.name)] = word
        for image, word in said.items():
            self._said.setdefault(image, {})[name] = word
        self._of_object[name] = tuple(said)


def _rank(source: str) -> int:
    return _CERTAIN.index(source) if source in _CERTAIN else len(_CERTAIN)


def _variants(image: MappedImage) -> Variants:
    return {
        platforms.normal(one.os, one.architecture, one.variant): one.image or image.name
        for one in image.architectures
    }
