"""Which API servers there are: each says that it lives, all agree on who does.

Over a shared store several servers are one API, and the `kubernetes` Service must lead to those
that live. Each keeps a Lease in `kube-system`, as Kubernetes' API servers do, and renews it. A
Lease that has not changed for its whole duration, by the clock of whoever looks, is that of a dead
server: it is deleted, and its address leaves the Service. A server that stops takes itself out.

An EndpointSlice has one list of ports for all its addresses, and servers on one machine differ by
their port: so there is a slice per port, the first of them named as the Service.

Invariant: no server's endpoint is dropped on another machine's clock.
"""

import asyncio
import hashlib
import ipaddress
import socket
from collections.abc import Iterable, Mapping
from itertools import chain, repeat
from typing import Any, NamedTuple

from motley.api import status
from motley.apiserver import document
from motley.apiserver.admission.lookup import kind_of
from motley.apiserver.writer import Writer
from motley.lib import journal
from motley.lib.clock import Clock, rfc3339_micro
from motley.store.contract import Delete, Mismatch, StoreError

log = journal.get(__name__)

Document = dict[str, Any]

NAMESPACE = "kube-system"
SERVICE = "kubernetes"
ADDRESS = "motley.io/address"
EVERY_S = 5.0
SETTLE_S = 0.5  # servers that start together write over each other at first
DURATION_S = 15.0  # kube-apiserver's master lease
_LEAVE_S = 2.0
_IDENTITY = "apiserver.kubernetes.io/identity"
_MANAGED = "endpointslice.kubernetes.io/managed-by"
_MANAGER = "kube-apiserver"
_SKIP_MIRROR = "endpointslice.kubernetes.io/skip-mirror"


class Server(NamedTuple):
    """Where an API server is reached."""

    address: str
    port: int

    @property
    def name(self) -> str:
        """Its Lease; a server that comes back has the one it had."""
        return f"apiserver-{hashlib.sha256(str(self).encode()).hexdigest()[:26]}"

    def __str__(self) -> str:
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{host}:{self.port}"


def read(lease: Document) -> Server | None:
    """The server a Lease is of; None when it is something else's."""
    if (lease["metadata"].get("labels") or {}).get(_IDENTITY) != _MANAGER:
        return None
    told = (lease["metadata"].get("annotations") or {}).get(ADDRESS, "")
    host, _, port = told.rpartition(":")
    return Server(host.strip("[]"), int(port)) if host and port.isdigit() else None


class Observed:
    """When each server was last seen to change its Lease, by our clock."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, float]] = {}

    def living(self, leases: Mapping[str, str], now: float) -> set[str]:
        """Of Leases (name → renewal, as they say it) those that changed lately."""
        self._seen = {
            name: (renewal, self._since(name, renewal, now)) for name, renewal in leases.items()
        }
        return {name for name, (_, since) in self._seen.items() if now - since <= DURATION_S}

    def _since(self, name: str, renewal: str, now: float) -> float:
        known, since = self._seen.get(name, ("", now))
        return since if known == renewal else now


def slices(servers: Iterable[Server]) -> dict[str, Document]:
    """The EndpointSlices by which the Service leads to these servers.

    One that listens on loopback only is no endpoint: pods could not reach it there.
    """
    groups: dict[tuple[int, bool], list[str]] = {}
    for server in sorted(set(servers), key=lambda s: (s.port, s.address)):
        address = ipaddress.ip_address(server.address)
        if not address.is_loopback:
            groups.setdefault((server.port, address.version == 6), []).append(server.address)
    made: dict[str, Document] = {}
    for (port, is_v6), addresses in groups.items():
        name = f"{SERVICE}-{port}{'-ipv6' if is_v6 else ''}" if made else SERVICE
        labels = {"kubernetes.io/service-name": SERVICE}
        labels |= {_MANAGED: _MANAGER} if made else {}
        made[name] = {
            "metadata": {"name": name, "labels": labels},
            "addressType": "IPv6" if is_v6 else "IPv4",
            "endpoints": [{"addresses": [a], "conditions": {"ready": True}} for a in addresses],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        }
    return made


def endpoints(slices: Iterable[Document]) -> Document:
    """The same as Endpoints, which older clients look for. They are not mirrored: the slices are
    there already."""
    return {
        "metadata": {"name": SERVICE, "labels": {_SKIP_MIRROR: "true"}},
        "subsets": [
            {
                "addresses": [{"ip": a} for one in part["endpoints"] for a in one["addresses"]],
                "ports": part["ports"],
            }
            for part in slices
            if part["endpoints"]
        ],
    }


async def write_endpoints(writer: Writer, wanted: Document) -> None:
    """Bring the Service's Endpoints to these; nothing is written when they are."""
    kind = kind_of("", "endpoints")

    def correct(stored: Document) -> Document | None:
        if (stored.get("subsets") or []) == wanted["subsets"]:
            return None
        metadata = {k: v for k, v in stored["metadata"].items() if k != "resourceVersion"}
        return {**stored, "metadata": metadata, "subsets": wanted["subsets"]}

    stored = await writer.store.get(kind.key("default", SERVICE))
    if stored is None:
        try:
            await writer.create(kind, "default", document.copy(wanted))
        except status.AlreadyExists:
            log.debug("another server has made the endpoints")
    elif correct(document.decode(stored.value)) is not None:
        await writer.update(kind, "default", SERVICE, lambda now: correct(now) or now)


