"""The CustomResourceDefinition that gives any other Kubernetes one of Motley's own kinds.

Made of the kind's row, so that names, schema and columns are said once. `deploy/crds` has them
written out (`tools/gen_crds.py`), and a test compares.
"""

from typing import Any

from motley.api import autoscalingk8s, motleyio, schedulingx, scheme
from motley.api.structural.definition import Column

_RULES = "x-kubernetes-validations"
# Kubernetes keeps the groups of its own project to those who say that they were agreed on.
_APPROVED = {
    "autoscaling.k8s.io": "https://github.com/kubernetes/kubernetes/pull/63797",
}
# Rules whose cost kube-apiserver estimates too high; here they are checked all the same.
_WITHOUT_RULES = frozenset({"scheduling.x-k8s.io"})


def rows() -> list[scheme.Kind]:
    """The kinds that another Kubernetes can be given."""
    return [*motleyio.rows(), *schedulingx.rows(), *autoscalingk8s.rows()]


def of(row: scheme.Kind) -> dict[str, Any]:
    """The manifest for a row that has a definition."""
    definition = row.definition
    assert definition is not None
    schema: Any = {"type": "object", **definition.schema}
    version = {
        "name": row.version,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": [_column(column) for column in definition.columns],
        "schema": {
            "openAPIV3Schema": _without_rules(schema) if row.group in _WITHOUT_RULES else schema
        },
    }
    if definition.has_status:
        version["subresources"] = {"status": {}}
    names = {
        "kind": row.kind,
        "listKind": definition.list_kind,
        "plural": row.plural,
        "singular": row.singular,
        "shortNames": list(row.short_names),
        "categories": list(row.categories),
    }
    metadata: dict[str, Any] = {"name": f"{row.plural}.{row.group}"}
    if row.group in _APPROVED:
        metadata["annotations"] = {"api-approved.kubernetes.io": _APPROVED[row.group]}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": row.group,
            "scope": "Namespaced" if row.namespaced else "Cluster",
            "names": {key: value for key, value in names.items() if value},
            "versions": [version],
        },
    }


def _column(column: Column) -> dict[str, Any]:
    found: dict[str, Any] = {"name": column.name, "type": column.type, "jsonPath": column.path}
    if column.priority:
        found["priority"] = column.priority
    return found


def _without_rules(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: _without_rules(value) for key, value in schema.items() if key != _RULES}
    return schema
