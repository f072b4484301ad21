"""Events and relists wake the right worker, also when the runtime is slow to agree with itself."""

import asyncio
import dataclasses

from motley.lib.clock import SYSTEM
from motley.node import runtimewatch
from motley.node.cri import containerd
from motley.node.cri.errors import RuntimeUnavailable
from motley.node.model import RuntimeContainer, RuntimePod, State
from motley.node.runtimewatch import RuntimeWatch

RUNNING = RuntimeContainer("c1", "main", 0, "s1", State.RUNNING)
EXITED = dataclasses.replace(RUNNING, state=State.EXITED)


class Worker:
    """Sees one more of its prepared pictures each time it is woken."""

    def __init__(self, *pictures):
        self.pictures = list(pictures)
        self.observed = RuntimePod("u")
        self.wakes = 0
        self.saw_all = asyncio.Event()

    def wake(self):
        self.wakes += 1
        self.look()

    def look(self):
        if self.pictures:
            self.observed = RuntimePod("u", containers=tuple(self.pictures.pop(0)))
        if not self.pictures:
            self.saw_all.set()


class Runtime:
    def __init__(self, **containers):
        self.containers = containers

    async def list_sandboxes(self):
        return []

    async def list_containers(self):
        return self.containers


class QuickClock:
    def now(self):
        return SYSTEM.now()

    def monotonic(self):
        return SYSTEM.monotonic()

    async def sleep(self, seconds):
        await SYSTEM.sleep(0)


async def watch(monkeypatch, runtime, workers, events, until, wanted=("u",), orphan=None):
    async def stream(_):
        for event in events:
            yield event
        await until.wait()
        await asyncio.Event().wait()

    monkeypatch.setattr(containerd, "events", stream)
    watching = RuntimeWatch(
        runtime, workers, lambda: wanted, orphan or (lambda uid: None), QuickClock()
    )
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(watching.run())
        await until.wait()
        running.cancel()


async def test_an_exit_wakes_the_worker_until_it_sees_it(monkeypatch):
    worker = Worker([RUNNING], [RUNNING], [EXITED])
    worker.look()
    runtime = Runtime(u=[RUNNING])
    await watch(monkeypatch, runtime, {"u": worker}, [("/tasks/exit", "c1")], worker.saw_all)
    assert worker.wakes == 2


async def test_an_exit_nobody_knows_yet_is_waited_for(monkeypatch):
    worker = Worker([RUNNING], [EXITED])
    asyncio.get_running_loop().call_later(0.01, worker.look)  # its own round, not our doing
    runtime = Runtime(u=[RUNNING])
    monkeypatch.setattr(runtimewatch, "LOOKS_S", (0.0,) * 100_000)
    await watch(monkeypatch, runtime, {"u": worker}, [("/tasks/exit", "c1")], worker.saw_all)
    assert worker.observed.containers == (EXITED,)


async def test_a_relist_wakes_whoever_sees_something_else(monkeypatch):
    stale, current = Worker([RUNNING], [EXITED]), Worker([RUNNING], [RUNNING])
    stale.look()
    current.look()
    other = dataclasses.replace(RUNNING, id="c1")
    runtime = Runtime(u=[EXITED], v=[other])
    monkeypatch.setattr(runtimewatch, "RELIST_S", 0.01)
    workers = {"u": stale, "v": current}
    await watch(monkeypatch, runtime, workers, [], stale.saw_all, wanted=("u", "v"))
    assert stale.wakes >= 1
    assert current.wakes == 0


async def test_what_the_api_does_not_know_is_an_orphan(monkeypatch):
    found, seen = [], asyncio.Event()

    def orphan(uid):
        found.append(uid)
        seen.set()

    monkeypatch.setattr(runtimewatch, "RELIST_S", 0.01)
    await watch(monkeypatch, Runtime(lost=[RUNNING]), {}, [], seen, wanted=(), orphan=orphan)
    assert found[0] == "lost"


async def test_a_start_is_no_news(monkeypatch):
    worker = Worker([RUNNING])
    worker.look()
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(0.05, done.set)
    await watch(monkeypatch, Runtime(u=[RUNNING]), {"u": worker}, [("/tasks/start", "c1")], done)
    assert worker.wakes == 0


async def test_a_broken_stream_is_opened_again_and_followed_by_a_relist(monkeypatch):
    attempts, again = [], asyncio.Event()

    async def stream(_):
        attempts.append(1)
        if len(attempts) > 1:
            again.set()
            await asyncio.Event().wait()
        raise RuntimeUnavailable("restarting")
        yield

    monkeypatch.setattr(containerd, "events", stream)
    watching = RuntimeWatch(Runtime(), {}, lambda: (), lambda uid: None, QuickClock())
    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(watching.run())
        await again.wait()
        running.cancel()
