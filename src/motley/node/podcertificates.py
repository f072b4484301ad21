"""Certificates of the pods of this node: asked for, waited for, renewed when the signer says so.

    nothing ──ask──► asked ──issued──► fresh ──beginRefreshAt──► fresh and asked ──issued──► fresh
                       └──denied, failed──► refused, for good

The key is made here and never leaves the node but into the pod's volume; the API server and the
signer see a PodCertificateRequest with the public half. While a renewal is waited for, the pod
keeps the certificate it has. Nothing is remembered across a restart: a new agent asks again, and
the files stay as they are until it is answered.

Invariant: a key and a chain are handed out together or not at all.
"""

import asyncio
import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from motley.api import pem, status
from motley.api.views.base import Key
from motley.api.views.certificates import PodCertificateRequest
from motley.api.views.core import Node, ServiceAccount
from motley.api.views.pod import Pod
from motley.api.views.volume import PodCertificateProjection
from motley.client.events import Recorder
from motley.client.informer import Change, Informer
from motley.client.rest import Client
from motley.lib import journal
from motley.lib.backoff import Backoff
from motley.lib.clock import SYSTEM, Clock, parse_rfc3339
from motley.node import keys
from motley.node.environment import ConfigError, Credential

log = journal.get(__name__)

_LOOK_EVERY_S = 30.0
_REQUEST_S = 10.0
_JITTER_S = 300.0  # kubelet's: pods of one age do not all ask in the same minute
_OVERDUE_S = 600.0
_GONE_AFTER_S = 600.0  # a request that is not seen for so long has been deleted
_FINAL = ("Issued", "Denied", "Failed")


class Place(NamedTuple):
    """Which source of which projected volume."""

    volume: str
    source: int


class _Asked(NamedTuple):
    request: Key
    private_key: bytes
    gone_at: float


@dataclass(slots=True)
class _Held:
    """What one source has, and what it waits for."""

    pod: Pod
    source: PodCertificateProjection
    backoff: Backoff
    credential: Credential | None = None
    refresh_at: float = 0.0
    not_after: float = 0.0
    asked: _Asked | None = None
    refused: str = ""
    try_at: float = 0.0
    told: set[str] = field(default_factory=set)


def wanted(pod: Pod) -> dict[Place, PodCertificateProjection]:
    """The certificates a pod's volumes ask for."""
    return {
        Place(volume.name, index): part.pod_certificate
        for volume in pod.spec.volumes
        for index, part in enumerate(volume.projected.sources if volume.projected else [])
        if part.pod_certificate is not None
    }


def request_of(
    pod: Pod, account_uid: str, node: Node, source: PodCertificateProjection, stub: bytes
) -> dict[str, object]:
    """The object that asks for a certificate; it goes with its pod."""
    metadata = pod.metadata
    owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata.name, "uid": metadata.uid}
    spec: dict[str, object] = {
        "signerName": source.signer_name,
        "podName": metadata.name,
        "podUID": metadata.uid,
        "serviceAccountName": pod.spec.service_account_name,
        "serviceAccountUID": account_uid,
        "nodeName": node.metadata.name,
        "nodeUID": node.metadata.uid,
        "stubPKCS10Request": base64.b64encode(stub).decode(),
    }
    if source.max_expiration_seconds is not None:
        spec["maxExpirationSeconds"] = source.max_expiration_seconds
    if source.user_annotations:
        spec["unverifiedUserAnnotations"] = source.user_annotations
    return {"metadata": {"generateName": "req-", "ownerReferences": [owner]}, "spec": spec}


