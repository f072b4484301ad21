"""May a pod of this template run on this node? Pure.

Only what the node *is* counts (name, labels, taints), not what is free on it: a DaemonSet wants its
pod on every such node, and the scheduler finds the room.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from motley.api import nodeselector
from motley.api.tolerations import tolerates
from motley.api.views.core import Node, Taint
from motley.api.views.pod import NodeSelectorTerm, PodSpec, Toleration


class Fit(NamedTuple):
    """Should a pod be started on the node, and may one that is there stay?"""

    run: bool
    keep: bool


class _Placement(msgspec.Struct):
    """The part of a pod template that says where; the whole is `PodSpec`."""

    spec: PodSpec = msgspec.field(default_factory=PodSpec)


@dataclass(frozen=True)
class Rules:
    """Where pods of a template may run; made once per template, asked for every node."""

    node_name: str
    labels: dict[str, str]
    terms: list[NodeSelectorTerm] | None
    tolerations: list[Toleration]

    @classmethod
    def of(cls, template: dict[str, Any]) -> "Rules":
        """The rules in a pod template."""
        spec = msgspec.convert(template, _Placement).spec
        node_affinity = spec.affinity.node_affinity if spec.affinity else None
        required = node_affinity.required if node_affinity else None
        terms = required.node_selector_terms if required else None
        return cls(spec.node_name, spec.node_selector, terms, spec.tolerations)

    def fit(self, node: Node) -> Fit:
        """Judge one node."""
        if self.node_name not in ("", node.metadata.name) or not self._selects(node):
            return Fit(run=False, keep=False)
        keeps_off = self._untolerated(node.spec.taints, ("NoSchedule", "NoExecute"))
        drives_away = self._untolerated(node.spec.taints, ("NoExecute",))
        return Fit(run=not keeps_off, keep=not drives_away)

    def _selects(self, node: Node) -> bool:
        if not self.labels.items() <= node.metadata.labels.items():
            return False
        return self.terms is None or nodeselector.matches_any(self.terms, node)

    def _untolerated(self, taints: Iterable[Taint], effects: Sequence[str]) -> bool:
        return any(
            taint.effect in effects and not any(tolerates(t, taint) for t in self.tolerations)
            for taint in taints
        )
