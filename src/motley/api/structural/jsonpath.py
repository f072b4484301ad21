"""The JSONPath of printer columns and selectable fields: kubectl's dialect, as far as it goes.

    .spec.size   .spec.tags[*]   .status.conditions[?(@.type=="Ready")].status
    .metadata.labels['a/b']   ..name

A path that leads nowhere finds nothing; that is no error.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

Step = Callable[[Any], Iterator[Any]]

_FIELD = re.compile(r"(?:[^.\[\]{}\\]|\\.)+")
_FILTER = re.compile(
    r"""\?\(\s*@(?P<path>[^=!<>)\s]*)\s*(?:(?P<op>==|!=|<=|>=|<|>)\s*(?P<value>.+?))?\s*\)\]"""
)
_QUOTED = re.compile(r"""(?:'([^']*)'|"([^"]*)")\]""")
_NUMBERS = re.compile(r"(-?\d*)(?::(-?\d*))?(?::(-?\d+))?\]")
_UNION = re.compile(r"(-?\d+(?:\s*,\s*-?\d+)+)\]")


class PathError(ValueError):
    """The text is no JSONPath."""


@lru_cache(maxsize=1024)
def compile_path(text: str) -> Callable[[Any], list[Any]]:
    """The function that finds what a path leads to."""
    steps = list(_steps(text.strip().removeprefix("{").removesuffix("}").removeprefix("$")))

    def find(root: Any) -> list[Any]:
        found = [root]
        for step in steps:
            found = [inner for value in found for inner in step(value)]
        return found

    return find


def _steps(text: str) -> Iterator[Step]:
    at = 0
    while at < len(text):
        if text.startswith("..", at):
            yield _descend
            at += 1
            continue
        if text[at] == ".":
            at += 1
            if at == len(text) or text[at] == "[":
                continue
            if text[at] == "*":
                yield _every
                at += 1
                continue
            name = _FIELD.match(text, at)
            if name is None:
                raise PathError(f"unexpected character at {at} of {text!r}")
            yield _field(re.sub(r"\\(.)", r"\1", name.group()))
            at = name.end()
        elif text[at] == "[":
            step, at = _bracket(text, at + 1)
            yield step
        else:
            raise PathError(f"unexpected character at {at} of {text!r}")


def _bracket(text: str, at: int) -> tuple[Step, int]:
    if text.startswith("*]", at):
        return _every, at + 2
    if found := _QUOTED.match(text, at):
        return _field(found.group(1) or found.group(2) or ""), found.end()
    if found := _FILTER.match(text, at):
        return _filter(found["path"], found["op"], found["value"]), found.end()
    if found := _UNION.match(text, at):
        chosen = [int(part) for part in found.group(1).split(",")]
        return _picked(chosen), found.end()
    if found := _NUMBERS.match(text, at):
        return _numbers(found), found.end()
    raise PathError(f"unclosed array at {at} of {text!r}")


def _field(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _every(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _descend(value: Any) -> Iterator[Any]:
    yield value
    for inner in _every(value):
        yield from _descend(inner)


def _picked(chosen: list[int]) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list):
            for index in chosen:
                if -len(value) <= index < len(value):
                    yield value[index]

    return step


def _numbers(found: "re.Match[str]") -> Step:
    start, end, pace = found.groups()
    if ":" not in found.group():
        if not start:
            raise PathError("an index is missing between the brackets")
        return _picked([int(start)])
    chosen = slice(*(int(part) if part else None for part in (start, end, pace)))

    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list):
            yield from value[chosen]

    return step


def _filter(path: str, operator: str | None, text: str | None) -> Step:
    find = compile_path(path) if path else lambda value: [value]
    wanted = _literal(text) if text is not None else None

    def holds(item: Any) -> bool:
        found = find(item)
        if not found:
            return False
        if operator is None:
            return True
        return _compared(found[0], operator, wanted)

    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list):
            yield from (item for item in value if holds(item))

    return step


def _literal(text: str) -> Any:
    if text[:1] in "'\"":
        return text[1:-1]
    if text in ("true", "false"):
        return text == "true"
    try:
        return float(text)
    except ValueError:
        return text


def _compared(value: Any, operator: str, wanted: Any) -> bool:
    if operator == "==":
        return bool(value == wanted)
    if operator == "!=":
        return bool(value != wanted)
    try:
        match operator:
            case "<":
                return bool(value < wanted)
            case "<=":
                return bool(value <= wanted)
            case ">":
                return bool(value > wanted)
            case _:
                return bool(value >= wanted)
    except TypeError:
        return False


def simple_fields(text: str) -> list[str] | None:
    """The names along a path of plain fields such as `.spec.replicas`; None for any other."""
    if not re.fullmatch(r"(\.[A-Za-z_][A-Za-z0-9_-]*)+", text):
        return None
    return text[1:].split(".")