class PodCertificates:
    """Holds the certificates; `changed` is called with the uid of a pod that has to look again."""

    def __init__(
        self,
        client: Client,
        tasks: asyncio.TaskGroup,
        changed: Callable[[str], None],
        *,
        node_name: str,
        node: Callable[[], Node | None],
        recorder: Recorder,
        clock: Clock = SYSTEM,
        rng: Random | None = None,
    ) -> None:
        self._client = client
        self._tasks = tasks
        self._changed = changed
        self._node = node
        self._recorder = recorder
        self._clock = clock
        self._rng = rng or Random()
        self._held: dict[str, dict[Place, _Held]] = {}
        self._requests: Informer[PodCertificateRequest] = Informer(
            client, PodCertificateRequest, field_selector=f"spec.nodeName={node_name}", clock=clock
        )
        self._requests.add_handler(self._request_changed)
        self._following = False

    async def use(self, pod: Pod) -> None:
        """Ask for what is missing or due. A failure is logged: the pod's volume waits and retries,
        and a running pod keeps what it has."""
        sources = wanted(pod)
        if not sources:
            return
        if not self._following:
            self._following = True
            self._tasks.create_task(self._requests.run(), name="pod certificate requests")
            self._tasks.create_task(self.renew_forever(), name="pod certificates")
        for place, source in sources.items():
            held = self._held.setdefault(pod.metadata.uid, {}).get(place)
            if held is None:
                held = _Held(pod, source, Backoff(base_s=1.0, rng=self._rng))
                self._held[pod.metadata.uid][place] = held
            held.pod = pod
            await self._advance(held)

    def get(self, uid: str, volume: str, index: int) -> Credential:
        """Key and certificate of one source. Raises ConfigError while there are none."""
        held = self._held.get(uid, {}).get(Place(volume, index))
        if held is not None and held.refused:
            raise ConfigError(held.refused)
        if held is None or held.credential is None:
            raise ConfigError("credential bundle is not issued yet")
        return held.credential

    def release(self, uid: str) -> None:
        """The pod is gone."""
        self._held.pop(uid, None)

    async def renew_forever(self) -> None:
        """Tell pods when a certificate is due, and when a request has to be made again."""
        while True:
            await self._clock.sleep(_LOOK_EVERY_S)
            now = self._clock.now()
            for uid, places in list(self._held.items()):
                if any(not h.refused and h.refresh_at <= now for h in places.values()):
                    self._changed(uid)

    async def _advance(self, held: _Held) -> None:
        now = self._clock.now()
        if held.asked is not None:
            self._look(held)
        if held.refused or (held.credential is not None and now < held.refresh_at):
            return
        if held.credential is not None:
            self._warn_late(held, now)
        if held.asked is not None:
            if now < held.asked.gone_at or self._requests.get(held.asked.request) is not None:
                return
            held.asked = None
        if now < held.try_at:
            return
        try:
            held.asked = await self._ask(held)
            held.backoff.reset()
        except (status.ApiError, OSError, TimeoutError, ConfigError) as error:
            held.try_at = now + held.backoff.next()
            log.warning("no certificate for the pod yet", pod=held.pod.key, error=str(error))
            return
        self._look(held)  # the answer may have been seen before the request was known to be ours

    async def _ask(self, held: _Held) -> _Asked:
        pod, node = held.pod, self._node()
        if node is None:
            raise ConfigError("the node is not known yet")
        made = await asyncio.to_thread(keys.make, held.source.key_type)
        async with asyncio.timeout(_REQUEST_S):
            account = await self._client.get(
                ServiceAccount, pod.spec.service_account_name, pod.metadata.namespace
            )
            body = request_of(pod, account.metadata.uid, node, held.source, made.stub)
            request = await self._client.create(PodCertificateRequest, body, pod.metadata.namespace)
        log.info("certificate asked for", pod=pod.key, request=request.key)
        spread_s = _GONE_AFTER_S + self._rng.random() * _JITTER_S
        return _Asked(request.key, made.private_key, self._clock.now() + spread_s)

    def _request_changed(self, change: Change[PodCertificateRequest]) -> None:
        for uid, places in list(self._held.items()):
            for held in places.values():
                if held.asked is None or held.asked.request != change.key:
                    continue
                if change.new is None:
                    held.asked = None  # deleted unanswered: another one is asked for
                    self._changed(uid)
                elif self._look(held):
                    self._changed(uid)

    def _look(self, held: _Held) -> bool:
        """Take the answer to what was asked; False while there is none."""
        asked = held.asked
        found = self._requests.get(asked.request) if asked is not None else None
        if asked is None or found is None:
            return False
        decided = next((c for c in found.status.conditions if c.type in _FINAL), None)
        if decided is None:
            return False
        held.asked = None
        if decided.type != "Issued":
            outcome = "denied" if decided.type == "Denied" else "failed"
            why = f'reason="{decided.reason}" message="{decided.message}"'
            held.refused = f"PodCertificateRequest was permanently {outcome}: {why}"
            self._warn(held, decided.type, f"PodCertificateRequest {found.key} {outcome}, {why}")
            return True
        blocks = pem.blocks(found.status.certificate_chain)
        chain = "".join(pem.encode(pem.CERTIFICATE, block.data) for block in blocks)
        held.credential = Credential(asked.private_key, chain.encode())
        jitter_s = self._rng.random() * _JITTER_S
        held.refresh_at = parse_rfc3339(found.status.begin_refresh_at or "") + jitter_s
        held.not_after = parse_rfc3339(found.status.not_after or "")
        held.told.clear()
        log.info("certificate issued", pod=held.pod.key, request=found.key)
        return True

    def _warn_late(self, held: _Held, now: float) -> None:
        late = {
            "CertificateOverdueForRefresh": (held.refresh_at + _OVERDUE_S, "refresh overdue"),
            "CertificateExpired": (held.not_after, "expired"),
        }
        for reason, (since, what) in late.items():
            if now > since and reason not in held.told:
                held.told.add(reason)
                self._warn(held, reason, f"PodCertificate {what}")

    def _warn(self, held: _Held, reason: str, message: str) -> None:
        log.warning("pod certificate", pod=held.pod.key, reason=reason, why=message)
        self._recorder.event(held.pod, "Warning", reason, message)
