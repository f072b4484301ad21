"""The ServiceCIDR of the server's own range, which every cluster has.

Users add others to have more addresses; the controller of ServiceCIDRs says when those are ready.
This one is ready from the start, and comes back when somebody deletes it.
"""

from typing import Any

from motley.api import status
from motley.apiserver.allocation.ledger import kind_of
from motley.apiserver.writer import Writer
from motley.lib import journal

log = journal.get(__name__)

Document = dict[str, Any]

DEFAULT = "kubernetes"


async def ensure(writer: Writer, cidr: str) -> None:
    """Create the default ServiceCIDR, and say that it is ready, where that is not so."""
    kind = kind_of("networking.k8s.io", "servicecidrs")
    if await writer.store.get(kind.key("", DEFAULT)) is None:
        new = {"metadata": {"name": DEFAULT}, "spec": {"cidrs": [cidr]}}
        try:
            await writer.create(kind, "", new)
        except status.AlreadyExists:
            log.debug("another server has created the default ServiceCIDR")

    def ready(stored: Document) -> Document:
        state = stored.get("status") or {}
        is_told = any(c.get("type") == "Ready" for c in state.get("conditions") or ())
        if is_told or stored["metadata"].get("deletionTimestamp"):
            return stored
        if cidr not in stored["spec"]["cidrs"]:
            log.warning(
                "default ServiceCIDR differs from --service-cluster-ip-range",
                stored=stored["spec"]["cidrs"],
                configured=cidr,
            )
            return stored
        condition = {
            "type": "Ready",
            "status": "True",
            "lastTransitionTime": writer.timestamp(),
            "reason": "",
            "message": "Kubernetes default Service CIDR is ready",
        }
        # Without its version: when another server was quicker this is looked at again.
        metadata = {k: v for k, v in stored["metadata"].items() if k != "resourceVersion"}
        return {**stored, "metadata": metadata, "status": {**state, "conditions": [condition]}}

    await writer.update(
        kind, "", DEFAULT, ready, subresource="status", manager="kubernetes-service-cidr-controller"
    )
