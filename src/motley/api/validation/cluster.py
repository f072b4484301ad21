"""Rules for Nodes, Namespaces and ServiceAccounts."""

from motley.api import names
from motley.api.validation import meta, resources, scheduling
from motley.api.validation.errors import (
    Document,
    Errors,
    cidr,
    forbidden,
    immutable,
    invalid,
    named,
    one_of,
    required,
)

_PREEMPTION = ("PreemptLowerPriority", "Never")
_NODE_MAX_CIDRS = 2  # one of each family


def node(obj: Document) -> Errors:
    """A Node."""
    spec, status = obj.get("spec") or {}, obj.get("status") or {}
    yield from scheduling.taints("metadata.taints", spec.get("taints"))
    ranges = spec.get("podCIDRs") or []
    for index, value in enumerate(ranges):
        yield from cidr(f"spec.podCIDRs[{index}]", value)
    if len(ranges) > _NODE_MAX_CIDRS:
        yield invalid(
            "spec.podCIDRs", ranges, "may specify no more than one CIDR for each IP family"
        )
    for part in ("capacity", "allocatable"):
        for name, amount in (status.get(part) or {}).items():
            yield from resources.resource_amount(f"status.{part}[{name}]", name, amount)


def node_update(new: Document, old: Document) -> Errors:
    """A changed Node: what others already rely on is given once."""
    yield from node(new)
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    if before.get("podCIDRs") and spec.get("podCIDRs") != before["podCIDRs"]:
        yield forbidden(
            "spec.podCIDRs", 'node updates may not change podCIDR except from "" to valid'
        )
    if before.get("providerID") and spec.get("providerID") != before["providerID"]:
        yield invalid("spec.providerID", None, "field cannot be modified once set")


def namespace(obj: Document) -> Errors:
    """A Namespace."""
    for finalizer in (obj.get("spec") or {}).get("finalizers") or ():
        for words in names.check_qualified_name(finalizer):
            yield invalid("spec.finalizers", finalizer, words)
        if "/" not in finalizer and finalizer != "kubernetes":
            yield invalid(
                "spec.finalizers",
                finalizer,
                "name is neither a standard finalizer name nor is it fully qualified",
            )


def priority_class(obj: Document) -> Errors:
    """A PriorityClass: the highest numbers and the prefix `system-` are the cluster's own."""
    name = (obj.get("metadata") or {}).get("name", "")
    value = obj.get("value", 0)
    if name in ("system-cluster-critical", "system-node-critical"):
        return
    if name.startswith("system-"):
        yield forbidden(
            "metadata.name",
            "priority class names with 'system-' prefix are reserved for system use only. error: "
            f"{name} is not a known system priority class",
        )
    if value > 1_000_000_000:
        yield forbidden("value", "maximum allowed value of a user defined priority is 1000000000")
    yield from one_of("preemptionPolicy", obj.get("preemptionPolicy"), _PREEMPTION)


def priority_class_update(new: Document, old: Document) -> Errors:
    """A changed PriorityClass means the same to the pods that have it."""
    if new.get("value") != old.get("value"):
        yield forbidden("value", "may not be changed in an update.")
    policies = new.get("preemptionPolicy"), old.get("preemptionPolicy")
    yield from immutable("preemptionPolicy", *policies)


def runtime_class(obj: Document) -> Errors:
    """A RuntimeClass."""
    handler = obj.get("handler", "")
    if not handler:
        yield required("handler")
    else:
        yield from named("handler", handler, names.check_dns_label(handler))
    fixed = (obj.get("overhead") or {}).get("podFixed") or {}
    yield from resources.requirements("overhead.podFixed", {"limits": fixed})
    scheduling_ = obj.get("scheduling") or {}
    yield from meta.labels("scheduling.nodeSelector", scheduling_.get("nodeSelector"))
    yield from scheduling.tolerations("scheduling.tolerations", scheduling_.get("tolerations"))


def runtime_class_update(new: Document, old: Document) -> Errors:
    """A changed RuntimeClass keeps its handler."""
    if new.get("handler") != old.get("handler"):
        yield invalid("handler", None, "field is immutable")
    yield from runtime_class(new)
