"""Schema of Trigger: what calls a Function or a Workflow without anybody asking."""

from motley.api.structural import shapes
from motley.api.structural.shapes import CONDITIONS, STRING, TIME

_RULES = "x-kubernetes-validations"
TRIGGER = shapes.record(
    {
        "spec": shapes.record(
            {
                "function": shapes.text("The Function to call."),
                "workflow": shapes.text("The Workflow to run."),
                "arg": shapes.free(
                    "The argument; of a schedule its time, of an event the event, unless given."
                ),
                "schedule": shapes.text("When, as a cron schedule: `*/5 * * * *`, `@hourly`."),
                "timeZone": shapes.text("The schedule's time zone; UTC unless given."),
                "startingDeadlineSeconds": shapes.count(
                    "How late a missed time is still made up for.", default=300
                ),
                "event": shapes.record(
                    {
                        "apiVersion": shapes.text("Of the objects to watch.", default="v1"),
                        "kind": shapes.text("Of the objects to watch.", minLength=1),
                        "labelSelector": shapes.text("Only objects with these labels."),
                        "types": shapes.list_of(
                            {"type": "string", "enum": ["ADDED", "MODIFIED", "DELETED"]},
                            "What must have happened to them; anything when empty.",
                        ),
                    },
                    "kind",
                    description="Changes of objects in the trigger's namespace.",
                ),
                "http": shapes.record(
                    {
                        "host": shapes.text("The name clients use; any when empty."),
                        "path": shapes.text(
                            "The start of the path; the longest that fits counts.", pattern="^/"
                        ),
                    },
                    "path",
                    description="Requests to the functions' router.",
                ),
                "suspend": {
                    "type": "boolean",
                    "default": False,
                    "description": "Call nothing for now.",
                },
            },
            **{
                _RULES: [
                    {
                        "rule": "has(self.__function__) != has(self.workflow)",
                        "message": "exactly one of function and workflow must be set",
                    },
                    {
                        "rule": "(has(self.schedule) ? 1 : 0) + (has(self.event) ? 1 : 0)"
                        " + (has(self.http) ? 1 : 0) == 1",
                        "message": "exactly one of schedule, event and http must be set",
                    },
                    {
                        "rule": "!has(self.http) || has(self.__function__)",
                        "message": "http calls a function",
                    },
                    {
                        "rule": "!has(self.event) || self.event.kind != 'Invocation'",
                        "message": "a trigger on Invocations would trigger itself",
                    },
                ]
            },
        ),
        "status": shapes.record(
            {
                "lastTime": {**TIME, "description": "When it called last."},
                "lastInvocation": STRING,
                "resourceVersion": shapes.text("Up to where changes were seen."),
                "observedGeneration": shapes.count("The generation this status is about."),
                "conditions": CONDITIONS,
            }
        ),
    },
    "spec",
)
