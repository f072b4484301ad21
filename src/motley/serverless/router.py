"""The way in: calls over HTTP to functions, results by id.

    POST   /functions/NAMESPACE/NAME     call; the body is the argument
    GET    /invocations/NAMESPACE/ID     how far an accepted call is, and its result
    DELETE /invocations/NAMESPACE/ID     cancel it

A call is held while an instance wakes. One that takes longer than the caller is made to wait
becomes an Invocation, and the caller gets its id; so does one that asks for that (`Prefer:
respond-async`), and one whose function has branches.
Invariant: an id is given only after the Invocation is written.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import unquote

from motley.api import status
from motley.api.views.base import Key
from motley.api.views.serverless import Function, Invocation
from motley.lib import journal
from motley.lib.clock import Clock
from motley.serverless import accepting, asking, records, values
from motley.serverless.accepting import Acceptance
from motley.serverless.callback import document
from motley.serverless.calls import Asked, Begun, Calls, Progress, resolve_timeout_s
from motley.serverless.channel import Lost
from motley.serverless.gate import Gate
from motley.serverless.httpd import Caller, Request
from motley.serverless.instances import Broken, Overloaded, Slot, Unavailable
from motley.serverless.metrics import Meters
from motley.serverless.workflow.engine import Start

log = journal.get(__name__)

SYNC_WAIT_S = 10.0
# Of a caller's headers these are not the function's: they speak to the router or open the API.
_NOT_PASSED = frozenset(
    {
        "authorization",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "prefer",
        "transfer-encoding",
        "upgrade",
    }
)
_AFTER_HAND_OVER_S = 1.0
_UNKNOWN_S = 1.0
_MOST_UNKNOWN = 1000

Further = Callable[[Request, Caller], Awaitable[bool]]


class Router:
    """Answers requests."""

    def __init__(
        self,
        calls: Calls,
        gate: Gate,
        acceptance: Acceptance,
        function: Callable[[Key], Function | None],
        fetch: Callable[[Key], Awaitable[Function]],
        meters: Meters,
        clock: Clock,
        *,
        sync_wait_s: float = SYNC_WAIT_S,
        further: Further | None = None,
    ) -> None:
        """`further`: answers paths that are not here, such as the documents'; false: not its."""
        self._calls = calls
        self._gate = gate
        self._acceptance = acceptance
        self._function = function
        self._fetch = fetch
        self._unknown: dict[Key, float] = {}  # names that nothing has, and when that was so
        self._meters = meters
        self._clock = clock
        self._sync_wait_s = sync_wait_s
        self.further = further
        self.start: Callable[[Any], None] = lambda _: None  # runs a coroutine beside requests

    async def handle(self, request: Request, caller: Caller) -> None:
        """Answer one request."""
        path = request.path.partition("?")[0]
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if path in ("/healthz", "/readyz", "/livez"):
            caller.send(200, "text/plain", b"ok")
        elif len(parts) >= 3 and parts[0] == "functions":
            await self.called(request, caller, Key(parts[1], parts[2]), "/".join(parts[3:]))
        elif len(parts) == 3 and parts[0] == "invocations":
            await self._asked(request, caller, Key(parts[1], parts[2]))
        elif self.further is None or not await self.further(request, caller):
            caller.error(404, "NotFound", "functions are at /functions/NAMESPACE/NAME")

    async def called(self, request: Request, caller: Caller, key: Key, rest: str) -> None:
        """A call by somebody of whom nothing is known yet."""
        try:
            function = await self._found(key)
        except status.ApiError as error:
            caller.error(503, "Unavailable", error.message, {"Retry-After": "1"})
            return
        is_public = function is not None and function.spec.public
        if not is_public:
            # Also where there is no such function: names are not for everybody.
            code = await self._gate.code(
                request, "create", "functions", key.namespace, key.name, "call"
            )
            if code != 200:
                self._refused(caller, code, f"call function {key}")
                return
        if request.method != "POST":
            caller.error(405, "MethodNotAllowed", "functions are called with POST")
        elif function is None:
            caller.error(404, "NotFound", f"there is no function {key}")
        else:
            await self.call(function, request, caller, rest)

    async def _found(self, key: Key) -> Function | None:
        """The function; one that was just made may not be in our copy yet. Raises ApiError."""
        known = self._function(key)
        now = self._clock.monotonic()
        if known is not None or self._unknown.get(key, float("-inf")) > now - _UNKNOWN_S:
            return known
        try:
            return await self._fetch(key)
        except status.NotFound:
            if len(self._unknown) > _MOST_UNKNOWN:
                self._unknown.clear()
            self._unknown[key] = now
            return None

    def _refused(self, caller: Caller, code: int, what: str) -> None:
        if code == 401:
            message = f"to {what}, say who you are: Authorization: Bearer TOKEN"
            caller.error(401, "Unauthorized", message, {"WWW-Authenticate": "Bearer"})
        else:
            caller.error(403, "Forbidden", f"you may not {what}")

    async def call(
        self, function: Function, request: Request, caller: Caller, rest: str = ""
    ) -> None:
        """One call by somebody who may."""
        preference = request.headers.get("prefer", "")
        wait_s = asking.wait_s(preference, self._sync_wait_s)
        is_async = "respond-async" in preference
        spec = asking.invocation_spec(function, request)
        if is_async or function.has_branches or len(spec) > 1:
            await self._accepted(function, request, caller, spec, 0.0 if is_async else wait_s)
        else:
            await self._direct(function, request, caller, wait_s, rest)

    async def _direct(
        self, function: Function, request: Request, caller: Caller, wait_s: float, rest: str
    ) -> None:
        """Straight to an instance; nothing is written unless it takes long."""
        began = self._clock.monotonic()
        name = self._acceptance.new_name(function.metadata.name)
        headers = {k: v for k, v in request.headers.items() if k not in _NOT_PASSED}
        if function.spec.public and "authorization" in request.headers:
            headers["authorization"] = request.headers["authorization"]
        asked = Asked(
            function,
            name,
            request.body,
            headers,
            resolve_timeout_s(function),
            f"/{rest}",
        )
        progress = Progress()
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Begun] = loop.create_future()
        self.start(self._begun(asked, progress, outcome))
        done, _ = await asyncio.wait({outcome}, timeout=wait_s)
        if not done:
            await self._hand_over(function, request, caller, asked, progress, outcome)
            return
        code = 500
        try:
            begun = outcome.result()
            code = begun.answer.status
            if begun.slot.was_cold:
                took_s = self._clock.monotonic() - began
                self._meters.cold(function.key, "first_byte", took_s)
            await self._pass_on(begun, caller)
        except (Overloaded, Unavailable, Broken, Lost) as error:
            code = self._failed(caller, error)
        self._meters.ran(function.key, code, self._clock.monotonic() - began)

    async def _begun(
        self, asked: Asked, progress: Progress, outcome: "asyncio.Future[Begun]"
    ) -> None:
        """Begin a call; whoever asked may have left when it has begun."""
        try:
            begun = await self._calls.begin(asked, progress, _unless_left(outcome))
        except _Left:
            return
        except (Overloaded, Unavailable, Broken, Lost) as error:
            if not outcome.cancelled():
                outcome.set_exception(error)
                outcome.exception()  # looked at: nobody may be there any more
            return
        if not outcome.cancelled():
            outcome.set_result(begun)
            return
        # Handed over: the executor asks for the same call. This connection stays until the answer
        # is there, so that the instance is not taken for an idle one.
        try:
            await begun.answer.whole()
            await self._clock.sleep(_AFTER_HAND_OVER_S)
        except Lost:
            log.info("instance lost after the call was handed over", id=asked.call_id)
        finally:
            self._calls.done(begun)

    async def _pass_on(self, begun: Begun, caller: Caller) -> None:
        """The instance's answer, whole if it is there, as it comes if not."""
        answer = begun.answer
        kind = answer.headers.get("content-type", values.TEXT)
        headers = {
            name: answer.headers[name.lower()]
            for name in ("X-Motley-Call-Id", "X-Motley-Check", "X-Motley-Run-Ms")
            if name.lower() in answer.headers
        }
        try:
            if answer.is_complete or "content-length" in answer.headers:
                caller.send(answer.status, kind, await answer.whole(), headers)
                return
            caller.begin(answer.status, kind, headers)
            async for part in answer.parts():
                await caller.chunk(part)
                if caller.is_closed:
                    begun.connection.close()
                    return
            caller.end()
        except Lost:
            if caller.began:
                caller.close()  # cut off, so that the caller sees that it is
                return
            raise
        finally:
            self._calls.done(begun)

    def _failed(self, caller: Caller, error: Exception) -> int:
        """Say why there is no result; the code it was said with."""
        if isinstance(error, Broken):
            code = 404 if error.error.get("type") == "NotFound" else 500
            caller.json(code, {"error": error.error})
            return code
        code, headers = 502, {}
        if isinstance(error, Overloaded):
            code, headers = 429, {"Retry-After": "1"}
        elif isinstance(error, Unavailable):
            code, headers = 503, {"Retry-After": "5"}
        kind = "InstanceLost" if isinstance(error, Lost) else type(error).__name__
        caller.error(code, kind, str(error), headers)
        return code

    async def _hand_over(
        self,
        function: Function,
        request: Request,
        caller: Caller,
        asked: Asked,
        progress: Progress,
        outcome: "asyncio.Future[Begun]",
    ) -> None:
        """It takes long: make it durable, then give its id."""
        spec = asking.invocation_spec(function, request)
        running = None
        if progress.slot is None:
            outcome.cancel()  # it has not begun, and from now on only the executor may begin it
        else:
            start = Start(
                f"1.{function.metadata.name}",
                function.metadata.name,
                function.metadata.name,
                1,
                spec.get("arg"),
                0,
            )
            pod = progress.slot.instance.pod.name
            running = records.begun(start, asked.call_id, pod, self._clock.now())
        try:
            spec |= asking.argument(request)
            invocation = await self._acceptance.accept(
                function.metadata.namespace,
                function.metadata.name,
                spec,
                labels=accepting.labels(function),
                running=running,
                name=asked.call_id,
            )
        except (status.ApiError, ValueError) as error:
            # Not accepted, so no id; the caller goes on waiting for the answer itself.
            log.warning("call not handed over", function=function.key, error=str(error))
            if outcome.cancelled():
                caller.error(503, "NotAccepted", str(error), {"Retry-After": "5"})
                return
            try:
                await self._pass_on(await outcome, caller)
            except (Overloaded, Unavailable, Broken, Lost) as failure:
                self._failed(caller, failure)
            return
        outcome.cancel()
        self._give_id(caller, invocation)

    async def _accepted(
        self,
        function: Function,
        request: Request,
        caller: Caller,
        spec: dict[str, Any],
        wait_s: float,
    ) -> None:
        """Durable from the beginning."""
        try:
            spec |= asking.argument(request)
        except ValueError as error:
            caller.error(400, "BadRequest", f"the argument is not JSON: {error}")
            return
        if len(request.body) > values.MOST_STORED:
            message = (
                f"the argument has {len(request.body)} bytes; a call that is kept may have"
                f" {values.MOST_STORED}: pass a reference to it instead"
            )
            caller.error(413, "ContentTooLarge", message)
            return
        try:
            invocation = await self._acceptance.accept(
                function.metadata.namespace,
                function.metadata.name,
                spec,
                labels=accepting.labels(function),
            )
        except status.ApiError as error:
            caller.error(503, "NotAccepted", error.message, {"Retry-After": "1"})
            return
        await self.answer(caller, invocation, wait_s)

    async def answer(self, caller: Caller, invocation: Invocation, wait_s: float) -> None:
        """An accepted call's result if it comes in time, its id if not."""
        ended: Invocation | None = invocation if invocation.is_finished else None
        if ended is None and wait_s > 0:
            ended = await self._acceptance.ended(invocation.key, wait_s)
        if ended is None:
            self._give_id(caller, invocation)
        elif ended.status.phase == "Succeeded":
            kind, body = values.to_wire(ended.status.result)
            caller.send(200, kind, body, {"X-Motley-Invocation": ended.metadata.name})
        else:
            error = ended.status.error or {"type": ended.status.phase, "message": ""}
            headers = {"X-Motley-Invocation": ended.metadata.name}
            caller.json(500, {"error": error}, headers)

    def _give_id(self, caller: Caller, invocation: Invocation) -> None:
        key = invocation.key
        url = f"/invocations/{key.namespace}/{key.name}"
        shown = {**document(invocation), "url": url}
        caller.json(202, shown, {"Location": url, "Retry-After": "1"})

    async def _asked(self, request: Request, caller: Caller, key: Key) -> None:
        verb = {"GET": "get", "DELETE": "delete"}.get(request.method)
        if verb is None:
            caller.error(405, "MethodNotAllowed", "GET a result, DELETE to cancel")
            return
        code = await self._gate.code(request, verb, "invocations", key.namespace, key.name)
        if code != 200:
            self._refused(caller, code, f"{verb} invocation {key}")
            return
        try:
            if verb == "get":
                caller.json(200, document(await self._acceptance.read(key)))
            else:
                caller.json(202, document(await self._acceptance.cancel(key)))
        except status.NotFound:
            caller.error(404, "NotFound", f"there is no invocation {key}")
        except status.ApiError as error:
            caller.error(503, "Unavailable", error.message, {"Retry-After": "1"})


class _Left(Exception):
    """The call was handed over before it began here."""


def _unless_left(outcome: "asyncio.Future[Begun]") -> Callable[[Slot], None]:
    def check(_: Slot) -> None:
        if outcome.cancelled():
            raise _Left

    return check