def is_ours(one: Document) -> bool:
    """Whether an EndpointSlice is kept here; users may add others to the Service."""
    labels = one["metadata"].get("labels") or {}
    if labels.get("kubernetes.io/service-name") != SERVICE:
        return False
    return one["metadata"]["name"] == SERVICE or labels.get(_MANAGED) == _MANAGER


def corrected(stored: Document, wanted: Document) -> Document:
    """A stored slice with the wanted endpoints."""
    metadata = {k: v for k, v in stored["metadata"].items() if k != "resourceVersion"}
    parts = {"endpoints": wanted["endpoints"], "ports": wanted["ports"]}
    return {**stored, "metadata": metadata, **parts}


class Presence:
    """One server among its equals."""

    def __init__(self, writer: Writer, server: Server, clock: Clock) -> None:
        self._writer = writer
        self._server = server
        self._clock = clock
        self._observed = Observed()
        self._leases = kind_of("coordination.k8s.io", "leases")
        self._slices = kind_of("discovery.k8s.io", "endpointslices")

    async def run(self) -> None:
        """Live until cancelled; then the others need not find out."""
        pauses = chain([SETTLE_S], repeat(EVERY_S))
        try:
            for pause_s in pauses:
                try:
                    await self._renew()
                    await self.reconcile()
                except (StoreError, status.ApiError) as error:
                    log.warning("presence not renewed", reason=str(error))
                await self._clock.sleep(pause_s)
        finally:
            await self._leave()

    async def _renew(self) -> None:
        now = rfc3339_micro(self._clock.now())
        name = self._server.name
        labels = {_IDENTITY: _MANAGER, "kubernetes.io/hostname": socket.gethostname()}
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": int(DURATION_S),
            "renewTime": now,
        }

        def renewed(stored: Document) -> Document:
            metadata = {k: v for k, v in stored["metadata"].items() if k != "resourceVersion"}
            metadata["labels"] = {**(metadata.get("labels") or {}), **labels}
            metadata["annotations"] = {
                **(metadata.get("annotations") or {}),
                ADDRESS: str(self._server),
            }
            return {**stored, "metadata": metadata, "spec": {**stored["spec"], **spec}}

        try:
            await self._writer.update(self._leases, NAMESPACE, name, renewed)
        except status.NotFound:
            new = {
                "metadata": {
                    "name": name,
                    "labels": labels,
                    "annotations": {ADDRESS: str(self._server)},
                },
                "spec": {**spec, "acquireTime": now},
            }
            await self._writer.create(self._leases, NAMESPACE, new)
            log.info("API server joined", server=self._server)

    async def reconcile(self) -> None:
        """Bring the Service's endpoints to the servers that live."""
        found = await self._writer.store.range(self._leases.prefix(NAMESPACE))
        leases = {
            record.key: (record, lease)
            for record in found.records
            if read(lease := document.decode(record.value)) is not None
        }
        renewals = {key: str(one["spec"].get("renewTime")) for key, (_, one) in leases.items()}
        living = self._observed.living(renewals, self._clock.monotonic())
        for key in leases.keys() - living:
            record, lease = leases[key]
            try:
                await self._writer.store.commit([Delete(key, record.revision)])
            except Mismatch:
                living.add(key)  # it lives after all
                continue
            log.warning("API server is gone", server=read(lease))
        servers = [one for key in living if (one := read(leases[key][1])) is not None]
        wanted = slices(servers)
        await self._write(wanted)
        await write_endpoints(self._writer, endpoints(wanted.values()))

    async def _write(self, wanted: Mapping[str, Document]) -> None:
        found = await self._writer.store.range(self._slices.prefix("default"))
        decoded = [(document.decode(record.value), record) for record in found.records]
        present = {one["metadata"]["name"]: (one, r) for one, r in decoded if is_ours(one)}
        for name, new in wanted.items():
            await self._ensure(name, new, present[name][0] if name in present else None)
        for name in present.keys() - wanted.keys():
            one, record = present[name]
            if name == SERVICE:  # its name is what everybody looks for: it stays, and is empty
                await self._ensure(name, {"endpoints": [], "ports": one["ports"]}, one)
                continue
            try:
                await self._writer.store.commit([Delete(record.key, record.revision)])
            except Mismatch:
                continue  # the next round looks again

    async def _ensure(self, name: str, wanted: Document, stored: Document | None) -> None:
        if stored is None:
            try:
                await self._writer.create(self._slices, "default", document.copy(wanted))
            except status.AlreadyExists:
                log.debug("another server has made the slice", name=name)
        elif (stored["endpoints"], stored["ports"]) != (wanted["endpoints"], wanted["ports"]):
            await self._writer.update(
                self._slices, "default", name, lambda now: corrected(now, wanted)
            )

    async def _leave(self) -> None:
        key = self._leases.key(NAMESPACE, self._server.name)
        try:
            async with asyncio.timeout(_LEAVE_S):
                if await self._writer.store.get(key) is not None:
                    await self._writer.store.commit([Delete(key)])
                await self.reconcile()
        except (StoreError, status.ApiError, TimeoutError) as error:
            log.info("others will find out that this server is gone", reason=str(error))
