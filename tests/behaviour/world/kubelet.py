"""Node agents that follow a script instead of running anything.

One task plays one pod: it starts, gets ready, crashes or finishes as its `Behaviour` says, and
ends when it is deleted. A test chooses behaviours by a function of the pod, and may reach into a
running pod: `finish`, `crash`, `set_ready`. A node that is `down` says and does nothing, as if
its cable was pulled: its leases and statuses stop, its pods "run" on, and deletions wait.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.core import Lease, Node
from motley.api.views.pod import Pod
from motley.client.informer import Change, Informer
from motley.client.rest import Client
from motley.controllers.fakenodes import Shape, node_document
from motley.lib import clock as clocks
from motley.lib.clock import Clock

LEASES = "kube-node-lease"
_LEASE_S = 40
_RENEW_S = 10.0  # kubelet's interval
_BACKOFF_S, _BACKOFF_CAP_S = 10.0, 300.0  # kubelet's CrashLoopBackOff
_RETRY_S = 0.5


@dataclass(frozen=True)
class Behaviour:
    """The script of a pod; times in virtual seconds."""

    start_s: float = 1.0  # from bound to running: image, sandbox
    ready_s: float | None = 1.0  # from running to ready; None: never
    run_s: float | None = None  # from running to its end; None: for ever
    exit_code: int = 0  # with which it ends then
    stop_s: float = 1.0  # from deleted to gone, at most its grace period
    stop_code: int = 0  # with which it ends when it is deleted


class _Played:
    """One pod on one node: what was said of it so far, and what may wake its task."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.ended = asyncio.Event()
        self.exit_code: int | None = None
        self.ready: bool | None = None  # what the test wants, instead of the script
        self.said: bool | None = None  # the readiness that was last posted
        self.poke = asyncio.Event()
        self.restarts = 0


