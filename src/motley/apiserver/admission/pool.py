"""Numbers that can be given out once: service addresses and node ports.

Invariant: a number is held by at most one holder. The server's event loop is the lock: `take`
and `release` never wait, so of two requests that want the same number one comes first.
"""

import ipaddress
from collections.abc import Iterable
from random import Random


class Exhausted(Exception):
    """Every number of the range is taken."""


class Pool:
    """The whole numbers of one range."""

    def __init__(self, first: int, last: int, *, reserved: Iterable[int] = (), rng: Random) -> None:
        self.first, self.last = first, last
        self._reserved = frozenset(reserved)  # never chosen by us, but may be asked for by name
        self._taken: set[int] = set()
        self._rng = rng

    def __contains__(self, number: int) -> bool:
        """Whether the range has this number, free or not."""
        return self.first <= number <= self.last

    def __len__(self) -> int:
        """How many are taken."""
        return len(self._taken)

    def take(self, number: int) -> bool:
        """Take this very number; False when somebody has it."""
        if number in self._taken:
            return False
        self._taken.add(number)
        return True

    def take_any(self) -> int:
        """Take a free number: a few guesses first, which finds one at once in a sparse range."""
        for _ in range(16):
            number = self._rng.randint(self.first, self.last)
            if number not in self._reserved and self.take(number):
                return number
        for number in range(self.first, self.last + 1):
            if number not in self._reserved and self.take(number):
                return number
        raise Exhausted

    def release(self, number: int) -> None:
        """Give a number back."""
        self._taken.discard(number)


def address_pool(cidr: str, *, rng: Random) -> Pool:
    """The usable addresses of a service range.

    The first is the `kubernetes` Service and the tenth the cluster DNS: both are taken by name
    only, never by chance. Network and broadcast addresses are no addresses.
    """
    network = ipaddress.ip_network(cidr)
    if network.version != 4 or network.num_addresses < 16:
        raise ValueError(f"service range {cidr}: must be an IPv4 network of at least 16 addresses")
    base = int(network.network_address)
    last = int(network.broadcast_address) - 1
    return Pool(base + 1, last, reserved=(base + 1, base + 10), rng=rng)


def port_pool(ports: str, *, rng: Random) -> Pool:
    """The ports of a range such as `30000-32767`."""
    first, dash, last = ports.partition("-")
    if not dash or not first.isdigit() or not last.isdigit() or not 0 < int(first) < int(last):
        raise ValueError(f"node port range {ports}: expected FIRST-LAST")
    if int(last) > 65535:
        raise ValueError(f"node port range {ports}: ports end at 65535")
    return Pool(int(first), int(last), rng=rng)
