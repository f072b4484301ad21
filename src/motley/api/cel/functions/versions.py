"""Semantic versions and named formats: `semver("1.2.3")`, `format.dns1123Label()`."""

import base64
import datetime
import re
import uuid
from collections.abc import Callable
from typing import Any

from motley.api import names
from motley.api.cel.errors import CelError
from motley.api.cel.functions import urls
from motley.api.cel.functions.operators import no_overload
from motley.api.cel.values import NONE, Format, Optional, Semver

_SEMVER = re.compile(
    r"(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)"
    r"(?:-([0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*))?(?:\+[0-9A-Za-z.-]+)?"
)


def read(text: Any, normalize: Any = False) -> Semver:
    """A version; `normalize` takes a leading `v` and missing parts."""
    if not isinstance(text, str):
        raise no_overload(text)
    written = text
    if normalize is True:
        written = re.sub(r"^v", "", written)
        head, dash, tail = written.partition("-")
        parts = [str(int(p)) if p.isdigit() else p for p in head.split(".")]
        written = ".".join([*parts, *["0"] * (3 - len(parts))]) + dash + tail
    found = _SEMVER.fullmatch(written)
    if found is None:
        raise CelError(f'semver parse error during conversion from string "{text}"')
    prerelease = tuple(found[4].split(".")) if found[4] else ()
    return Semver(int(found[1]), int(found[2]), int(found[3]), prerelease)


def is_semver(text: Any, normalize: Any = False) -> bool:
    """Whether a text is one."""
    try:
        read(text, normalize)
    except CelError:
        return False
    return True


def _part(field: str) -> Callable[[Any], int]:
    def part(value: Any) -> int:
        if not isinstance(value, Semver):
            raise no_overload(value)
        return int(getattr(value, field))

    return part


def _parsed(parse: Callable[[str], Any], problem: str) -> Callable[[str], list[str]]:
    def check(text: str) -> list[str]:
        try:
            parse(text)
        except (ValueError, CelError):
            return [problem]
        return []

    return check


def _prefix(check: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """A name's beginning may end in a dash: something follows."""
    return lambda text: check(text.removesuffix("-") or text)


_FORMATS: dict[str, Callable[[str], list[str]]] = {
    "dns1123Label": names.check_dns_label,
    "dns1123Subdomain": names.check_dns_subdomain,
    "dns1035Label": names.check_dns_1035_label,
    "qualifiedName": names.check_qualified_name,
    "labelValue": names.check_label_value,
    "dns1123LabelPrefix": _prefix(names.check_dns_label),
    "dns1123SubdomainPrefix": _prefix(names.check_dns_subdomain),
    "dns1035LabelPrefix": _prefix(names.check_dns_1035_label),
    "uri": _parsed(urls.read, "invalid URI"),
    "uuid": _parsed(uuid.UUID, "does not match the UUID format"),
    "byte": _parsed(lambda text: base64.b64decode(text, validate=True), "invalid base64"),
    "date": _parsed(datetime.date.fromisoformat, "invalid date"),
    "datetime": _parsed(datetime.datetime.fromisoformat, "invalid datetime"),
}


def named(name: Any) -> Optional:
    """`format.named("uuid")`."""
    check = _FORMATS.get(name)
    return Optional(Format(name, check), True) if check is not None else NONE


def validate(value: Any, text: Any) -> Optional:
    """What is wrong with a text, or none."""
    if not isinstance(value, Format) or not isinstance(text, str):
        raise no_overload(value)
    problems = value.check(text)
    return Optional(problems, True) if problems else NONE


def _constant(name: str) -> Callable[[], Format]:
    return lambda: Format(name, _FORMATS[name])


GLOBAL: dict[str, Callable[..., Any]] = {
    "semver": read,
    "isSemver": is_semver,
    "format.named": named,
    **{f"format.{name}": _constant(name) for name in _FORMATS},
}
METHODS: dict[str, Callable[..., Any]] = {
    "major": _part("major"),
    "minor": _part("minor"),
    "patch": _part("patch"),
    "validate": validate,
}
RESULTS = {"isSemver": "bool", "major": "int", "minor": "int", "patch": "int"}
