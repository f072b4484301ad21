"""Plays a scenario: its namespace, its steps in order, and what it leaves behind taken away."""

import asyncio
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import msgspec

from motley.lib.clock import SYSTEM, Clock

from .answer import Answer
from .compare import Comparison, Difference, is_plain_bookmark
from .scenario import Request, Scenario, Step
from .transport import Transport, Watch

_VARIABLE = re.compile(r"\$\{(\w+)\}")
_POLL_S = 0.1
_JSON = {"Content-Type": "application/json"}
_AT_ONCE = b'{"kind":"DeleteOptions","apiVersion":"v1","gracePeriodSeconds":0}'


@dataclass(frozen=True)
class Options:
    """How patient the replay is."""

    patience_s: float = 20.0  # of retryUntil
    pauses: bool = True  # a server whose admission reads what was written needs none
    scenario_timeout_s: float = 180.0
    clock: Clock = SYSTEM


@dataclass(frozen=True)
class Result:
    """One compared step."""

    scenario: Scenario
    step: Step
    answer: Answer
    differences: list[Difference]


@dataclass
class Player:
    """Plays scenarios on one server."""

    transport: Transport
    options: Options = field(default_factory=Options)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    async def play(self, scenario: Scenario) -> list[Result]:
        """The compared steps; those a hanging server never came to are missing answers."""
        namespace = f"golden-{next(self.numbers)}"
        play = _Play(self, scenario, namespace)
        try:
            async with asyncio.timeout(self.options.scenario_timeout_s):
                if scenario.namespace:
                    await self._make_namespace(namespace, scenario.namespaceLabels)
                for step in scenario.steps:
                    await play.step(step)
        except TimeoutError:
            play.give_up()
        finally:
            play.close()
        await self._tidy(scenario, namespace, play.created)
        return play.results

    async def _make_namespace(self, name: str, labels: Mapping[str, str]) -> None:
        metadata: dict[str, Any] = {"name": name}
        if labels:
            metadata["labels"] = labels
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        headers = {**_JSON, "User-Agent": "golden-setup/1.0"}
        await self.transport.send(
            "POST", "/api/v1/namespaces", headers, "admin", msgspec.json.encode(body)
        )
        for path in ("serviceaccounts/default", "configmaps/kube-root-ca.crt"):
            await self._until_there(f"/api/v1/namespaces/{name}/{path}")

    async def _until_there(self, path: str) -> None:
        clock = self.options.clock
        deadline = clock.monotonic() + self.options.patience_s
        pause_s = 0.005
        while (await self.transport.send("GET", path, {}, "admin", None)).status != 200:
            if clock.monotonic() > deadline:
                return  # the steps that need it will say so
            await clock.sleep(pause_s)
            pause_s = min(pause_s * 1.5, _POLL_S)

    async def _tidy(self, scenario: Scenario, namespace: str, created: list[str]) -> None:
        """Cluster-wide objects and Services hold names, addresses and ports others need."""
        for path in reversed(created):
            await self.transport.send("DELETE", path, _JSON, "admin", _AT_ONCE)
        if scenario.namespace:
            path = f"/api/v1/namespaces/{namespace}/services"
            await self.transport.send("DELETE", path, {}, "admin", None)
            path = f"/api/v1/namespaces/{namespace}"
            await self.transport.send("DELETE", path, {}, "admin", None)


