"""CSR approval: a node that may join gets its client certificate without a person's help.

Who may is RBAC's to say, as everything: the requester needs `create` on
`certificatesigningrequests/nodeclient` (a bootstrap token, for a first certificate),
`/selfnodeclient` (a node, to renew its own) or Motley's `/nodeproxyclient` (a node, for the service
proxy that runs beside its agent).
"""

from dataclasses import dataclass

from motley.api.views.base import Key
from motley.api.views.certificates import CertificateSigningRequest
from motley.client.rest import Client
from motley.client.workqueue import WorkQueue
from motley.controllers import certificates
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.lib import clock as clocks


@dataclass(frozen=True)
class _Permission:
    subresource: str
    message: str


_SELF = _Permission(
    "selfnodeclient",
    "Auto approving self kubelet client certificate after SubjectAccessReview.",
)
_ANY = _Permission(
    "nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview."
)
_PROXY = _Permission(
    "nodeproxyclient", "Auto approving node's proxy client certificate after SubjectAccessReview."
)


class CSRApprovingController:
    """See the module's docstring."""

    name = "csrapproving"
    workers = 1

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._clock = context.clock
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._requests = context.informers.of(CertificateSigningRequest)
        self._requests.add_handler(lambda change: self.queue.add(change.key))

    async def reconcile(self, key: Key) -> Requeue | None:
        """Approve what its requester may have; leave everything else to a person."""
        csr = self._requests.get(key)
        if csr is None or csr.status.certificate or csr.has("Approved") or csr.has("Denied"):
            return None
        for permission in _recognized(csr):
            if await self._allowed(csr, permission):
                await approve(self._client, self._clock, csr, permission.message)
                return None
        return None

    async def _allowed(self, csr: CertificateSigningRequest, permission: _Permission) -> bool:
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": csr.spec.username,
                "uid": csr.spec.uid,
                "groups": csr.spec.groups,
                "extra": csr.spec.extra,
                "resourceAttributes": {
                    "group": "certificates.k8s.io",
                    "version": "*",
                    "resource": "certificatesigningrequests",
                    "subresource": permission.subresource,
                    "verb": "create",
                },
            },
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer = await self._client.raw("POST", path, body=review)
        return bool(answer["status"].get("allowed"))


async def approve(
    client: Client, clock: clocks.Clock, csr: CertificateSigningRequest, message: str
) -> None:
    """Write the approval, if it is still the same request."""
    document = await client.document(CertificateSigningRequest, csr.metadata.name)
    if document["metadata"]["uid"] != csr.metadata.uid:
        return
    status = document.setdefault("status", {})
    status.setdefault("conditions", []).append(
        {
            "type": "Approved",
            "status": "True",
            "reason": "AutoApproved",
            "message": message,
            "lastUpdateTime": clocks.rfc3339(clock.now()),
        }
    )
    await client.update(CertificateSigningRequest, document, subresource="approval")


def _recognized(csr: CertificateSigningRequest) -> list[_Permission]:
    """The permissions that would do, the narrower first."""
    if csr.spec.signer_name not in (certificates.KUBELET_CLIENT, certificates.CLIENT):
        return []
    try:
        request = certificates.parse(csr.spec.request)
    except certificates.Refused:
        return []
    if csr.spec.signer_name == certificates.CLIENT:
        return [_PROXY] if certificates.is_proxy_client(request, csr.spec.usages) else []
    if not certificates.is_node_client(request, csr.spec.usages):
        return []
    own = certificates.common_name(request) == csr.spec.username
    return [_SELF, _ANY] if own else [_ANY]
