"""Writes that go together where the server takes them so, and one by one elsewhere."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from motley.api import status
from motley.api.views.core import Event
from motley.api.views.pod import Pod
from motley.client.together import Together
from motley.lib.clock import SYSTEM

GROUP = {"resources": [{"name": "batches", "verbs": ["create"]}]}


class FakeClient:
    """A server that answers batches, or has none."""

    def __init__(self, group=None):
        self.group = group
        self.batches = []
        self.singles = []
        self.refusal = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def raw(self, method, path, *, body=None):
        if method == "GET":
            if self.group is None:
                raise status.NotFound("no such group")
            return self.group
        await self.gate.wait()
        if self.refusal is not None:
            raise self.refusal
        self.batches.append(body["items"])
        return {"items": [self._answer(item) for item in body["items"]]}

    def _answer(self, item):
        name = item["path"].rpartition("/")[2]
        if name == "nobody":
            return {"code": 404, "status": {"reason": "NotFound", "code": 404, "message": "none"}}
        return {"code": 200, "metadata": {"name": name}}

    async def patch(self, cls, name, namespace, body, **_):
        self.singles.append(name)
        return Pod.of({"metadata": {"name": name}})

    async def delete(self, cls, name, namespace, *, uid=None):
        self.singles.append(("delete", name, uid))


@asynccontextmanager
async def running(client):
    together = Together(client)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(together.run())
        for _ in range(5):
            await _turn()
        yield together
        task.cancel()


async def _turn():
    """Let the others run."""
    done = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(done.set_result, None)
    await done


async def test_what_is_written_at_the_same_time_is_one_request_with_an_outcome_for_each():
    client = FakeClient(GROUP)
    async with running(client) as together:
        names = ["a", "nobody", "b"]
        outcomes = await asyncio.gather(
            *(together.patch(Pod, name, "default", {}) for name in names), return_exceptions=True
        )
    assert [len(batch) for batch in client.batches] == [3]
    assert outcomes[0].metadata.name == "a"
    assert isinstance(outcomes[1], status.NotFound)
    assert not client.singles


async def test_while_requests_are_under_way_the_next_gathers():
    client = FakeClient(GROUP)
    client.gate.clear()
    async with running(client) as together, asyncio.TaskGroup() as group:
        for name in ("a", "b", "c", "d", "e"):
            group.create_task(together.patch(Pod, name, "default", {}))
            for _ in range(5):
                await _turn()
        client.gate.set()
    assert sorted(len(batch) for batch in client.batches) == [1, 1, 3]


async def test_a_server_without_batches_gets_one_request_for_each():
    client = FakeClient()
    async with running(client) as together:
        await together.patch(Pod, "a", "default", {})
    assert client.singles == ["a"]


async def test_a_request_that_fails_fails_all_that_were_in_it():
    client = FakeClient(GROUP)
    client.refusal = status.ServiceUnavailable("not now")
    async with running(client) as together:
        outcomes = await asyncio.gather(
            *(together.patch(Pod, name, "default", {}) for name in "ab"), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [status.ServiceUnavailable] * 2
        assert outcomes[0] is not outcomes[1]


async def test_a_server_that_takes_no_batches_any_more_gets_single_requests():
    client = FakeClient(GROUP)
    client.refusal = status.NotFound("what batches?")
    async with running(client) as together:
        with pytest.raises(status.NotFound):
            await together.patch(Pod, "a", "default", {})
        await together.patch(Pod, "a", "default", {})
    assert client.singles == ["a"]


async def test_events_let_other_writes_go_first():
    client = FakeClient(GROUP)
    client.gate.clear()
    async with running(client) as together, asyncio.TaskGroup() as group:
        for name in ("a", "b"):  # both requests that may be under way
            group.create_task(together.patch(Pod, name, "default", {}))
            for _ in range(5):
                await _turn()
        event = {"metadata": {"name": "told", "namespace": "default"}}
        together._leisurely_at = SYSTEM.monotonic() + 60  # not for long, but longer than this
        group.create_task(together.create(Event, event))
        group.create_task(together.patch(Pod, "c", "default", {}))
        for _ in range(5):
            await _turn()
        client.gate.set()
    methods = [[item["method"] for item in batch] for batch in client.batches]
    assert methods == [["PATCH"], ["PATCH"], ["PATCH"], ["POST"]]


async def test_a_pod_is_told_why_and_ended_in_one_write_or_in_two():
    condition = {"type": "DisruptionTarget", "status": "True"}
    client = FakeClient(GROUP)
    async with running(client) as together:
        await together.disrupt("a", "default", condition, uid="1")
        with pytest.raises(status.NotFound):
            await together.disrupt("nobody", "default", condition)
    (first,), _ = client.batches
    assert (first["method"], first["condition"]) == ("DELETE", condition)
    assert first["body"]["preconditions"] == {"uid": "1"}
    client = FakeClient()
    async with running(client) as together:
        await together.disrupt("a", "default", condition, uid="1")
    assert client.singles == ["a", ("delete", "a", "1")]
