"""Motley's own group, `motley.io/v1`: the kinds that Kubernetes does not have.

They go through the same mechanism as custom resources (structural schemas: pruned, defaulted,
validated, explained by `kubectl explain`), but are always there: rows in the table of kinds, put
there by `install`. A kind here is one entry of `_KINDS`; its schema says the whole of its shape.

Invariant: the schemas obey the rules for CustomResourceDefinitions; a test holds them to it.
"""

from typing import NamedTuple

from motley.api import batches, network_schemas, scheduling_schemas, schedulingx, scheme
from motley.api.structural import shapes
from motley.api.structural.definition import AGE, Column, Definition

GROUP = "motley.io"
VERSION = "v1"

_STRING = {"type": "string"}
_MAP = {"type": "object", "additionalProperties": _STRING}
_TIME = {"type": "string", "format": "date-time"}
_CONDITIONS = shapes.keyed(
    shapes.record(
        {
            "type": _STRING,
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "lastTransitionTime": _TIME,
            "reason": _STRING,
            "message": _STRING,
        },
        "type",
        "status",
    ),
    "The latest observations of the object's state.",
    "type",
)
_ENV = shapes.keyed(
    shapes.record({"name": _STRING, "value": _STRING}, "name"),
    "Environment variables.",
    "name",
)

