"""How long each plugin takes, measured on a sample of the decisions.

Reading the clock around every call of every plugin would cost as much as some of the plugins. So
one decision in `EVERY`, and those of pods whose author asks, are made by a cycle whose plugins are
wrapped; it shares columns, rotation and nominations with the plain one and decides the same.
It keeps no answers from earlier pods, so a plugin's figure is what it costs without them.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from motley.lib.clock import SYSTEM, Clock
from motley.scheduler.profiles import Profile

EVERY = 512

_POINTS = (
    *("pre_filter", "filter", "filter_rows", "post_filter"),
    *("pre_score", "score", "score_rows", "normalize"),
)
_LISTS = ("pre_filter", "filter", "post_filter", "pre_score")


class Stopwatch:
    """Seconds by plugin, over all its points."""

    def __init__(self, clock: Clock = SYSTEM) -> None:
        self.took_s: dict[str, float] = {}
        self.by_method: dict[tuple[str, str], float] = {}
        self._clock = clock
        self._is_running = False

    def around(self, name: str, point: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """The method, measured; what it asks of other plugins counts as its own time."""

        def measured(*args: Any) -> Any:
            if self._is_running:
                return method(*args)
            self._is_running = True
            began = self._clock.monotonic()
            try:
                return method(*args)
            finally:
                self._is_running = False
                took_s = self._clock.monotonic() - began
                self.took_s[name] = self.took_s.get(name, 0.0) + took_s
                key = (name, point)
                self.by_method[key] = self.by_method.get(key, 0.0) + took_s

        return measured


def timed(profile: Profile, stopwatch: Stopwatch) -> Profile:
    """The profile with plugins that are measured in the cycle."""
    wrapped = {name: _wrap(plugin, stopwatch) for name, plugin in profile.plugins.items()}
    lists: Mapping[str, Any] = {
        point: [wrapped[plugin.name] for plugin in getattr(profile, point)] for point in _LISTS
    }
    score = [(wrapped[plugin.name], weight) for plugin, weight in profile.score]
    return replace(profile, **lists, score=score)


def _wrap(plugin: Any, stopwatch: Stopwatch) -> Any:
    """An object with what the plugin has, and nothing else: the cycle asks what is there."""
    public = [name for name in dir(plugin) if not name.startswith("_")]
    members = {name: getattr(plugin, name) for name in public}
    for point in _POINTS:
        if point in members:
            members[point] = stopwatch.around(plugin.name, point, members[point])
    return SimpleNamespace(**members)


class Sampling:
    """Which decisions are measured."""

    def __init__(self, every: int = EVERY) -> None:
        self._every = every
        self._count = 0

    def is_due(self) -> bool:
        """One in so many; the first ones, with everything still cold, are not typical."""
        self._count += 1
        return self._count % self._every == 0
