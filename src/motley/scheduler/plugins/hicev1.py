"""Hicev1: a pod runs only where every one of its images runs.

In a cluster of unlike machines an image built for one architecture fails on another with
"exec format error". The allowed platforms are the intersection over all containers, init
containers included. Where an image's platforms come from, best first: the pod's annotation
`motley.io/architectures`, the image table, an architecture in the image's name, the argument
`assumeUnknown`; an image nobody knows anything about restricts nothing.

At binding, images of the table become the variant for the node's platform.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from motley.api.views.pod import Container
from motley.scheduler import contract, events, images
from motley.scheduler.contract import SKIP, Api, Columns, Mask, PodInfo, Reject, Verdict
from motley.scheduler.images import ImageArchitectures, Platform


class Hicev1Args(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """`assumeUnknown`: the architecture of images nothing is known about, e.g. `amd64`.

    `imagesFile`: an image table to read at start, besides the cluster's own.
    """

    assume_unknown: str = ""
    images_file: str = ""


class Hicev1:
    """Keep nodes whose architecture every image of the pod is built for."""

    name = "Hicev1"
    reason = "node(s)'s arch isn't included in pods arches"
    wakes_on = (events.NodeAdded, events.NodeLabelsChanged, events.ImageMapChanged)
    only_where_named = ("bind",)
    removal_helps = False
    Args = Hicev1Args

    def __init__(self, args: Hicev1Args, handle: contract.Handle) -> None:
        self._unknown = {Platform("linux", args.assume_unknown)} if args.assume_unknown else None
        self._tables: list[ImageArchitectures] = [handle.images]
        if args.images_file:
            self._tables.append(images.load(Path(args.images_file)))
        self._nodes = handle.nodes

    def pre_filter(self, pod: PodInfo, nodes: Columns) -> Reject | Verdict | None:
        """Find the platforms the pod can run on; none in common is no node at all."""
        platforms = self.platforms(pod)
        if platforms is None:
            return SKIP
        if not platforms:
            return Reject("the images of the pod have no architecture in common")
        pod.state[self.name] = platforms
        return None

    def filter(self, pod: PodInfo, nodes: Columns) -> Mask:
        """True where operating system and architecture are among the pod's."""
        mask = np.zeros(nodes.size, np.bool_)
        for platform in pod.state[self.name]:
            arch = nodes.platforms.find(platform.arch)
            system = nodes.platforms.find(platform.os)
            mask |= (nodes.arch == arch) & (nodes.os == system)
        return mask

    def platforms(self, pod: PodInfo) -> frozenset[Platform] | None:
        """Where all images run; None: anywhere."""
        if pod.architectures:
            return frozenset(_platform(text) for text in pod.architectures)
        common: set[Platform] | None = None
        for image in pod.images:
            known = self._of_image(image)
            if known is not None:
                common = set(known) if common is None else common & known
        return None if common is None else frozenset(common)

    def _of_image(self, image: str) -> set[Platform] | None:
        variants = self._variants(image)
        if variants is not None:
            return set(variants)
        arch = images.keyword(image)
        return {Platform("linux", arch)} if arch else self._unknown

    def _variants(self, image: str) -> Mapping[Platform, str] | None:
        for table in self._tables:
            variants = table.variants(image)
            if variants is not None:
                return variants
        return None

    async def pre_bind(self, pod: PodInfo, node: str, api: Api) -> None:
        """Give every container the image variant of the node's platform."""
        facts = self._nodes.facts.get(node)
        if facts is None:
            return
        here = Platform(facts.os, facts.arch)
        spec = pod.pod.spec
        body: dict[str, Any] = {
            "containers": self._rewrites(spec.containers, here),
            "initContainers": self._rewrites(spec.init_containers, here),
        }
        body = {name: containers for name, containers in body.items() if containers}
        if body:
            await api.patch_pod(pod, {"spec": body})

    def _rewrites(self, containers: list[Container], here: Platform) -> list[dict[str, str]]:
        rewrites = []
        for container in containers:
            variant = (self._variants(container.image) or {}).get(here)
            if variant and variant != container.image:
                rewrites.append({"name": container.name, "image": variant})
        return rewrites

    async def bind(self, pod: PodInfo, node: str, api: Api) -> Verdict | None:
        """Rewrite and bind, for profiles that use this instead of the default binder."""
        await self.pre_bind(pod, node, api)
        await api.bind(pod, node)
        return None


def _platform(text: str) -> Platform:
    system, slash, arch = text.rpartition("/")
    return Platform(system if slash else "linux", arch)


_f: contract.Made[contract.FilterPlugin] = Hicev1
_p: contract.Made[contract.PreBindPlugin] = Hicev1
_b: contract.Made[contract.BindPlugin] = Hicev1
