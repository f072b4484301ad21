"""ClusterTrustBundles for the pods of this node: followed by one watch, while any pod wants one.

A volume names a bundle, or a signer and labels, and gets the certificates of all that match in one
file. Remarks between the certificates are dropped, what is listed twice is written once, and the
order is that of the certificates themselves: the file changes only when what it says does.
"""

import asyncio
from collections.abc import Callable, Iterable

from motley.api import pem
from motley.api.selectors import Selector
from motley.api.views.base import Key
from motley.api.views.certificates import ClusterTrustBundle
from motley.api.views.pod import Pod
from motley.api.views.volume import ClusterTrustBundleProjection
from motley.client.informer import Change, Informer
from motley.client.rest import Client
from motley.lib import journal
from motley.lib.clock import SYSTEM, Clock
from motley.node.environment import ConfigError

log = journal.get(__name__)


def wanted(pod: Pod) -> list[ClusterTrustBundleProjection]:
    """The bundles a pod's volumes ask for."""
    return [
        part.cluster_trust_bundle
        for volume in pod.spec.volumes
        for part in (volume.projected.sources if volume.projected else [])
        if part.cluster_trust_bundle is not None
    ]


def joined(bundles: Iterable[ClusterTrustBundle]) -> bytes:
    """The certificates of several bundles, each once."""
    every = {block.data for one in bundles for block in pem.blocks(one.spec.trust_bundle)}
    return "".join(pem.encode(pem.CERTIFICATE, data) for data in sorted(every)).encode()


class TrustBundles:
    """Follows the bundles; `changed` is called with the uid of each pod concerned."""

    def __init__(
        self,
        client: Client,
        tasks: asyncio.TaskGroup,
        changed: Callable[[str], None],
        *,
        clock: Clock = SYSTEM,
    ) -> None:
        self._client = client
        self._tasks = tasks
        self._changed = changed
        self._clock = clock
        self._users: dict[str, list[ClusterTrustBundleProjection]] = {}
        self._informer: Informer[ClusterTrustBundle] | None = None
        self._following: asyncio.Task[None] | None = None

    async def use(self, pod: Pod) -> None:
        """Follow what the pod's volumes ask for; returns when the bundles are known."""
        sources = wanted(pod)
        if not sources:
            return
        self._users[pod.metadata.uid] = sources
        if self._informer is None:
            self._informer = Informer(self._client, ClusterTrustBundle, clock=self._clock)
            self._informer.add_handler(self._bundle_changed)
            self._following = self._tasks.create_task(self._informer.run(), name="trust bundles")
        await self._informer.synced()

    def anchors(self, source: ClusterTrustBundleProjection) -> bytes:
        """What a volume's file is to hold. Raises ConfigError where nothing matches."""
        found = self._matching(source)
        if not found and not source.optional:
            if source.name is not None:
                raise ConfigError(f'clustertrustbundle "{source.name}" not found')
            raise ConfigError(
                "combination of signerName and labelSelector matched zero ClusterTrustBundles"
            )
        return joined(found)

    def _matching(self, source: ClusterTrustBundleProjection) -> list[ClusterTrustBundle]:
        if self._informer is None or not self._informer.has_synced:
            raise ConfigError("ClusterTrustBundles have not been read yet")
        if source.name is not None:
            one = self._informer.get(Key("", source.name))
            return [one] if one is not None else []
        selector = Selector.of(source.label_selector)
        return [
            one
            for one in self._informer.items()
            if one.spec.signer_name == source.signer_name and selector.matches(one.metadata.labels)
        ]

    def release(self, uid: str) -> None:
        """The pod is gone; after the last one nothing is followed."""
        if self._users.pop(uid, None) is None or self._users:
            return
        if self._following is not None:
            self._following.cancel()
        self._informer = self._following = None
        log.debug("trust bundles no longer used")

    def _bundle_changed(self, change: Change[ClusterTrustBundle]) -> None:
        name, signer = change.key.name, change.object.spec.signer_name
        for uid, sources in list(self._users.items()):
            if any(s.name == name or (signer and s.signer_name == signer) for s in sources):
                self._changed(uid)