class _Play:
    """The state of one scenario while it is played."""

    def __init__(self, player: Player, scenario: Scenario, namespace: str) -> None:
        self._player = player
        self._scenario = scenario
        self._variables = {"NS": namespace}
        self._comparison = Comparison(namespace)
        self._watches: dict[str, Watch | Answer] = {}
        self.created: list[str] = []
        self.results: list[Result] = []

    async def step(self, step: Step) -> None:
        options = self._player.options
        if step.sleepSeconds is not None:
            if options.pauses:
                await options.clock.sleep(step.sleepSeconds)
        elif step.compact:
            compact = self._player.transport.target.compact
            assert compact is not None  # scenarios that compact are left out otherwise
            await compact()
        elif step.watchOpen is not None:
            assert step.request is not None
            self._watches[step.watchOpen] = await self._player.transport.open_watch(
                self._filled(step.request.path), self._headers(step.request), step.request.user
            )
        elif step.watchCollect is not None:
            self._compared(step, await self._collect(step))
        elif step.request is not None:
            await self._request(step, step.request)

    async def _request(self, step: Step, request: Request) -> None:
        path = self._filled(request.path)
        answer = await self._until(step, request, path)
        for name, pointer in step.capture.items():
            self._variables[name] = str(answer.at(pointer))
        self._compared(step, answer)
        if request.method == "POST" and answer.status == 201 and "dryRun" not in path:
            await self._account(step, path, answer)

    async def _until(self, step: Step, request: Request, path: str) -> Answer:
        clock, transport = self._player.options.clock, self._player.transport
        payload = request.payload()
        body = None if payload is None else self._filled(payload).encode("utf-8", "surrogatepass")
        headers = self._headers(request)
        deadline = clock.monotonic() + self._player.options.patience_s
        while True:
            answer = await transport.send(request.method, path, headers, request.user, body)
            until = step.retryUntil
            if until is None or until.is_met(answer.status, answer.text):
                return answer
            if clock.monotonic() > deadline:
                return answer
            await clock.sleep(_POLL_S)

    async def _collect(self, step: Step) -> Answer:
        watch = self._watches.pop(step.watchCollect or "", Answer(0, raw=b"never opened"))
        if isinstance(watch, Answer):
            return watch
        keeps = "bookmark" in step.purpose.lower()
        wanted = step.waitFor.events

        def enough(events: list[dict[str, Any]]) -> bool:
            counted = [e for e in events if keeps or not is_plain_bookmark(e)]
            return wanted is not None and len(counted) >= wanted

        return await watch.collect(enough, step.waitFor.timeoutSeconds)

    async def _account(self, step: Step, path: str, answer: Answer) -> None:
        """Remember what has to go at the end; delete at once what must not disturb later steps:
        the accepted one of a refused list, also where only the recorded server refused."""
        name = answer.at("/metadata/name")
        collection = path.partition("?")[0].rstrip("/")
        is_object = name and answer.at("/kind") not in _REVIEWS
        if not is_object or collection.endswith(_SUBRESOURCES):
            return
        one = f"{collection}/{quote(str(name), safe='')}"
        assert step.response is not None
        if step.thenDelete or step.response.status >= 400:
            await self._player.transport.send("DELETE", one, _JSON, "admin", _AT_ONCE)
        elif "/namespaces/" not in collection and self._scenario.area != "setup":
            self.created.append(one)  # what setup makes is for all scenarios

    def _headers(self, request: Request) -> dict[str, str]:
        return {name: self._filled(value) for name, value in request.headers.items()}

    def _filled(self, text: str) -> str:
        return _VARIABLE.sub(lambda m: self._variables.get(m[1], m[0]), text)

    def _compared(self, step: Step, answer: Answer) -> None:
        differences = self._comparison.step(step, answer)
        self.results.append(Result(self._scenario, step, answer, differences))

    def give_up(self) -> None:
        """The server hangs: what is left of the scenario has no answers."""
        done = {result.step.id for result in self.results}
        for step in self._scenario.steps:
            if step.response is not None and step.id not in done:
                self._compared(step, Answer(0, raw=b"the scenario took too long"))

    def close(self) -> None:
        for watch in self._watches.values():
            if isinstance(watch, Watch):
                watch.close()


_REVIEWS = {"TokenRequest", "TokenReview", "SubjectAccessReview", "SelfSubjectAccessReview"}
_SUBRESOURCES = ("/token", "/binding", "/eviction", "/bindings", "/approval", "/status", "/scale")