_FUNCTION = shapes.record(
    {
        "spec": shapes.record(
            {
                "runtime": shapes.text("What runs the code.", default="python3"),
                "code": shapes.text("The source text of the function."),
                "codeFrom": shapes.free("Where the source is, when it is not written here."),
                "image": shapes.text("An image that serves the function, instead of its code."),
                "handler": shapes.text("The function to call.", default="main"),
                "requirements": shapes.list_of(_STRING, "Packages the code needs."),
                "env": _ENV,
                "minReplicas": shapes.count("How many copies stay when nobody calls.", default=0),
                "maxReplicas": shapes.count("The most copies at a time.", default=10),
                "targetConcurrency": shapes.count("Calls one copy takes at a time.", default=1),
                "timeoutSeconds": shapes.count("How long one call may take.", default=60),
                "resources": shapes.free("Requests and limits of a copy, as in a container."),
            },
            **{
                "x-kubernetes-validations": [
                    {
                        "rule": "self.minReplicas <= self.maxReplicas",
                        "message": "minReplicas must not be greater than maxReplicas",
                    }
                ]
            },
        ),
        "status": shapes.record(
            {
                "url": _STRING,
                "image": _STRING,
                "replicas": shapes.count("Copies that run."),
                "observedGeneration": shapes.count("The generation this status is about."),
                "conditions": _CONDITIONS,
            }
        ),
    },
    "spec",
)
_STEP = shapes.record(
    {
        "name": _STRING,
        "type": shapes.text("What the step does.", enum=["Task", "Choice", "Succeed", "Fail"]),
        "function": shapes.text("The Function a Task calls."),
        "next": shapes.text("The step that follows."),
        "end": {"type": "boolean"},
        "choices": shapes.list_of(
            shapes.record({"when": _STRING, "next": _STRING}, "when", "next"),
            "The first expression that holds names the next step.",
        ),
        "default": shapes.text("The step that follows when no choice holds."),
        "retries": shapes.count("How often a failed Task is tried again.", default=0),
    },
    "name",
)
_WORKFLOW = shapes.record(
    {
        "spec": shapes.record(
            {
                "start": shapes.text("The first step."),
                "steps": shapes.keyed(_STEP, "The steps, by name.", "name"),
                "params": shapes.free("What a call without arguments starts with."),
            },
            "start",
            "steps",
        ),
        "status": shapes.record({"conditions": _CONDITIONS}),
    },
    "spec",
)
_INVOCATION = shapes.record(
    {
        "spec": shapes.record(
            {
                "function": shapes.text("The Function to call."),
                "workflow": shapes.text("The Workflow to run."),
                "params": shapes.free("The arguments."),
                "timeoutSeconds": shapes.count("How long it may take.", default=60),
            },
            **{
                "x-kubernetes-validations": [
                    {
                        "rule": "has(self.__function__) != has(self.workflow)",
                        "message": "exactly one of function and workflow must be set",
                    }
                ]
            },
        ),
        "status": shapes.record(
            {
                "phase": {"type": "string", "enum": ["Pending", "Running", "Succeeded", "Failed"]},
                "result": shapes.free("What came back."),
                "message": _STRING,
                "startTime": _TIME,
                "completionTime": _TIME,
                "steps": shapes.list_of(shapes.free("One step's outcome."), "What each step did."),
            }
        ),
    },
    "spec",
)
_SLURM_JOB = shapes.record(
    {
        "spec": shapes.record(
            {
                "cluster": shapes.text("The SlurmCluster to run on.", default="default"),
                "script": shapes.text(
                    "The batch script, when it is not made from the fields below."
                ),
                "files": {**_MAP, "description": "Files to bring along, by name."},
                "sourcePath": shapes.text(
                    "A file to bring along, on the machine that submits the job."
                ),
                "resultPath": shapes.text(
                    "The folder on that machine for what the job has written, when it has ended."
                ),
                "mail": shapes.record(
                    {
                        "type": shapes.text(
                            "What to write about.", enum=["begin", "end", "fail", "all"]
                        ),
                        "user": shapes.text("To whom, as the cluster knows its users."),
                    },
                    "type",
                    "user",
                ),
                "filesFrom": shapes.free("A ConfigMap or Secret with files to bring along."),
                "build": shapes.text("The command that builds the program, on the cluster."),
                "command": shapes.text("The command that runs it."),
                "partition": _STRING,
                "nodes": shapes.count("How many nodes.", default=1, minimum=1),
                "tasksPerNode": shapes.count("Tasks on each node.", default=1, minimum=1),
                "cpusPerTask": shapes.count("Processors for each task.", default=1, minimum=1),
                "gpus": shapes.count("Graphics processors.", default=0),
                "timeLimit": shapes.text("The most it may run, as Slurm writes it."),
                "output": shapes.text("The file for its output.", default="%j.out"),
                "error": shapes.text("The file for its errors.", default="%j.err"),
            }
        ),
        "status": shapes.record(
            {
                "phase": {
                    "type": "string",
                    "enum": ["Pending", "Submitted", "Running", "Succeeded", "Failed", "Cancelled"],
                },
                "jobID": _STRING,
                "state": shapes.text("Slurm's own word for its state."),
                "exitCode": {"type": "integer"},
                "output": _STRING,
                "error": _STRING,
                "startTime": _TIME,
                "completionTime": _TIME,
                "conditions": _CONDITIONS,
            }
        ),
    },
    "spec",
)
_SLURM_CLUSTER = shapes.record(
    {
        "spec": shapes.record(
            {
                "host": shapes.text("The login node."),
                "port": shapes.count("Its SSH port.", default=22, minimum=1, maximum=65535),
                "user": _STRING,
                "credentialsSecret": shapes.text("The Secret with the SSH key or password."),
                "hostKey": shapes.text("The login node's public key; without it none is trusted."),
                "workDir": shapes.text("Where jobs work there.", default="motley"),
                "partitions": shapes.list_of(
                    _STRING, "Partitions that may be used; all when empty."
                ),
            },
            "host",
            "user",
        ),
        "status": shapes.record({"conditions": _CONDITIONS}),
    },
    "spec",
)
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
        "status": shapes.record({"address": _STRING, "conditions": _CONDITIONS}),
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
        _FUNCTION,
        "fn",
        "Runtime .spec.runtime | #Replicas .status.replicas | URL .status.url",
    ),
    _Entry("Workflow", "workflows", _WORKFLOW, "wf", "Start .spec.start"),
    _Entry(
        "Invocation",
        "invocations",
        _INVOCATION,
        "inv",
        "Function .spec.function | Workflow .spec.workflow | Phase .status.phase",
    ),
    _Entry(
        "SlurmJob",
        "slurmjobs",
        _SLURM_JOB,
        "sj",
        "Cluster .spec.cluster | Job .status.jobID | Phase .status.phase",
    ),
    _Entry(
        "SlurmCluster",
        "slurmclusters",
        _SLURM_CLUSTER,
        "sc-slurm",
        "Host .spec.host | User .spec.user",
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
    """Put the rows, and those of `schedulingx`, into the table of kinds; once is enough."""
    if not _installed:
        _installed.extend([*rows(), *batches.rows(), *schedulingx.rows()])
        for row in _installed:
            scheme.add(row)
