"""Hicev1: a pod runs only where every one of its images runs.

In a cluster of unlike machines an image built for one architecture fails on another with
"exec format error". The allowed platforms are the intersection over all containers, init and
ephemeral ones included. Where an image's platforms come from, best first: the pod's annotation
`motley.io/architectures`, ImageMap objects that people wrote, image files, registries. Where
somebody looks unknown images up and the nodes are not all alike, the pod waits for that, a bounded
time; then the image's name counts, then `assumeUnknown`, then linux/amd64. Where nobody does, an
image nobody knows anything about restricts nothing.

At binding, images become the variant for the node's platform. The same patch notes what the pod
was written with, so that an attempt that fails half-way does not tie the pod to that platform.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from motley.api.views.pod import Container, Pod
from motley.client.rest import Client
from motley.registry import platforms, references, settings
from motley.registry.platforms import ASSUMED
from motley.scheduler import contract, events, images
from motley.scheduler.contract import SKIP, Api, Columns, Mask, PodInfo, Reject, Verdict
from motley.scheduler.feed import Feed
from motley.scheduler.images import Platform
from motley.scheduler.knownimages import KnownImages, Unknown
from motley.scheduler.podinfo import IMAGES_AS_WRITTEN

VARIANT_LABEL = "motley.io/arch-variant"  # of a node: the highest generation it runs, as v7
_LOCAL = "localhost/"  # made on the machines themselves, in each one's own architecture

Allowed = Mapping[tuple[str, str], str]  # (os, architecture) → the variant it takes at least


class Hicev1Args(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """`assumeUnknown`: the architecture of images nothing is known about, e.g. `amd64`.

    `imagesFile`: an image table to read at start, besides the cluster's own.
    `resolve`: ask registries about unknown images; `registries` says how to reach them.
    `waitSeconds`: how long a pod waits for its images to be looked up.
    """

    assume_unknown: str = ""
    images_file: str = ""
    resolve: bool = False
    wait_seconds: float = 10.0
    registries: tuple[settings.Registry, ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError."""
        if not 0 <= self.wait_seconds <= 600:
            raise ValueError("waitSeconds must be between 0 and 600")


