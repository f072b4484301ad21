"""Sends a stream until it ends, its client leaves, or the server stops: whichever comes first."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import Any

from motley.apiserver.core import Core

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]


async def run(core: Core, pump: Coroutine[Any, Any, None], receive: Receive, goodbye: str) -> bool:
    """Run `pump` to its end; False when the client left before, with a message of type `goodbye`.

    The server ends every stream of `core` when it stops, and then it is the stream that has ended.
    """
    has_left = False

    async def listen(pumping: asyncio.Task[None]) -> None:
        nonlocal has_left
        while (await receive())["type"] != goodbye:
            pass
        has_left = True
        pumping.cancel()

    async with asyncio.TaskGroup() as group:
        pumping = group.create_task(pump)
        listening = group.create_task(listen(pumping))
        core.streams.add(pumping)
        pumping.add_done_callback(core.streams.discard)
        pumping.add_done_callback(lambda _: listening.cancel())
    return not has_left
