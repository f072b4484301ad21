"""Pods that a Permit plugin holds back between their decision and their binding."""

import asyncio


class PermitRefused(Exception):
    """A waiting pod was refused, or nobody allowed it in time."""


class Waiting:
    """Pods that a Permit plugin holds; whoever waited for them lets them go or not."""

    def __init__(self) -> None:
        self._verdicts: dict[str, asyncio.Future[str]] = {}

    def holds(self, uid: str) -> bool:
        """Does the pod wait?"""
        return uid in self._verdicts

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
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._verdicts[uid] = future
        try:
            async with asyncio.timeout(timeout_s):
                return await future
        except TimeoutError as e:
            raise PermitRefused(f"not allowed within {timeout_s:g} s") from e
        finally:
            del self._verdicts[uid]
