"""Field errors in Kubernetes' words, and the small checks every kind uses.

Checks are generators of `FieldError`: they say everything that is wrong, not only the first thing.
"""

import ipaddress
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from motley.api import codec, names
from motley.api.status import FieldError

Errors = Iterator[FieldError]
Document = dict[str, Any]

IMMUTABLE = "field is immutable"
BAD_IP = names.BAD_IP
BAD_CIDR = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
LOOPBACK = "may not be in the loopback range (127.0.0.0/8, ::1/128)"
NOT_NEGATIVE = "must be greater than or equal to 0"


def _shown(value: Any) -> str:
    return codec.encode(value).decode()


def required(field: str, detail: str = "") -> FieldError:
    """Something is missing."""
    return FieldError(
        field, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value"
    )


def invalid(field: str, value: Any, detail: str) -> FieldError:
    """The value is wrong."""
    text = f"Invalid value: {_shown(value)}"
    return FieldError(field, "FieldValueInvalid", f"{text}: {detail}" if detail else text)


def unsupported(field: str, value: Any, supported: Iterable[str]) -> FieldError:
    """The value is none of a closed list."""
    listed = ", ".join(f'"{s}"' for s in supported)
    return FieldError(
        field,
        "FieldValueNotSupported",
        f"Unsupported value: {_shown(value)}: supported values: {listed}",
    )


def duplicate(field: str, value: Any, detail: str = "") -> FieldError:
    """The value must be unique and is not."""
    text = f"Duplicate value: {_shown(value)}"
    return FieldError(field, "FieldValueDuplicate", f"{text}: {detail}" if detail else text)


def forbidden(field: str, detail: str) -> FieldError:
    """Nothing may be said here."""
    return FieldError(field, "FieldValueForbidden", f"Forbidden: {detail}")


def not_found(field: str, value: Any) -> FieldError:
    """The value refers to nothing."""
    return FieldError(field, "FieldValueNotFound", f"Not found: {_shown(value)}")


def too_long(field: str, limit: int) -> FieldError:
    """The value is over its limit of bytes."""
    return FieldError(field, "FieldValueTooLong", f"Too long: may not be more than {limit} bytes")


def too_many(field: str, count: int, limit: int) -> FieldError:
    """The list is over its limit of items."""
    return FieldError(
        field, "FieldValueTooMany", f"Too many: {count}: must have at most {limit} items"
    )


def named(field: str, value: str, wrong: Iterable[str]) -> Errors:
    """One `Invalid value` for each thing that is wrong with a name."""
    return (invalid(field, value, words) for words in wrong)


def one_of(field: str, value: Any, supported: Collection[str]) -> Errors:
    """The value must be one of these; absent is not checked."""
    if value is not None and value not in supported:
        yield unsupported(field, value, supported)


def not_negative(field: str, value: int | None) -> Errors:
    """A count or a number of seconds."""
    if value is not None and value < 0:
        yield invalid(field, value, NOT_NEGATIVE)


def port_number(field: str, value: Any) -> Errors:
    """A port of TCP, UDP or SCTP."""
    if not isinstance(value, int) or not 1 <= value <= 65535:
        yield invalid(field, value, "must be between 1 and 65535, inclusive")


def ip_address(field: str, value: str) -> Errors:
    """An IPv4 or IPv6 address."""
    if parse_ip(value) is None:
        yield invalid(field, value, BAD_IP)


def parse_ip(value: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address, or None where it is none."""
    try:
        return ipaddress.ip_address(value)
    except ValueError:
        return None


def endpoint_address(field: str, value: str) -> Errors:
    """An address that traffic may be sent to from elsewhere: not one of the machine itself."""
    address = parse_ip(value)
    if address is None:
        yield invalid(field, value, BAD_IP)
    elif address.is_unspecified:
        yield invalid(field, value, f"may not be unspecified ({value})")
    elif address.is_loopback:
        yield invalid(field, value, LOOPBACK)
    elif address.is_link_local:
        yield invalid(
            field, value, "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
        )


def cidr(field: str, value: str) -> Errors:
    """A range of addresses."""
    try:
        ipaddress.ip_network(value, strict=False)
    except ValueError:
        yield invalid(field, value, BAD_CIDR)
        return
    if "/" not in value:
        yield invalid(field, value, BAD_CIDR)


def int_or_percent(field: str, value: Any) -> Errors:
    """A count, or a share such as `25%`."""
    if isinstance(value, int):
        yield from not_negative(field, value)
    elif value is not None and not re.fullmatch("[0-9]+%", value):
        yield invalid(
            field,
            value,
            "a valid percent string must be a numeric string followed by an ending '%' "
            "(e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
        )


def immutable(field: str, new: Any, old: Any) -> Errors:
    """What was said once stays said."""
    if new != old:
        yield invalid(field, new, IMMUTABLE)
