"""Dropping what no schema knows, as Kubernetes' structural pruning does.

The frame of an object (apiVersion, kind, metadata) is never pruned here: it has a schema of its
own. Below `x-kubernetes-preserve-unknown-fields` only what is specified is looked into.
"""

from typing import Any

from motley.api.structural.node import FRAME, Node


def prune(root: Node, obj: dict[str, Any]) -> list[str]:
    """Drop unknown fields in place; their paths, in order."""
    unknown: list[str] = []
    _prune(root, obj, "", unknown, is_root=True)
    return sorted(unknown)


def _prune(
    node: Node | None, value: Any, path: str, unknown: list[str], *, is_root: bool = False
) -> None:
    if isinstance(value, list):
        below = node.items if node is not None else None
        kept = node is not None and node.preserves_unknown
        for index, inner in enumerate(value):
            if below is not None or not kept:
                _prune(below, inner, f"{path}[{index}]", unknown)
        return
    if not isinstance(value, dict):
        return
    framed = is_root or (node is not None and node.is_embedded)
    for name in list(value):
        if framed and name in FRAME:
            continue
        inner_path = f"{path}.{name}" if path else name
        if node is None:
            unknown.append(inner_path)
            del value[name]
        elif name in node.properties:
            _prune(node.properties[name], value[name], inner_path, unknown)
        elif node.additional is not None or node.anything:
            _prune(node.additional, value[name], inner_path, unknown)
        elif not node.preserves_unknown:
            unknown.append(inner_path)
            del value[name]
