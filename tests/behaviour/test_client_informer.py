"""Informers against a real server that is killed and restarted while things change."""

import asyncio
from random import Random

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.core import ConfigMap, Namespace
from motley.client.informer import Informer
from motley.lib.clock import SYSTEM


class Writer:
    """Random writes to objects of its own; how many were acknowledged is counted."""

    def __init__(self, client, rng, prefix):
        self.client, self.rng, self.done = client, rng, 0
        self.names = [f"{prefix}-{i}" for i in range(25)]
        self.there = set()

    async def write(self):
        """One write; whether a server that dies meanwhile did it is found out by asking."""
        name = self.rng.choice(self.names)
        try:
            await self._write(name)
            self.done += 1
        except status.AlreadyExists:
            self.there.add(name)
        except status.NotFound:
            self.there.discard(name)
        except status.ServiceUnavailable:
            await SYSTEM.sleep(0.05)
        except status.ApiError:
            pass

    async def _write(self, name):
        data = {"v": str(self.rng.random())}
        if name not in self.there:
            await self.client.create(
                ConfigMap, {"metadata": {"name": name}, "data": data}, "default"
            )
            self.there.add(name)
        elif self.rng.random() < 0.7:
            await self.client.patch(ConfigMap, name, "default", {"data": data})
        else:
            await self.client.delete(ConfigMap, name, "default")
            self.there.discard(name)


class Witness:
    """Replays the changes a handler is told and checks that they make sense one by one."""

    def __init__(self):
        self.seen = {}
        self.mistakes = []

    def __call__(self, change):
        key, old, new = change.key, change.old, change.new
        known = self.seen.get(key)
        if old is None:
            if known is not None:
                self.mistakes.append(f"added twice: {key}")
        elif known is None:
            self.mistakes.append(f"changed or deleted without being added: {key}")
        if new is None:
            self.seen.pop(key, None)
            return
        if known is not None and known.metadata.uid == new.metadata.uid:
            before, after = known.metadata.resource_version, new.metadata.resource_version
            if int(after) <= int(before):
                self.mistakes.append(f"went back or repeated: {key} {before} -> {after}")
        self.seen[key] = new


def contents(objects):
    return {o.key: (o.metadata.uid, o.metadata.resource_version, o.data) for o in objects}


async def test_an_informer_equals_the_store_after_kills_and_restarts(durable_server, eventually):
    """Ten thousand changes by eight writers, while the server is killed at random moments."""
    server, rng = durable_server, Random(20261115)
    await server.start()
    kills = 0
    async with server.client() as client, server.client() as writer, asyncio.TaskGroup() as group:
        informer = Informer(client, ConfigMap, namespace="default")
        witness = Witness()
        informer.add_handler(witness)
        running = group.create_task(informer.run())
        await informer.synced()

        writers = [Writer(writer, rng, f"m-{i}") for i in range(8)]

        def done():
            return sum(w.done for w in writers)

        async def write(one):
            while done() < 10_000:
                await one.write()

        async with asyncio.TaskGroup() as writing:
            for one in writers:
                writing.create_task(write(one))
            while done() < 9_500:
                reached = min(9_900, done() + rng.randint(800, 2_400))
                await eventually(lambda at=reached: done() >= at, "writes go on", timeout_s=90)
                server.kill()
                kills += 1
                if rng.random() < 0.5:  # sometimes clients meet a closed port for a while
                    await SYSTEM.sleep(0.3)
                await server.start()
        assert kills >= 4

        async def equal():
            stored = (await client.list(ConfigMap, namespace="default")).items
            return contents(stored) == contents(informer.items())

        await eventually(equal, "the informer equals the store")
        assert witness.mistakes == []
        assert contents(witness.seen.values()) == contents(informer.items())
        running.cancel()


async def test_an_informer_of_a_selection_sees_objects_enter_and_leave_it(
    shared_server, eventually
):
    if shared_server.process is None:
        await shared_server.start()
    async with shared_server.client() as client, asyncio.TaskGroup() as group:
        informer = Informer(client, ConfigMap, namespace="default", label_selector="team=a")
        running = group.create_task(informer.run())
        await informer.synced()
        body = {"metadata": {"name": "sel", "labels": {"team": "b"}}}
        await client.create(ConfigMap, body, "default")
        await client.patch(ConfigMap, "sel", "default", {"metadata": {"labels": {"team": "a"}}})
        await eventually(lambda: informer.get(Key("default", "sel")), "it enters")
        await client.patch(ConfigMap, "sel", "default", {"metadata": {"labels": {"team": "c"}}})
        await eventually(lambda: informer.get(Key("default", "sel")) is None, "it leaves")
        running.cancel()


async def test_a_stale_write_is_refused_and_a_conditional_delete_spares_the_successor(
    shared_server,
):
    if shared_server.process is None:
        await shared_server.start()
    async with shared_server.client() as client:
        first = await client.create(ConfigMap, {"metadata": {"name": "lock"}}, "default")
        document = await client.document(ConfigMap, "lock", "default")
        await client.patch(ConfigMap, "lock", "default", {"data": {"x": "1"}})
        try:
            await client.update(ConfigMap, document)
            raise AssertionError("a stale update was taken")
        except status.Conflict:
            pass
        await client.delete(ConfigMap, "lock", "default")
        await client.create(ConfigMap, {"metadata": {"name": "lock"}}, "default")
        try:
            await client.delete(ConfigMap, "lock", "default", uid=first.metadata.uid)
            raise AssertionError("the successor was deleted")
        except status.Conflict:
            pass
        await client.delete(ConfigMap, "lock", "default")
        listing = await client.list(Namespace, limit=2)
        assert len(listing.items) == 2
        rest = await client.list(Namespace, continue_token=listing.metadata.continue_token)
        assert {n.metadata.name for n in listing.items}.isdisjoint(
            n.metadata.name for n in rest.items
        )
