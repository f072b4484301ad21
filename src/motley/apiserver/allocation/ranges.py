"""The numbers a range has, and the order in which they are tried.

Pure. The low end of a range is left to those who ask for a number by name for as long as the rest
has free ones, as in Kubernetes: who picks 10.96.0.20 by hand should not find it given away.
"""

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

_MIN_BAND = 16


@dataclass(frozen=True, slots=True)
class Numbers:
    """The whole numbers from `first` to `last`; the lowest `band` of them are tried last."""

    first: int
    last: int
    band: int = 0
    reserved: frozenset[int] = frozenset()  # never chosen by chance, but may be asked for

    def __contains__(self, number: int) -> bool:
        return self.first <= number <= self.last

    def candidates(self, rng: Random) -> Iterator[int]:
        """Every number once, from a random one on, save for those that are reserved."""
        above = self.first + self.band
        for low, high in ((above, self.last), (self.first, min(above - 1, self.last))):
            size = high - low + 1
            if size <= 0:
                continue
            start = rng.randrange(size)
            for step in range(size):
                number = low + (start + step) % size
                if number not in self.reserved:
                    yield number


def addresses(cidr: str, *, is_default: bool = False) -> Numbers:
    """The usable addresses of a service range; network and broadcast addresses are none.

    In the default range the first is the `kubernetes` Service and the tenth the cluster DNS: both
    are taken by name only, never by chance.
    """
    network = ipaddress.ip_network(cidr)
    base, size = int(network.network_address), network.num_addresses
    if is_default and (network.version != 4 or size < 16):
        raise ValueError(f"service range {cidr}: must be an IPv4 network of at least 16 addresses")
    reserved = frozenset({base + 1, base + 10}) if is_default else frozenset()
    return Numbers(base + 1, base + size - 2, _band(size, size // 16, 256), reserved)


def node_ports(text: str) -> Numbers:
    """The ports of a range such as `30000-32767`."""
    first, dash, last = text.partition("-")
    if not dash or not first.isdigit() or not last.isdigit() or not 0 < int(first) < int(last):
        raise ValueError(f"node port range {text}: expected FIRST-LAST")
    if int(last) > 65535:
        raise ValueError(f"node port range {text}: ports end at 65535")
    size = int(last) - int(first) + 1
    return Numbers(int(first), int(last), _band(size, size // 32, 128))


def _band(size: int, wanted: int, most: int) -> int:
    return 0 if size <= _MIN_BAND else max(_MIN_BAND, min(wanted, most))
