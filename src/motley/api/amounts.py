"""What a pod or a claim asks for: exact sums of quantities.

A pod's need is the larger of what its containers want together and what its init containers want
one after the other; sidecars (init containers that keep running) count from where they start.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from motley.api import quantity
from motley.api.quantity import Quantity

Document = dict[str, Any]
Amounts = dict[str, Quantity]


def read(listed: Mapping[str, Any] | None) -> Amounts:
    """A resource list; what is no quantity is left to validation."""
    found: Amounts = {}
    for name, amount in (listed or {}).items():
        try:
            found[name] = quantity.quantity(amount)
        except ValueError:
            continue
    return found


def add(left: Mapping[str, Quantity], right: Mapping[str, Quantity]) -> Amounts:
    """The sum, name by name; the first summand's way of writing stays, unless that is zero."""
    total = dict(left)
    for name, amount in right.items():
        have = total.get(name)
        if have is None or not have.nano:
            total[name] = amount
        else:
            total[name] = Quantity(have.nano + amount.nano, have.format)
    return total


def subtract(left: Mapping[str, Quantity], right: Mapping[str, Quantity]) -> Amounts:
    """The difference, over the names of both."""
    return add(left, {name: Quantity(-q.nano, q.format) for name, q in right.items()})


def largest(left: Mapping[str, Quantity], right: Mapping[str, Quantity]) -> Amounts:
    """The larger, name by name."""
    total = dict(left)
    for name, amount in right.items():
        have = total.get(name)
        if have is None or amount.nano > have.nano:
            total[name] = amount
    return total


def of_pod(spec: Document, field: str, *, overhead: bool = True) -> Amounts:
    """What a pod needs, in `requests` or `limits`."""
    total: Amounts = {}
    for container in spec.get("containers") or ():
        total = add(total, _of_container(container, field))
    sidecars: Amounts = {}
    for container in spec.get("initContainers") or ():
        own = _of_container(container, field)
        if container.get("restartPolicy") == "Always":
            sidecars = add(sidecars, own)
            total = add(total, own)
            own = sidecars
        else:
            own = add(own, sidecars)
        total = largest(total, own)
    whole = (spec.get("resources") or {}).get(field)
    if whole:  # the pod's own figures take the place of its containers'
        total |= read(whole)
    extra = read(spec.get("overhead"))
    if overhead and extra:
        if field == "limits":  # a pod without a limit is not limited by its overhead
            extra = {name: q for name, q in extra.items() if name in total}
        total = add(total, extra)
    return total


def _of_container(container: Document, field: str) -> Amounts:
    return read((container.get("resources") or {}).get(field))


def written(amounts: Mapping[str, Quantity], names: Iterable[str]) -> str:
    """`cpu=1,memory=1Gi`: sorted, as Kubernetes lists them in messages."""
    return ",".join(f"{name}={amounts.get(name, _NOTHING)}" for name in sorted(names))


_NOTHING = Quantity(0, "DecimalSI")
