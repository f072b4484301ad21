"""From which nodes volumes can be reached, and where they may be made."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from motley.api.views.pod import NodeSelectorRequirement, NodeSelectorTerm
from motley.api.views.storage import VolumeNodeAffinity
from motley.scheduler.columns import Columns, Mask
from motley.scheduler.plugins.node_affinity import match_term


def reaches(affinity: VolumeNodeAffinity | None, nodes: Columns) -> Mask:
    """From which nodes a volume can be reached."""
    if affinity is None or affinity.required is None:
        return np.ones(nodes.size, np.bool_)
    return _any(affinity.required.node_selector_terms, nodes)


def allowed(topologies: Iterable[dict[str, Any]], nodes: Columns) -> Mask:
    """Where a class lets volumes be made: `allowedTopologies`, of which one must match."""
    return _any(map(_topology, topologies), nodes)


def _any(terms: Iterable[NodeSelectorTerm], nodes: Columns) -> Mask:
    mask = np.zeros(nodes.size, np.bool_)
    for term in terms:
        mask |= match_term(term, nodes)
    return mask


def _topology(term: dict[str, Any]) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        match_expressions=[
            NodeSelectorRequirement(key=e["key"], operator="In", values=e.get("values") or [])
            for e in term.get("matchLabelExpressions") or []
        ]
    )
