"""Images: is it here, may it be pulled, and not too often.

Several pods that want one image wait for one pull. An image that cannot be pulled is tried again
with the same back-off as a crashing container.
"""

import asyncio
import base64
import binascii
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from motley.api.views.core import Secret
from motley.lib import journal
from motley.lib.clock import SYSTEM, Clock
from motley.node.cri.errors import RuntimeFailure, RuntimeUnavailable
from motley.node.cri.runtime import Runtime
from motley.node.cri.values import Image

log = journal.get(__name__)

BACKOFF_FIRST_S = 10.0
BACKOFF_MAX_S = 300.0


class ImageError(Exception):
    """The image is not here; `reason` is what Kubernetes shows."""

    def __init__(self, reason: str, message: str, retry_at: float) -> None:
        super().__init__(message)
        self.reason = reason
        self.retry_at = retry_at


@dataclass(slots=True)
class _Failure:
    delay_s: float
    retry_at: float
    message: str


def default_tag(reference: str) -> str:
    """The reference with `:latest` when it names neither tag nor digest."""
    last = reference.rpartition("/")[2]
    return reference if ":" in last or "@" in last else f"{reference}:latest"


def pull_policy(policy: str, reference: str) -> str:
    """The policy, or what Kubernetes assumes where none is given."""
    if policy in ("Always", "IfNotPresent", "Never"):
        return policy
    return "Always" if default_tag(reference).endswith(":latest") else "IfNotPresent"


def registry(reference: str) -> str:
    """The registry host of a reference."""
    first, slash, _ = reference.partition("/")
    return (
        first if slash and ("." in first or ":" in first or first == "localhost") else "docker.io"
    )


def credentials(secrets: Iterable[Secret], reference: str) -> Mapping[str, str] | None:
    """User and password for an image's registry from `kubernetes.io/dockerconfigjson` secrets."""
    host = registry(reference)
    for secret in secrets:
        text = secret.data.get(".dockerconfigjson")
        if text is None:
            continue
        try:
            entries: dict[str, Any] = msgspec.json.decode(base64.b64decode(text))["auths"]
        except (binascii.Error, msgspec.DecodeError, KeyError, TypeError):
            log.warning("pull secret is not readable", name=secret.metadata.name)
            continue
        for server, entry in entries.items():
            bare = server.removeprefix("https://").removeprefix("http://").partition("/")[0]
            if bare == host or (host == "docker.io" and bare.endswith("docker.io")):
                known = ("username", "password", "auth")
                return {k: str(v) for k, v in entry.items() if k in known}
    return None


class Images:
    """The node's images through the runtime."""

    def __init__(self, runtime: Runtime, *, clock: Clock = SYSTEM) -> None:
        self._runtime = runtime
        self._clock = clock
        self._failures: dict[str, _Failure] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def ensure(
        self, reference: str, policy: str, secrets: Iterable[Secret] = ()
    ) -> tuple[Image, bool]:
        """The image, and whether it was pulled now. Raises ImageError with when to try again."""
        reference = default_tag(reference)
        policy = pull_policy(policy, reference)
        lock = self._locks.setdefault(reference, asyncio.Lock())
        async with lock:
            present = await self._runtime.image(reference)
            if present is not None and policy != "Always":
                return present, False
            if policy == "Never":
                message = f'Container image "{reference}" is not present with pull policy of Never'
                raise ImageError("ErrImageNeverPull", message, self._clock.now() + BACKOFF_FIRST_S)
            return await self._pull(reference, secrets)

    async def _pull(self, reference: str, secrets: Iterable[Secret]) -> tuple[Image, bool]:
        now = self._clock.now()
        failure = self._failures.get(reference)
        if failure is not None and now < failure.retry_at:
            message = f'Back-off pulling image "{reference}": {failure.message}'
            raise ImageError("ImagePullBackOff", message, failure.retry_at)
        try:
            pulled = await self._runtime.pull(reference, credentials(secrets, reference))
            image = await self._runtime.image(pulled)
        except RuntimeUnavailable:
            raise
        except RuntimeFailure as error:
            delay = min(BACKOFF_MAX_S, failure.delay_s * 2) if failure else BACKOFF_FIRST_S
            retry_at = self._clock.now() + delay
            self._failures[reference] = _Failure(delay, retry_at, str(error))
            message = f'failed to pull image "{reference}": {error}'
            # Shown as ErrImagePull now, and as ImagePullBackOff until the next attempt.
            raise ImageError("ErrImagePull", message, self._clock.now() + 1.0) from error
        self._failures.pop(reference, None)
        if image is None:
            raise ImageError("ErrImagePull", f'image "{reference}" vanished after the pull', now)
        return image, True
