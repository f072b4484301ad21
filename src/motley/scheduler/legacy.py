"""Names of plugins that configuration files of v1beta1 and v1beta2 use, and what became of them.

- `NodeResourcesLeastAllocated` was on by default and is now the score of NodeResourcesFit: whoever
  enables, disables or configures the one means the other.
- `SelectorSpread` is what PodTopologySpread does for pods without constraints.
- `EBSLimits` and its like counted the disks of one cloud each; NodeVolumeLimits counts them all.
"""

from collections.abc import Mapping
from typing import Any

from motley.lib import journal

log = journal.get(__name__)

_LEAST, _FIT = "NodeResourcesLeastAllocated", "NodeResourcesFit"
ALIASES: Mapping[str, str] = {
    "AzureDiskLimits": "NodeVolumeLimits",
    "CinderLimits": "NodeVolumeLimits",
    "EBSLimits": "NodeVolumeLimits",
    "GCEPDLimits": "NodeVolumeLimits",
    "SelectorSpread": "PodTopologySpread",
}

Profile = dict[str, Any]  # as it is written


def modernized(profiles: list[Profile]) -> list[Profile]:
    """The profiles in today's names; what is changed is said in the log."""
    return [_profile(profile) for profile in profiles]


def _profile(profile: Profile) -> Profile:
    plugins = {point: _aliased(point, written) for point, written in profile["plugins"].items()}
    named = {
        plugin["name"]
        for written in plugins.values()
        for plugin in (*written["enabled"], *written["disabled"])
    }
    configured = {config["name"] for config in profile["pluginConfig"]}
    score = plugins.get("score", {"enabled": [], "disabled": []})
    if _LEAST in configured and _LEAST not in named and "*" not in _names(score["disabled"]):
        score["enabled"] = [*score["enabled"], {"name": _LEAST}]
    enabled = _names(score["enabled"]) | _names(plugins.get("multiPoint", score)["enabled"])
    if _LEAST in enabled and _FIT not in _names(score["enabled"]):
        log.info("NodeResourcesLeastAllocated takes the place of the score of NodeResourcesFit")
        score["disabled"] = [*score["disabled"], {"name": _FIT}]
    if score["enabled"] or score["disabled"]:
        plugins["score"] = score
    return {**profile, "plugins": plugins}


def _names(plugins: list[dict[str, Any]]) -> set[str]:
    return {plugin["name"] for plugin in plugins}


def _aliased(point: str, written: dict[str, Any]) -> dict[str, Any]:
    enabled: dict[str, dict[str, Any]] = {}
    repeated = []
    for plugin in written["enabled"]:
        name = plugin["name"]
        if name in ALIASES:
            today = ALIASES[name]
            log.info("plugin lives on in another", plugin=name, today=today, point=point)
            # It brings its weight only where today's has none of its own.
            keeps = "*" in _names(written["disabled"])
            enabled.setdefault(today, {**plugin, "name": today} if keeps else {"name": today})
        elif name in enabled and name not in ALIASES.values():
            repeated.append(plugin)
        else:
            enabled[name] = plugin
    return {**written, "enabled": [*enabled.values(), *repeated]}
