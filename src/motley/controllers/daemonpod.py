"""The pod a DaemonSet starts on a node. Pure.

The scheduler binds it like any other: the node's name is in its required affinity. It tolerates
what is wrong with a node for a while, for a daemon is often what puts it right.
"""

from copy import deepcopy
from typing import Any

from motley.api.views.pod import Pod
from motley.api.views.workloads import DaemonSet
from motley.controllers.history import REVISION_LABEL
from motley.controllers.workload import controller_reference

_NODE = "node.kubernetes.io"
_STAYS = (
    (f"{_NODE}/not-ready", "NoExecute"),
    (f"{_NODE}/unreachable", "NoExecute"),
    (f"{_NODE}/disk-pressure", "NoSchedule"),
    (f"{_NODE}/memory-pressure", "NoSchedule"),
    (f"{_NODE}/pid-pressure", "NoSchedule"),
    (f"{_NODE}/unschedulable", "NoSchedule"),
)
_OF_HOST_NETWORK = (f"{_NODE}/network-unavailable", "NoSchedule")


def tolerant(template: dict[str, Any]) -> dict[str, Any]:
    """The template with the tolerations every daemon has."""
    spec = template.get("spec") or {}
    pairs = [*_STAYS, *([_OF_HOST_NETWORK] if spec.get("hostNetwork") else [])]
    added = [{"key": k, "operator": "Exists", "effect": effect} for k, effect in pairs]
    given = [t for t in spec.get("tolerations") or () if not _is_one_of(t, pairs)]
    return {**template, "spec": {**spec, "tolerations": [*given, *added]}}


def _is_one_of(toleration: dict[str, Any], pairs: list[tuple[str, str]]) -> bool:
    """The same taint for a limited time, say: the daemon stays for good."""
    is_plain = toleration.get("operator") == "Exists" and not toleration.get("value")
    return is_plain and (toleration.get("key"), toleration.get("effect")) in pairs


def document(ds: DaemonSet, node: str, digest: str) -> dict[str, Any]:
    """A pod of this DaemonSet for this node, of the revision with this hash."""
    template = tolerant(ds.spec.template)
    given = template.get("metadata") or {}
    metadata = {k: given[k] for k in ("annotations", "finalizers") if given.get(k)}
    metadata |= {
        # A generated name may be 63 long and the server adds five characters.
        "generateName": f"{ds.metadata.name[:57]}-",
        "namespace": ds.metadata.namespace,
        "labels": {**(given.get("labels") or {}), REVISION_LABEL: digest},
        "ownerReferences": [controller_reference(ds)],
    }
    spec = deepcopy(template["spec"])
    affinity = spec.setdefault("affinity", {}).setdefault("nodeAffinity", {})
    # The node was chosen by the terms given; its name says the same and more.
    affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        ]
    }
    return {"metadata": metadata, "spec": spec}


def node_of(pod: Pod) -> str:
    """The node a pod is on, or meant for by its affinity; empty when it names none."""
    if pod.spec.node_name:
        return pod.spec.node_name
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    required = affinity.required if affinity else None
    for term in required.node_selector_terms if required else ():
        for field in term.match_fields:
            names = (field.key, field.operator) == ("metadata.name", "In") and field.values
            if names:
                return names[0] if len(names) == 1 else ""
    return ""
