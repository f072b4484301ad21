"""What placing pods is told and tells: the schemas of `ImageMap` and `Decision`."""

from motley.api.structural import shapes

_STRING = {"type": "string"}
_TIME = {"type": "string", "format": "date-time"}

_PLATFORM = shapes.record(
    {
        "architecture": shapes.text("As Go spells it: amd64, arm64.", minLength=1),
        "os": shapes.text("The operating system.", default="linux"),
        "variant": shapes.text("The generation of the architecture: v7.", default=""),
        "image": shapes.text("The image to use there; by default the image itself."),
    },
    "architecture",
)
IMAGE_MAP = shapes.record(
    {
        "spec": shapes.record(
            {
                "images": shapes.keyed(
                    shapes.record(
                        {
                            "name": shapes.text("The image as pods name it.", minLength=1),
                            "architectures": shapes.keyed(
                                _PLATFORM,
                                "What the image is built for.",
                                "os",
                                "architecture",
                                "variant",
                            ),
                            "source": shapes.text(
                                "Who says so; what a person wrote counts before the others.",
                                enum=["import", "registry", "keyword", "assumed"],
                                default="import",
                            ),
                            "digest": shapes.text("What the registry had under the name."),
                            "observedAt": _TIME,
                            "message": shapes.text("Why the registry did not say."),
                        },
                        "name",
                    ),
                    "Images, and the platforms they are built for.",
                    "name",
                )
            }
        )
    },
    "spec",
)
_NUMBERS = {"type": "object", "additionalProperties": {"type": "number"}}
DECISION = shapes.record(
    {
        "spec": shapes.record(
            {
                "pod": shapes.record(
                    {"namespace": _STRING, "name": _STRING, "uid": _STRING}, "namespace", "name"
                ),
                "node": shapes.text("The node that was chosen; empty when none would do."),
                "profile": shapes.text("The scheduler profile that decided."),
                "message": shapes.text("The outcome in a sentence."),
                "decidedAt": _TIME,
                "attempts": shapes.count("The how manieth try it was."),
                "nodes": shapes.count("How many nodes there were."),
                "feasible": shapes.count("How many of them every filter let pass."),
                "filters": shapes.list_of(
                    shapes.record(
                        {
                            "plugin": _STRING,
                            "rejected": shapes.count(
                                "How many nodes it was the first to rule out for this reason."
                            ),
                            "reason": _STRING,
                        },
                        "plugin",
                    ),
                    "What each filter said.",
                ),
                "scores": shapes.list_of(
                    shapes.record(
                        {
                            "node": _STRING,
                            "total": {"type": "number"},
                            "plugins": _NUMBERS,
                        },
                        "node",
                    ),
                    "The best nodes, the winner first, with the weighted score of each plugin.",
                ),
                "weights": {
                    **_NUMBERS,
                    "description": "By how much each plugin's score of 0 to 100 was multiplied.",
                },
                "nominatedNode": shapes.text("Where room is being made for the pod."),
                "victims": shapes.list_of(_STRING, "The pods that end to make room."),
                "metrics": shapes.list_of(
                    shapes.record(
                        {
                            "plugin": _STRING,
                            "metric": _STRING,
                            "ageSeconds": {"type": "number"},
                        },
                        "plugin",
                        "metric",
                    ),
                    "How old the measurements were that plugins went by.",
                ),
                "metricsAgeSeconds": {
                    "type": "number",
                    "description": "The age of the oldest of them.",
                },
                "tookSeconds": {"type": "number", "description": "How long deciding took."},
                "pluginSeconds": {
                    **_NUMBERS,
                    "description": "How long each plugin took, where it was measured.",
                },
            },
            "pod",
        )
    },
    "spec",
)
