"""Other plugins for the same profiles, while the scheduler runs.

New versions are made and let to know what they follow *before* the old ones go: where that fails,
nothing has changed. Plugins whose class is the same stay, with all they know.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from motley.scheduler import profiles
from motley.scheduler.contract import Handle
from motley.scheduler.hosting import Hosting
from motley.scheduler.plugins.registry import Registry
from motley.scheduler.profiles import ConfigError, Configuration, Profile


class Replanning:
    """Builds the profiles of a configuration again."""

    def __init__(self, configuration: Configuration, handle: Handle, hosting: Hosting) -> None:
        self._configuration = configuration
        self._handle = handle
        self._hosting = hosting

    async def rebuilt(
        self, before: Mapping[str, Profile], registry: Registry
    ) -> dict[str, Profile]:
        """The profiles with the plugins of this registry. Raises ConfigError: all is as it was."""
        fresh = profiles.build(self._configuration, self._handle, registry, before)
        old, new = _by_id(before.values()), _by_id(fresh.values())
        try:
            for each in new.keys() - old.keys():
                self._hosting.adopt(new[each])
            await self._hosting.known()
        except Exception as error:
            for each in new.keys() - old.keys():
                self._hosting.release(new[each])
            raise ConfigError(f"plugin cannot begin: {type(error).__name__}: {error}") from error
        for each in old.keys() - new.keys():
            self._hosting.release(old[each])
        return fresh


def _by_id(built: Iterable[Profile]) -> dict[int, Any]:
    return {id(plugin): plugin for profile in built for plugin in profile.plugins.values()}
