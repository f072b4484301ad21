"""Which plugins run for which pods, as a `KubeSchedulerConfiguration` says.

Profiles by `schedulerName`, plugins enabled and disabled per extension point or at `multiPoint`,
weights, and typed arguments. A profile starts from the default plugins. A plugin that does not
exist, or not at that point, is an error that names it.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import msgspec

from motley.scheduler import extenders, legacy
from motley.scheduler.configuration import (
    DEFAULT_SCHEDULER,
    VERSIONS,
    ConfigError,
    Configuration,
    LeaderElection,
    WrittenArguments,
    WrittenPlugins,
    WrittenProfile,
    parse,
)
from motley.scheduler.contract import POINTS, CountsByNode, Handle
from motley.scheduler.opinions import NAME as EXTENDER
from motley.scheduler.opinions import Extenders
from motley.scheduler.plugins.registry import PLUGINS, Registry

__all__ = [
    "DEFAULT_SCHEDULER",
    "PLUGINS",
    "VERSIONS",
    "ConfigError",
    "Configuration",
    "LeaderElection",
    "parse",
]

# Kubernetes' default plugins with their weights, as far as they exist here, and Hicev1, which
# restricts nothing unless something is known about a pod's images.
DEFAULT_PLUGINS: Mapping[str, int] = {
    "SchedulingGates": 0,
    "PrioritySort": 0,
    "NodeName": 0,
    "NodeUnschedulable": 0,
    "TaintToleration": 3,
    "NodeAffinity": 2,
    "Hicev1": 0,
    "NodePorts": 0,
    "NodeResourcesFit": 1,
    "VolumeRestrictions": 0,
    "NodeVolumeLimits": 0,
    "VolumeBinding": 0,
    "VolumeZone": 0,
    "PodTopologySpread": 2,
    "InterPodAffinity": 2,
    "DefaultPreemption": 0,
    "NodeResourcesBalancedAllocation": 1,
    "ImageLocality": 1,
    "DefaultBinder": 0,
}

# Names kube-scheduler knows or once knew: a file may disable them although there is nothing
# here to disable.
FOREIGN_PLUGINS = frozenset(
    {
        "DynamicResources",
        "NodeDeclaredFeatures",
        "NodeLabel",
        "NodePreferAvoidPods",
        "ServiceAffinity",
        *legacy.ALIASES,
    }
)

# Scorers of v1beta1 that live on in another plugin: who disables the one means the other.
_SUCCESSORS = {"NodeResourcesLeastAllocated": "NodeResourcesFit"}


@dataclass
class Profile:
    """The plugins of one `schedulerName`, made and in order, by extension point."""

    name: str
    plugins: Mapping[str, Any] = field(default_factory=dict)  # every instance, by name
    pre_enqueue: list[Any] = field(default_factory=list)
    queue_sort: list[Any] = field(default_factory=list)
    pre_filter: list[Any] = field(default_factory=list)
    filter: list[Any] = field(default_factory=list)
    post_filter: list[Any] = field(default_factory=list)
    counts_by_node: list[Any] = field(default_factory=list)  # those of `filter` that do
    pre_score: list[Any] = field(default_factory=list)
    score: list[tuple[Any, int]] = field(default_factory=list)
    reserve: list[Any] = field(default_factory=list)
    permit: list[Any] = field(default_factory=list)
    pre_bind: list[Any] = field(default_factory=list)
    bind: list[Any] = field(default_factory=list)
    post_bind: list[Any] = field(default_factory=list)


_FIELDS = {
    "preEnqueue": "pre_enqueue",
    "queueSort": "queue_sort",
    "preFilter": "pre_filter",
    "filter": "filter",
    "postFilter": "post_filter",
    "preScore": "pre_score",
    "reserve": "reserve",
    "permit": "permit",
    "preBind": "pre_bind",
    "bind": "bind",
    "postBind": "post_bind",
}


def build(
    configuration: Configuration,
    handle: Handle,
    registry: Registry = PLUGINS,
    before: Mapping[str, Profile] | None = None,
) -> dict[str, Profile]:
    """The profiles by `schedulerName`. Raises ConfigError.

    `before`: the same profiles with another registry; plugins that have not changed stay, with
    all they know.
    """
    profiles: dict[str, Profile] = {}
    by_extenders = extenders.ignored_resources(configuration.extenders)
    for written in configuration.profiles or [WrittenProfile()]:
        if written.scheduler_name in profiles:
            raise ConfigError(f"profile {written.scheduler_name!r} is there twice")
        old = (before or {}).get(written.scheduler_name, Profile("")).plugins
        try:
            profile = _build(written, handle, registry, by_extenders, old)
            if configuration.extenders:
                _extend(profile, old.get(EXTENDER) or Extenders(configuration.extenders))
        except ConfigError as e:
            raise ConfigError(f"profile {written.scheduler_name!r}: {e}") from e
        except (OSError, ValueError) as e:
            raise ConfigError(f"extenders: {e}") from e
        profiles[written.scheduler_name] = profile
    sorts = {p.queue_sort[0].name for p in profiles.values()}
    if len(sorts) > 1:
        raise ConfigError(f"profiles must share one queueSort plugin, not {sorted(sorts)}")
    return profiles


def default(handle: Handle) -> dict[str, Profile]:
    """What runs without a file."""
    return build(Configuration(), handle)


def _extend(profile: Profile, plugin: Extenders) -> None:
    """Extenders come after all filters, and before all binders."""
    profile.plugins = {**profile.plugins, EXTENDER: plugin}
    profile.pre_filter.append(plugin)
    profile.filter.append(plugin)
    profile.pre_score.append(plugin)
    profile.score.append((plugin, 1))
    profile.bind.insert(0, plugin)


def _build(
    written: WrittenProfile,
    handle: Handle,
    registry: Registry,
    by_extenders: Sequence[str],
    old: Mapping[str, Any],
) -> Profile:
    for point, plugins in written.plugins.items():
        # kube-scheduler writes out points it has and we have not, with nothing in them.
        says_something = bool(plugins.enabled or plugins.disabled)
        if says_something and point != "multiPoint" and point not in POINTS:
            raise ConfigError(f"unknown extension point {point!r}")
    multi = _merge(DEFAULT_PLUGINS, written.plugins.get("multiPoint"), "multiPoint", registry)
    by_point = {
        point: _at_point(point, method, multi, written.plugins.get(point), registry)
        for point, method in POINTS.items()
    }
    names = {name for plugins in by_point.values() for name in plugins}
    arguments = _arguments(written.plugin_config, registry)
    for name in names & {"NodeResourcesFit", "Hicev2"} if by_extenders else ():
        given = arguments.setdefault(name, {})
        given["ignoredResources"] = [*given.get("ignoredResources", ()), *by_extenders]
    instances = _instances(names | arguments.keys(), arguments, handle, registry, old)
    profile = Profile(written.scheduler_name, instances)
    for point, attribute in _FIELDS.items():
        getattr(profile, attribute).extend(instances[name] for name in by_point[point])
    profile.score.extend(
        (instances[name], weight or 1) for name, weight in by_point["score"].items()
    )
    profile.counts_by_node.extend(p for p in profile.filter if isinstance(p, CountsByNode))
    if len(profile.queue_sort) != 1:
        raise ConfigError("exactly one queueSort plugin must be enabled")
    if not profile.bind:
        raise ConfigError("at least one bind plugin must be enabled")
    return profile


def _merge(
    defaults: Mapping[str, int], written: WrittenPlugins | None, point: str, registry: Registry
) -> dict[str, int]:
    """The defaults less what is disabled, plus what is enabled."""
    if written is None:
        return dict(defaults)
    disabled = _disabled(written, point, registry)
    merged = {} if "*" in disabled else {n: w for n, w in defaults.items() if n not in disabled}
    for plugin in written.enabled:
        _known(plugin.name, point, registry)
        # A plugin enabled again keeps its default weight unless it brings its own.
        merged[plugin.name] = plugin.weight or defaults.get(plugin.name, 0)
    return merged


def _at_point(
    point: str,
    method: str,
    multi: Mapping[str, int],
    written: WrittenPlugins | None,
    registry: Registry,
) -> dict[str, int]:
    """The plugins of one point: those named there that `multiPoint` has too come first (a file
    reorders that way), then the rest of `multiPoint`, then what is named only there."""
    general = {
        name: weight
        for name, weight in multi.items()
        if hasattr(registry[name], method)
        and point not in getattr(registry[name], "only_where_named", ())
    }
    if written is None:
        return general
    disabled = _disabled(written, point, registry)
    specific: dict[str, int] = {}
    for plugin in written.enabled:
        _known(plugin.name, point, registry)
        if not hasattr(registry[plugin.name], method):
            raise ConfigError(f"plugin {plugin.name!r} does not serve {point!r}")
        if plugin.name in specific:
            raise ConfigError(f"plugin {plugin.name!r} is enabled twice at {point!r}")
        specific[plugin.name] = plugin.weight or DEFAULT_PLUGINS.get(plugin.name, 0)
    if "*" in disabled:
        return specific
    kept = {name: w for name, w in general.items() if name not in disabled}
    first = {name: w for name, w in specific.items() if name in kept}
    return {**first, **{n: w for n, w in kept.items() if n not in first}, **specific}


def _disabled(written: WrittenPlugins, point: str, registry: Registry) -> set[str]:
    for plugin in written.disabled:
        if plugin.name != "*" and plugin.name not in FOREIGN_PLUGINS:
            _known(plugin.name, point, registry)
    disabled = {plugin.name for plugin in written.disabled}
    if point == "score":
        disabled |= {_SUCCESSORS[name] for name in disabled & _SUCCESSORS.keys()}
    return disabled


def _known(name: str, point: str, registry: Registry) -> None:
    if name in registry:
        return
    if name in FOREIGN_PLUGINS:
        raise ConfigError(f"plugin {name!r} at {point!r} is not available")
    raise ConfigError(f"unknown plugin {name!r} at {point!r}")


def _arguments(
    written: Sequence[WrittenArguments], registry: Registry
) -> dict[str, dict[str, Any]]:
    arguments: dict[str, dict[str, Any]] = {}
    for config in written:
        if config.name not in registry:
            if config.name in FOREIGN_PLUGINS:
                continue
            raise ConfigError(f"pluginConfig for unknown plugin {config.name!r}")
        if config.name in arguments:
            raise ConfigError(f"pluginConfig for plugin {config.name!r} is there twice")
        # The real scheduler's files may carry the type of the arguments.
        arguments[config.name] = {
            key: value for key, value in config.args.items() if key not in ("apiVersion", "kind")
        }
    return arguments


def _instances(
    names: Set[str],
    arguments: Mapping[str, dict[str, Any]],
    handle: Handle,
    registry: Registry,
    old: Mapping[str, Any],
) -> dict[str, Any]:
    instances = {}
    for name in sorted(names):
        cls = registry[name]
        if type(old.get(name)) is cls:
            instances[name] = old[name]
            continue
        try:
            args = msgspec.convert(arguments.get(name, {}), cls.Args)
            instances[name] = cls(args, handle)
        except (msgspec.ValidationError, ValueError, OSError) as e:
            raise ConfigError(f"arguments of plugin {name!r}: {e}") from e
        except Exception as e:
            if not getattr(cls, "is_guarded", False):
                raise
            raise ConfigError(f"plugin {name!r} cannot be made: {type(e).__name__}: {e}") from e
    return instances
