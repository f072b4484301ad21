"""Virtual time: the loop's own clock, which looptime moves."""

import asyncio

import pytest

# pytest-asyncio asks for the current loop before a file's first asynchronous test; without this
# Python 3.11 makes one that nobody closes, which is an error here.
asyncio.set_event_loop(None)


class LoopClock:
    def now(self):
        return 1_000_000.0 + self.monotonic()

    def monotonic(self):
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds):
        await asyncio.sleep(seconds)  # noqa: TID251


@pytest.fixture
def clock():
    return LoopClock()
