"""`ip("10.0.0.1")` and `cidr("10.0.0.0/8")`."""

import ipaddress
from collections.abc import Callable
from typing import Any

from motley.api.cel.errors import CelError
from motley.api.cel.functions.operators import no_overload
from motley.api.cel.values import Cidr, Ip


def read_ip(text: Any) -> Ip:
    """An address; IPv4 inside IPv6 and zones are none to Kubernetes."""
    if not isinstance(text, str):
        raise no_overload(text)
    problem = f'IP Address "{text}" parse error during conversion from string: '
    if "%" in text:
        raise CelError(problem + "IP address with zone value is not allowed")
    try:
        found = ipaddress.ip_address(text)
    except ValueError:
        raise CelError(problem + f'ParseAddr("{text}"): unable to parse IP') from None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        raise CelError(problem + "IPv4-mapped IPv6 address is not allowed")
    return Ip(found)


def read_cidr(text: Any) -> Cidr:
    """A network."""
    if not isinstance(text, str):
        raise no_overload(text)
    try:
        if "/" not in text:
            raise ValueError(text)
        return Cidr(text, ipaddress.ip_network(text, strict=False))
    except ValueError:
        raise CelError(
            f'network address parse error during conversion from string: "{text}"'
        ) from None


def _is(read: Callable[[Any], Any]) -> Callable[[Any], bool]:
    def tested(text: Any) -> bool:
        try:
            read(text)
        except CelError:
            return False
        return True

    return tested


def _ip(value: Any) -> Any:
    if not isinstance(value, Ip):
        raise no_overload(value)
    return value.address


def is_canonical(text: Any) -> bool:
    """Whether an address is written as it would be printed."""
    return bool(str(read_ip(text).address) == text)


def _network(value: Any) -> Any:
    if not isinstance(value, Cidr):
        raise no_overload(value)
    return value.network


def contains_ip(value: Any, other: Any) -> bool:
    """Whether an address is in a network."""
    network = _network(value)
    address = _ip(read_ip(other) if isinstance(other, str) else other)
    return bool(address.version == network.version and address in network)


def contains_cidr(value: Any, other: Any) -> bool:
    """Whether a network is in a network."""
    network = _network(value)
    inner = _network(read_cidr(other) if isinstance(other, str) else other)
    return bool(inner.version == network.version and inner.subnet_of(network))


def masked(value: Any) -> Cidr:
    """The network without the host's part."""
    network = _network(value)
    return Cidr(str(network), network)


GLOBAL: dict[str, Callable[..., Any]] = {
    "ip": read_ip,
    "isIP": _is(read_ip),
    "ip.isCanonical": is_canonical,
    "cidr": read_cidr,
    "isCIDR": _is(read_cidr),
}
METHODS: dict[str, Callable[..., Any]] = {
    "family": lambda value: int(_ip(value).version),
    "isUnspecified": lambda value: bool(_ip(value).is_unspecified),
    "isLoopback": lambda value: bool(_ip(value).is_loopback),
    "isLinkLocalMulticast": lambda value: str(_ip(value)).startswith(("224.0.0.", "ff02:")),
    "isLinkLocalUnicast": lambda value: bool(_ip(value).is_link_local),
    "isGlobalUnicast": lambda value: (
        not (
            _ip(value).is_unspecified
            or _ip(value).is_loopback
            or _ip(value).is_multicast
            or _ip(value).is_link_local
            or str(_ip(value)) == "255.255.255.255"
        )
    ),
    "containsIP": contains_ip,
    "containsCIDR": contains_cidr,
    "masked": masked,
    "prefixLength": lambda value: int(_network(value).prefixlen),
    "ip": lambda value: Ip(ipaddress.ip_address(value.text.partition("/")[0])),
}
RESULTS = {
    "isIP": "bool",
    "isCIDR": "bool",
    "ip.isCanonical": "bool",
    "family": "int",
    "isUnspecified": "bool",
    "isLoopback": "bool",
    "isLinkLocalMulticast": "bool",
    "isLinkLocalUnicast": "bool",
    "isGlobalUnicast": "bool",
    "containsIP": "bool",
    "containsCIDR": "bool",
    "prefixLength": "int",
}
