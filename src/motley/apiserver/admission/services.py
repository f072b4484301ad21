"""Gives Services their ClusterIP and node ports: chosen by the user or given out, never twice.

A Service's write carries, in its own transaction, the records of what it takes and the removal of
those of what it gives back. What looks free in the caches may have been taken by another server a
moment ago: then the transaction fails as a whole and the write is tried again with other numbers,
or refused if this very number was asked for.

Invariant: a record and the Service it names appear, change and go in one revision. Nothing in this
process decides who holds a number; `_held` only keeps its own requests out of each other's way.
"""

import ipaddress
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from motley.api import names, status
from motley.api.status import FieldError
from motley.apiserver import document, strategy
from motley.apiserver.admission.change import Change, interest
from motley.apiserver.admission.lookup import Lookup
from motley.apiserver.allocation import holdings, ledger, ranges
from motley.apiserver.allocation.ledger import Ledger
from motley.apiserver.allocation.ranges import Numbers
from motley.apiserver.caches import Caches
from motley.lib.clock import Clock
from motley.store.contract import MAX_OPS, Delete, Store
from motley.store.watchcache import WatchCache

Document = dict[str, Any]

# The Service itself, its addresses and a quota or two share the transaction with these.
MOST_PORTS = MAX_OPS - 16

_OUT_OF_RANGE = "the provided network does not match the current range"
_FULL = "range is full"


