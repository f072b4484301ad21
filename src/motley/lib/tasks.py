"""Running a component: one event loop, one main coroutine, a clean end on SIGTERM."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any


async def _until_signal(main: Coroutine[Any, Any, None]) -> None:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    stopping = False

    def stop() -> None:
        nonlocal stopping
        stopping = True
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        await main
    except asyncio.CancelledError:
        if not stopping:
            raise


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run `main` until it ends or SIGTERM or SIGINT cancels it; its `finally` blocks run.

    uvloop is used where it is installed: tasks and queues cost about half.
    """
    try:
        import uvloop
    except ModuleNotFoundError:
        asyncio.run(_until_signal(main))
    else:
        uvloop.run(_until_signal(main))
