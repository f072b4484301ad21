"""A fence round plugins that somebody else wrote.

A built-in plugin is held to the contract by the type checker and by tests; one from a user's file
is held to it here, at every call: what it answers is looked at before the scheduler believes it,
what it raises names it, and a call that takes long is mentioned. Where the contract allows no
failure (ordering the queue, giving a reservation back, a second look at an event) there is an
answer to fall back on.

Invariant: nothing that a guarded plugin raises reaches the scheduler as anything but a PluginError,
which fails the one pod in question.
"""

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from motley.lib import journal
from motley.lib.clock import Clock
from motley.scheduler.contract import (
    Handle,
    Ineligible,
    Nomination,
    PluginError,
    PodInfo,
    Reject,
    Verdict,
    Wait,
)

log = journal.get(__name__)

SLOW_S = 0.1  # a point that takes longer holds up every pod behind it
_REMIND_S = 10.0
_FAILED = "PluginFailed"

Method = Callable[..., Any]


class WrongAnswer(TypeError):
    """A plugin answered with something that is no answer at this point."""


def guarded(cls: type[Any]) -> type[Any]:
    """A class with the same name, arguments and points whose instances keep the contract."""
    members: dict[str, Any] = {
        "__init__": _init(cls),
        "__module__": cls.__module__,
        "__doc__": cls.__doc__,
        "is_guarded": True,
    }
    for method, guard in _GUARDS.items():
        written = getattr(cls, method, None)
        if written is not None:
            members[method] = guard(written)
    return type(cls.__name__, (cls,), members)


def _init(cls: type[Any]) -> Method:
    def init(self: Any, args: Any, handle: Handle) -> None:
        self._guard_clock = handle.clock
        self._guard_handle = handle
        self._guard_said = {}
        cls.__init__(self, args, handle)

    return init


# -- what an answer must look like ----------------------------------------------------------


def _columns(nodes: Any, answer: Any, kind: str, what: str) -> None:
    if not isinstance(answer, np.ndarray):
        raise WrongAnswer(f"answered with {type(answer).__name__}, not with an array")
    if answer.shape != (nodes.size,):
        raise WrongAnswer(f"answered with shape {answer.shape}, not ({nodes.size},)")
    if answer.dtype.kind not in kind:
        raise WrongAnswer(f"answered with {answer.dtype}, not with {what}")


def _mask(pod: PodInfo, nodes: Any, *_: Any, answer: Any) -> None:
    _columns(nodes, answer, "b", "booleans")


def _pre_filter(pod: PodInfo, nodes: Any, *_: Any, answer: Any) -> None:
    if answer is not None and not isinstance(answer, Reject | Verdict):
        _columns(nodes, answer, "b", "booleans")


def _one_of(*kinds: type[Any]) -> Callable[..., None]:
    def look(*_: Any, answer: Any) -> None:
        if not isinstance(answer, kinds):
            names = ", ".join("None" if k is type(None) else k.__name__ for k in kinds)
            raise WrongAnswer(f"answered with {type(answer).__name__}, not with one of: {names}")

    return look


def _scores(pod: PodInfo, nodes: Any, *_: Any, answer: Any) -> None:
    _columns(nodes, answer, "fiu", "numbers")


def _final_scores(pod: PodInfo, nodes: Any, *_: Any, answer: Any) -> None:
    _columns(nodes, answer, "fiu", "numbers")
    _in_range(answer[nodes.live])


def _normalized(pod: PodInfo, scores: Any, feasible: Any, *, answer: Any) -> None:
    if not isinstance(answer, np.ndarray) or answer.shape != scores.shape:
        raise WrongAnswer("answered with an array of another shape than the scores")
    _in_range(answer[feasible])


def _in_range(scores: Any) -> None:
    if not len(scores):
        return
    low, high = float(scores.min()), float(scores.max())
    if math.isnan(low) or low < 0 or high > 100:
        raise WrongAnswer(f"answered with scores from {low:g} to {high:g}, not 0 to 100")


def _some_rows(kind: str, what: str) -> Callable[..., None]:
    def look(pod: PodInfo, nodes: Any, rows: Any, *, answer: Any) -> None:
        wanted = nodes.live[rows].shape
        if not isinstance(answer, np.ndarray) or answer.shape != wanted:
            raise WrongAnswer(f"answered with something else than an array of shape {wanted}")
        if answer.dtype.kind not in kind:
            raise WrongAnswer(f"answered with {answer.dtype}, not with {what}")

    return look


# -- the fence ------------------------------------------------------------------------------


def _checked(point: str, look: Callable[..., None]) -> Callable[[Method], Method]:
    """Raises PluginError for whatever goes wrong."""

    def guard(written: Method) -> Method:
        @functools.wraps(written)
        def method(self: Any, *args: Any) -> Any:
            try:
                answer = _timed(self, point, written, args)
                look(*args, answer=answer)
            except Exception as error:
                raise _named(self, point, error) from error
            return answer

        return method

    return guard


