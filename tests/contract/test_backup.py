"""Backups are whole, taken while others write, and restored without losing what was there."""

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from motley.cli.main import main
from motley.lib import clock
from motley.store import backup, sqlitelog
from motley.store.contract import Compacted, Corrupt, Delete, Full, Locked, Put, Revision
from motley.store.sqlite import SqliteStore

WRITER = Path(__file__).with_name("crash_writer.py")
NEW = Revision(0)


async def listing(store):
    return {r.key: r for r in (await store.range("")).records}


async def filled(path, count=50):
    """A closed store with some history; what it holds."""
    store = await SqliteStore.open(path)
    for number in range(count):
        await store.commit([Put(f"/k/{number % 20}", b"%d" % number * 300)])
    await store.commit([Delete("/k/3")])
    await store.compact(Revision(10))
    state = await listing(store)
    await store.close()
    return state


async def saved(tmp_path):
    """A store, a backup of it, and what they hold."""
    source, file = tmp_path / "a" / "store.db", tmp_path / "file.backup"
    state = await filled(source)
    backup.backup(source, file)
    return source, file, state


@pytest.fixture
def tiny_disk(tmp_path):
    mount = tmp_path / "tiny"
    mount.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "motley-test", mount], check=True)
    yield mount
    subprocess.run(["umount", "--lazy", mount], check=True)


def change(path, statement):
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)


class TestBackup:
    async def test_a_restored_store_holds_the_same_objects(self, tmp_path):
        _, file, state = await saved(tmp_path)
        done = backup.restore(file, tmp_path / "b" / "store.db")
        assert done.manifest.objects == len(state) == 19
        assert done.aside == ()
        store = await SqliteStore.open(tmp_path / "b" / "store.db")
        assert await listing(store) == state
        await store.close()

    async def test_a_store_can_be_saved_while_it_is_open_and_its_server_is_not_disturbed(
        self, tmp_path
    ):
        """Each backup, taken amid writes, is a state that there was, with all that came before."""
        path = tmp_path / "store.db"
        store = await SqliteStore.open(path)
        history: dict[int, dict[str, bytes]] = {0: {}}
        stopping = False

        async def write(worker):
            number = 0
            while not stopping:
                number += 1
                keys = f"/{worker}/a{number % 5}", f"/{worker}/b{number % 5}"
                value = b"%d" % number * 500
                done = await store.commit([Put(key, value) for key in keys])
                history[done.revision] = dict.fromkeys(keys, value)

        async def compact():
            while not stopping:
                await clock.SYSTEM.sleep(0.01)
                await store.compact(Revision(max(0, await store.revision() - 20)))

        async with asyncio.TaskGroup() as group:
            for worker in range(4):
                group.create_task(write(worker))
            group.create_task(compact())
            for number in range(5):
                await clock.SYSTEM.sleep(0.05)
                await asyncio.to_thread(backup.backup, path, tmp_path / f"{number}.backup")
            stopping = True
        await store.close()
        for number in range(5):
            manifest = backup.verify(tmp_path / f"{number}.backup")
            assert manifest.revision > 0
            expected: dict[str, bytes] = {}
            for revision in range(1, manifest.revision + 1):
                expected |= history[revision]
            backup.restore(tmp_path / f"{number}.backup", tmp_path / str(number) / "store.db")
            restored = await SqliteStore.open(tmp_path / str(number) / "store.db")
            assert {k: r.value for k, r in (await listing(restored)).items()} == expected
            await restored.close()

    async def test_another_process_can_be_saved_even_when_it_is_then_killed(self, tmp_path):
        path, notes = tmp_path / "store.db", tmp_path / "notes"
        writer = await asyncio.create_subprocess_exec(sys.executable, WRITER, path, notes, "w")
        try:
            deadline = clock.SYSTEM.monotonic() + 30
            while not notes.exists() or notes.stat().st_size < 2000:
                assert clock.SYSTEM.monotonic() < deadline, "the writer does not write"
                await clock.SYSTEM.sleep(0.01)
            noted = notes.read_text().splitlines()[:-1]
            manifest = backup.backup(path, tmp_path / "file.backup")
        finally:
            writer.kill()
            await writer.wait()
        acknowledged = max(int(line.split()[2]) for line in noted)
        assert manifest.revision >= acknowledged
        assert backup.verify(tmp_path / "file.backup") == manifest
        store = await SqliteStore.open(path)  # and the killed one is whole as well
        assert await store.revision() >= manifest.revision
        await store.close()

    async def test_a_backup_is_for_its_owner_only_and_overwrites_nothing(self, tmp_path):
        source, file, _ = await saved(tmp_path)
        assert file.stat().st_mode & 0o777 == 0o600
        before = file.read_bytes()
        with pytest.raises(backup.Refused, match="never overwrites"):
            backup.backup(source, file)
        assert file.read_bytes() == before
        assert not list(tmp_path.glob("*.partial"))

    async def test_a_damaged_store_is_not_saved_as_if_it_were_whole(self, tmp_path):
        source = tmp_path / "store.db"
        await filled(source)
        change(source, "DELETE FROM log WHERE id = 30000")
        with pytest.raises(Corrupt, match="breaks"):
            backup.backup(source, tmp_path / "file.backup")
        assert not list(tmp_path.glob("file.backup*"))

    @pytest.mark.root
    async def test_a_full_disk_leaves_no_half_backup(self, tmp_path, tiny_disk):
        source = tmp_path / "store.db"
        await filled(source, 400)
        with pytest.raises(Full):
            backup.backup(source, tiny_disk / "file.backup")
        assert list(tiny_disk.iterdir()) == []


