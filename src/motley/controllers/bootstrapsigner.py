"""Bootstrap signer: lets whoever holds a join token see that the published cluster-info is true.

For each token that is for signing, `kube-public/cluster-info` gets a signature of its kubeconfig by
the token's secret (a detached JWS, as kubeadm reads it). Who knows the secret can check it; who
does not can forge none. Signatures of tokens that are gone or over are taken away.

`motley join` goes by the hash of the authority instead, which also holds against those who know the
token; this is for kubeadm and other tools that discover a cluster by its token.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable

import msgspec

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.core import ConfigMap, Secret
from motley.client.workqueue import WorkQueue
from motley.controllers import tokencleaner
from motley.controllers.manager import Context
from motley.controllers.reconciler import Requeue
from motley.lib import journal

log = journal.get(__name__)

NAMESPACE, NAME = "kube-public", "cluster-info"
PREFIX = "jws-kubeconfig-"


def sign(content: str, identity: str, secret: str) -> str:
    """A detached JWS (HS256) of a text: header and signature, without the text between them."""
    header = _encode(msgspec.json.encode({"alg": "HS256", "kid": identity}))
    signed = f"{header}.{_encode(content.encode())}"
    digest = hmac.new(secret.encode(), signed.encode(), hashlib.sha256).digest()
    return f"{header}..{_encode(digest)}"


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def signers(secrets: Iterable[Secret], now: float) -> dict[str, str]:
    """Ids and secrets of the tokens that sign now."""
    found = {}
    for secret in secrets:
        ends = tokencleaner.expires_at(secret)
        is_over = (ends is not None and ends <= now) or secret.metadata.deletion_timestamp
        if secret.type != tokencleaner.TYPE or is_over:
            continue
        identity, word = _text(secret, "token-id"), _text(secret, "token-secret")
        if identity and word and _text(secret, "usage-bootstrap-signing") == "true":
            found[identity] = word
    return found


def _text(secret: Secret, key: str) -> str:
    try:
        return base64.b64decode(secret.data.get(key) or "", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""


def wanted(info: ConfigMap, tokens: dict[str, str]) -> dict[str, str | None]:
    """What is to change in the published data: signatures to write, and None for those to go."""
    content = info.data.get("kubeconfig", "")
    right = {f"{PREFIX}{i}": sign(content, i, word) for i, word in tokens.items() if content}
    stale = [key for key in info.data if key.startswith(PREFIX) and key not in right]
    written = {key: value for key, value in right.items() if info.data.get(key) != value}
    return {**dict.fromkeys(stale), **written}


class BootstrapSignerController:
    """See the module's docstring."""

    name = "bootstrapsigner"
    workers = 1

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._clock = context.clock
        self.queue: WorkQueue[Key] = WorkQueue(context.clock)
        self._secrets = context.informers.of(Secret, tokencleaner.NAMESPACE)
        self._infos = context.informers.of(ConfigMap, NAMESPACE)
        one = Key(NAMESPACE, NAME)
        self._secrets.add_handler(
            lambda change: self.queue.add(one) if change.object.type == tokencleaner.TYPE else None
        )
        self._infos.add_handler(lambda change: self.queue.add(one) if change.key == one else None)

    async def reconcile(self, key: Key) -> Requeue | None:
        """Bring the signatures up to date; come back when the next token ends."""
        info = self._infos.get(key)
        if info is None:
            return None
        now = self._clock.now()
        secrets = self._secrets.items()
        if change := wanted(info, signers(secrets, now)):
            meta = {"resourceVersion": info.metadata.resource_version}
            try:
                await self._client.patch(
                    ConfigMap, key.name, key.namespace, {"metadata": meta, "data": change}
                )
            except status.NotFound:
                return None
            log.info("cluster-info signed", changed=",".join(change))
        ends = [e for s in secrets if (e := tokencleaner.expires_at(s)) is not None and e > now]
        return Requeue(min(ends) - now) if ends else None
