"""A store that is killed with SIGKILL in the middle of writing keeps what it acknowledged.

A kill stops the process at any instruction but leaves the kernel's caches: it shows that nothing
is acknowledged early and that no half transaction is ever visible. That the disk itself is waited
for is `synchronous=FULL`, which `test_sqlite.py` checks.

Fifty rounds take about 20 s; `MOTLEY_CRASH_ROUNDS=1000` makes it a long test.
"""

import asyncio
import importlib.util
import os
import random
import sys
from pathlib import Path

from motley.lib import clock
from motley.store.contract import Record, Store
from motley.store.sqlite import SqliteStore

WRITER = Path(__file__).with_name("crash_writer.py")
_spec = importlib.util.spec_from_file_location("crash_writer", WRITER)
crash_writer = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(crash_writer)

ROUNDS = int(os.environ.get("MOTLEY_CRASH_ROUNDS", "50"))


async def crash(path: Path, notes: Path, name: str, rng: random.Random) -> dict[str, tuple]:
    """Run the writer, kill it at a random moment; the last acknowledged operation of each key."""
    writer = await asyncio.create_subprocess_exec(sys.executable, WRITER, path, notes, name)
    try:
        deadline = clock.SYSTEM.monotonic() + 30
        while not notes.exists() or notes.stat().st_size < 2000:
            assert writer.returncode is None, "the writer ended by itself"
            assert clock.SYSTEM.monotonic() < deadline, "the writer does not write"
            await clock.SYSTEM.sleep(0.002)
        await clock.SYSTEM.sleep(rng.uniform(0, 0.2))
        assert writer.returncode is None, "the writer ended by itself"
    finally:
        if writer.returncode is None:
            writer.kill()
        await writer.wait()
    lines = notes.read_bytes().split(b"\n")[:-1]  # a torn last line is not a note
    acknowledged = {}
    for line in lines:
        key, number, revision = line.decode().split()
        acknowledged[key] = (int(number), int(revision))
    return acknowledged


def check(key: str, found: Record | None, number: int, revision: int) -> None:
    """The key is as acknowledged, or as the one operation that was under way left it."""
    if found is None:
        assert crash_writer.deletes(number) or crash_writer.deletes(number + 1), key
        return
    written = int(found.value.split()[1])
    assert found.value == crash_writer.text(key, written), f"{key} is torn"
    assert written in (number, number + 1), key
    assert not crash_writer.deletes(written), key
    if written == number:
        assert found.revision == revision
    else:
        assert found.revision > revision


async def everything(store: Store) -> dict[str, Record]:
    return {r.key: r for r in (await store.range("")).records}


async def test_what_was_acknowledged_survives_sigkill(tmp_path):
    rng = random.Random(20261115)
    path = tmp_path / "store.db"
    settled: dict[str, Record] = {}
    highest = 0
    for number in range(ROUNDS):
        name = f"round{number}"
        acknowledged = await crash(path, tmp_path / name, name, rng)
        assert acknowledged
        assert min(revision for _, revision in acknowledged.values()) > highest
        store = await SqliteStore.open(path)
        try:
            highest = await store.revision()
            assert highest >= max(revision for _, revision in acknowledged.values())
            found = await everything(store)
            for key, operation in acknowledged.items():
                check(key, found.get(key), *operation)
            # What earlier rounds left is untouched by later crashes.
            assert {k: r for k, r in found.items() if not k.startswith(f"/{name}/")} == settled
            settled = found
            history = await store.range("", at=await store.oldest())
            assert all(r.revision <= history.revision for r in history.records)
        finally:
            await store.close()
