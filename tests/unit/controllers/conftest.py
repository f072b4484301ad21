import asyncio

# pytest-asyncio asks for the current loop before a file's first asynchronous test; without this
# Python 3.11 makes one that nobody closes, which is an error here.
asyncio.set_event_loop(None)
