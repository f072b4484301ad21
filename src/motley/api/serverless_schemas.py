"""Schemas of the kinds of serverless computing: Function, Workflow and Invocation."""

from motley.api.structural import shapes
from motley.api.structural.shapes import CONDITIONS as _CONDITIONS
from motley.api.structural.shapes import STRING as _STRING
from motley.api.structural.shapes import TIME as _TIME

_KEY = shapes.record({"name": _STRING, "key": _STRING}, "name", "key")
_CODE_FROM = shapes.record({"configMapKeyRef": _KEY, "secretKeyRef": _KEY})
_ENV = shapes.keyed(
    shapes.record({"name": _STRING, "value": _STRING, "valueFrom": _CODE_FROM}, "name"),
    "Environment variables; from ConfigMaps and Secrets of the namespace too.",
    "name",
)
_TEXTS = {
    "type": "object",
    "description": "Further files beside the code, by their path.",
    "additionalProperties": _STRING,
}


def _rule(rule: str, message: str) -> dict[str, str]:
    return {"rule": rule, "message": message}


FUNCTION = shapes.record(
    {
        "spec": shapes.record(
            {
                "version": shapes.text(
                    "v1: a pod for each call. v2: instances stay and take further calls.",
                    enum=["v1", "v2"],
                    default="v2",
                ),
                "runtime": shapes.text("What runs the code.", enum=["python3"], default="python3"),
                "code": shapes.text("The source text of the function."),
                "files": _TEXTS,
                "archive": shapes.text(
                    "A zip or tar (also compressed) with main.py in it, in base64.", format="byte"
                ),
                "codeFrom": _CODE_FROM,
                "handler": shapes.text(
                    "The function to call: NAME, or MODULE.NAME.",
                    default="run",
                    pattern=r"^([A-Za-z_]\w*\.)*[A-Za-z_]\w*$",
                ),
                "left": shapes.text("The Function that follows when check is true; or RETURN."),
                "right": shapes.text("The Function that follows when check is false; or RETURN."),
                "requirements": shapes.free("Packages the code needs: a list, or pip's text."),
                "preRun": shapes.text("A shell script that runs once when an instance is made."),
                "env": _ENV,
                "resources": shapes.free("Requests and limits of an instance."),
                "timeoutSeconds": shapes.count(
                    "How long one call may take.", default=60, minimum=1, maximum=3600
                ),
                "minInstances": shapes.count("How many stay when nobody calls.", default=0),
                "maxInstances": shapes.count("The most at a time.", default=10, minimum=1),
                "initialInstances": shapes.count("How many are started at once.", default=0),
                "concurrency": shapes.count(
                    "Calls one instance takes at a time.", default=4, minimum=1, maximum=256
                ),
                "targetRate": shapes.count("Calls per second that one instance should get."),
                "idleSeconds": shapes.count(
                    "Silence after which instances go, one by one.", default=60, minimum=1
                ),
                "image": shapes.text("An image with python3 in it, instead of the usual one."),
                "nodeSelector": {
                    "type": "object",
                    "description": "Labels the nodes of its instances must have.",
                    "additionalProperties": _STRING,
                },
                "address": shapes.text("The address its Service should have."),
                "public": {
                    "type": "boolean",
                    "description": "May anybody call it, without saying who they are?",
                    "default": False,
                },
            },
            **{
                "x-kubernetes-validations": [
                    _rule(
                        "self.minInstances <= self.maxInstances",
                        "minInstances must not be greater than maxInstances",
                    ),
                    _rule(
                        "self.initialInstances <= self.maxInstances",
                        "initialInstances must not be greater than maxInstances",
                    ),
                    _rule(
                        "(has(self.code) ? 1 : 0) + (has(self.archive) ? 1 : 0)"
                        " + (has(self.codeFrom) ? 1 : 0) == 1",
                        "exactly one of code, archive and codeFrom must be set",
                    ),
                ]
            },
        ),
        "status": shapes.record(
            {
                "url": _STRING,
                "address": _STRING,
                "instances": shapes.count("Instances that take calls."),
                "starting": shapes.count("Instances that do not yet."),
                "revision": shapes.text("Names the code and settings that instances have."),
                "message": shapes.text("Why it cannot be called, if it cannot."),
                "lastCallTime": _TIME,
                "observedGeneration": shapes.count("The generation this status is about."),
                "conditions": _CONDITIONS,
            }
        ),
    },
    "spec",
)
_STEP_RECORD = shapes.record(
    {
        "id": shapes.text("Names the step within the invocation, in order: 1, 2, …"),
        "name": _STRING,
        "function": _STRING,
        "attempt": shapes.count("How often it was tried."),
        "phase": _STRING,
        "input": shapes.free("What it was given."),
        "output": shapes.free("What it gave back."),
        "check": {"type": "boolean"},
        "branch": shapes.text("left or right."),
        "instance": shapes.text("The pod that has it."),
        "startTime": _TIME,
        "completionTime": _TIME,
        "message": _STRING,
    },
    "id",
    **{"x-kubernetes-preserve-unknown-fields": True},
)
INVOCATION = shapes.record(
    {
        "spec": shapes.record(
            {
                "function": shapes.text("The Function to call."),
                "workflow": shapes.text("The Workflow to run."),
                "arg": shapes.free("The argument: text, or any JSON."),
                "timeoutSeconds": shapes.count("How long all of it may take.", default=3600),
                "idempotencyKey": shapes.text("The same key again is the same invocation."),
                "callbackURL": shapes.text("Where the result is sent.", pattern="^https?://"),
                "ttlSecondsAfterFinished": shapes.count(
                    "How long the result is kept.", default=3600
                ),
                "maxSteps": shapes.count("The most steps of a loop.", default=1000, minimum=1),
                "cancel": {"type": "boolean", "description": "Stop it."},
            },
            **{
                "x-kubernetes-validations": [
                    _rule(
                        "has(self.__function__) != has(self.workflow)",
                        "exactly one of function and workflow must be set",
                    )
                ]
            },
        ),
        "status": shapes.record(
            {
                "phase": {
                    "type": "string",
                    "enum": ["Pending", "Running", "Succeeded", "Failed", "Cancelled"],
                },
                "result": shapes.free("What came back."),
                "error": shapes.free("What went wrong: type, message, and where."),
                "message": _STRING,
                "startTime": _TIME,
                "completionTime": _TIME,
                "callback": shapes.free("What became of the callback."),
                "steps": shapes.list_of(_STEP_RECORD, "What each step did."),
            },
            **{"x-kubernetes-preserve-unknown-fields": True},
        ),
    },
    "spec",
)
