"""What happens in a world, as short text: one line for every moment at which something changed.

    1.0  web#1 want 2 RRxx  web#2 want 4 ..ss
         event Normal ScalingReplicaSet web: Scaled up replica set web#2 from 0 to 4

A moment is over when nothing can run any more, so a line shows a settled state and not the order
in which tasks happened to run. A pod is one letter: `.` not scheduled, `s` starting, `u` running
but not ready, `R` ready, `x` being deleted, `e` ended well, `f` failed. ReplicaSets of a Deployment
are called `web#1`, `web#2` in the order they were made, and pods `web#1.1`, `web#1.2`: no name in
a trace is random.
Invariant: the same world gives the same text.
"""

from collections.abc import Callable, Collection
from typing import Any

from motley.api.views.base import Key, Object
from motley.api.views.core import Event, Node
from motley.api.views.pod import Pod
from motley.client.informer import Change
from motley.controllers.workload import ReplicaSet
from world.loop import VirtualLoop
from world.world import World

Render = Callable[["Trace"], str]


class Trace:
    """Follows a world: `trace = await Trace.begin(world)`; `str()` is the text so far.

    `renders` are asked at every moment's end for the state as text; what they say is written when
    it changed. Beside `pods` and `nodes` a test may bring its own. Events are written too, except
    those whose reason is in `hide`.
    """

    def __init__(self, world: World, renders: tuple[Render, ...], hide: Collection[str]) -> None:
        self.world = world
        self._renders = renders
        self._began = world.time
        self._lines: list[str] = []
        self._last: list[str] = [""] * len(renders)
        self.names: dict[Key, str] = {}
        self._numbers: dict[str, int] = {}
        self._hide = hide
        self._events: list[Event] = []

    @classmethod
    async def begin(
        cls,
        world: World,
        *renders: Render,
        hide: Collection[str] = ("Scheduled", "SuccessfulCreate", "SuccessfulDelete"),
    ) -> "Trace":
        """Start with what is there now, at a whole second; events of before are not written."""
        await world.sleep(-world.time % 1)
        trace = cls(world, renders or (pods,), hide)
        for render in trace._renders:
            render(trace)  # whatever it looks at is followed from now on
        for kind in (ReplicaSet, Pod, Event):
            world.informer(kind)
        await world.synced()
        world.informer(ReplicaSet).add_handler(trace._named)
        world.informer(Pod).add_handler(trace._named)
        world.informer(Event).add_handler(trace._event)
        trace._events.clear()
        assert isinstance(world.loop, VirtualLoop)
        world.loop.before_advance.append(trace._moment)
        return trace

    def say(self, text: str) -> None:
        """Write a line of the test's own: what the user does."""
        self._moment()
        self._lines.append(f"{'':8}> {text}")

    def name(self, obj: Object) -> str:
        """An object's name in the trace."""
        return self.names.get(obj.key, obj.metadata.name)

    def plain(self, text: str) -> str:
        """A text with every random name in it replaced."""
        for key, name in sorted(self.names.items(), key=lambda item: -len(item[0].name)):
            text = text.replace(key.name, name)
        return text

    def __str__(self) -> str:
        self._moment()
        return "\n".join(self._lines) + "\n"

    def _named(self, change: Change[Any]) -> None:
        obj = change.object
        owner = obj.metadata.controller()
        if obj.key in self.names or obj.metadata.namespace != self.world.namespace:
            return
        if owner is not None and owner.kind in (
            "Deployment",
            "ReplicaSet",
            "ReplicationController",
        ):
            parent = self.names.get(Key(obj.metadata.namespace, owner.name), owner.name)
            number = self._numbers[parent] = self._numbers.get(parent, 0) + 1
            mark = "#" if owner.kind == "Deployment" else "."
            self.names[obj.key] = f"{parent}{mark}{number}"

    def _event(self, change: Change[Event]) -> None:
        event = change.new
        if event is None or event.metadata.namespace not in (self.world.namespace, "default"):
            return
        if event.reason not in self._hide:
            self._events.append(event)

    def _moment(self) -> None:
        states = [render(self) for render in self._renders]
        lines = [s for s, last in zip(states, self._last, strict=True) if s != last and s]
        self._last = states
        lines += sorted(
            f"event {event.type} {event.reason} {self.plain(event.involved_object.name)}: "
            + self.plain(event.message.removeprefix("(combined from similar events): "))
            for event in self._events
        )
        self._events.clear()
        for number, line in enumerate(lines):
            time = f"{self.world.time - self._began:7.1f}" if number == 0 else f"{'':7}"
            self._lines.append(f"{time}  {line}")


def pods(trace: Trace) -> str:
    """The pods of each owner, one letter each, and how many it wants."""
    world = trace.world
    owned: dict[str, list[Pod]] = {}
    wants: dict[str, str] = {}
    for rs in world.informer(ReplicaSet).items():
        if rs.metadata.namespace == world.namespace and rs.spec.replicas:
            wants[trace.name(rs)] = f" want {rs.spec.replicas}"
    for pod in world.pods():
        owner = pod.metadata.controller()
        key = Key(pod.metadata.namespace, owner.name) if owner is not None else None
        parent = trace.names.get(key, key.name) if key is not None else "alone"
        owned.setdefault(parent, []).append(pod)
    return "  ".join(
        f"{name}{wants.get(name, '')} {''.join(sorted(map(letter, owned.get(name, []))))}".rstrip()
        for name in sorted({*wants, *owned})
    )


def letter(pod: Pod) -> str:
    """A pod's state as one character."""
    if pod.metadata.deletion_timestamp is not None:
        return "x"
    if pod.is_terminal:
        return "e" if pod.status.phase == "Succeeded" else "f"
    if not pod.spec.node_name:
        return "."
    if pod.is_ready:
        return "R"
    return "u" if pod.status.phase == "Running" else "s"


def nodes(trace: Trace) -> str:
    """Every node that is not simply ready, with its taints, and how many pods each has."""
    world = trace.world
    placed: dict[str, int] = {}
    for pod in world.living():
        placed[pod.spec.node_name] = placed.get(pod.spec.node_name, 0) + 1
    parts = []
    for node in sorted(world.informer(Node).items(), key=lambda n: n.metadata.name):
        ready = next((c.status for c in node.status.conditions if c.type == "Ready"), "?")
        taints = [f"{t.key.rpartition('/')[2]}:{t.effect}" for t in node.spec.taints]
        state = {"True": "", "False": " NotReady", "Unknown": " Unknown"}.get(ready, " " + ready)
        parts.append(
            f"{node.metadata.name}={placed.get(node.metadata.name, 0)}{state}"
            + (f" [{' '.join(sorted(taints))}]" if taints else "")
        )
    return "nodes " + "  ".join(parts)
