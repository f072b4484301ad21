"""A process that writes as fast as it can until it is killed, and notes what was acknowledged.

Arguments: the store's file, the file for notes, a name for this round. Each of a few workers puts
numbers 1, 2, 3 … into its own key (every seventh operation deletes instead), always expecting the
revision it got last. A note is written only after `commit` has returned. Meanwhile the store is
compacted again and again, so that kills hit that too.
"""

import asyncio
import os
import sys
from pathlib import Path

from motley.lib import clock
from motley.store.contract import Delete, Op, Put, Revision, Store
from motley.store.sqlite import SqliteStore

WORKERS = 12
PADDING = 2000


def deletes(number: int) -> bool:
    """Whether a worker's operation of this number is a deletion."""
    return number % 7 == 0


def text(key: str, number: int) -> bytes:
    """A value that tells when part of it is missing or another's."""
    return b"%s %d %s end" % (key.encode(), number, str(number).encode() * (PADDING // 4))


async def work(store: Store, key: str, notes: int) -> None:
    """One worker, for ever."""
    expect = Revision(0)
    number = 0
    while True:
        number += 1
        op: Op = Delete(key, expect) if deletes(number) else Put(key, text(key, number), expect)
        done = await store.commit([op])
        expect = Revision(0) if deletes(number) else done.revision
        os.write(notes, b"%s %d %d\n" % (key.encode(), number, done.revision))


async def compact(store: Store) -> None:
    """Forget all but the last few revisions, for ever."""
    while True:
        await clock.SYSTEM.sleep(0.01)
        await store.compact(Revision(max(await store.revision() - 50, 0)))


async def main(path: Path, notes: Path, name: str) -> None:
    """Write until killed."""
    store = await SqliteStore.open(path)
    descriptor = os.open(notes, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    async with asyncio.TaskGroup() as group:
        group.create_task(compact(store))
        for worker in range(WORKERS):
            group.create_task(work(store, f"/{name}/{worker}", descriptor))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
