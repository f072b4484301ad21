"""From Services, and whatever else puts rules there, to changes of the nftables table; pure.

Every Service becomes a `Fragment`: its chains, sets and elements. So does every part of the
network policies. The plan lays fragments over the base table, remembers which names a change
touched, and diffs only those.

Invariant: after any sequence of `put`s the desired ruleset equals the one built from scratch from
the same Services.
"""

from collections.abc import Sequence
from typing import TypeVar

from motley.api.views.base import Key
from motley.api.views.core import EndpointSlice, Service
from motley.network.proxy import layout, ruleset
from motley.network.proxy.endpoints import NOWHERE, Surroundings, Target
from motley.network.proxy.fragments import Fragment, Route, fragment
from motley.network.proxy.layout import Settings
from motley.network.proxy.ruleset import Applied, Changes, Element, Ruleset


class Plan:
    """The desired table, kept current Service by Service, against what the kernel has."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.around: Surroundings = NOWHERE
        self.desired: Ruleset = layout.base(settings)
        self.applied = Applied()
        self._fragments: dict[Key, Fragment] = {}
        # Two Services may claim one element (an external address, a pod in both): all claims are
        # kept, the first name wins, and when it goes the next one takes over.
        self._claims: dict[Element, dict[Key, str]] = {}
        self._sets: set[str] = set()
        self._chains: set[str] = set()
        self._elements: set[Element] = set()
        self._retired: set[Route] = set()
        self._left: set[Target] = set()
        self._everything = True

    def put(self, key: Key, service: Service | None, slices: Sequence[EndpointSlice]) -> None:
        """Take in the current state of one Service; None when it is gone."""
        self.place(key, fragment(service, slices, self.settings, self.around))

    def place(self, key: Key, new: Fragment) -> None:
        """Take in the current fragment of one owner; an empty one when it is gone."""
        old = self._fragments.pop(key, None) or Fragment()
        if new:
            self._fragments[key] = new
        for name in old.sets.keys() | new.sets.keys():
            _assign(self.desired.sets, name, new.sets.get(name), self._sets)
        for name in old.chains.keys() | new.chains.keys():
            _assign(self.desired.chains, name, new.chains.get(name), self._chains)
        for element in old.elements.keys() | new.elements.keys():
            self._claim(key, element, new.elements.get(element))
        self._retired |= old.udp_routes - new.udp_routes
        self._left |= old.tcp_targets - new.tcp_targets

    def _claim(self, key: Key, element: Element, value: str | None) -> None:
        claims = self._claims.setdefault(element, {})
        if value is None:
            claims.pop(key, None)
        else:
            claims[key] = value
        if claims:
            _assign(self.desired.elements, element, claims[min(claims)], self._elements)
        else:
            del self._claims[element]
            _assign(self.desired.elements, element, None, self._elements)

    def adopt(self, applied: Applied) -> None:
        """Learn what the kernel really has; the next changes are against that."""
        self.applied = applied
        self._everything = True

    def changes(self) -> Changes:
        """What to do so that the kernel has what is desired."""
        if self._everything:
            return ruleset.diff(self.desired, self.applied)
        return ruleset.diff_touched(
            self.desired,
            self.applied,
            sets=self._sets,
            chains=self._chains,
            elements=self._elements,
        )

    def commit(self, changes: Changes) -> None:
        """The kernel has taken `changes`, which nothing was put in between."""
        ruleset.advance(self.applied, changes)
        self._sets.clear()
        self._chains.clear()
        self._elements.clear()
        self._everything = False

    def take_retired(self) -> frozenset[Route]:
        """UDP routes that ended since the last call, for the connection tracking table."""
        if not self._retired:
            return frozenset()
        retired = frozenset(self._retired - self.udp_routes())
        self._retired.clear()
        return retired

    def take_left(self) -> frozenset[Target]:
        """Where no Service leads by TCP any more, or one Service less, since the last call."""
        left = frozenset(self._left)
        self._left.clear()
        return left

    def udp_routes(self) -> frozenset[Route]:
        """Every UDP route there is."""
        return frozenset(r for f in self._fragments.values() for r in f.udp_routes)


_N = TypeVar("_N")
_V = TypeVar("_V")


def _assign(into: dict[_N, _V], name: _N, value: _V | None, touched: set[_N]) -> None:
    if into.get(name) == value:
        return
    touched.add(name)
    if value is None:
        del into[name]
    else:
        into[name] = value