class Kubelets:
    """All nodes of a world."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self.script: Callable[[Pod], Behaviour] = lambda _pod: Behaviour()
        self._names: dict[str, int] = {}
        self._shapes: dict[str, Shape] = {}
        self._up: dict[str, asyncio.Event] = {}
        self._pods: Informer[Pod] = Informer(client, Pod, clock=clock)
        self._pods.add_handler(self._changed)
        self._played: dict[str, _Played] = {}
        self._group: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Play until cancelled."""
        async with asyncio.TaskGroup() as self._group:
            await self._pods.run()

    async def add(self, name: str, shape: Shape | None = None, **document: Any) -> None:
        """Register a node and keep it alive; `document` is merged into its spec."""
        assert self._group is not None
        self._names[name] = len(self._names)
        self._shapes[name] = shape or Shape()
        self._up[name] = asyncio.Event()
        self._up[name].set()
        body = self._document(name)
        body["spec"] |= document
        await self._client.create(Node, body)
        await self._client.patch(Node, name, "", self._status(name), subresource="status")
        await self._renew(name)
        self._group.create_task(self._live(name))

    def down(self, name: str) -> None:
        """The node falls silent."""
        self._up[name].clear()

    def up(self, name: str) -> None:
        """The node comes back and says so."""
        self._up[name].set()

    def is_up(self, name: str) -> bool:
        return self._up[name].is_set()

    def finish(self, pod: Pod, exit_code: int = 0) -> None:
        """End the pod's containers now; its restartPolicy decides what follows."""
        played = self._played[pod.metadata.uid]
        played.exit_code = exit_code
        played.poke.set()

    def crash(self, pod: Pod) -> None:
        """End the pod's containers with a failure."""
        self.finish(pod, 1)

    def set_ready(self, pod: Pod, ready: bool) -> None:
        """Overrule the script: the pod's probe answers this from now on."""
        played = self._played[pod.metadata.uid]
        played.ready = ready
        played.poke.set()

    # -- nodes ------------------------------------------------------------------------------

    def _document(self, name: str) -> dict[str, Any]:
        body = node_document(name, self._names[name], self._shapes[name], self._clock.now())
        del body["spec"]["podCIDR"], body["spec"]["podCIDRs"]
        return body

    def _status(self, name: str) -> dict[str, Any]:
        return {"status": self._document(name)["status"]}

    async def _live(self, name: str) -> None:
        up = self._up[name]
        while True:
            if not up.is_set():
                await up.wait()
                await self._persist(lambda: self._announce(name))
                for played in self._played.values():
                    played.poke.set()
            await self._persist(lambda: self._renew(name))
            await self._clock.sleep(_RENEW_S)
            if up.is_set():
                await self._persist(lambda: self._ready_again(name))

    async def _ready_again(self, name: str) -> None:
        """A node that was only thought lost says that it is there."""
        node = await self._client.get(Node, name)
        if not node.is_ready:
            await self._announce(name)

    async def _announce(self, name: str) -> None:
        change = self._status(name)
        await self._client.patch(Node, name, "", change, type="strategic", subresource="status")

    async def _renew(self, name: str) -> None:
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": _LEASE_S,
            "renewTime": clocks.rfc3339_micro(self._clock.now()),
        }
        try:
            await self._client.patch(Lease, name, LEASES, {"spec": spec})
        except status.NotFound:
            await self._client.create(Lease, {"metadata": {"name": name}, "spec": spec}, LEASES)

    async def _persist(self, call: Callable[[], Any]) -> None:
        while True:
            try:
                await call()
            except (status.NotFound, status.Conflict, status.Invalid):
                return  # gone, or someone else's now
            except status.ApiError:
                await self._clock.sleep(_RETRY_S)
            else:
                return

    # -- pods -------------------------------------------------------------------------------

    def _changed(self, change: Change[Pod]) -> None:
        pod = change.new
        if pod is None:
            played = self._played.pop(change.object.metadata.uid, None)
            if played is not None:
                played.ended.set()
                played.poke.set()
            return
        if pod.spec.node_name not in self._names or self._group is None:
            return
        played = self._played.get(pod.metadata.uid)
        if played is None:
            played = self._played[pod.metadata.uid] = _Played(self.script(pod))
            self._group.create_task(self._play(pod.key, pod.metadata.uid, played))
        elif pod.metadata.deletion_timestamp is not None or played.said not in (None, pod.is_ready):
            played.poke.set()  # deleted, or somebody else wrote its status

    async def _play(self, key: Key, uid: str, played: _Played) -> None:
        stage = _Stage(self, key, uid, played)
        await stage.play()

    def current(self, key: Key, uid: str) -> Pod | None:
        pod = self._pods.get(key)
        return pod if pod is not None and pod.metadata.uid == uid else None

    async def node_up(self, name: str) -> None:
        await self._up[name].wait()

    async def post(self, pod: Pod, change: Mapping[str, Any]) -> None:
        await self.node_up(pod.spec.node_name)
        body = {"metadata": {"uid": pod.metadata.uid}, "status": change}
        name, namespace = pod.metadata.name, pod.metadata.namespace
        await self._persist(
            lambda: self._client.patch(Pod, name, namespace, body, subresource="status")
        )

    async def remove(self, pod: Pod) -> None:
        await self.node_up(pod.spec.node_name)
        await self._persist(
            lambda: self._client.delete(
                Pod,
                pod.metadata.name,
                pod.metadata.namespace,
                grace_period_s=0,
                uid=pod.metadata.uid,
            )
        )

    @property
    def clock(self) -> Clock:
        return self._clock

    def address(self, node: str, pod: Pod) -> str:
        number = 1 + list(self._played).index(pod.metadata.uid) % 250
        return f"100.96.{self._names[node]}.{number}"


