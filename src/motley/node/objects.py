"""What pods of this node refer to: ConfigMaps and Secrets, each followed by one watch, and more.

An object is watched from its first use until the last pod that uses it is gone, however many pods
that are; a change is announced to exactly those pods. An object that does not exist is watched
all the same, so a pod waiting for it starts the moment it appears. Tokens, trust bundles and
certificates are kept by modules of their own and had from here.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from motley.api.views.base import Key, Object
from motley.api.views.core import ConfigMap, Secret
from motley.api.views.pod import Pod
from motley.api.views.volume import ClusterTrustBundleProjection
from motley.client.informer import Informer
from motley.client.rest import Client
from motley.lib import journal
from motley.lib.clock import SYSTEM, Clock
from motley.node import podcertificates, trustbundles
from motley.node.environment import ConfigError, Credential
from motley.node.podcertificates import PodCertificates
from motley.node.tokens import Tokens
from motley.node.trustbundles import TrustBundles

log = journal.get(__name__)

_FIRST_LIST_S = 10.0
ROOT_CA = "kube-root-ca.crt"  # published in every namespace, for the pods' own API access


class Reference(NamedTuple):
    """One object a pod uses."""

    kind: type[Object]
    key: Key


def references(pod: Pod) -> set[Reference]:
    """Every ConfigMap and Secret a pod's spec names."""
    maps: set[str] = set()
    secrets: set[str] = set()
    for container in [*pod.spec.init_containers, *pod.spec.containers]:
        for source in container.env_from:
            if source.config_map_ref:
                maps.add(source.config_map_ref.name)
            if source.secret_ref:
                secrets.add(source.secret_ref.name)
        for variable in container.env:
            if variable.value_from and (ref := variable.value_from.config_map_key_ref):
                maps.add(ref.name)
            if variable.value_from and (ref := variable.value_from.secret_key_ref):
                secrets.add(ref.name)
    for volume in pod.spec.volumes:
        if volume.config_map:
            maps.add(volume.config_map.name)
        if volume.secret:
            secrets.add(volume.secret.secret_name)
        for part in volume.projected.sources if volume.projected else []:
            if part.config_map:
                maps.add(part.config_map.name)
            if part.secret:
                secrets.add(part.secret.name)
    secrets.update(r.name for r in pod.spec.image_pull_secrets)
    namespace = pod.metadata.namespace
    return {Reference(ConfigMap, Key(namespace, n)) for n in maps if n} | {
        Reference(Secret, Key(namespace, n)) for n in secrets if n
    }


def is_plain(pod: Pod) -> bool:
    """Does a pod refer to nothing that might be missing? Every namespace has ROOT_CA."""
    volumes = pod.spec.volumes
    if trustbundles.wanted(pod) or podcertificates.wanted(pod):
        return False
    return all(v.empty_dir or v.downward_api or v.projected for v in volumes) and all(
        reference.kind is ConfigMap and reference.key.name == ROOT_CA
        for reference in references(pod)
    )


@dataclass(slots=True)
class _Watched:
    informer: Informer[Any]
    task: asyncio.Task[None]
    users: set[str] = field(default_factory=set)


class NamespaceLookup:
    """`environment.Lookup` over the watched objects of one namespace."""

    def __init__(self, objects: "Objects", namespace: str, uid: str = "") -> None:
        self._objects = objects
        self._namespace = namespace
        self._uid = uid

    def config_map(self, name: str) -> ConfigMap | None:
        """The ConfigMap, if it exists."""
        found = self._objects.get(Reference(ConfigMap, Key(self._namespace, name)))
        return found if isinstance(found, ConfigMap) else None

    def secret(self, name: str) -> Secret | None:
        """The Secret, if it exists."""
        found = self._objects.get(Reference(Secret, Key(self._namespace, name)))
        return found if isinstance(found, Secret) else None

    def token(self, audience: str, lifetime_s: int) -> str | None:
        """The pod's token, if it has been issued."""
        return self._objects.tokens.get(self._uid, audience, lifetime_s)

    def trust_anchors(self, source: ClusterTrustBundleProjection) -> bytes:
        """The certificates of the bundles meant. Raises ConfigError."""
        return self._objects.bundles.anchors(source)

    def credential(self, volume: str, index: int) -> Credential:
        """The certificate for a source of a volume. Raises ConfigError while there is none."""
        if self._objects.certificates is None:
            raise ConfigError("this node has no certificates of pods")
        return self._objects.certificates.get(self._uid, volume, index)


