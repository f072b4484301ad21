"""Motley's own group, `motley.io/v1`: the kinds that Kubernetes does not have.

They go through the same mechanism as custom resources (structural schemas: pruned, defaulted,
validated, explained by `kubectl explain`), but are always there: rows in the table of kinds, put
there by `install`. A kind here is one entry of `_KINDS`; its schema says the whole of its shape.

Invariant: the schemas obey the rules for CustomResourceDefinitions; a test holds them to it.
"""

from typing import NamedTuple

from motley.api import (
    autoscalingk8s,
    batches,
    network_schemas,
    scheduling_schemas,
    schedulingx,
    scheme,
    serverless_schemas,
    slurm_schemas,
    trigger_schemas,
    workflow_schemas,
)
from motley.api.structural import shapes
from motley.api.structural.definition import AGE, Column, Definition

GROUP = "motley.io"
VERSION = "v1"

_STRING = shapes.STRING
_ROUTE = shapes.record(
    {
        "spec": shapes.record(
            {
                "host": shapes.text("The name clients use.", minLength=1, maxLength=253),
                "address": shapes.text(
                    "The address the name leads to; one is chosen unless it is given."
                ),
                "paths": shapes.keyed(
                    shapes.record(
                        {
                            "path": shapes.text("The start of the path.", pattern="^/"),
                            "service": shapes.text(
                                "The Service it leads to: its name or its address."
                            ),
                            "port": shapes.count("Its port.", minimum=1, maximum=65535),
                        },
                        "path",
                        "service",
                        "port",
                    ),
                    "Where each path leads.",
                    "path",
                ),
            },
            "host",
            "paths",
        ),
        "status": shapes.record({"address": _STRING, "conditions": shapes.CONDITIONS}),
    },
    "spec",
)


class _Entry(NamedTuple):
    kind: str
    plural: str
    schema: shapes.Schema
    short: str = ""
    columns: str = ""  # "Name path | …"; `#` marks a number, `+` what only -o wide shows
    namespaced: bool = True


_KINDS = (
    _Entry("ImageMap", "imagemaps", scheduling_schemas.IMAGE_MAP, "im", namespaced=False),
    _Entry(
        "Decision",
        "decisions",
        scheduling_schemas.DECISION,
        "",
        "Profile .spec.profile | Node .spec.node | #Feasible .spec.feasible"
        " | #Nodes .spec.nodes | +Message .spec.message",
    ),
    _Entry(
        "Function",
        "functions",
        serverless_schemas.FUNCTION,
        "fn func",
        "Version .spec.version | #Instances .status.instances | #Starting .status.starting"
        " | URL .status.url | +Message .status.message",
    ),
    _Entry("Workflow", "workflows", workflow_schemas.WORKFLOW, "wf", "Start .spec.start"),
    _Entry(
        "Invocation",
        "invocations",
        serverless_schemas.INVOCATION,
        "inv",
        "Function .spec.function | Workflow .spec.workflow | Phase .status.phase",
    ),
    _Entry(
        "Trigger",
        "triggers",
        trigger_schemas.TRIGGER,
        "",
        "Function .spec.function | Workflow .spec.workflow | Schedule .spec.schedule"
        " | Watches .spec.event.kind | Path .spec.http.path | Last .status.lastTime",
    ),
    _Entry(
        "SlurmJob",
        "slurmjobs",
        slurm_schemas.SLURM_JOB,
        "sj",
        "Cluster .spec.cluster | Job .status.jobID | Phase .status.phase"
        " | Reason .status.reason | +State .status.state | +Node .status.node"
        " | +Message .status.message",
    ),
    _Entry(
        "SlurmCluster",
        "slurmclusters",
        slurm_schemas.SLURM_CLUSTER,
        "sc-slurm",
        "User .spec.user | Host .status.host | Slurm .status.version"
        " | #Jobs .status.jobs | +Runtime .status.runtime",
        namespaced=False,
    ),
    _Entry("Route", "routes", _ROUTE, "rt", "Host .spec.host | Address .status.address"),
    _Entry(
        "NetworkTopology",
        "networktopologies",
        network_schemas.NETWORK_TOPOLOGY,
        "nettopo",
        "Key .spec.topologyKey",
        namespaced=False,
    ),
    _Entry("CallGraph", "callgraphs", network_schemas.CALL_GRAPH, "cg"),
)


def rows() -> list[scheme.Kind]:
    """The rows of the group, ready for the table."""
    return [_row(entry) for entry in _KINDS]


def _row(entry: _Entry) -> scheme.Kind:
    has_status = "status" in entry.schema["properties"]
    return scheme.Kind(
        group=GROUP,
        version=VERSION,
        kind=entry.kind,
        plural=entry.plural,
        singular=entry.kind.lower(),
        short_names=tuple(entry.short.split()),
        namespaced=entry.namespaced,
        subresources=frozenset({"status"} if has_status else ()),
        categories=("motley",),
        definition=Definition(
            kind=entry.kind,
            list_kind=f"{entry.kind}List",
            schema=entry.schema,
            columns=_columns(entry.columns),
            has_status=has_status,
            is_custom=False,
        ),
    )


def _columns(text: str) -> list[Column]:
    found = []
    for part in text.split("|") if text else ():
        name, path = part.split()
        type_ = "integer" if name.startswith("#") else "string"
        priority = 1 if name.startswith("+") else 0
        found.append(Column(name.lstrip("#+"), type_, path, description=path, priority=priority))
    return [*found, AGE]


_installed: list[scheme.Kind] = []


def install() -> None:
    """Put the rows, and those of groups beside, into the table of kinds; once is enough."""
    if not _installed:
        beside = (batches, schedulingx, autoscalingk8s)
        _installed.extend([*rows(), *(row for group in beside for row in group.rows())])
        for row in _installed:
            scheme.add(row)
