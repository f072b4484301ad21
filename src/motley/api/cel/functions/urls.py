"""`url("https://…")` and its parts."""

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from motley.api.cel.errors import CelError
from motley.api.cel.functions.operators import no_overload
from motley.api.cel.values import Url


def read(text: Any) -> Url:
    """An absolute URL, or an absolute path."""
    if not isinstance(text, str):
        raise no_overload(text)
    problem = CelError(
        f'URL parse error during conversion from string: parse "{text}": invalid URI for request'
    )
    if not text or any(c <= " " or c == "\x7f" for c in text):
        raise problem
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        raise problem from None
    if not (parts.scheme or text.startswith("/")):
        raise problem
    return Url(text, parts)


def is_url(text: Any) -> bool:
    """Whether a text is one."""
    try:
        read(text)
    except CelError:
        return False
    return True


def _url(value: Any) -> Url:
    if not isinstance(value, Url):
        raise no_overload(value)
    return value


def host(value: Any) -> str:
    """Host and port, as written."""
    return _url(value).parts.netloc.rpartition("@")[2]


def hostname(value: Any) -> str:
    """The host alone."""
    written = host(value)
    if written.startswith("["):
        return written[1 : written.find("]")]
    return written.partition(":")[0]


def port(value: Any) -> str:
    """The port, empty when the URL names none."""
    found = _url(value).parts.port
    return "" if found is None else str(found)


def query(value: Any) -> dict[str, list[str]]:
    """The query's parameters."""
    return parse_qs(_url(value).parts.query, keep_blank_values=True)


GLOBAL: dict[str, Callable[..., Any]] = {"url": read, "isURL": is_url}
METHODS: dict[str, Callable[..., Any]] = {
    "getScheme": lambda value: _url(value).parts.scheme,
    "getHost": host,
    "getHostname": hostname,
    "getPort": port,
    "getEscapedPath": lambda value: quote(unquote(_url(value).parts.path), safe="/:@!$&'()*+,;=~"),
    "getQuery": query,
}
RESULTS = {
    "isURL": "bool",
    "url": "kubernetes.URL",
    "getScheme": "string",
    "getHost": "string",
    "getHostname": "string",
    "getPort": "string",
    "getEscapedPath": "string",
    "getQuery": "map",
}