class Objects:
    """Follows what pods refer to; `changed` is called with the uid of each pod concerned."""

    def __init__(
        self,
        client: Client,
        tasks: asyncio.TaskGroup,
        changed: Callable[[str], None],
        *,
        certificates: PodCertificates | None = None,
        clock: Clock = SYSTEM,
    ) -> None:
        self._client = client
        self._tasks = tasks
        self._changed = changed
        self._clock = clock
        self.tokens = Tokens(client, changed, clock=clock)
        self.bundles = TrustBundles(client, tasks, changed, clock=clock)
        self.certificates = certificates
        self._renewing = False
        self._watched: dict[Reference, _Watched] = {}
        self._used: dict[str, set[Reference]] = {}

    def get(self, reference: Reference) -> Object | None:
        """The object as last seen."""
        watched = self._watched.get(reference)
        found: Object | None = watched.informer.get(reference.key) if watched else None
        return found

    def lookup(self, namespace: str, uid: str = "") -> NamespaceLookup:
        """What a pod in this namespace sees; its uid is needed for its tokens only."""
        return NamespaceLookup(self, namespace, uid)

    async def use(self, pod: Pod) -> None:
        """Follow everything the pod refers to; returns when each has been asked for once."""
        uid, wanted = pod.metadata.uid, references(pod)
        for reference in self._used.get(uid, set()) - wanted:
            self._drop(uid, reference)
        self._used[uid] = wanted
        for reference in wanted:
            self._watch(reference).users.add(uid)
        async with asyncio.timeout(_FIRST_LIST_S), asyncio.TaskGroup() as group:
            group.create_task(self.renew(pod))
            group.create_task(self.bundles.use(pod))
            for reference in wanted:
                await self._watched[reference].informer.synced()

    async def renew(self, pod: Pod) -> None:
        """Have fresh tokens and certificates for the pod, where its volumes want any."""
        if not self._renewing:
            self._renewing = True
            self._tasks.create_task(self.tokens.renew_forever(), name="tokens")
        await self.tokens.use(pod)
        if self.certificates is not None:
            await self.certificates.use(pod)

    def release(self, uid: str) -> None:
        """The pod is gone."""
        self.tokens.release(uid)
        self.bundles.release(uid)
        if self.certificates is not None:
            self.certificates.release(uid)
        for reference in self._used.pop(uid, set()):
            self._drop(uid, reference)

    def _watch(self, reference: Reference) -> _Watched:
        if reference in self._watched:
            return self._watched[reference]
        informer: Informer[Any] = Informer(
            self._client,
            reference.kind,
            namespace=reference.key.namespace,
            field_selector=f"metadata.name={reference.key.name}",
            clock=self._clock,
        )
        informer.add_handler(lambda _: self._announce(reference))
        watched = _Watched(informer, self._tasks.create_task(informer.run()))
        self._watched[reference] = watched
        return watched

    def _announce(self, reference: Reference) -> None:
        if watched := self._watched.get(reference):
            for uid in list(watched.users):
                self._changed(uid)

    def _drop(self, uid: str, reference: Reference) -> None:
        watched = self._watched.get(reference)
        if watched is None:
            return
        watched.users.discard(uid)
        if not watched.users:
            watched.task.cancel()
            del self._watched[reference]
            log.debug("object no longer used", kind=reference.kind.KIND, key=reference.key)
