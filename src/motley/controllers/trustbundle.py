"""Cluster trust bundle publisher: what a client needs to trust the API server, for every pod.

The bundle bears the signer `kubernetes.io/kube-apiserver-serving` and a hash of what it holds. A
rotated authority makes a new one; the old one is deleted after that, so that a volume that selects
by the signer never finds none.
"""

import hashlib

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.certificates import ClusterTrustBundle
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.lib import journal

log = journal.get(__name__)

SIGNER = "kubernetes.io/kube-apiserver-serving"
_PREFIX = SIGNER.replace("/", ":") + ":"
_ONLY = Key("", SIGNER)  # everything is one thing to reconcile


def bundle_name(bundle: str) -> str:
    """The name of the bundle with this content."""
    return _PREFIX + hashlib.sha256(bundle.encode()).hexdigest()[:24]


class TrustBundlePublisher:
    """See the module's docstring."""

    name = "clustertrustbundlepublisher"
    workers = 1

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._ca = (context.client.config.ca or b"").decode()
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._bundles = context.informers.of(ClusterTrustBundle)
        self._bundles.add_handler(self._bundle_changed)
        self.queue.add(_ONLY)

    def _bundle_changed(self, change: Change[ClusterTrustBundle]) -> None:
        if change.object.spec.signer_name == SIGNER:
            self.queue.add(_ONLY)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Publish what this process itself trusts, then delete what was published before."""
        if not self._ca:
            return None
        name = bundle_name(self._ca)
        published = self._bundles.get(Key("", name))
        spec = {"signerName": SIGNER, "trustBundle": self._ca}
        if published is None:
            try:
                await self._client.create(
                    ClusterTrustBundle, {"metadata": {"name": name}, "spec": spec}
                )
            except status.AlreadyExists:
                log.debug("trust bundle is there already", name=name)
        elif published.spec.trust_bundle != self._ca:
            await self._client.patch(ClusterTrustBundle, name, "", {"spec": spec})
        for other in self._bundles.items():
            if other.spec.signer_name == SIGNER and other.metadata.name != name:
                await self._delete(other)
        return None

    async def _delete(self, bundle: ClusterTrustBundle) -> None:
        try:
            await self._client.delete(
                ClusterTrustBundle, bundle.metadata.name, uid=bundle.metadata.uid
            )
            log.info("earlier trust bundle deleted", name=bundle.metadata.name)
        except (status.NotFound, status.Conflict):
            log.debug("trust bundle is gone already", name=bundle.metadata.name)
