"""JSON patch (RFC 6902): a list of operations, all of which succeed or none.

Each operation rebuilds only the containers on its path. Where Kubernetes' library is laxer than
the RFC we follow it: `replace` of a missing key adds it.

Invariant: neither target nor operations are changed, and no two places of the result share a
value that a later operation could reach twice.
"""

from collections.abc import Callable
from typing import Any

from motley.api import status

_MAX_OPERATIONS = 10_000  # as kube-apiserver limits them
_ABSENT = object()

Tokens = tuple[str, ...]


def apply(target: Any, operations: Any) -> Any:
    """The target after all operations. Raises BadRequest (no patch) or Invalid (cannot be done)."""
    if not isinstance(operations, list):
        raise status.BadRequest("error decoding patch: a JSON patch is a list of operations")
    if len(operations) > _MAX_OPERATIONS:
        raise status.TooLarge(
            f"The allowed maximum operations in a JSON patch is {_MAX_OPERATIONS}, "
            f"got {len(operations)}"
        )
    for index, operation in enumerate(operations):
        if not isinstance(operation, dict):
            raise status.BadRequest("error decoding patch: an operation is an object")
        try:
            target = _operate(target, operation)
        except _FailedError as error:
            op, path = operation.get("op"), operation.get("path")
            raise status.Invalid(
                f"the server rejected our request due to an error in our request: "
                f"operation {index} ({op} {path}): {error}"
            ) from None
    return target


class _FailedError(Exception):
    """Why an operation cannot be done."""


def _operate(document: Any, operation: dict[str, Any]) -> Any:
    name = operation.get("op")
    if not isinstance(name, str) or name not in _OPERATIONS:
        raise _FailedError(f"unexpected kind: {name}")
    return _OPERATIONS[name](document, _tokens(operation, "path"), operation)


def _add(document: Any, path: Tokens, operation: dict[str, Any]) -> Any:
    return _inserted(document, path, _value(operation))


def _remove(document: Any, path: Tokens, _: dict[str, Any]) -> Any:
    _found(document, path)
    return _removed(document, path)


def _replace(document: Any, path: Tokens, operation: dict[str, Any]) -> Any:
    value = _value(operation)
    if path:
        parent = _found(document, path[:-1])
        if isinstance(parent, list):
            _found(document, path)
            return _changed(document, path, lambda _: value)
    return _inserted(document, path, value)


def _move(document: Any, path: Tokens, operation: dict[str, Any]) -> Any:
    source = _tokens(operation, "from")
    if path[: len(source)] == source and path != source:
        raise _FailedError("a value cannot move into itself")
    value = _found(document, source)
    return document if path == source else _inserted(_removed(document, source), path, value)


def _copy(document: Any, path: Tokens, operation: dict[str, Any]) -> Any:
    return _inserted(document, path, _copied(_found(document, _tokens(operation, "from"))))


def _test(document: Any, path: Tokens, operation: dict[str, Any]) -> Any:
    expected = operation.get("value")
    try:
        actual = _found(document, path)
    except _FailedError:
        if expected is not None:
            raise
        return document
    if not _equal(actual, expected):
        raise _FailedError("test failed: the value differs")
    return document


_OPERATIONS: dict[str, Callable[[Any, Tokens, dict[str, Any]], Any]] = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}


def _value(operation: dict[str, Any]) -> Any:
    if "value" not in operation:
        raise _FailedError("missing value")
    return operation["value"]


def _tokens(operation: dict[str, Any], member: str) -> Tokens:
    pointer = operation.get(member)
    if not isinstance(pointer, str):
        raise _FailedError(f"missing {member}")
    if not pointer:
        return ()
    if not pointer.startswith("/"):
        raise _FailedError(f"{member} must be empty or start with a slash")
    return tuple(t.replace("~1", "/").replace("~0", "~") for t in pointer[1:].split("/"))


def _index(items: list[Any], token: str, *, may_append: bool = False) -> int:
    if token == "-" and may_append:
        return len(items)
    if not (token.isascii() and token.isdigit()) or (len(token) > 1 and token[0] == "0"):
        raise _FailedError(f"{token!r} is no index of a list")
    index = int(token) if len(token) < 10 else len(items) + 1
    if index >= len(items) + may_append:
        raise _FailedError(f"index {token} is out of bounds")
    return index


def _child(container: Any, token: str) -> Any:
    if isinstance(container, dict):
        child = container.get(token, _ABSENT)
        if child is not _ABSENT:
            return child
    elif isinstance(container, list):
        return container[_index(container, token)]
    raise _FailedError(f"{token!r} does not exist")


def _found(document: Any, path: Tokens) -> Any:
    for token in path:
        document = _child(document, token)
    return document


def _changed(document: Any, path: Tokens, change: Callable[[Any], Any]) -> Any:
    """The document with the value at the path changed, and the containers above it rebuilt."""
    if not path:
        return change(document)
    inner = _changed(_child(document, path[0]), path[1:], change)
    if isinstance(document, dict):
        return {**document, path[0]: inner}
    index = _index(document, path[0])
    return [*document[:index], inner, *document[index + 1 :]]


def _inserted(document: Any, path: Tokens, value: Any) -> Any:
    if not path:
        return value

    def insert(parent: Any) -> Any:
        if isinstance(parent, dict):
            return {**parent, path[-1]: value}
        if isinstance(parent, list):
            index = _index(parent, path[-1], may_append=True)
            return [*parent[:index], value, *parent[index:]]
        raise _FailedError("the parent is neither object nor list")

    return _changed(document, path[:-1], insert)


def _removed(document: Any, path: Tokens) -> Any:
    if not path:
        raise _FailedError("the whole document cannot be removed")

    def remove(parent: Any) -> Any:
        if isinstance(parent, dict):
            return {k: v for k, v in parent.items() if k != path[-1]}
        index = _index(parent, path[-1])
        return [*parent[:index], *parent[index + 1 :]]

    return _changed(document, path[:-1], remove)


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _copied(v) for k, v in value.items()}
    return [_copied(v) for v in value] if isinstance(value, list) else value


def _equal(a: Any, b: Any) -> bool:
    """JSON equality: unlike Python's, true is not 1."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(v, b[k]) for k, v in a.items())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_equal, a, b))
    return bool(a == b)
