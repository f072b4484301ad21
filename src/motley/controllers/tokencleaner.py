"""Token cleaner: deletes bootstrap tokens whose time is over.

The API server refuses an expired token in any case; this keeps the Secret from lying about.
"""

import base64
import binascii

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.core import Secret
from motley.client.workqueue import WorkQueue
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.lib import clock as clocks
from motley.lib import journal

log = journal.get(__name__)

NAMESPACE = "kube-system"
TYPE = "bootstrap.kubernetes.io/token"


def expires_at(secret: Secret) -> float | None:
    """When a bootstrap token ends, in seconds of the epoch; None: never, or it is none.

    A time that cannot be read is over: the API server does not accept such a token either.
    """
    if secret.type != TYPE or not secret.data.get("expiration"):
        return None
    try:
        text = base64.b64decode(secret.data["expiration"], validate=True).decode()
        return clocks.parse_rfc3339(text)
    except (binascii.Error, ValueError):
        return float("-inf")


class TokenCleanerController:
    """See the module's docstring."""

    name = "tokencleaner"
    workers = 1

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._clock = context.clock
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._secrets = context.informers.of(Secret, NAMESPACE)
        self._secrets.add_handler(lambda change: self.queue.add(change.key))

    async def reconcile(self, key: Key) -> Requeue | None:
        """Delete a token that is over, or come back when it is."""
        secret = self._secrets.get(key)
        ends = expires_at(secret) if secret is not None else None
        if secret is None or ends is None:
            return None
        left_s = ends - self._clock.now()
        if left_s > 0:
            return Requeue(left_s)
        log.info("deleting expired bootstrap token", secret=key.name)
        try:
            await self._client.delete(Secret, key.name, key.namespace, uid=secret.metadata.uid)
        except (status.NotFound, status.Conflict):
            log.debug("token is gone already", secret=key.name)
        return None
