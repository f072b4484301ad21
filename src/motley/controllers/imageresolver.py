"""Images that pending pods need and nobody knows are looked up in their registries.

What a registry says becomes an ImageMap object, one per image, so that every scheduler knows it at
once and after every restart. A registry that fails leaves a guess there, by the image's name or
linux/amd64, with the reason; it is asked again after a minute and then ever more seldom, but at
once for a pod with other credentials than those it refused. What is certain is asked again after a
day, for tags move. An object whose image no pod has used for a day goes.

In a cluster whose nodes are all of one platform there is nothing to find out, and no registry is
asked anything.
Invariant: an entry that a person wrote is never touched, and a guess never replaces knowledge.
"""

import asyncio
import hashlib
from collections.abc import Iterable
from random import Random
from typing import Any, NamedTuple

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.core import Node
from motley.api.views.motley import BY_HAND, RESOLVER_LABEL, ImageMap, MappedImage
from motley.api.views.pod import Pod
from motley.client.informer import Change, Informer
from motley.client.workqueue import WorkQueue
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.lib import journal
from motley.lib.backoff import Backoff
from motley.lib.clock import parse_rfc3339, rfc3339
from motley.registry import pullsecrets, references
from motley.registry.resolver import REGISTRY, Resolution, Resolver
from motley.registry.settings import Registries

log = journal.get(__name__)

MARKER = "motley-image-resolver"
MANAGER = "motley-image-resolver"
RETRY_S, RETRY_MAX_S = 60.0, 600.0
REFRESH_S = 86400.0
_UPKEEP_S = 600.0
_SERVED_S = 60.0
_EARLY_S = 1.0  # two clocks differ a little
_SEEN_S = 5.0  # until what was written is read back: nobody is asked twice meanwhile
_MOST_REFUSED = 16  # credentials; beyond these, others wait like them
_PENDING = "pending image"
_ANNOUNCEMENT = ""  # a key that is no image


