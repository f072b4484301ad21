"""`scheduling.x-k8s.io/v1alpha1`: PodGroup and ElasticQuota, as scheduler-plugins has them.

In a Motley cluster the two kinds are always there, like those of `motleyio`, which installs them.
Elsewhere they come from the CustomResourceDefinitions in `deploy/crds`, made of the same schemas
but for the rules, whose cost kube-apiserver estimates too high (`crdmanifest`).

Invariant: a manifest written for scheduler-plugins is read as it is; only a min above its max, and
more than 64 resources, are refused here and not there.
"""

from typing import Any, NamedTuple

from motley.api import scheme
from motley.api.structural import shapes
from motley.api.structural.definition import AGE, Column, Definition

GROUP = "scheduling.x-k8s.io"
VERSION = "v1alpha1"

PHASES = (
    *("Pending", "PreScheduling", "Scheduling", "Scheduled", "Running", "Unknown"),
    *("Finished", "Failed"),
)
_QUANTITY = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": (
        r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
        r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
    ),
    "x-kubernetes-int-or-string": True,
}
_MOST_RESOURCES = 64  # bounds what checking min against max can cost
_RULES = "x-kubernetes-validations"


def _amounts(description: str) -> shapes.Schema:
    return {
        "type": "object",
        "description": description,
        "maxProperties": _MOST_RESOURCES,
        "additionalProperties": _QUANTITY,
    }


def _int32(description: str, **more: Any) -> shapes.Schema:
    return shapes.count(description, format="int32", **more)


_POD_GROUP = shapes.record(
    {
        "spec": shapes.record(
            {
                "minMember": _int32(
                    "How many members must be placed together before any of them runs.",
                    minimum=1,
                    default=1,
                ),
                "minResources": _amounts(
                    "What must be free in the cluster before any member is tried."
                ),
                "scheduleTimeoutSeconds": _int32(
                    "How long placed members wait for the others; then all are released."
                ),
            },
            default={},
        ),
        "status": shapes.record(
            {
                "phase": shapes.text("How far the group is.", enum=list(PHASES)),
                "occupiedBy": shapes.text("The workload the members belong to."),
                "scheduled": _int32("Members that have a node."),
                "running": _int32("Members that run."),
                "succeeded": _int32("Members that ended well."),
                "failed": _int32("Members that failed."),
                "scheduleStartTime": {
                    "type": "string",
                    "format": "date-time",
                    "description": "When there were first enough members to be scheduled.",
                    "nullable": True,
                },
            }
        ),
    }
)
_ELASTIC_QUOTA = shapes.record(
    {
        "spec": shapes.record(
            {
                "min": _amounts("What the namespace is guaranteed."),
                "max": _amounts("What it may use at most, by borrowing what others leave unused."),
            },
            **{
                _RULES: [
                    {
                        "rule": (
                            "!has(self.min) || !has(self.max) || self.min.all(name,"
                            " !(name in self.max) || quantity(string(self.min[name]))"
                            ".compareTo(quantity(string(self.max[name]))) <= 0)"
                        ),
                        "message": "min must not be greater than max",
                    }
                ]
            },
        ),
        "status": shapes.record({"used": _amounts("What its pods that have a node request.")}),
    }
)


class _Entry(NamedTuple):
    kind: str
    plural: str
    short: tuple[str, ...]
    schema: shapes.Schema
    columns: tuple[Column, ...]


_KINDS = (
    _Entry(
        "PodGroup",
        "podgroups",
        ("pg", "pgs"),
        _POD_GROUP,
        (
            Column("Phase", "string", ".status.phase"),
            Column("MinMember", "integer", ".spec.minMember"),
            Column("Scheduled", "integer", ".status.scheduled"),
            Column("Running", "integer", ".status.running"),
            Column("Succeeded", "integer", ".status.succeeded"),
            Column("Failed", "integer", ".status.failed"),
            AGE,
        ),
    ),
    _Entry(
        "ElasticQuota",
        "elasticquotas",
        ("eq", "eqs"),
        _ELASTIC_QUOTA,
        (
            Column("Used", "string", ".status.used"),
            Column("Min", "string", ".spec.min"),
            Column("Max", "string", ".spec.max"),
            AGE,
        ),
    ),
)


def rows() -> list[scheme.Kind]:
    """The rows of the group, ready for the table."""
    return [
        scheme.Kind(
            group=GROUP,
            version=VERSION,
            kind=entry.kind,
            plural=entry.plural,
            singular=entry.kind.lower(),
            short_names=entry.short,
            namespaced=True,
            subresources=frozenset({"status"}),
            definition=Definition(
                kind=entry.kind,
                list_kind=f"{entry.kind}List",
                schema=entry.schema,
                columns=entry.columns,
                has_status=True,
                is_custom=False,
            ),
        )
        for entry in _KINDS
    ]
