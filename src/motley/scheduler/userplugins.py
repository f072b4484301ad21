"""Plugins that users write in Python: from a file or a package, read anew when the file changes.

Named in the configuration by `pluginSources`, a field of Motley's own beside kube-scheduler's:

    pluginSources:
      - path: ./rack_first.py             # relative to the configuration file
      - entryPoint: my_package.mine:Mine  # an installed package

Packages may also offer plugins under the entry-point group `motley.scheduler.plugins`; one is
loaded when a configuration names it. What is wrong with a source is an error that says where.
"""

import importlib
import importlib.metadata
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from motley.lib import journal
from motley.lib.clock import SYSTEM, Clock
from motley.scheduler import contract
from motley.scheduler.events import ClusterEvent
from motley.scheduler.guard import guarded
from motley.scheduler.plugins.registry import Registry

log = journal.get(__name__)

GROUP = "motley.scheduler.plugins"
_POLL_S = 1.0
_numbers = count(1)

_POINTS = (*contract.POINTS.values(), "background", "follow")


class SourceError(ValueError):
    """A plugin cannot be loaded; the message says from where, and which line is to blame."""


class PluginSource(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """Where plugins are: a file, or a class in an installed package."""

    path: str = ""
    entry_point: str = ""

    def __post_init__(self) -> None:
        if bool(self.path) == bool(self.entry_point):
            raise ValueError("a pluginSource has either a path or an entryPoint")
        module, _, name = self.entry_point.partition(":")
        if self.entry_point and not (module and name):
            raise ValueError(f"entryPoint {self.entry_point!r} is not of the form package:Class")


class Sources:
    """The sources of one configuration."""

    def __init__(
        self,
        sources: Sequence[PluginSource],
        *,
        base: Path | None = None,
        named: Iterable[str] = (),
    ) -> None:
        """`base`: what paths are relative to; `named`: plugins the configuration mentions."""
        root = base or Path.cwd()
        self.files = [root / each.path for each in sources if each.path]
        self._entry_points = [each.entry_point for each in sources if each.entry_point]
        self._named = frozenset(named)
        self._modules: list[str] = []  # names of what was executed last
        self._seen = self._stamps()

    def load(self, builtin: Registry) -> dict[str, type[Any]]:
        """All plugins by name, the built-in ones too. Raises SourceError."""
        self._seen = self._stamps()
        before, self._modules = self._modules, []
        try:
            registry = self._registry(builtin)
        except SourceError:
            before, self._modules = self._modules, before
            raise
        finally:
            for name in before:
                sys.modules.pop(name, None)
        return registry

    def _registry(self, builtin: Registry) -> dict[str, type[Any]]:
        registry = dict(builtin)
        for origin, cls in self._classes():
            _check(cls, origin)
            if cls.name in registry:
                theirs = "built in" if cls.name in builtin else "there already"
                raise SourceError(f"{origin}: a plugin named {cls.name!r} is {theirs}")
            registry[cls.name] = guarded(cls)
        return registry

    @property
    def have_changed(self) -> bool:
        """Is any file another than when it was last read?"""
        return self._stamps() != self._seen

    def _classes(self) -> Iterator[tuple[str, type[Any]]]:
        for path in self.files:
            module = _execute(path)
            self._modules.append(module.__name__)
            found = list(_plugins_of(module))
            if not found:
                raise SourceError(f"{path}: no plugin: no class with a `name` serves any point")
            for cls in found:
                yield str(path), cls
        for text in self._entry_points:
            package, _, attribute = text.partition(":")
            yield text, _attribute(package, attribute, text)
        offered = importlib.metadata.entry_points(group=GROUP)
        for point in offered:
            if point.name in self._named and point.value not in self._entry_points:
                yield point.value, _attribute(point.module, point.attr, point.value)

    def _stamps(self) -> list[tuple[int, int, int]]:
        stamps = []
        for path in self.files:
            try:
                found = path.stat()
            except OSError:
                stamps.append((0, 0, 0))  # being replaced, or gone: told when it is read
            else:
                stamps.append((found.st_ino, found.st_mtime_ns, found.st_size))
        return stamps


async def follow(
    sources: Sources,
    builtin: Registry,
    take: Callable[[Registry], Awaitable[None]],
    refuse: Callable[[str], None],
    *,
    clock: Clock = SYSTEM,
) -> None:
    """Until cancelled: hand over a new registry whenever a file changes.

    `take` may raise ValueError, too; `refuse` is told why the plugins at work stay as they are.
    """
    while sources.files:
        await clock.sleep(_POLL_S)
        if not sources.have_changed:
            continue
        try:
            await take(sources.load(builtin))
        except ValueError as error:
            log.error("plugins not reloaded", error=str(error))
            refuse(str(error))
        else:
            log.info("plugins reloaded", files=[str(path) for path in sources.files])


# -- loading --------------------------------------------------------------------------------


def _execute(path: Path) -> ModuleType:
    """Run the file as a module of its own, under a name that no other load has."""
    name = f"motley_plugin_{next(_numbers)}_{path.stem}"
    try:
        source = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SourceError(f"{path}: {error}") from error
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # annotations are looked up through it
    try:
        # Compiled here and not by an import: a cached file could be older than a quick edit.
        exec(compile(source, str(path), "exec"), module.__dict__)
    except SyntaxError as error:
        del sys.modules[name]
        raise SourceError(f"{path}:{error.lineno}: SyntaxError: {error.msg}") from error
    except Exception as error:
        del sys.modules[name]
        raise SourceError(
            f"{path}:{_line(error, path)}: {type(error).__name__}: {error}"
        ) from error
    return module


def _line(error: Exception, path: Path) -> int:
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno or 0 for frame in frames if frame.filename == str(path)]
    return lines[-1] if lines else 0


