"""Rules for Nodes, Namespaces and ServiceAccounts."""

from motley.api import names
from motley.api.validation import resources, scheduling
from motley.api.validation.errors import Document, Errors, cidr, forbidden, invalid, required

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
        yield invalid(
            "spec.providerID", spec.get("providerID"), "field cannot be modified once set"
        )


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
            "priority class names with 'system-' prefix are reserved for system use only",
        )
    if value > 1_000_000_000:
        yield forbidden("value", "maximum allowed value of a user defined priority is 1000000000")


def storage_class(obj: Document) -> Errors:
    """A StorageClass."""
    if not obj.get("provisioner"):
        yield required("provisioner")