class ServiceAllocator:
    """See the module's docstring."""

    name = "ServiceAllocator"
    interests = (
        interest("create update delete", "services"),
        interest("update", "services", subresources="status"),  # which can remove a finalizer
    )

    def __init__(
        self,
        store: Store,
        caches: Caches,
        lookup: Lookup,
        *,
        service_cidr: str,
        node_ports: str,
        clock: Clock,
        rng: Random,
    ) -> None:
        """Raises ValueError for ranges that are none."""
        self._store = store
        self._caches = caches
        self._lookup = lookup
        self._rng = rng
        self.ledger = Ledger(clock, rng)
        self.service_cidr = service_cidr
        self._default = ranges.addresses(service_cidr, is_default=True)
        self._ports = ranges.node_ports(node_ports)
        self._cidrs = ledger.kind_of("networking.k8s.io", "servicecidrs")
        self._taken_ports: WatchCache[None] = WatchCache(
            store, ledger.PORTS, lambda key, value: None, clock=clock
        )
        self._held: set[str] = set()  # keys that a request of this process is about to create

    async def run(self) -> None:
        """Follow which node ports are taken, until cancelled."""
        await self._taken_ports.run()

    async def ranges(self) -> list[Numbers]:
        """Where addresses may come from now: the server's own range, then those users added."""
        found = [self._default]
        for cidr in await self._lookup.list(self._cidrs):
            if is_ready(cidr):
                networks = cidr["spec"]["cidrs"]
                found += [ranges.addresses(c) for c in networks if _is_further(c, self)]
        return found

    async def mutate(self, change: Change) -> None:
        """Complete a Service's spec, and let its transaction take and give back."""
        spec, is_gone = change.spec, change.new is None or strategy.is_released(change.new)
        if not is_gone and spec is None:
            return
        if spec is not None and not is_gone and not change.subresource and change.verb != "delete":
            change.notes[self.name] = (document.copy(spec), [])
            try:
                await self._complete(change, spec, (change.old or {}).get("spec") or {})
            except BaseException:
                self.settle(change, committed=False)
                raise
        if not change.dry_run:
            await self._write_along(change, {} if is_gone else change.new or {})

    def settle(self, change: Change, *, committed: bool) -> None:
        """Let other requests choose again; one that is tried again begins with what it asked."""
        asked, held = change.notes.pop(self.name, (None, ()))
        self._held.difference_update(held)
        spec = change.spec
        if asked is not None and spec is not None and not committed:
            spec.clear()
            spec.update(asked)

    async def _write_along(self, change: Change, after: Document) -> None:
        holder = change.namespace, change.name
        had, has = holdings.of(change.old), holdings.of(after)
        taken = [self.ledger.address(a, holder) for a in sorted(has.addresses - had.addresses)]
        taken += [self.ledger.port(p, holder) for p in sorted(has.ports - had.ports)]
        given_back = [self.ledger.address_key(a) for a in sorted(had.addresses - has.addresses)]
        given_back += [ledger.port_key(p) for p in sorted(had.ports - has.ports)]
        change.also += taken
        for key in given_back:
            record = await self._store.get(key)
            if record is not None and ledger.holder_of(record) == holder:
                change.also.append(Delete(key, record.revision))
        if len(change.also) > MOST_PORTS:
            detail = f"Too many: {len(has.ports)}: at most {MOST_PORTS} node ports at a time"
            raise _invalid(change, "spec.ports", "FieldValueTooMany", detail)

    async def _complete(self, change: Change, spec: Document, old: Document) -> None:
        holdings.drop_leftovers(spec, old)
        if spec.get("type") != "ExternalName":
            await self._admit_address(change, spec, old)
        if holdings.takes_node_ports(spec):
            await self._admit_ports(change, spec, old)
        if holdings.is_health_checked(spec):
            await self._admit_health_check(change, spec, old)

    # Addresses

    async def _admit_address(self, change: Change, spec: Document, old: Document) -> None:
        holdings.align_addresses(spec, old)
        wanted = spec.get("clusterIP") or ""
        if not wanted:
            spec["clusterIP"] = await self._any_address(change)
            spec["clusterIPs"] = [spec["clusterIP"]]
        elif wanted != "None" and wanted != old.get("clusterIP"):
            await self._check_address(change, wanted)
        holdings.default_families(spec)

    async def _any_address(self, change: Change) -> str:
        cache = self._caches[self.ledger.addresses]
        for numbers in await self.ranges():
            number = await self._any(change, numbers, cache, self._key_of_address)
            if number is not None:
                address = str(ipaddress.IPv4Address(number))
                _check_name(change, address)
                return address
        raise _internal(change, f"failed to allocate a serviceIP: {_FULL}")

    def _key_of_address(self, number: int) -> str:
        return self.ledger.address_key(str(ipaddress.IPv4Address(number)))

    async def _check_address(self, change: Change, wanted: str) -> None:
        try:
            number = int(ipaddress.IPv4Address(wanted))
        except ValueError:
            return  # validation refuses it
        problem = ""
        if not any(number in numbers for numbers in await self.ranges()):
            problem = _OUT_OF_RANGE
        elif await self._store.get(self.ledger.address_key(wanted)) is not None:
            problem = "provided IP is already allocated"
        if problem:
            message = f'Invalid value: ["{wanted}"]: failed to allocate IP {wanted}: {problem}'
            raise _invalid(change, "spec.clusterIPs", "FieldValueInvalid", message)

    # Ports

    async def _admit_ports(self, change: Change, spec: Document, old: Document) -> None:
        ports = [p for p in spec.get("ports") or () if isinstance(p, dict)]
        mine = set(holdings.node_ports(old))
        had = old if holdings.takes_node_ports(old) else {}
        before = {holdings.port_id(p): p.get("nodePort") for p in had.get("ports") or ()}
        asked = {p.get("nodePort") for p in ports}
        for index, port in enumerate(ports):
            number = port.get("nodePort")
            if not number:
                kept = before.get(holdings.port_id(port))
                number = kept if kept not in asked else None
            if not number:
                if not holdings.gets_node_ports(spec):
                    continue
                number = holdings.twin(ports, port) or await self._any_port(change, "nodePort")
            elif number not in mine and (problem := await self._problem_of_port(number)):
                field = f"spec.ports[{index}].nodePort"
                message = f"Invalid value: {number}: {problem}"
                raise _invalid(change, field, "FieldValueInvalid", message)
            mine.add(number)
            port["nodePort"] = number

    async def _admit_health_check(self, change: Change, spec: Document, old: Document) -> None:
        had = old.get("healthCheckNodePort") if holdings.is_health_checked(old) else None
        wanted = spec.get("healthCheckNodePort") or had
        if not wanted:
            wanted = await self._any_port(change, "HealthCheck NodePort")
        elif not had and (problem := await self._problem_of_port(wanted)):
            text = f"failed to allocate requested HealthCheck NodePort {wanted}: {problem}"
            raise _internal(change, f"Internal error occurred: {text}")
        spec["healthCheckNodePort"] = wanted

    async def _any_port(self, change: Change, what: str) -> int:
        number = await self._any(change, self._ports, self._taken_ports, ledger.port_key)
        if number is None:
            raise _internal(change, f"failed to allocate a {what}: {_FULL}")
        return number

    async def _problem_of_port(self, number: int) -> str:
        if number not in self._ports:
            valid = f"{self._ports.first}-{self._ports.last}"
            return f"provided port is not in the valid range. The range of valid ports is {valid}"
        is_taken = await self._store.get(ledger.port_key(number)) is not None
        return "provided port is already allocated" if is_taken else ""

    async def _any(
        self, change: Change, numbers: Numbers, cache: WatchCache[Any], key_of: Callable[[int], str]
    ) -> int | None:
        """A number that is free as far as can be known before the transaction; None: all taken."""
        held: list[str] = change.notes[self.name][1]
        for attempt in range(2):
            if attempt and cache.is_ready:  # before it is said that nothing is left
                await cache.wait_until(await self._store.revision())
            for number in numbers.candidates(self._rng):
                key = key_of(number)
                if key in self._held or cache.get(key) is not None:
                    continue
                self._held.add(key)
                held.append(key)
                if await self._store.get(key) is None:
                    return number
        return None


def is_ready(cidr: Document) -> bool:
    """Whether a ServiceCIDR may be allocated from."""
    conditions = (cidr.get("status") or {}).get("conditions") or ()
    is_true = any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)
    return is_true and not cidr["metadata"].get("deletionTimestamp")


def _is_further(cidr: str, allocator: ServiceAllocator) -> bool:
    return ":" not in cidr and cidr != allocator.service_cidr


def _check_name(change: Change, address: str) -> None:
    """An address is given to a name, so this is where Kubernetes first looks at it."""
    problems: Sequence[str] = ["Required value"]
    if change.name:
        wrong = names.check_path_segment(change.name)
        problems = [f'Invalid value: "{change.name}": {w}' for w in wrong]
    if problems:
        inner = f'IPAddress.networking.k8s.io "{address}" is invalid: spec.parentRef.name: '
        message = f'Invalid value: [""]: failed to allocate IP: {inner}{problems[0]}'
        raise _invalid(change, "spec.clusterIPs", "FieldValueInvalid", message)


def _internal(change: Change, message: str) -> status.InternalError:
    return status.InternalError(message, details={"name": change.name, "kind": "services"})


def _invalid(change: Change, field: str, reason: str, message: str) -> status.Invalid:
    return status.invalid("", "Service", change.name, [FieldError(field, reason, message)])