def _plugins_of(module: ModuleType) -> Iterator[type[Any]]:
    for cls in vars(module).values():
        if (
            inspect.isclass(cls)
            and cls.__module__ == module.__name__
            and isinstance(getattr(cls, "name", None), str)
            and any(hasattr(cls, point) for point in _POINTS)
        ):
            yield cls


def _attribute(module: str, attribute: str, origin: str) -> type[Any]:
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        where = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
        raise SourceError(f"{origin}{where}: {type(error).__name__}: {error}") from error
    if not inspect.isclass(found):
        raise SourceError(f"{origin}: is {type(found).__name__}, not a class")
    return found


def _check(cls: type[Any], origin: str) -> None:
    """Is the class a plugin? What it answers is checked when it does (see `guard`)."""
    line = f"{origin}: class {cls.__name__}"
    if not isinstance(getattr(cls, "name", None), str) or not cls.name:
        raise SourceError(f"{line}: has no `name`")
    args = getattr(cls, "Args", None)
    if not (inspect.isclass(args) and issubclass(args, msgspec.Struct)):
        raise SourceError(f"{line}: `Args` is not a msgspec.Struct; contract.NoArgs takes none")
    if hasattr(cls, "filter") and not isinstance(getattr(cls, "reason", None), str | property):
        raise SourceError(f"{line}: a filter needs a `reason`, which events count nodes under")
    wakes_on = getattr(cls, "wakes_on", ())
    if not isinstance(wakes_on, property) and not (
        isinstance(wakes_on, tuple)
        and all(inspect.isclass(kind) and issubclass(kind, ClusterEvent) for kind in wakes_on)
    ):
        raise SourceError(f"{line}: `wakes_on` is not a tuple of events")
    for point, method in contract.POINTS.items():
        written = getattr(cls, method, None)
        is_async = inspect.iscoroutinefunction(written)
        if written is not None and is_async != (method in ("pre_bind", "bind")):
            wanted = "must be" if not is_async else "must not be"
            raise SourceError(f"{line}: `{method}` ({point}) {wanted} an `async def`")
    if not any(hasattr(cls, point) for point in _POINTS):
        raise SourceError(f"{line}: serves no extension point")
