"""Does a node match a node selector? Pure; for one node, by its labels and its name."""

from collections.abc import Iterable

from motley.api.selectors import Requirement
from motley.api.views.core import Node
from motley.api.views.scheduling import NodeSelectorRequirement, NodeSelectorTerm

_OPERATORS = {
    "In": "in",
    "NotIn": "notin",
    "Exists": "exists",
    "DoesNotExist": "!",
    "Gt": "gt",
    "Lt": "lt",
}


def matches_any(terms: Iterable[NodeSelectorTerm], node: Node) -> bool:
    """Terms are alternatives."""
    return any(matches(term, node) for term in terms)


def matches(term: NodeSelectorTerm, node: Node) -> bool:
    """All expressions of a term must hold; a term without any selects nothing."""
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.metadata.name}
    return all(
        _requirement(e).matches(node.metadata.labels) for e in term.match_expressions
    ) and all(_requirement(e).matches(fields) for e in term.match_fields)


def _requirement(expression: NodeSelectorRequirement) -> Requirement:
    return Requirement(expression.key, _OPERATORS[expression.operator], tuple(expression.values))
