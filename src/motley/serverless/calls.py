"""One call of a function: find an instance, hand the call over, try another if it did not begin.

Router and executor share this. What is tried again, and where, follows from one question: can the
function have run? If not, any other instance may have the call, until its time is up. If so, only
the same instance may be asked again, by the call's id.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from motley.api.views.base import Key
from motley.api.views.serverless import Function
from motley.lib import journal
from motley.lib.clock import Clock
from motley.serverless.channel import Answer, Channels, Connection, Lost, NotStarted
from motley.serverless.instances import Group, Slot, Table, Unavailable
from motley.serverless.metrics import Meters

log = journal.get(__name__)

START_ALLOWANCE_S = 120.0  # for an instance to come, beside the time of the call itself
_BUSY_PAUSE_S = 0.01
_ASK_AGAIN = 5
_ASK_AGAIN_PAUSE_S = 0.1


@dataclass
class Progress:
    """How far a call is, for whoever looks at it from outside."""

    slot: Slot | None = None


@dataclass(frozen=True)
class Asked:
    """What is to be called with what."""

    function: Function
    call_id: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 60.0  # of the call itself
    path: str = "/"

    @property
    def key(self) -> Key:
        """The function's."""
        return self.function.key


@dataclass
class Begun:
    """An answer has begun; `Calls.done` gives everything back."""

    group: Group
    slot: Slot
    answer: Answer
    connection: Connection


class Calls:
    """Leads calls to instances."""

    def __init__(
        self,
        table: Table,
        channels: Channels,
        clock: Clock,
        meters: Meters,
        call_token: Callable[[str, float], str],
    ) -> None:
        self.table = table
        self.channels = channels
        self._clock = clock
        self._meters = meters
        self._call_token = call_token
        self.suspects: dict[Key, float] = {}  # not asked again before this time

    async def begin(
        self,
        asked: Asked,
        progress: Progress | None = None,
        before: Callable[[Slot], Awaitable[None] | None] | None = None,
        wait_s: float = START_ALLOWANCE_S,
    ) -> Begun:
        """The answer's beginning. Raises Overloaded, Unavailable, Broken, Lost.

        `before` is called, and awaited if it is to be, when an instance is found and before it is
        asked.
        """
        group = self.table.group(asked.key)
        until = self._clock.monotonic() + wait_s
        while True:
            left_s = until - self._clock.monotonic()
            if left_s <= 0:
                raise Unavailable(f"no instance of {asked.key} took the call within {wait_s:g} s")
            slot = await group.acquire(left_s)
            if progress is not None:
                progress.slot = slot
            try:
                waited = before(slot) if before is not None else None
                if waited is not None:
                    await waited
            except BaseException:
                group.release(slot, started=False)
                raise
            try:
                begun = await self._ask(group, slot, asked)
            except NotStarted as error:
                group.release(slot, started=False)
                self._suspect(group, slot, str(error))
                continue
            except BaseException:
                group.release(slot)
                raise
            if begun is not None:
                self._meters.queued(asked.key, slot.waited_s)
                return begun
            if progress is not None:
                progress.slot = None
            await self._clock.sleep(_BUSY_PAUSE_S)

    async def again(self, asked: Asked, pod: Key) -> Begun:
        """Ask one certain instance about a call that it has. Raises Lost when it is gone."""
        group = self.table.group(asked.key)
        slot = group.retake(pod)
        if slot is None:
            raise Lost(f"instance {pod.name} is gone")
        try:
            begun = await self._ask(group, slot, asked)
        except NotStarted as error:
            group.release(slot)
            raise Lost(f"instance {pod.name} is gone: {error}") from error
        except BaseException:
            group.release(slot)
            raise
        if begun is None:
            raise Lost(f"instance {pod.name} does not know the call")
        return begun

    async def _ask(self, group: Group, slot: Slot, asked: Asked) -> Begun | None:
        """None: it did not take the call, and the slot is given back."""
        instance = slot.instance
        headers = {
            **asked.headers,
            "X-Motley-Call-Id": asked.call_id,
            "X-Motley-Timeout": f"{asked.timeout_s:.3f}",
            "X-Motley-Instance-Token": instance.token,
            "X-Motley-Call-Token": self._call_token(asked.key.namespace, asked.timeout_s),
        }
        answer, connection = await self._send(slot, asked, headers)
        if answer.headers.get("x-motley-started") != "no":
            return Begun(group, slot, answer, connection)
        error = answer.json(await answer.whole())
        self.channels.keep(instance.address, connection)
        kind = error.get("error", {}).get("type", "") if isinstance(error, dict) else ""
        group.release(slot, started=False)
        if kind != "Busy":
            log.info("instance refused a call", pod=instance.pod, reason=kind)
            self._suspect(group, slot, kind)
        return None

    async def _send(
        self, slot: Slot, asked: Asked, headers: Mapping[str, str]
    ) -> tuple[Answer, Connection]:
        """Send, and ask again where the connection breaks: the id makes it the same call."""
        address = slot.instance.address
        for attempt in range(_ASK_AGAIN):
            try:
                return await self.channels.ask(address, "POST", asked.path, headers, asked.body)
            except Lost:
                if attempt == _ASK_AGAIN - 1:
                    raise
            except NotStarted:
                if attempt:  # it was there before: it may have begun, and is gone now
                    raise Lost(f"instance {slot.instance.pod.name} ended during the call") from None
                raise
            await self._clock.sleep(_ASK_AGAIN_PAUSE_S)
        raise Lost(address)

    def done(self, begun: Begun) -> None:
        """The answer was read, or nobody wants the rest."""
        self.channels.keep(begun.slot.instance.address, begun.connection)
        begun.group.release(begun.slot)

    async def cancel(self, pod: Key, function: Key, call_id: str) -> None:
        """End a call where it runs, if it still does."""
        instance = self.table.group(function).instances.get(pod)
        if instance is None:
            return
        headers = {"X-Motley-Instance-Token": instance.token}
        try:
            answer, connection = await self.channels.ask(
                instance.address, "DELETE", f"/calls/{call_id}", headers
            )
            await answer.whole()
            self.channels.keep(instance.address, connection)
        except (NotStarted, Lost) as error:
            log.info("call not cancelled, its instance is gone", pod=pod, error=str(error))

    def _suspect(self, group: Group, slot: Slot, reason: str) -> None:
        """Do not ask this one for a moment; whoever watches pods will say what became of it."""
        pod = slot.instance.pod
        log.info("instance is not asked for a while", pod=pod, reason=reason)
        self.suspects[pod] = self._clock.monotonic() + 2.0
        group.drop(pod)
        self.channels.forget(slot.instance.address)


def resolve_timeout_s(function: Function, wanted_s: float = 0.0) -> float:
    """How long one call may take."""
    return min(wanted_s or 1e9, float(function.spec.timeout_seconds))


def concurrency(function: Function) -> int:
    """Calls an instance takes at a time."""
    return 1 if function.spec.version == "v1" else function.spec.concurrency
