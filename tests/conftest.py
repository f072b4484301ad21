"""What holds for every test."""

import asyncio


def pytest_configure() -> None:
    # looptime asks for the current loop before synchronous tests too; on Python 3.11 that makes
    # a loop nobody closes, unless it was said that there is none.
    asyncio.set_event_loop(None)
