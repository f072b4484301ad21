"""CSR signing and cleaning: an approved request gets its certificate, an old one goes.

The signing controller needs the authority's key, which only the control plane's machine has; where
no key is given it does not run, and another signer may do its work.
"""

import base64
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cryptography import x509

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.certificates import CertificateSigningRequest
from motley.client.workqueue import WorkQueue
from motley.controllers import certificates
from motley.controllers.certificates import Authority
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.lib import clock as clocks
from motley.lib import journal

log = journal.get(__name__)

YEAR_S = 365 * 24 * 3600.0
_SHORTEST_S = 600.0  # Kubernetes signs for ten minutes at least
# How long requests are kept, by what became of them: people look at them, then nobody does.
_ISSUED_S, _DENIED_S, _PENDING_S = 3600.0, 3600.0, 24 * 3600.0


class CSRSigningController:
    """Signs for Kubernetes' own signer names with the authority in two files.

    The files are read at each signature, so that a rotated authority signs from then on.
    """

    name = "csrsigning"
    workers = 1

    def __init__(
        self,
        context: Context,
        *,
        certificate: Path | None = None,
        key: Path | None = None,
        longest_s: float = YEAR_S,
        serial: Callable[[], int] = x509.random_serial_number,
    ) -> None:
        self._client = context.client
        self._clock = context.clock
        self._files = (certificate, key) if certificate and key else None
        self._longest_s = longest_s
        self._serial = serial
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._requests = context.informers.of(CertificateSigningRequest)
        if self._files:
            self._requests.add_handler(lambda change: self.queue.add(change.key))

    async def reconcile(self, key: Key) -> Requeue | None:
        """Sign one approved request, or say why not."""
        csr = self._requests.get(key)
        if csr is None or self._files is None or csr.spec.signer_name not in certificates.SIGNERS:
            return None
        if csr.status.certificate or not csr.has("Approved") or csr.has("Denied"):
            return None
        if csr.has("Failed"):
            return None
        try:
            signed = self._signed(csr, *self._files)
            change: dict[str, Any] = {"certificate": base64.b64encode(signed).decode()}
        except certificates.Refused as refusal:
            change = {"conditions": [*_conditions(csr), self._failed(str(refusal))]}
        meta = {"uid": csr.metadata.uid, "resourceVersion": csr.metadata.resource_version}
        await self._client.patch(
            CertificateSigningRequest,
            csr.metadata.name,
            "",
            {"metadata": meta, "status": change},
            subresource="status",
        )
        log.info("signing request answered", name=csr.metadata.name, signer=csr.spec.signer_name)
        return None

    def _signed(self, csr: CertificateSigningRequest, certificate: Path, key: Path) -> bytes:
        authority = Authority.load(certificate.read_bytes(), key.read_bytes())
        request = certificates.parse(csr.spec.request)
        certificates.validate(csr.spec.signer_name, request, csr.spec.usages)
        asked_s = csr.spec.expiration_seconds
        lasts_s = self._longest_s if asked_s is None else max(_SHORTEST_S, float(asked_s))
        lasts_s = min(lasts_s, self._longest_s)
        return authority.sign(request, csr.spec.usages, lasts_s, self._clock.now(), self._serial())

    def _failed(self, message: str) -> dict[str, str]:
        now = clocks.rfc3339(self._clock.now())
        return {
            "type": "Failed",
            "status": "True",
            "reason": "SignerValidationFailure",
            "message": message,
            "lastUpdateTime": now,
        }


def _conditions(csr: CertificateSigningRequest) -> list[dict[str, Any]]:
    fields = ("type", "status", "reason", "message")
    return [
        {**{f: getattr(c, f) for f in fields}, "lastUpdateTime": c.last_update_time}
        for c in csr.status.conditions
    ]


class CSRCleaningController:
    """Removes requests that nobody will look at again."""

    name = "csrcleaner"
    workers = 1

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._clock = context.clock
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._requests = context.informers.of(CertificateSigningRequest)
        self._requests.add_handler(lambda change: self.queue.add(change.key))

    async def reconcile(self, key: Key) -> Requeue | None:
        """Delete it when its time has come, else come back then."""
        csr = self._requests.get(key)
        if csr is None:
            return None
        left_s = ends(csr) - self._clock.now()
        if left_s > 0:
            return Requeue(left_s + 1.0)
        try:
            await self._client.delete(
                CertificateSigningRequest, csr.metadata.name, uid=csr.metadata.uid
            )
        except status.NotFound:
            pass  # someone was quicker
        return None


def ends(csr: CertificateSigningRequest) -> float:
    """When a request may go."""
    created = clocks.parse_rfc3339(csr.metadata.creation_timestamp or clocks.rfc3339(0))
    decided = {
        c.type: clocks.parse_rfc3339(c.last_update_time) if c.last_update_time else created
        for c in csr.status.conditions
    }
    if "Denied" in decided or "Failed" in decided:
        return decided.get("Denied", decided.get("Failed", created)) + _DENIED_S
    expired = certificates.expires(csr.status.certificate) if csr.status.certificate else None
    if "Approved" in decided and expired is not None:
        return min(decided["Approved"] + _ISSUED_S, expired)
    return created + _PENDING_S