class TestRestore:
    async def test_revisions_go_on_far_above_and_old_watches_must_list_again(self, tmp_path):
        source, file, _ = await saved(tmp_path)
        store = await SqliteStore.open(source)
        later = (await store.commit([Put("/after-the-backup", b"")])).revision
        await store.close()
        done = backup.restore(file, source, force=True)
        store = await SqliteStore.open(source)
        assert await store.revision() == done.revision == later - 1 + backup.BUMP
        assert await store.get("/after-the-backup") is None
        watch = store.watch("", later)
        with pytest.raises(Compacted):
            await anext(watch)
        assert (await store.commit([Put("/new", b"", NEW)])).revision == done.revision + 1
        await store.compact(await store.revision())
        await store.close()
        store = await SqliteStore.open(source)
        assert (await store.get("/new")).revision == done.revision + 1
        await store.close()

    async def test_a_store_in_use_is_left_alone(self, tmp_path):
        source, file, _ = await saved(tmp_path)
        store = await SqliteStore.open(source)
        await store.commit([Put("/mine", b"")])
        with pytest.raises(Locked, match=f"process {os.getpid()}"):
            backup.restore(file, source, force=True)
        assert (await store.commit([Put("/mine", b"2")])).revision == await store.revision()
        await store.close()

    async def test_a_store_that_is_there_is_refused_or_kept_aside(self, tmp_path):
        source, file, state = await saved(tmp_path)
        before = source.read_bytes()
        with pytest.raises(backup.Refused, match="--force"):
            backup.restore(file, source)
        assert source.read_bytes() == before
        first = backup.restore(file, source, force=True)
        second = backup.restore(file, source, force=True)  # within the same second
        assert first.aside[0].read_bytes() == before
        assert first.aside[0] != second.aside[0]
        assert all(path.exists() for path in (*first.aside, *second.aside))
        store = await SqliteStore.open(source)
        assert await listing(store) == state
        await store.close()

    async def test_the_write_ahead_log_of_a_killed_server_is_kept_with_its_store(self, tmp_path):
        _, file, _ = await saved(tmp_path)
        target = tmp_path / "b" / "store.db"
        target.parent.mkdir()
        target.write_bytes(b"database")
        (tmp_path / "b" / "store.db-wal").write_bytes(b"frames")
        done = backup.restore(file, target, force=True)
        assert [path.read_bytes() for path in done.aside] == [b"database", b"frames"]
        assert done.aside[1].name == done.aside[0].name + "-wal"

    @pytest.mark.parametrize(
        "damage",
        [
            "UPDATE log SET value = x'00' WHERE id = (SELECT min(id) FROM log)",
            "DELETE FROM log WHERE id = (SELECT max(id) FROM log)",
            "UPDATE mark SET revision = revision + 1",
            "UPDATE manifest SET document = '{}'",
            "DELETE FROM manifest",
            "DROP TABLE manifest",
            "PRAGMA application_id = 7",
        ],
    )
    async def test_a_backup_that_was_changed_is_refused(self, tmp_path, damage):
        source, file, _ = await saved(tmp_path)
        change(file, damage)
        before = source.read_bytes()
        with pytest.raises(Corrupt):
            backup.restore(file, source, force=True)
        assert source.read_bytes() == before

    async def test_a_backup_that_was_cut_off_is_refused(self, tmp_path):
        _, file, _ = await saved(tmp_path)
        os.truncate(file, file.stat().st_size - sqlitelog.PAGE_BYTES)
        with pytest.raises(Corrupt):
            backup.verify(file)


class TestCommands:
    async def test_backup_and_restore_say_what_they_did(self, tmp_path):
        root, file = tmp_path / "root", tmp_path / "file.backup"
        state = await filled(root / "apiserver" / "store.db")
        run = CliRunner().invoke
        done = run(main, ["backup", "--root", str(root), str(file)])
        assert done.exit_code == 0, done.output
        assert "19 objects at revision 51" in done.output
        refused = run(main, ["restore", "--root", str(root), str(file)])
        assert refused.exit_code == 1
        assert "--force" in refused.output
        checked = run(main, ["restore", "--root", str(root), "--check", str(file)])
        assert (checked.exit_code, "is whole" in checked.output) == (0, True)
        elsewhere = ["--data-dir", str(tmp_path / "other")]
        done = run(main, ["restore", *elsewhere, str(file)])
        assert done.exit_code == 0, done.output
        store = await SqliteStore.open(tmp_path / "other" / "store.db")
        assert await listing(store) == state
        busy = await asyncio.to_thread(run, main, ["restore", *elsewhere, "--force", str(file)])
        assert busy.exit_code == 1
        assert "motley down" in busy.output
        await store.close()

    def test_a_missing_store_or_backup_is_said(self, tmp_path):
        run = CliRunner().invoke
        done = run(main, ["backup", "--root", str(tmp_path), str(tmp_path / "f")])
        assert (done.exit_code, "etcdctl" in done.output) == (1, True)
        done = run(main, ["restore", "--root", str(tmp_path), str(tmp_path / "none")])
        assert (done.exit_code, "no backup" in done.output) == (1, True)