@dataclass
class _Stage:
    """The life of one pod."""

    kubelets: Kubelets
    key: Key
    uid: str
    played: _Played
    address: str = ""
    started: str = ""
    conditions: dict[str, tuple[bool, str]] = field(default_factory=dict)

    async def play(self) -> None:
        behaviour = self.played.behaviour
        pod = self._pod()
        if pod is None or (pod.is_terminal and pod.metadata.deletion_timestamp is None):
            return
        self.started = self._stamp()
        self.address = self.kubelets.address(pod.spec.node_name, pod)
        if await self._wait(behaviour.start_s):
            await self._end_of_life()
            return
        while True:
            code = await self._running()
            if code is None:
                await self._end_of_life()
                return
            pod = self._pod()
            if pod is None:
                return
            policy = pod.spec.restart_policy
            if policy == "Never" or (policy == "OnFailure" and code == 0):
                await self._say("Succeeded" if code == 0 else "Failed", False, _terminated(code))
                while not await self._wait(None):  # terminal: only its deletion is left
                    pass
                await self._end_of_life(final=False)
                return
            self.played.restarts += 1
            waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
            await self._say("Running", False, waiting, last=_terminated(code))
            backoff_s = min(_BACKOFF_S * 2 ** (self.played.restarts - 1), _BACKOFF_CAP_S)
            if await self._wait(backoff_s):
                await self._end_of_life()
                return

    async def _running(self) -> int | None:
        """Run until the containers end (their exit code) or the pod is deleted (None)."""
        played, behaviour = self.played, self.played.behaviour
        clock = self.kubelets.clock
        begun = clock.monotonic()
        played.said = None
        while True:
            age = clock.monotonic() - begun
            ready = behaviour.ready_s is not None and age >= behaviour.ready_s
            ready = ready if played.ready is None else played.ready
            if ready != played.said or self._is_misreported():
                await self._say("Running", ready, {"running": {"startedAt": self._stamp()}})
                played.said = ready
            if played.exit_code is not None:
                code, played.exit_code = played.exit_code, None
                return code
            if behaviour.run_s is not None and age >= behaviour.run_s:
                return behaviour.exit_code
            due = [t for t in (behaviour.ready_s, behaviour.run_s) if t is not None and t > age]
            if await self._wait(min(due) - age if due else None):
                return None

    async def _wait(self, seconds: float | None) -> bool:
        """Let time pass or something happen; True: the pod is deleted."""
        played = self.played
        if self._is_deleted():
            return True
        played.poke.clear()
        if played.exit_code is None:
            try:
                async with asyncio.timeout(seconds):
                    await played.poke.wait()
            except TimeoutError:
                pass
        return self._is_deleted()

    def _is_misreported(self) -> bool:
        pod = self._pod()
        return pod is not None and pod.is_ready != self.played.said

    def _is_deleted(self) -> bool:
        pod = self._pod()
        return pod is None or pod.metadata.deletion_timestamp is not None

    async def _end_of_life(self, *, final: bool = True) -> None:
        """The pod was deleted: stop, say how it ended, and let its object go."""
        pod = self._pod()
        if pod is None:
            return
        await self.kubelets.node_up(pod.spec.node_name)
        behaviour = self.played.behaviour
        grace = pod.metadata.deletion_grace_period_seconds
        stop_s = min(behaviour.stop_s, behaviour.stop_s if grace is None else grace)
        if stop_s:
            await self.kubelets.clock.sleep(stop_s)
        pod = self._pod()
        if pod is None:
            return
        if final and not pod.is_terminal:
            code = behaviour.stop_code
            await self._say("Succeeded" if code == 0 else "Failed", False, _terminated(code))
        await self.kubelets.remove(pod)

    def _pod(self) -> Pod | None:
        return self.kubelets.current(self.key, self.uid)

    def _stamp(self) -> str:
        return clocks.rfc3339(self.kubelets.clock.now())

    async def _say(
        self,
        phase: str,
        ready: bool,
        state: Mapping[str, Any],
        last: Mapping[str, Any] | None = None,
    ) -> None:
        pod = self._pod()
        if pod is None:
            return
        await self.kubelets.node_up(pod.spec.node_name)
        kinds = {
            "PodScheduled": True,
            "Initialized": True,
            "ContainersReady": ready,
            "Ready": ready,
        }
        containers = [
            {
                "name": container.name,
                "image": container.image,
                "imageID": f"fake://{container.image}",
                "containerID": f"fake://{self.uid}/{container.name}/{self.played.restarts}",
                "ready": ready,
                "started": "running" in state,
                "restartCount": self.played.restarts,
                "state": state,
                "lastState": last or {},
            }
            for container in pod.spec.containers
        ]
        change = {
            "phase": phase,
            "startTime": self.started,
            "podIP": self.address,
            "podIPs": [{"ip": self.address}],
            "conditions": self._conditions(pod, kinds),
            "containerStatuses": containers,
        }
        await self.kubelets.post(pod, change)

    def _conditions(self, pod: Pod, kinds: Mapping[str, bool]) -> list[dict[str, Any]]:
        """Every condition with the time it last changed; others' (DisruptionTarget) are kept."""
        now = self._stamp()
        for kind, value in kinds.items():
            if self.conditions.get(kind, (None, ""))[0] != value:
                self.conditions[kind] = (value, now)
        mine = [
            {"type": kind, "status": str(value), "lastTransitionTime": since}
            for kind, (value, since) in self.conditions.items()
        ]
        others = [
            {
                "type": c.type,
                "status": c.status,
                "reason": c.reason,
                "message": c.message,
                "lastTransitionTime": c.last_transition_time,
            }
            for c in pod.status.conditions
            if c.type not in kinds
        ]
        return mine + others


def _terminated(code: int) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": "Completed" if code == 0 else "Error"}}
