"""Mends what should not happen: a number without its Service, a Service without its number.

Records and Services change in one transaction, so there is nothing to mend unless somebody edits
the store or deletes an IPAddress by hand, or Services come from a time before there were records.
It runs before a server answers its first request, and then every few minutes.

Invariant: what is compared is one moment of the store, and what is written expects that moment.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from motley.api import names, status
from motley.apiserver import document
from motley.apiserver.admission.services import ServiceAllocator
from motley.apiserver.allocation import cidrs, holdings, ledger
from motley.apiserver.allocation.ledger import Holder, Ledger, kind_of
from motley.apiserver.writer import Writer
from motley.lib import journal
from motley.lib.clock import Clock
from motley.store.contract import Delete, Mismatch, Op, Put, Record, StoreError

log = journal.get(__name__)

Document = dict[str, Any]

EVERY_S = 180.0  # kube-apiserver's interval


class Fault(NamedTuple):
    """Something that is wrong, the Service to say it of, and what puts it right if anything can."""

    reason: str
    message: str
    service: Document | None
    op: Op | None


class Moment(NamedTuple):
    """The store at one revision."""

    services: Sequence[Record]
    addresses: Sequence[Record]
    ports: Sequence[Record]


def faults(moment: Moment, book: Ledger) -> Iterator[Fault]:
    """What is wrong at a moment. Pure but for the time and uid of new records."""
    records = {r.key: r for r in (*moment.addresses, *moment.ports)}
    services: dict[Holder, Document] = {}
    for record in moment.services:
        found = document.decode(record.value)
        metadata = found["metadata"]
        services[metadata.get("namespace", ""), metadata["name"]] = found
    for holder, service in services.items():
        has = holdings.of(service)
        wanted = [book.address(address, holder) for address in sorted(has.addresses)]
        wanted += [book.port(port, holder) for port in sorted(has.ports)]
        for op in wanted:
            yield from _missing(holder, services, records.get(op.key), op)
    for record in (*filter(ledger.is_ours, moment.addresses), *moment.ports):
        if not _is_held(record, services):
            number = record.key.rpartition("/")[2]
            message = f"{number} is held by a Service that is gone or has another; releasing"
            yield Fault("Orphaned", message, None, Delete(record.key, record.revision))


def _missing(
    holder: Holder,
    services: dict[Holder, Document],
    record: Record | None,
    wanted: Put,
) -> Iterator[Fault]:
    if record is not None and ledger.holder_of(record) == holder:
        return
    service, number = services[holder], wanted.key.rpartition("/")[2]
    what = "Cluster IP [IPv4]:" if "." in number else "Port"
    prefix = "ClusterIP" if "." in number else "Port"
    if record is None:
        message = f"{what} {number} is not allocated; repairing"
        yield Fault(f"{prefix}NotAllocated", message, service, wanted)
    elif _is_held(record, services):
        message = f"{what} {number} was assigned to multiple services; please recreate service"
        yield Fault(f"{prefix}AlreadyAllocated", message, service, None)
    else:
        message = f"{what} {number} has a wrong reference; repairing"
        op = Put(wanted.key, wanted.value, record.revision)
        yield Fault(f"{prefix}NotAllocated", message, service, op)


def _is_held(record: Record, services: dict[Holder, Document]) -> bool:
    """Whether the Service that a record names has the number."""
    holder = ledger.holder_of(record)
    if holder is None:
        return True  # somebody else's business
    has = holdings.of(services.get(holder))
    number = record.key.rpartition("/")[2]
    return number in has.addresses or number in {str(p) for p in has.ports}


async def run(writer: Writer, book: Ledger) -> int:
    """Look once; how much was wrong."""
    store = writer.store
    at = await store.revision()
    prefixes = (
        kind_of("", "services").storage_prefix,
        book.addresses.storage_prefix,
        ledger.PORTS,
    )
    moment = Moment(*[(await store.range(prefix, at=at)).records for prefix in prefixes])
    count = 0
    mended: set[str] = set()
    for fault in faults(moment, book):
        if fault.op is not None:
            if fault.op.key in mended:
                continue  # a record that names the wrong Service is also one that nobody holds
            mended.add(fault.op.key)
            try:
                await writer.commit([fault.op])
            except Mismatch:
                continue  # it has changed meanwhile: another server's work, or a user's
        count += 1
        log.warning("allocation repaired", reason=fault.reason, problem=fault.message)
        if fault.service is not None:
            await _tell(writer, fault)
    return count


async def forever(writer: Writer, allocator: ServiceAllocator, clock: Clock) -> None:
    """Look every few minutes, until cancelled."""
    while True:
        await clock.sleep(EVERY_S)
        try:
            await cidrs.ensure(writer, allocator.service_cidr)
            await run(writer, allocator.ledger)
        except (StoreError, status.ApiError) as error:
            log.error("repair of allocations failed", exc_info=error)


async def _tell(writer: Writer, fault: Fault) -> None:
    """An Event on the Service; without it the repair is as good."""
    service = fault.service or {}
    metadata = service["metadata"]
    namespace, name, now = metadata["namespace"], metadata["name"], writer.timestamp()
    event = {
        "metadata": {"name": names.generate(f"{name}.", writer.rng), "namespace": namespace},
        "involvedObject": {
            "kind": "Service",
            "apiVersion": "v1",
            "namespace": namespace,
            "name": name,
            "uid": metadata.get("uid", ""),
        },
        "type": "Warning",
        "reason": fault.reason,
        "message": fault.message,
        "source": {"component": "ipallocator-repair-controller"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
    try:
        await writer.create(kind_of("", "events"), namespace, event)
    except status.ApiError as error:
        log.warning("event not written", reason=fault.reason, problem=error.message)
