"""The whole control plane in one process, on a memory store and virtual time."""

import asyncio
import functools
import inspect
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any
from unittest import mock

from motley.api import status
from motley.api.views.base import Key, Object
from motley.api.views.core import Node, ServiceAccount
from motley.api.views.pod import Pod
from motley.apiserver import document, extension, server
from motley.apiserver.authn import TokenFile
from motley.apiserver.authn.user import AUTHENTICATED, MASTERS, User
from motley.client.informer import Informer
from motley.controllers import service
from motley.controllers.fakenodes import Shape
from motley.controllers.manager import Manager
from motley.scheduler.profiles import Configuration
from motley.scheduler.service import Scheduler
from motley.store.memory import MemoryStore
from world import loop as loops
from world.inprocess import InProcessClient, Wire
from world.kubelet import Kubelets

OPTIONS = service.Options(leader_elect=False)
USERS = {
    "admin": User("admin", (MASTERS, AUTHENTICATED)),
    "controllers": User("system:kube-controller-manager", (AUTHENTICATED,)),
    "scheduler": User("system:kube-scheduler", (AUTHENTICATED,)),
}
_CONFIG = server.Config(Path("/nonexistent"), bind="10.0.0.1", store="memory")


class World:
    """One cluster; see the package's docstring. Made by `World.open` or `simulate`."""

    def __init__(self, seed: int, options: service.Options, latency_s: float) -> None:
        self.rng = Random(seed)
        self.clock = loops.VirtualClock()
        self.options = options
        self.wire = Wire(self.clock, latency_s)
        self.store = MemoryStore(document.stamp)
        self.client = self._client("you", "admin")
        self.kubelets = Kubelets(self._client("kubelet", "admin"), self.clock)
        self.namespace = "default"
        self.manager: Manager | None = None
        self._manager_client: InProcessClient | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._server: AsyncExitStack | None = None
        self._informers: dict[type[Object], Informer[Any]] = {}
        self.extensions: Sequence[extension.Factory] = ()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        *,
        nodes: int = 3,
        seed: int = 0,
        options: service.Options = OPTIONS,
        latency_s: float = 0.0,
        manager: bool = True,
        scheduler: bool = True,
        extensions: Sequence[extension.Factory] = (),
    ) -> AsyncIterator["World"]:
        """A running cluster with `nodes` Ready nodes, `node-0` and on."""
        with _seeded(seed):
            world = cls(seed, options, latency_s)
            world.extensions = extensions
            async with (
                asyncio.TaskGroup() as world._group,
                asyncio.TaskGroup() as world.wire.handlers,
            ):
                await world.start_server()
                world._spawn("kubelets", world.kubelets.run())
                try:
                    await world._begin(nodes, manager, scheduler)
                    yield world
                finally:
                    await world._end()

    async def _begin(self, nodes: int, manager: bool, scheduler: bool) -> None:
        await self.clock.sleep(0)  # the kubelets' group
        for number in range(nodes):
            await self.add_node(f"node-{number}")
        self.informer(Pod)
        self.informer(Node)
        if scheduler:
            self.start_scheduler()
        if manager:
            self.start_manager()
            await self.until(self._has_account, "the namespace's service account")

    async def _end(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        self.wire.cut_watches()
        assert self._server is not None
        await self._server.aclose()

    async def _has_account(self) -> bool:
        return await self.exists(ServiceAccount, "default")

    # -- components -------------------------------------------------------------------------

    async def start_server(self) -> None:
        """Serve the store."""
        self._server = AsyncExitStack()
        tokens = TokenFile(USERS)
        made = server.assemble(
            _CONFIG, self.store, None, tokens, self.clock, self.rng, extensions=self.extensions
        )
        self.wire.app = await self._server.enter_async_context(made)

    async def stop_server(self) -> None:
        """Stop serving: watches break, calls are refused. What is stored stays."""
        assert self._server is not None
        self.wire.app = None
        self.wire.cut_watches()
        await self._server.aclose()

    def start_scheduler(self, configuration: Configuration | None = None) -> Scheduler:
        """The real scheduler."""
        client = self._client("scheduler", "scheduler")
        made = Scheduler(client, configuration or Configuration(), clock=self.clock)
        self._spawn("scheduler", made.run())
        return made

    def start_manager(self, options: service.Options | None = None) -> None:
        """All controllers, as a process of their own would run them."""
        self._manager_client = self._client("controllers", "controllers")
        self.manager = service.build(
            self._manager_client, options or self.options, clock=self.clock
        )
        self._spawn("manager", self.manager.run())

    async def kill_manager(self) -> None:
        """As `kill -9`: nothing it would still do reaches the server."""
        assert self._manager_client is not None
        self._manager_client.kill()
        task = self._tasks.pop("manager")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self.wire.cut_watches("controllers")

    async def add_node(
        self, name: str, *, labels: dict[str, str] | None = None, **spec: Any
    ) -> None:
        """A Ready node more."""
        await self.kubelets.add(name, Shape(labels=labels or {}), **spec)

    def _client(self, who: str, token: str) -> InProcessClient:
        return InProcessClient(self.wire, who, token=token, rng=Random(self.rng.random()))

    def _spawn(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        assert self._group is not None
        self._tasks[name] = self._group.create_task(work, name=name)

    # -- what a user does -------------------------------------------------------------------

    async def create(self, cls: type[Any], body: dict[str, Any], namespace: str = "") -> Any:
        return await self.client.create(cls, body, namespace or self._place(cls))

    async def get(self, cls: type[Any], name: str) -> Any:
        return await self.client.get(cls, name, self._place(cls))

    async def patch(self, cls: type[Any], name: str, body: Any, **options: Any) -> Any:
        return await self.client.patch(cls, name, self._place(cls), body, **options)

    async def delete(self, cls: type[Any], name: str, **options: Any) -> None:
        await self.client.delete(cls, name, self._place(cls), **options)

    async def list(self, cls: type[Any], **options: Any) -> Sequence[Any]:
        return (await self.client.list(cls, namespace=self._place(cls), **options)).items

    async def exists(self, cls: type[Any], name: str) -> bool:
        try:
            await self.get(cls, name)
        except status.NotFound:
            return False
        return True

    def _place(self, cls: type[Object]) -> str:
        return self.namespace if cls.NAMESPACED else ""

    # -- looking on -------------------------------------------------------------------------

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The virtual loop."""
        return asyncio.get_running_loop()

    @property
    def time(self) -> float:
        """Virtual seconds since the world began."""
        return self.clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        await self.clock.sleep(seconds)

    async def until(
        self, condition: Callable[[], Any], what: str = "", *, within_s: float = 600.0
    ) -> Any:
        """The condition's first true value; asked four times a virtual second."""
        deadline = self.time + within_s
        while True:
            value = condition()
            if isinstance(value, Awaitable):
                value = await value
            if value:
                return value
            if self.time >= deadline:
                raise AssertionError(f"not within {within_s} virtual seconds: {what or condition}")
            await self.sleep(0.25)

    def informer(self, cls: type[Any]) -> Informer[Any]:
        """A running informer of a kind, for looking without asking."""
        found = self._informers.get(cls)
        if found is None:
            found = self._informers[cls] = Informer(self.client, cls, clock=self.clock)
            self._spawn(f"informer {cls.PLURAL}", found.run())
        return found

    async def synced(self) -> None:
        """Wait until every informer asked for has its first list."""
        for informer in self._informers.values():
            await informer.synced()

    def cached(self, cls: type[Any], name: str) -> Any:
        """One object as the informer shows it, or None."""
        return self.informer(cls).get(Key(self._place(cls), name))

    def pods(self, **labels: str) -> Sequence[Pod]:
        """Pods of the namespace with these labels, in order of creation."""
        return [
            p
            for p in self.informer(Pod).items()
            if p.metadata.namespace == self.namespace
            and labels.items() <= p.metadata.labels.items()
        ]

    def living(self, **labels: str) -> Sequence[Pod]:
        """`pods` that are neither ended nor being deleted."""
        return [
            p
            for p in self.pods(**labels)
            if p.metadata.deletion_timestamp is None and not p.is_terminal
        ]


def simulate(**options: Any) -> Callable[[Callable[..., Coroutine[Any, Any, None]]], Any]:
    """Make an `async def test(world, …)` a test in a world of its own; other arguments are
    pytest's fixtures and parameters."""

    def decorate(test: Callable[..., Coroutine[Any, Any, None]]) -> Any:
        @functools.wraps(test)
        def wrapper(**arguments: Any) -> None:
            async def main() -> None:
                async with World.open(**options) as world:
                    await test(world=world, **arguments)

            loops.run(main())

        signature = inspect.signature(test)
        kept = [p for p in signature.parameters.values() if p.name != "world"]
        wrapper.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return wrapper

    return decorate


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Every generator that a component makes for itself gets a seed of ours.

    It depends on who makes it, so that a new controller does not change the others' jitter.
    """
    made: Counter[str] = Counter()

    class Seeded(Random):
        def __new__(cls, *_arguments: Any) -> "Seeded":
            return super().__new__(cls)

        def __init__(self, x: Any = None) -> None:
            if x is None:
                who = _makers()
                made[who] += 1
                x = f"{seed}/{who}/{made[who]}"
            super().__init__(x)

    patches = [
        mock.patch.object(module, "Random", Seeded)
        for name, module in list(sys.modules.items())
        if name.startswith("motley.") and getattr(module, "Random", None) is Random
    ]
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(patch)
        yield


def _makers() -> str:
    """The product's modules on the stack, innermost first."""
    frame: FrameType | None = sys._getframe(2)
    names: dict[str, None] = {}
    while frame is not None and len(names) < 3:
        name = frame.f_globals.get("__name__", "")
        if name.startswith("motley."):
            names[name] = None
        frame = frame.f_back
    return " ".join(names)
