"""Many calls, a few at first: a quota or a webhook that refuses is met once, not 500 times."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from motley.controllers.replicas import slow_start

T = TypeVar("T")


async def perform(calls: Sequence[Callable[[], Awaitable[T]]], *, in_turn: bool = False) -> list[T]:
    """Make the calls in growing batches, or one after the other; the first batch with a failure
    is the last, and its first error is raised when all of that batch have ended."""
    done: list[T] = []
    at = 0
    for size in [1] * len(calls) if in_turn else slow_start(len(calls)):
        batch = calls[at : at + size]
        at += size
        results = await asyncio.gather(*(call() for call in batch), return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
            done.append(result)
    return done
