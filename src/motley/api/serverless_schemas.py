"""Schemas of the kinds of serverless computing: Function, Workflow and Invocation."""

from motley.api.structural import shapes
from motley.api.structural.shapes import CONDITIONS as _CONDITIONS
from motley.api.structural.shapes import STRING as _STRING
from motley.api.structural.shapes import TIME as _TIME

_ENV = shapes.keyed(
    shapes.record({"name": _STRING, "value": _STRING}, "name"),
    "Environment variables.",
    "name",
)

FUNCTION = shapes.record(
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
WORKFLOW = shapes.record(
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
INVOCATION = shapes.record(
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
