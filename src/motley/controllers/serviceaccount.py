"""ServiceAccount: every namespace has an account `default` and the cluster's CA certificate.

Pods without an account of their own run as `default`, and find in the ConfigMap
`kube-root-ca.crt` what they need to trust the API server.
"""

from typing import Any

from motley.api import status
from motley.api.views.base import Key, Object
from motley.api.views.core import ConfigMap, Namespace, ServiceAccount
from motley.client.informer import Change
from motley.client.workqueue import WorkQueue
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue

ACCOUNT = "default"
ROOT_CA = "kube-root-ca.crt"
_DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal "
    "endpoints such as the internal service IP or kubernetes.default.svc. No other usage is "
    "guaranteed across distributions of Kubernetes clusters."
)


class ServiceAccountController:
    """See the module's docstring."""

    name = "serviceaccount"
    workers = 1

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._ca = (context.client.config.ca or b"").decode()
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._namespaces = context.informers.of(Namespace)
        self._accounts = context.informers.of(ServiceAccount)
        self._maps = context.informers.of(ConfigMap)
        self._namespaces.add_handler(lambda change: self.queue.add(change.key))
        self._accounts.add_handler(self._content_changed)
        self._maps.add_handler(self._content_changed)

    def _content_changed(self, change: Change[Any]) -> None:
        if change.key.name in (ACCOUNT, ROOT_CA):
            self.queue.add(Key("", change.key.namespace))

    async def reconcile(self, key: Key) -> Requeue | None:
        """Make what is missing in one namespace."""
        namespace = self._namespaces.get(key)
        if namespace is None or namespace.metadata.deletion_timestamp is not None:
            return None
        if self._accounts.get(Key(key.name, ACCOUNT)) is None:
            await self._create(ServiceAccount, key.name, {"metadata": {"name": ACCOUNT}})
        if not self._ca:
            return None
        published = self._maps.get(Key(key.name, ROOT_CA))
        data = {"ca.crt": self._ca}
        if published is None:
            meta = {
                "name": ROOT_CA,
                "annotations": {"kubernetes.io/description": _DESCRIPTION},
            }
            await self._create(ConfigMap, key.name, {"metadata": meta, "data": data})
        elif published.data != data:
            await self._client.patch(ConfigMap, ROOT_CA, key.name, {"data": data})
        return None

    async def _create(self, cls: type[Object], namespace: str, body: dict[str, Any]) -> None:
        try:
            await self._client.create(cls, body, namespace)
        except (status.AlreadyExists, status.NotFound):
            pass  # made by someone else, or the namespace has just gone
