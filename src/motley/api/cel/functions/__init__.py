"""Every function an expression can call, by name.

`GLOBAL` holds `name(…)` and `library.name(…)`, `METHODS` holds `value.name(…)`. A function takes
CEL values and returns one; `CelError("no such overload")` says that these are not its arguments.
"""

from collections.abc import Callable
from typing import Any

from motley.api.cel.functions import (
    addresses,
    authorization,
    conversions,
    lists,
    operators,
    quantities,
    sets,
    strings,
    times,
    urls,
    versions,
)

Function = Callable[..., Any]
_LIBRARIES = (
    operators,
    conversions,
    strings,
    lists,
    sets,
    times,
    quantities,
    urls,
    addresses,
    versions,
    authorization,
)

GLOBAL: dict[str, Function] = {}
METHODS: dict[str, Function] = {}
RESULTS: dict[str, str] = {}
"""The type of what a function returns, where that does not depend on its arguments."""

for _library in _LIBRARIES:
    GLOBAL |= _library.GLOBAL
    RESULTS |= _library.RESULTS
    for _name, _function in _library.METHODS.items():
        METHODS.setdefault(_name, _function)
