"""Schema of Workflow: functions that follow each other, also side by side, also again.

Steps are one flat list; those of a branch are steps like others, reached from it and ending where
no next one is named. So the schema needs no recursion, and a step can be shared.
"""

from motley.api.structural import shapes
from motley.api.structural.shapes import CONDITIONS, STRING

_EXPRESSION = "A CEL expression; `input` is what the step was given, `arg` the workflow's argument."
_SECONDS = {"type": "number", "minimum": 0}
_ERRORS = shapes.list_of(
    STRING, "The errors that are meant: Timeout, FunctionError, NotFound, … ; all when empty."
)
_RETRY = shapes.record(
    {
        "attempts": shapes.count(
            "How often it is tried altogether.", default=3, minimum=1, maximum=100
        ),
        "backoffSeconds": {**_SECONDS, "default": 1, "description": "The first pause."},
        "factor": {
            "type": "number",
            "minimum": 1,
            "default": 2,
            "description": "How much longer each pause is than the one before.",
        },
        "maxBackoffSeconds": {**_SECONDS, "default": 60, "description": "The longest pause."},
        "errors": _ERRORS,
    }
)
_CATCH = shapes.list_of(
    shapes.record(
        {"errors": _ERRORS, "next": shapes.text("The step that follows then.", minLength=1)}, "next"
    ),
    "Where to go on after a failure: the first that fits. That step is given the error, the"
    " message and the input.",
)
_STEP = shapes.record(
    {
        "name": shapes.text("Its name.", minLength=1, maxLength=63, pattern="^[A-Za-z0-9_-]+$"),
        "type": shapes.text(
            "What the step does.",
            enum=["Task", "Choice", "Parallel", "Map", "Wait", "Pass", "Succeed", "Fail"],
            default="Task",
        ),
        "function": shapes.text("The Function a Task calls."),
        "input": shapes.text(f"What the function or the branches are given. {_EXPRESSION}"),
        "output": shapes.text(
            "What the step gives to the next, made from `output`, what it gave. " + _EXPRESSION
        ),
        "next": shapes.text("The step that follows; none: its chain ends here."),
        "timeoutSeconds": shapes.count("How long one attempt of a Task may take.", minimum=1),
        "retry": _RETRY,
        "catch": _CATCH,
        "choices": shapes.list_of(
            shapes.record(
                {"when": shapes.text(_EXPRESSION, minLength=1), "next": STRING}, "when", "next"
            ),
            "The first expression that holds names the next step.",
        ),
        "default": shapes.text("The step that follows when no choice holds."),
        "branches": shapes.list_of(
            STRING, "The first steps of what a Parallel does side by side.", maxItems=100
        ),
        "items": shapes.text(f"The list a Map goes through. {_EXPRESSION}"),
        "each": shapes.text("The first step of what a Map does with each item."),
        "maxConcurrency": shapes.count("How many items at a time; 0: all.", default=0),
        "seconds": {**_SECONDS, "description": "How long a Wait waits."},
        "error": shapes.text("The error of a Fail."),
        "message": shapes.text("Its message."),
    },
    "name",
)
WORKFLOW = shapes.record(
    {
        "spec": shapes.record(
            {
                "start": shapes.text("The first step; the first of the list unless given."),
                "steps": {
                    **shapes.keyed(_STEP, "The steps, by name.", "name"),
                    "minItems": 1,
                    "maxItems": 500,
                },
                "arg": shapes.free("The argument of a call that brings none."),
                "timeoutSeconds": shapes.count("How long a run may take.", default=3600, minimum=1),
                "maxSteps": shapes.count(
                    "After how many steps a run is ended: loops must not go on for ever.",
                    default=1000,
                    minimum=1,
                    maximum=10000,
                ),
            },
            "steps",
        ),
        "status": shapes.record(
            {
                "observedGeneration": shapes.count("The generation this status is about."),
                "conditions": CONDITIONS,
            }
        ),
    },
    "spec",
)
