"""Pods that a Permit plugin holds back between their decision and their binding."""

import asyncio


class PermitRefused(Exception):
    """A waiting pod was refused, or nobody allowed it in time."""


class Waiting:
    """Pods that a Permit plugin holds; whoever waited for them lets them go or not."""

    def __init__(self) -> None:
        self._verdicts: dict[str, asyncio.Future[str]] = {}

    def hold(self, uid: str) -> None:
        """From now on the pod waits: whoever decides about it need not wait for its binding task
        to begin. `verdict` must follow."""
        if uid not in self._verdicts:
            self._verdicts[uid] = asyncio.get_running_loop().create_future()

    def holds(self, uid: str) -> bool:
        """Does the pod wait, nobody having decided about it yet?"""
        verdict = self._verdicts.get(uid)
        return verdict is not None and not verdict.done()

    def allow(self, uid: str) -> None:
        """Let the pod go on to its binding."""
        self._settle(uid, "")

    def reject(self, uid: str, reason: str) -> None:
        """Fail the pod's binding."""
        self._settle(uid, reason)

    def _settle(self, uid: str, reason: str) -> None:
        verdict = self._verdicts.get(uid)
        if verdict is not None and not verdict.done():
            verdict.set_result(reason)

    async def verdict(self, uid: str, timeout_s: float) -> str:
        """Wait for the reason of refusal, which is empty when allowed. Raises PermitRefused."""
        self.hold(uid)
        future = self._verdicts[uid]
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError as e:
            raise PermitRefused(f"not allowed within {timeout_s:g} s") from e
        finally:
            del self._verdicts[uid]
