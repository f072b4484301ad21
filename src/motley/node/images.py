"""Images: is it here, may it be pulled, and not too often.

Several pods that want one image wait for one pull, and no more pulls run at once than allowed: a
node whose disk unpacks ten images together starts none of them soon. An image that cannot be
pulled is tried again with the same back-off as a crashing container; other credentials are another
attempt and do not wait.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from motley.api.views.core import Secret
from motley.api.views.pod import Pod
from motley.lib import journal
from motley.lib.clock import SYSTEM, Clock
from motley.node.cri.errors import RuntimeFailure, RuntimeUnavailable
from motley.node.cri.runtime import Runtime
from motley.node.cri.values import Image
from motley.node.environment import Lookup
from motley.node.pulledimages import PulledImages
from motley.registry import credentials, references
from motley.registry.credentials import Login
from motley.registry.references import Reference

log = journal.get(__name__)

BACKOFF_FIRST_S = 10.0
BACKOFF_MAX_S = 300.0
PARALLEL_PULLS = 5
# How registries and runtimes say that they do not know you.
_REFUSALS = ("401", "403", "authoriz", "authentic", "denied", "credentials")


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


@dataclass(slots=True)
class _Turn:
    lock: asyncio.Lock
    waiting: int = 0


def default_tag(reference: str) -> str:
    """The reference with `:latest` when it names neither tag nor digest."""
    last = reference.rpartition("/")[2]
    return reference if ":" in last or "@" in last else f"{reference}:latest"


def pull_policy(policy: str, reference: str) -> str:
    """The policy, or what Kubernetes assumes where none is given."""
    if policy in ("Always", "IfNotPresent", "Never"):
        return policy
    return "Always" if default_tag(reference).endswith(":latest") else "IfNotPresent"


def pull_secrets(pod: Pod, lookup: Lookup) -> tuple[list[Secret], list[str]]:
    """The pull secrets a pod names, and the names of those that are not there."""
    names = list(dict.fromkeys(r.name for r in pod.spec.image_pull_secrets if r.name))
    found = {name: lookup.secret(name) for name in names}
    present = [secret for secret in found.values() if secret is not None]
    return present, [name for name, secret in found.items() if secret is None]


def _auth(login: Login) -> Mapping[str, str]:
    given = login._asdict()
    return {name: text for name, text in given.items() if text}


def _explained(error: str, image: Reference, secrets: Sequence[Secret], logins: int) -> str:
    """A refusal with what it was refused for: nobody reads a registry's log for that."""
    if not any(word in error.lower() for word in _REFUSALS):
        return error
    names = ", ".join(secret.metadata.name for secret in secrets)
    if logins:
        return f"{error} (credentials of imagePullSecrets {names} were refused)"
    if names:
        return f"{error} (imagePullSecrets {names} hold nothing for {image.host})"
    return f"{error} (no credentials: the pod has no imagePullSecrets for {image.host})"


class Images:
    """The node's images through the runtime; `parallel` pulls at once."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        pulled: PulledImages | None = None,
        parallel: int = PARALLEL_PULLS,
        clock: Clock = SYSTEM,
    ) -> None:
        self._runtime = runtime
        self._pulled = pulled or PulledImages()
        self._clock = clock
        self._failures: dict[tuple[str, tuple[Login, ...]], _Failure] = {}
        self._turns: dict[str, _Turn] = {}
        self._pulls = asyncio.Semaphore(parallel)

    async def ensure(
        self, reference: str, policy: str, secrets: Iterable[Secret] = ()
    ) -> tuple[Image, bool]:
        """The image, and whether it was pulled now. Raises ImageError with when to try again."""
        reference = default_tag(reference)
        policy = pull_policy(policy, reference)
        try:
            name = references.parse(reference)
        except ValueError as error:
            message = f"Failed to apply default image tag: {error}"
            retry_at = self._clock.now() + BACKOFF_MAX_S
            raise ImageError("InvalidImageName", message, retry_at) from error
        listed = list(secrets)
        logins = tuple(credentials.logins(listed, name))
        async with self._turn(reference):
            present = await self._runtime.image(reference)
            may_use = present is not None and self._pulled.allows(present.id, logins)
            if present is not None and may_use and policy != "Always":
                return present, False
            if policy == "Never":
                here = "is here for those who could pull it, not" if present else "is not present"
                message = f'Container image "{reference}" {here} with pull policy of Never'
                raise ImageError("ErrImageNeverPull", message, self._clock.now() + BACKOFF_FIRST_S)
            return await self._pull(name, reference, listed, logins)

    @asynccontextmanager
    async def _turn(self, reference: str) -> AsyncIterator[None]:
        turn = self._turns.setdefault(reference, _Turn(asyncio.Lock()))
        turn.waiting += 1
        try:
            async with turn.lock:
                yield
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                self._turns.pop(reference, None)

    async def _pull(
        self, name: Reference, reference: str, secrets: Sequence[Secret], logins: tuple[Login, ...]
    ) -> tuple[Image, bool]:
        now = self._clock.now()
        key = (reference, logins)
        failure = self._failures.get(key)
        # Further off than that was reckoned before the clock was put back.
        if failure is not None and now < failure.retry_at <= now + failure.delay_s:
            message = f'Back-off pulling image "{reference}": {failure.message}'
            raise ImageError("ImagePullBackOff", message, failure.retry_at)
        try:
            found = await self._fetch(reference, logins)
        except RuntimeUnavailable:
            raise
        except RuntimeFailure as error:
            delay = min(BACKOFF_MAX_S, failure.delay_s * 2) if failure else BACKOFF_FIRST_S
            text = _explained(str(error), name, secrets, len(logins))
            self._forget_old_failures()
            self._failures[key] = _Failure(delay, self._clock.now() + delay, text)
            message = f'failed to pull image "{reference}": {text}'
            # Shown as ErrImagePull now, and as ImagePullBackOff until the next attempt.
            raise ImageError("ErrImagePull", message, self._clock.now() + 1.0) from error
        self._failures.pop(key, None)
        if found is None:
            raise ImageError("ErrImagePull", f'image "{reference}" vanished after the pull', now)
        return found, True

    async def _fetch(self, reference: str, logins: Sequence[Login]) -> Image | None:
        """Pull with each login in turn, the most exact first; with none where there is none."""
        for position, login in enumerate(logins or (None,), start=1):
            try:
                async with self._pulls:
                    auth = _auth(login) if login is not None else None
                    pulled = await self._runtime.pull(reference, auth)
                found = await self._runtime.image(pulled)
                if found is not None:
                    present = [image.id for image in await self._runtime.list_images()]
                    self._pulled.note(found.id, login, present)
                return found
            except RuntimeUnavailable:
                raise
            except RuntimeFailure as error:
                if position >= len(logins):
                    raise
                log.info("other credentials are tried", image=reference, error=str(error))
        return None

    def _forget_old_failures(self) -> None:
        """Failures long past their time are those of pods that are gone."""
        before = self._clock.now() - 2 * BACKOFF_MAX_S
        self._failures = {k: f for k, f in self._failures.items() if f.retry_at > before}
