"""The functions Kubernetes adds to CEL, as plain Python functions.

A method call gives the receiver as the first argument. Quantities and addresses travel through
CEL as small maps, which keeps them comparable and harmless.
"""

import ipaddress
from collections.abc import Callable
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qs, urlsplit

from motley.api import codec, quantity
from motley.api.structural import formats

_QUANTITY, _ADDRESS, _CIDR, _URL = "quantity", "ip", "cidr", "url"


def _unique(items: list[Any]) -> list[Any]:
    seen: set[bytes] = set()
    found = []
    for item in items:
        if (text := codec.encode(item)) not in seen:
            seen.add(text)
            found.append(item)
    return found


def _index_of(where: Any, what: Any, start: int = 0) -> int:
    if isinstance(where, str):
        return where.find(what, start)
    return next((i for i, item in enumerate(where) if item == what), -1)


def _last_index_of(where: Any, what: Any) -> int:
    if isinstance(where, str):
        return where.rfind(what)
    return next((i for i in range(len(where) - 1, -1, -1) if where[i] == what), -1)


def _substring(text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    if not 0 <= start <= end <= len(text):
        raise ValueError(f"index out of range: {start if start < 0 or start > end else end}")
    return text[start:end]


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise ValueError(f"index out of range: {index}")
    return text[index : index + 1]


def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if not separator:
        return list(text)
    return text.split(separator, limit - 1) if limit > 0 else text.split(separator)


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    return text.replace(old, new, count)


def _find(text: str, expression: str) -> str:
    found = formats.pattern(expression).search(text)
    return found.group() if found else ""


def _find_all(text: str, expression: str, limit: int = -1) -> list[str]:
    found = [m.group() for m in formats.pattern(expression).finditer(text)]
    return found if limit < 0 else found[:limit]


def _is_sorted(items: list[Any]) -> bool:
    return all(a <= b for a, b in pairwise(items))


def _flattened(items: list[Any]) -> list[Any]:
    return [i for item in items for i in (item if isinstance(item, list) else [item])]


def _format(template: str, arguments: list[Any]) -> str:
    found, rest = "", iter(arguments)
    pieces = iter(template.split("%"))
    found += next(pieces)
    for piece in pieces:
        if not piece:
            found += "%" + next(pieces, "")
            continue
        place = next(i for i, char in enumerate(piece) if char.isalpha())
        found += _formatted(piece[: place + 1], next(rest)) + piece[place + 1 :]
    return found


def _formatted(clause: str, value: Any) -> str:
    if clause.endswith("s"):
        if isinstance(value, bool):
            return "true" if value else "false"
        return value if isinstance(value, str) else codec.encode(value).decode()
    return str(("%" + clause) % value)


def _quantity(text: str) -> dict[str, str]:
    return {_QUANTITY: quantity.canonical(text)}


def _is_quantity(text: str) -> bool:
    try:
        quantity.parse(text)
    except ValueError:
        return False
    return True


def _amount(value: Any) -> Any:
    return quantity.parse(value[_QUANTITY] if isinstance(value, dict) else str(value))


def _compare(left: Any, right: Any) -> int:
    a, b = _amount(left), _amount(right)
    return int(a > b) - int(a < b)


def _added(left: Any, right: Any, sign: int = 1) -> dict[str, str]:
    return {_QUANTITY: quantity.canonical(str(float(_amount(left) + sign * _amount(right))))}


def _as_integer(value: Any) -> int:
    amount = _amount(value)
    if amount != int(amount):
        raise ValueError("cannot convert value to integer")
    return int(amount)


def _is_address(text: str) -> bool:
    return formats.is_valid("ipv4", text) or formats.is_valid("ipv6", text)


def _address(text: str) -> dict[str, str]:
    return {_ADDRESS: str(ipaddress.ip_address(text))}


def _network(text: str) -> dict[str, str]:
    return {_CIDR: str(ipaddress.ip_network(text, strict=False))}


def _contains_ip(network: Any, address: Any) -> bool:
    text = address[_ADDRESS] if isinstance(address, dict) else address
    return ipaddress.ip_address(text) in ipaddress.ip_network(network[_CIDR])


def _is_url(text: str) -> bool:
    found = urlsplit(text)
    return bool(found.scheme and (found.netloc or found.path)) or text.startswith("/")


def _url(text: str) -> dict[str, str]:
    return {_URL: text}


def _family(address: Any) -> int:
    return ipaddress.ip_address(address[_ADDRESS]).version


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "charAt": _char_at,
    "indexOf": _index_of,
    "lastIndexOf": _last_index_of,
    "lowerAscii": lambda text: text.lower(),
    "upperAscii": lambda text: text.upper(),
    "replace": _replace,
    "split": _split,
    "substring": _substring,
    "trim": lambda text: text.strip(),
    "reverse": lambda what: what[::-1],
    "join": lambda items, separator="": separator.join(items),
    "find": _find,
    "findAll": _find_all,
    "format": _format,
    "isSorted": _is_sorted,
    "sum": sum,
    "distinct": _unique,
    "flatten": lambda items: [
        i for item in items for i in (item if isinstance(item, list) else [item])
    ],
    "slice": lambda items, start, end: items[start:end],
    "sets_contains": lambda a, b: all(x in a for x in b),
    "sets_equivalent": lambda a, b: all(x in a for x in b) and all(x in b for x in a),
    "sets_intersects": lambda a, b: any(x in a for x in b),
    "math_greatest": lambda *given: max(given[0] if isinstance(given[0], list) else given),
    "math_least": lambda *given: min(given[0] if isinstance(given[0], list) else given),
    "math_abs": abs,
    "quantity": _quantity,
    "isQuantity": _is_quantity,
    "isLessThan": lambda a, b: _compare(a, b) < 0,
    "isGreaterThan": lambda a, b: _compare(a, b) > 0,
    "compareTo": _compare,
    "isInteger": lambda value: _amount(value) == int(_amount(value)),
    "asInteger": _as_integer,
    "asApproximateFloat": lambda value: float(_amount(value)),
    "sign": lambda value: _compare(value, "0"),
    "add": _added,
    "sub": lambda a, b: _added(a, b, -1),
    "isIP": _is_address,
    "ip": _address,
    "family": _family,
    "isCIDR": lambda text: formats.is_valid("cidr", text),
    "cidr": _network,
    "containsIP": _contains_ip,
    "prefixLength": lambda network: ipaddress.ip_network(network[_CIDR]).prefixlen,
    "isURL": _is_url,
    "url": _url,
    "getScheme": lambda url: urlsplit(url[_URL]).scheme,
    "getHost": lambda url: urlsplit(url[_URL]).netloc,
    "getHostname": lambda url: urlsplit(url[_URL]).hostname or "",
    "getPort": lambda url: str(urlsplit(url[_URL]).port or ""),
    "getEscapedPath": lambda url: urlsplit(url[_URL]).path,
    "getQuery": lambda url: parse_qs(urlsplit(url[_URL]).query),
}
