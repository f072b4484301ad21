"""Who holds which number: the records in the store, made and read.

A ClusterIP is held by an `IPAddress` of that name, as in Kubernetes since 1.33, which users can
list. A node port is held by a key of its own, which no API shows. Both name the Service.

Invariant: a record is created with "must not exist", so of two that want a number one gets it.
"""

from random import Random
from typing import Any

from motley.api import codec, names, scheme
from motley.api.fields import tracking
from motley.apiserver import document, strategy
from motley.lib.clock import Clock, rfc3339
from motley.store.contract import Put, Record, Revision

Document = dict[str, Any]
Holder = tuple[str, str]
"""A Service's namespace and name."""

PORTS = "/registry/ranges/servicenodeports/"
MANAGED_BY = "ipaddress.kubernetes.io/managed-by"
ALLOCATOR = "ipallocator.k8s.io"
_FAMILY = "ipaddress.kubernetes.io/ip-family"
_MANAGER = "kube-apiserver"
_ABSENT = Revision(0)


def kind_of(group: str, plural: str) -> scheme.Kind:
    """A kind that is always served."""
    kind = scheme.resource(group, "v1", plural)
    assert kind is not None
    return kind


class Ledger:
    """Makes records."""

    def __init__(self, clock: Clock, rng: Random) -> None:
        self._clock = clock
        self._rng = rng
        self.addresses = kind_of("networking.k8s.io", "ipaddresses")

    def address_key(self, address: str) -> str:
        """Where the record of an address lies."""
        return self.addresses.key("", address)

    def address(self, address: str, holder: Holder, expect: Revision = _ABSENT) -> Put:
        """The record that gives an address to a Service."""
        namespace, name = holder
        labels = {_FAMILY: "IPv6" if ":" in address else "IPv4", MANAGED_BY: ALLOCATOR}
        now = rfc3339(self._clock.now())
        new: Document = {
            "metadata": {"name": address, "labels": labels},
            "spec": {"parentRef": _parent(namespace, name)},
        }
        strategy.before_create(self.addresses, new, uid=names.new_uid(self._rng), created=now)
        tracking.created(self.addresses, new, _MANAGER, now)
        return Put(self.address_key(address), document.encode(self.addresses, new), expect)

    def port(self, number: int, holder: Holder, expect: Revision = _ABSENT) -> Put:
        """The record that gives a node port to a Service."""
        record = {
            "kind": "NodePort",
            "apiVersion": "motley.io/v1",
            "metadata": {"name": str(number)},
            "spec": {"parentRef": _parent(*holder)},
        }
        return Put(port_key(number), codec.encode_object(record), expect)


def port_key(number: int) -> str:
    """Where the record of a node port lies."""
    return f"{PORTS}{number}"


def _parent(namespace: str, name: str) -> Document:
    return {"resource": "services", "namespace": namespace, "name": name}


def holder_of(record: Record) -> Holder | None:
    """The Service that a record names; None when it names something else."""
    parent = (document.decode(record.value).get("spec") or {}).get("parentRef") or {}
    if parent.get("group") or parent.get("resource") != "services":
        return None
    return parent.get("namespace", ""), parent.get("name", "")


def is_ours(record: Record) -> bool:
    """Whether the allocator made an `IPAddress`; users may make others, which are theirs."""
    labels = document.decode(record.value)["metadata"].get("labels") or {}
    return labels.get(MANAGED_BY) == ALLOCATOR
