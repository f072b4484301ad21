"""Several control planes on one machine: how they are numbered, named and where they listen. Pure.

Every plane has an API server, controllers and a scheduler, and an etcd of its own unless one exists
elsewhere. The first has the names and ports that a cluster with one plane has; those of the others
carry their number, and lie a hundred ports higher each.
"""

from collections.abc import Iterator

import msgspec

_STEP = 100
_MOST = 7  # etcd's own advice; more members only make every write slower


class Plane(msgspec.Struct, frozen=True):
    """One of them, counted from 1."""

    number: int
    first_api_port: int
    port_base: int

    def name(self, component: str) -> str:
        """A component of this plane."""
        return component if self.number == 1 else f"{component}-{self.number}"

    def _port(self, offset: int) -> int:
        return self.port_base + _STEP * (self.number - 1) + offset

    @property
    def api_port(self) -> int:
        """The API server."""
        return self.first_api_port + self.number - 1

    @property
    def controllers_health_port(self) -> int:
        """The controllers' health endpoint."""
        return self._port(17)

    @property
    def scheduler_health_port(self) -> int:
        """The scheduler's health endpoint."""
        return self._port(19)

    @property
    def etcd_port(self) -> int:
        """etcd, for its clients."""
        return self._port(50)

    @property
    def etcd_peer_port(self) -> int:
        """etcd, for its other members."""
        return self._port(51)

    @property
    def etcd_health_port(self) -> int:
        """etcd's health and metrics, in the clear."""
        return self._port(52)

    def ports(self, *, with_etcd: bool) -> Iterator[tuple[int, str]]:
        """Every port, and whose it is."""
        yield self.api_port, self.name("apiserver")
        yield self.controllers_health_port, self.name("controllers")
        yield self.scheduler_health_port, self.name("scheduler")
        if with_etcd:
            yield self.etcd_port, self.name("etcd")
            yield self.etcd_peer_port, self.name("etcd")
            yield self.etcd_health_port, self.name("etcd")


def check(count: int) -> str:
    """What is wrong with a number of control planes; empty: nothing."""
    if count % 2 == 0:
        return f"{count} control planes survive no more than {count - 1} do: choose an odd number"
    if not 1 <= count <= _MOST:
        return f"{count} control planes: between 1 and {_MOST}"
    return ""
