"""Informers against a real server that is killed and restarted while things change."""

import asyncio
from random import Random

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.core import ConfigMap, Namespace
from motley.client.informer import Informer
from motley.lib.clock import SYSTEM


async def change(client, rng, names):
    """One random write; a server that is down just now is no error."""
    name = rng.choice(names)
    try:
        action = rng.random()
        if action < 0.45:
            body = {"metadata": {"name": name}, "data": {"v": str(rng.random())}}
            await client.create(ConfigMap, body, "default")
        elif action < 0.8:
            await client.patch(ConfigMap, name, "default", {"data": {"v": str(rng.random())}})
        else:
            await client.delete(ConfigMap, name, "default")
    except status.ApiError:
        return False
    return True


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
    server, rng = durable_server, Random(20261115)
    await server.start()
    names = [f"m-{i}" for i in range(25)]
    async with server.client() as client, server.client() as writer, asyncio.TaskGroup() as group:
        informer = Informer(client, ConfigMap, namespace="default")
        witness = Witness()
        informer.add_handler(witness)
        running = group.create_task(informer.run())
        await informer.synced()
        done = kills = 0
        while done < 400:
            done += await change(writer, rng, names)
            if rng.random() < 0.012 and kills < 4:
                server.kill()
                kills += 1
                if rng.random() < 0.5:  # sometimes clients meet a closed port for a while
                    await SYSTEM.sleep(0.3)
                await server.start()
        assert kills >= 2

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