def _score(written: Method) -> Method:
    """Without a `normalize` the numbers must be scores already."""
    raw, final = _checked("Score", _scores)(written), _checked("Score", _final_scores)(written)

    @functools.wraps(written)
    def method(self: Any, *args: Any) -> Any:
        return (raw if hasattr(self, "normalize") else final)(self, *args)

    return method


def _awaited(point: str) -> Callable[[Method], Method]:
    def guard(written: Method) -> Method:
        @functools.wraps(written)
        async def method(self: Any, *args: Any) -> Any:
            try:
                return await written(self, *args)
            except Exception as error:
                raise _named(self, point, error) from error

        return method

    return guard


def _excused(point: str, otherwise: Callable[..., Any]) -> Callable[[Method], Method]:
    """What the contract does not allow to fail: logged, and answered in the plugin's place."""

    def guard(written: Method) -> Method:
        @functools.wraps(written)
        def method(self: Any, *args: Any) -> Any:
            try:
                return _timed(self, point, written, args)
            except Exception as error:
                log.error("plugin failed", exc_info=error, plugin=self.name, point=point)
                return otherwise(self, *args, error=error)

        return method

    return guard


def _timed(plugin: Any, point: str, written: Method, args: tuple[Any, ...]) -> Any:
    clock: Clock = plugin._guard_clock
    began = clock.monotonic()
    try:
        return written(plugin, *args)
    finally:
        now = clock.monotonic()
        said: dict[str, float] = plugin._guard_said
        if now - began > SLOW_S and now - said.get(point, -_REMIND_S) >= _REMIND_S:
            said[point] = now
            took = round(now - began, 3)
            log.warning("plugin is slow", plugin=plugin.name, point=point, took_s=took)


def _named(plugin: Any, point: str, error: Exception) -> PluginError:
    return error if isinstance(error, PluginError) else PluginError(plugin.name, point, error)


# -- what is answered in a plugin's place ---------------------------------------------------


def _held_back(plugin: Any, pod: PodInfo, *, error: Exception) -> Reject:
    message = str(_named(plugin, "PreEnqueue", error))
    plugin._guard_handle.notices.warn(pod.pod, _FAILED, message)
    return Reject(message)


def _unexplained(
    plugin: Any, pod: PodInfo, nodes: Any, rejected: Any, *, error: Exception
) -> Mapping[str, int]:
    return {plugin.reason: int(np.count_nonzero(rejected))}


def _not_hopeless(plugin: Any, pod: PodInfo, nodes: Any, *_: Any, error: Exception) -> Any:
    return np.zeros(nodes.size, np.bool_)


class _Order:
    """A sort key that can be compared whatever is in it."""

    __slots__ = ("key",)

    def __init__(self, key: tuple[Any, ...]) -> None:
        self.key = key

    def __lt__(self, other: "_Order") -> bool:
        try:
            return bool(self.key < other.key)
        except Exception:  # the queue then goes by arrival
            return False

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Order) and not self < other and not other < self

    __hash__ = None  # type: ignore[assignment]


def _sort_key(written: Method) -> Method:
    def by_priority(plugin: Any, pod: PodInfo, queued_at: float, *, error: Exception) -> Any:
        return (-pod.priority, queued_at)

    ask = _excused("QueueSort", by_priority)(written)

    @functools.wraps(written)
    def method(self: Any, pod: PodInfo, queued_at: float) -> tuple[_Order]:
        key = ask(self, pod, queued_at)
        return (_Order(key if isinstance(key, tuple) else (key,)),)

    return method


_GUARDS: Mapping[str, Callable[[Method], Method]] = {
    "pre_enqueue": _excused("PreEnqueue", _held_back),
    "sort_key": _sort_key,
    "pre_filter": _checked("PreFilter", _pre_filter),
    "filter": _checked("Filter", _mask),
    "filter_rows": _checked("Filter", _some_rows("b", "booleans")),
    "hopeless": _excused("Filter", _not_hopeless),
    "explain": _excused("Filter", _unexplained),
    "placed_as": _checked("Filter", _one_of(PodInfo)),
    "may_help": _excused("Filter", lambda *_, error: True),
    "post_filter": _checked("PostFilter", _one_of(Nomination, Reject, Ineligible)),
    "pre_score": _checked("PreScore", _one_of(Verdict, type(None))),
    "score": _score,
    "score_rows": _checked("Score", _some_rows("fiu", "numbers")),
    "normalize": _checked("NormalizeScore", _normalized),
    "reserve": _checked("Reserve", _one_of(Reject, type(None))),
    "unreserve": _excused("Reserve", lambda *_, error: None),
    "permit": _checked("Permit", _one_of(Verdict, Reject, Wait)),
    "pre_bind": _awaited("PreBind"),
    "bind": _awaited("Bind"),
    "ages": _excused("Filter", lambda *_, error: {}),
}
