"""The documents' chains: which function follows, by what `check` said of a result. Pure.

`check` is true: the left branch, false: the right one; without a `check` the left one, or the right
where there is no left. RETURN, or no branch, ends the chain with the result. The decisions have the
shape of a workflow's, so that one executor carries both through crashes.
"""

from collections.abc import Callable, Sequence
from typing import Any

from motley.serverless.workflow.engine import (
    FAILED,
    LIMIT_EXCEEDED,
    SUCCEEDED,
    Decision,
    Failure,
    Start,
)
from motley.serverless.workflow.program import RETURN

# The left and right branches of a function, or None where there is no such function.
Branches = Callable[[str], tuple[str, str] | None]


def branch(check: bool | None, left: str, right: str) -> tuple[str, str]:
    """Which branch is taken and where it leads; RETURN: nowhere."""
    if check is None:
        side = "left" if left or not right else "right"
    else:
        side = "left" if check else "right"
    name = left if side == "left" else right
    return side, name or RETURN


def decide(
    function: str, arg: Any, steps: Sequence[dict[str, Any]], branches: Branches, max_steps: int
) -> Decision:
    """What to do now, by the records of the steps so far."""
    if not steps:
        return _start(function, arg, 1, 1)
    last = steps[-1]
    if last["phase"] == FAILED:
        failure = Failure(last.get("error", FAILED), last.get("message", ""))
        return Decision([], [], done=True, failure=failure)
    if last["phase"] != SUCCEEDED:
        return Decision([], [], live=frozenset({last["id"]}))
    result = last.get("output")
    found = branches(last["function"])
    left, right = found or ("", "")  # a function deleted meanwhile ends its chain
    _, following = branch(last.get("check"), left, right)
    if following == RETURN:
        return Decision([], [], done=True, result=result)
    if len(steps) >= max_steps:
        message = (
            f"more than {max_steps} steps: a loop that does not end? spec.maxSteps is the limit"
        )
        return Decision([], [], done=True, failure=Failure(LIMIT_EXCEEDED, message))
    place = int(str(last["id"]).partition(".")[0]) + 1
    return _start(following, result, place, 1)


def _start(function: str, arg: Any, place: int, attempt: int) -> Decision:
    return Decision([Start(f"{place}.{function}", function, function, attempt, arg, 0)], [])
