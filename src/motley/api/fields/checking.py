"""Does a configuration fit its kind? In the words of Kubernetes' structured merge.

Apply is stricter than other writes: an unknown field would silently be owned by nobody, and two
items with one key could not be told apart.
"""

from collections.abc import Iterator
from typing import Any

from motley.api.fields.pathset import shown
from motley.api.fields.types import DEDUCED, FREE, KEYED, SET, Type


def problems(type_: Type, value: Any) -> list[str]:
    """What is wrong with a configuration, each with its path; empty when nothing is."""
    return [f"{path}: {message}" if path else message for path, message in _find(type_, value)]


def explain(found: list[str]) -> str:
    """The problems as one message."""
    if len(found) == 1:
        return found[0]
    return "\n".join(["errors:", *(f"  {problem}" for problem in found)])


Problem = tuple[str, str]


def _find(type_: Type, value: Any, path: str = "") -> Iterator[Problem]:
    if value is None or type_.form == FREE:
        return
    if type_.scalar == "map":
        yield from _in_map(type_, value, path)
    elif type_.scalar == "list":
        yield from _in_list(type_, value, path)
    elif message := _scalar_problem(type_.scalar, value):
        yield path, message


def _in_map(type_: Type, value: Any, path: str) -> Iterator[Problem]:
    if not isinstance(value, dict):
        yield path, f"expected map, got {_go(value)}"
        return
    for name, inner in value.items():
        if name not in type_.fields and type_.items is None:
            yield f"{path}.{name}", "field not declared in schema"
            return
        yield from _find(type_.child(name), inner, f"{path}.{name}")


def _in_list(type_: Type, value: Any, path: str) -> Iterator[Problem]:
    if not isinstance(value, list):
        yield path, f"expected list, got {_go(value)}"
        return
    items = type_.items or DEDUCED
    seen: set[str] = set()
    for index, item in enumerate(value):
        if type_.form not in (KEYED, SET):
            yield from _find(items, item, f"{path}[{index}]")
            continue
        element = type_.element(item)
        if element is None:
            yield path, f"element {index}: {_nameless(type_, item)}"
            return
        where = shown((element,))
        if element in seen:
            yield path, f"duplicate entries for key {where}"
        seen.add(element)
        yield from _find(items, item, f"{path}{where}")


def _nameless(type_: Type, item: Any) -> str:
    if type_.form == SET:
        if isinstance(item, dict):
            return "associative list without keys has an element that's a map type"
        if isinstance(item, list):
            return "not supported: associative list with lists as elements"
        return "associative list without keys has an element that's an explicit null"
    if item is None:
        return "associative list with keys may not have a null element"
    if not isinstance(item, dict):
        return "associative list with keys may not have non-map elements"
    keys = " ".join(f'"{key}"' for key in type_.keys)
    return (
        f"associative list with keys has an element that omits all key fields [{keys}] "
        "(and doesn't have default values for any key fields)"
    )


def _scalar_problem(expected: str, value: Any) -> str:
    if expected == "string" and not isinstance(value, str):
        return f"expected string, got &value.valueUnstructured{{Value:{_go_syntax(value)}}}"
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if expected == "numeric" and not number:
        return f"expected numeric (int or float), got {_go_type(value)}"
    if expected == "boolean" and not isinstance(value, bool):
        return f"expected boolean, got {_go(value)}"
    if expected == "any scalar" and isinstance(value, dict | list):
        return f"expected any scalar, got {_go(value)}"
    return ""


def _go(value: Any) -> str:
    """A value as Go prints it with %v."""
    return f"&{{{_plain(value)}}}"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return "map[" + " ".join(f"{k}:{_plain(value[k])}" for k in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(map(_plain, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "<nil>" if value is None else str(value)


def _go_syntax(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f'"{k}":{_go_syntax(value[k])}' for k in sorted(value))
        return f"map[string]interface {{}}{{{inner}}}"
    if isinstance(value, list):
        return "[]interface {}{" + ", ".join(map(_go_syntax, value)) + "}"
    return f'"{value}"' if isinstance(value, str) else _plain(value)


def _go_type(value: Any) -> str:
    if isinstance(value, dict):
        return "map[string]interface {}"
    if isinstance(value, list):
        return "[]interface {}"
    return "bool" if isinstance(value, bool) else "string"
