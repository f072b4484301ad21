"""A whole replay: setup, the scenarios that are alone with the server, then the others side by
side.

Scenarios have namespaces of their own, but some touch what all share (default classes, policies,
fixed addresses) or look at what all share (discovery, lists of the whole cluster): they run alone.
"""

import asyncio
from collections.abc import Sequence

from .runner import Options, Player, Result
from .scenario import Scenario, Step
from .transport import Target, Transport

_ALONE_AREAS = {"setup", "discovery", "admission"}
_ABREAST = 4


def runs_alone(scenario: Scenario) -> bool:
    """Whether a scenario meets others outside its namespace: it writes cluster-wide, or asks for
    addresses and ports of its choice."""
    return scenario.area in _ALONE_AREAS or any(_is_shared(step) for step in scenario.steps)


def _is_shared(step: Step) -> bool:
    request = step.request
    if request is None or request.method == "GET":
        return step.compact
    if "/namespaces/${NS}" not in request.path:
        return True
    payload = request.payload() or ""
    return '"clusterIP' in payload or '"nodePort' in payload


async def replay(
    target: Target, scenarios: Sequence[Scenario], options: Options | None = None
) -> list[Result]:
    """Play scenarios; the compared steps in the order of the scenarios."""
    options = options or Options()
    playable = [s for s in scenarios if target.compact is not None or not s.compacts]
    found: dict[str, list[Result]] = {}
    async with Transport(target) as transport:
        player = Player(transport, options)
        for scenario in playable:
            if runs_alone(scenario):
                found[scenario.scenario] = await player.play(scenario)
        waiting = [s for s in playable if not runs_alone(s)]
        # The long ones first, so that the end is not a wait for one of them.
        waiting.sort(key=lambda scenario: len(scenario.steps))

        async def work() -> None:
            while waiting:
                scenario = waiting.pop()
                found[scenario.scenario] = await player.play(scenario)

        async with asyncio.TaskGroup() as group:
            for _ in range(_ABREAST):
                group.create_task(work())
    return [result for scenario in playable for result in found[scenario.scenario]]