class ImageResolverController:
    """See the module's docstring."""

    name = "imageresolver"
    workers = 4

    def __init__(
        self,
        context: Context,
        registries: Registries | None = None,
        rng: Random | None = None,
    ) -> None:
        self._client = context.client
        self._clock = context.clock
        self._registries = registries
        self._rng = rng or Random()
        self.queue: WorkQueue[str] = WorkQueue(context.clock)
        self._pauses: dict[str, Backoff] = {}
        self._due: dict[str, float] = {}
        self._refused: dict[str, set[Credentials]] = {}  # by images that registries do not show
        self._resolver: Resolver | None = None
        self._is_mixed = False
        self._platforms: dict[Key, tuple[str, str]] = {}  # of every node
        self._pods = context.informers.of(Pod)
        self._nodes = context.informers.of(Node)
        # Not one of the shared: a server of another make need not know the kind.
        self._maps = Informer(context.client, ImageMap, clock=context.clock)
        self._maps.add_index("image", lambda m: [references.tagged(i.name) for i in m.spec.images])
        self._pods.add_index(_PENDING, pending_images)
        self._pods.add_handler(self._pod_changed)
        self._nodes.add_handler(self._node_changed)

    # -- what is to be looked up ------------------------------------------------------------

    def _pod_changed(self, change: Change[Pod]) -> None:
        if self._is_active and change.new is not None:
            self._consider(change.new)

    def _node_changed(self, change: Change[Node]) -> None:
        platform = platform_of(change.new) if change.new is not None else None
        if self._platforms.get(change.key) == platform:
            return
        if platform is None:
            del self._platforms[change.key]
        else:
            self._platforms[change.key] = platform
        was_mixed, self._is_mixed = self._is_mixed, is_mixed(self._platforms.values())
        if self._is_active and not was_mixed:
            self._consider_all()

    @property
    def _is_active(self) -> bool:
        return self._is_mixed and self._resolver is not None

    def _consider_all(self) -> None:
        self.queue.add(_ANNOUNCEMENT)
        for pod in self._pods.items():
            self._consider(pod)

    def _consider(self, pod: Pod) -> None:
        for image in pending_images(pod):
            if self._wants(image, pod):
                self.queue.add(image)

    def _wants(self, image: str, pod: Pod) -> bool:
        is_early = self._due.get(image, 0.0) > self._clock.monotonic()
        if is_early and not self._may_be_shown(image, pod):
            return False
        now = self._clock.now()
        said = self._said(image)
        if any(one.source in ("", BY_HAND) for one in said):
            return False
        return not any(is_fresh(one, now) for one in said)

    def _may_be_shown(self, image: str, pod: Pod) -> bool:
        """Was the image refused to others, and to few enough to try once more?"""
        refused = self._refused.get(image)
        if refused is None or len(refused) >= _MOST_REFUSED:
            return False
        return credentials_of(pod) not in refused

    def _said(self, image: str) -> list[MappedImage]:
        return [
            one
            for found in self._maps.by_index("image", image)
            for one in found.spec.images
            if references.tagged(one.name) == image
        ]

    # -- looking up -------------------------------------------------------------------------

    async def run(self) -> None:
        """The registries' side, while this process leads."""
        await self._until_served()
        async with Resolver(self._registries) as resolver, asyncio.TaskGroup() as group:
            group.create_task(self._maps.run())
            await self._maps.synced()
            self._resolver = resolver
            try:
                if self._is_mixed:
                    self._consider_all()
                while True:
                    await self._clock.sleep(_UPKEEP_S)
                    await self._forget()
            finally:
                self._resolver = None

    async def _until_served(self) -> None:
        while True:
            try:
                await self._client.list(ImageMap, limit=1)
            except status.NotFound:
                log.info("no images are looked up: the server has no ImageMap")
            except status.ApiError as error:
                log.info("not yet looking images up", error=error.message)
            else:
                return
            await self._clock.sleep(_SERVED_S)

    async def reconcile(self, key: str) -> Requeue | None:
        """Look one image up, if a pod still waits for it; come back where the registry failed."""
        if key == _ANNOUNCEMENT:
            await self._announce()
            return None
        resolver = self._resolver
        if resolver is None or not self._is_mixed:
            return None
        pods = {
            credentials_of(pod): pod
            for pod in self._pods.by_index(_PENDING, key)
            if self._wants(key, pod)
        }
        if not pods:
            return None
        for mine, pod in list(pods.items())[:_MOST_REFUSED]:
            answer = await resolver.resolve(key, await pullsecrets.of_pod(self._client, pod))
            if not answer.is_refused:
                break
            self._refused.setdefault(key, set()).add(mine)
        await self._write(key, answer)
        if answer.is_certain:
            self._pauses.pop(key, None)
            self._refused.pop(key, None)
            self._due[key] = self._clock.monotonic() + _SEEN_S
            log.info("image resolved", image=key, platforms=[str(p) for p in answer.platforms])
            return None
        if not answer.is_refused:
            self._refused.pop(key, None)
        elif (early_s := self._due.get(key, 0.0) - self._clock.monotonic()) > 0:
            return Requeue(early_s + _EARLY_S)  # out of turn: the others' pause stays as it is
        fresh = Backoff(base_s=RETRY_S, cap_s=RETRY_MAX_S, rng=self._rng)
        after_s = self._pauses.setdefault(key, fresh).next()
        self._due[key] = self._clock.monotonic() + after_s - _EARLY_S
        log.info("image not resolved", image=key, why=answer.problem, again_in_s=round(after_s))
        return Requeue(after_s)

    async def _announce(self) -> None:
        """Say, as soon as nodes differ, that unknown images are looked up: schedulers then wait."""
        if self._maps.get(Key("", MARKER)) is None:
            await self._client.apply(ImageMap, _marker(), field_manager=MANAGER, force=True)

    async def _write(self, image: str, answer: Resolution) -> None:
        said = self._said(image)
        if not answer.is_certain and any(one.source == REGISTRY for one in said):
            return
        body = document(image, answer, rfc3339(self._clock.now()))
        written = body["spec"]["images"][0]
        for one in said:
            same = (one.source, one.message, one.digest) == (
                written["source"],
                written.get("message", ""),
                written.get("digest", ""),
            )
            if same and not answer.is_certain:
                return  # it fails as it did: nobody need be told again
        await self._client.apply(ImageMap, body, field_manager=MANAGER, force=True)

    async def _forget(self) -> None:
        """Delete what was looked up for pods that are long gone."""
        now = self._clock.now()
        used = {image for pod in self._pods.items() for image in images_of(pod)}
        for found in self._maps.items():
            images = [references.tagged(one.name) for one in found.spec.images]
            is_ours = RESOLVER_LABEL in found.metadata.labels and images
            is_old = all(is_older(one, now - REFRESH_S) for one in found.spec.images)
            if is_ours and is_old and used.isdisjoint(images):
                try:
                    await self._client.delete(ImageMap, found.metadata.name)
                except status.ApiError as error:
                    log.info("image map not deleted", name=found.metadata.name, error=error.message)
        for image in [image for image in self._pauses if image not in used]:
            self._pauses.pop(image)
            self._refused.pop(image, None)
        passed = self._clock.monotonic()
        self._due = {image: due for image, due in self._due.items() if due > passed}