class Hicev1:
    """Keep nodes whose architecture every image of the pod is built for."""

    name = "Hicev1"
    reason = "node(s)'s arch isn't included in pods arches"
    wakes_on = (events.NodeAdded, events.NodeLabelsChanged, events.ImageMapChanged)
    only_where_named = ("bind",)
    removal_helps = False
    Args = Hicev1Args

    def __init__(self, args: Hicev1Args, handle: contract.Handle) -> None:
        self._assumed = platforms.parse(args.assume_unknown) if args.assume_unknown else None
        tables = [handle.images]
        if args.images_file:
            tables.append(images.load(Path(args.images_file)))
        self.known = KnownImages(
            tables,
            registries=settings.checked(args.registries) if args.resolve else None,
            wait_s=args.wait_seconds,
            clock=handle.clock,
        )
        self._nodes = handle.nodes
        self._generation = -1
        self._is_mixed = False

    def follow(self, feed: Feed) -> None:
        """ImageMap objects, where the cluster has them."""
        self.known.follow(feed)

    async def background(self, client: Client) -> None:
        """Look unknown images up, if that is wanted, and end what has waited long enough."""
        await self.known.run(client)

    # -- which nodes ------------------------------------------------------------------------

    def pre_filter(self, pod: PodInfo, nodes: Columns) -> Reject | Verdict | None:
        """Find the platforms the pod can run on; none in common is no node at all."""
        try:
            allowed = self._allowed(pod, nodes)
        except Unknown as unknown:
            return Reject(str(unknown))
        if allowed is None:
            return SKIP
        if not allowed:
            return Reject("the images of the pod have no architecture in common")
        pod.state[self.name] = allowed
        return None

    def filter(self, pod: PodInfo, nodes: Columns) -> Mask:
        """True where operating system and architecture are among the pod's."""
        mask = np.zeros(nodes.size, np.bool_)
        allowed: Allowed = pod.state[self.name]
        for (system, architecture), variant in allowed.items():
            arch = nodes.platforms.find(architecture)
            here = (nodes.arch == arch) & (nodes.os == nodes.platforms.find(system))
            mask |= here & _has_variant(nodes, variant) if variant else here
        return mask

    def _allowed(self, pod: PodInfo, nodes: Columns) -> Allowed | None:
        """Where all images run; None: anywhere. Raises Unknown while one is looked up."""
        if pod.architectures:
            return _least(platforms.parse(text) for text in pod.architectures)
        common: Allowed | None = None
        for image in self._images(pod):
            known = self._of_image(image, pod.pod, nodes)
            if known is not None:
                common = known if common is None else _both(common, known)
        return common

    def _images(self, pod: PodInfo) -> tuple[str, ...]:
        """Every image, as the pod was written."""
        ephemeral = tuple(c.image for c in pod.pod.spec.ephemeral_containers)
        if IMAGES_AS_WRITTEN not in pod.pod.metadata.annotations:
            return (*pod.images, *ephemeral)
        spec, written = pod.pod.spec, self._written(pod.pod)
        named = (written.get(c.name, c.image) for c in (*spec.containers, *spec.init_containers))
        return (*named, *ephemeral)

    def _written(self, pod: Pod) -> dict[str, str]:
        """By container, where it runs a variant of what the note says; else the note is stale."""
        noted = _as_written(pod)
        return {
            c.name: noted[c.name]
            for c in (*pod.spec.containers, *pod.spec.init_containers)
            if c.name in noted and c.image in (self.known.variants(noted[c.name]) or {}).values()
        }

    def _of_image(self, image: str, pod: Pod, nodes: Columns) -> Allowed | None:
        variants = self.known.variants(image)
        if variants is None and not image.startswith(_LOCAL):
            variants = self.known.look_up(image, pod) if self._mixed(nodes) else None
        if variants is not None:
            return _least(variants)
        arch = images.keyword(image)
        if arch is not None:
            return _least([Platform("linux", arch)])
        if self._assumed is not None:
            return _least([self._assumed])
        is_guessed = self.known.has_resolver and not image.startswith(_LOCAL)
        return _least([ASSUMED]) if is_guessed and self._mixed(nodes) else None

    def _mixed(self, nodes: Columns) -> bool:
        """Are there nodes of unlike platforms? Where all are alike there is nothing to find out."""
        if self._generation != nodes.generation:
            self._generation = nodes.generation
            # Compared with the first: sorting them would cost more than the rest of a decision.
            found = [column[nodes.live] for column in (nodes.arch, nodes.os)]
            self._is_mixed = any(bool((one != one[:1]).any()) for one in found)
        return self._is_mixed

    # -- what runs there --------------------------------------------------------------------

    async def pre_bind(self, pod: PodInfo, node: str, api: Api) -> None:
        """Give every container the image variant of the node's platform."""
        facts = self._nodes.facts.get(node)
        if facts is None:
            return
        here = platforms.normal(facts.os, facts.arch, facts.labels.get(VARIANT_LABEL, ""))
        spec, written = pod.pod.spec, self._written(pod.pod)
        body: dict[str, Any] = {
            "containers": self._rewrites(spec.containers, written, here),
            "initContainers": self._rewrites(spec.init_containers, written, here),
        }
        body = {name: containers for name, containers in body.items() if containers}
        if not body:
            return
        names = {one["name"] for containers in body.values() for one in containers}
        kept = {
            c.name: written.get(c.name, c.image)
            for c in (*spec.containers, *spec.init_containers)
            if c.name in {*names, *written}
        }
        noted = {IMAGES_AS_WRITTEN: msgspec.json.encode(kept).decode()}
        await api.patch_pod(pod, {"metadata": {"annotations": noted}, "spec": body})

    def _rewrites(
        self, containers: list[Container], written: Mapping[str, str], here: Platform
    ) -> list[dict[str, str]]:
        rewrites = []
        for container in containers:
            image = written.get(container.name, container.image)
            variants = self.known.variants(image) or {}
            chosen = platforms.best(variants, here)
            variant = variants[chosen] if chosen is not None else ""
            if variant and not _is_same(variant, container.image):
                rewrites.append({"name": container.name, "image": variant})
        return rewrites

    async def bind(self, pod: PodInfo, node: str, api: Api) -> Verdict | None:
        """Rewrite and bind, for profiles that use this instead of the default binder."""
        await self.pre_bind(pod, node, api)
        await api.bind(pod, node)
        return None


def _is_same(one: str, other: str) -> bool:
    return references.canonical(one) == references.canonical(other)


def _as_written(pod: Pod) -> dict[str, str]:
    """By container; what is no such note is nobody's."""
    text = pod.metadata.annotations.get(IMAGES_AS_WRITTEN)
    if not text:
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.MsgspecError:
        return {}


def _least(found: Any) -> dict[tuple[str, str], str]:
    """Of several variants of an architecture the one that runs on most machines."""
    least: dict[tuple[str, str], str] = {}
    for system, arch, variant in found:
        known = least.get((system, arch))
        if known is None or platforms.rank(variant) < platforms.rank(known):
            least[system, arch] = variant
    return least


def _both(one: Allowed, other: Allowed) -> Allowed:
    return {pair: max(one[pair], other[pair], key=platforms.rank) for pair in one if pair in other}


def _has_variant(nodes: Columns, variant: str) -> Mask:
    """True where a node does not say that it is older."""
    column = nodes.label(VARIANT_LABEL)
    older = [
        number
        for number in np.unique(column).tolist()
        if number > 0 and platforms.rank(nodes.values.value(number)) < platforms.rank(variant)
    ]
    newer: Mask = ~np.isin(column, older)
    return newer


_f: contract.Made[contract.FilterPlugin] = Hicev1
_o: contract.Made[contract.FollowsObjects] = Hicev1
_w: contract.Made[contract.WorksInBackground] = Hicev1
_p: contract.Made[contract.PreBindPlugin] = Hicev1
_b: contract.Made[contract.BindPlugin] = Hicev1