# -- pure -----------------------------------------------------------------------------------


class Credentials(NamedTuple):
    """Where a pod's come from; pods of the same are let in or refused alike."""

    namespace: str
    account: str
    secrets: tuple[str, ...]


def credentials_of(pod: Pod) -> Credentials:
    """By which secrets a pod's images are pulled."""
    spec = pod.spec
    names = tuple(one.name for one in spec.image_pull_secrets)
    return Credentials(pod.metadata.namespace, spec.service_account_name, names)


def images_of(pod: Pod) -> list[str]:
    """Every image of a pod."""
    spec = pod.spec
    containers = (*spec.containers, *spec.init_containers, *spec.ephemeral_containers)
    return [references.tagged(c.image) for c in containers if c.image]


def pending_images(pod: Pod) -> list[str]:
    """The images of a pod that has no node yet, but for those that no registry has."""
    if pod.spec.node_name or pod.metadata.deletion_timestamp is not None:
        return []
    return [image for image in images_of(pod) if not image.startswith("localhost/")]


def platform_of(node: Node) -> tuple[str, str]:
    """Operating system and architecture."""
    labels, info = node.metadata.labels, node.status.node_info
    return (
        labels.get("kubernetes.io/os") or info.operating_system or "linux",
        labels.get("kubernetes.io/arch") or info.architecture,
    )


def is_mixed(platforms: Iterable[tuple[str, str]]) -> bool:
    """Are there nodes of unlike platforms?"""
    return len(set(platforms)) > 1


def is_older(one: MappedImage, moment: float) -> bool:
    """Was it observed before this?"""
    try:
        return one.observed_at is None or parse_rfc3339(one.observed_at) < moment
    except ValueError:
        return True


def is_fresh(one: MappedImage, now: float) -> bool:
    """Has its registry said so within a day?"""
    return one.source == REGISTRY and not is_older(one, now - REFRESH_S)


def object_name(image: str) -> str:
    """One object per image; an image's own name does not fit an object's."""
    return "image-" + hashlib.sha256(image.encode()).hexdigest()[:32]


def document(image: str, answer: Resolution, now: str) -> dict[str, Any]:
    """The ImageMap of one answer."""
    entry: dict[str, Any] = {
        "name": image,
        "source": answer.source,
        "observedAt": now,
        "architectures": [
            {"os": p.os, "architecture": p.arch, "variant": p.variant} for p in answer.platforms
        ],
    }
    if answer.digest:
        entry["digest"] = answer.digest
    if answer.problem:
        entry["message"] = answer.problem[:1024]
    metadata = {"name": object_name(image), "labels": {RESOLVER_LABEL: "true"}}
    return {"metadata": metadata, "spec": {"images": [entry]}}


def _marker() -> dict[str, Any]:
    metadata = {"name": MARKER, "labels": {RESOLVER_LABEL: "true"}}
    return {"metadata": metadata, "spec": {"images": []}}
