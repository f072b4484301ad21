"""`autoscaling.k8s.io/v1`: VerticalPodAutoscaler, as Kubernetes' autoscaler project has it.

In a Motley cluster the kind is always there, like those of `motleyio`, which installs it. Elsewhere
it comes from `deploy/crds/verticalpodautoscalers.yaml`, made of the same schema, or from the
project's own CustomResourceDefinition: manifests and clients of either work with both.
"""

from motley.api import scheme
from motley.api.structural import shapes
from motley.api.structural.definition import AGE, Column, Definition

GROUP, VERSION = "autoscaling.k8s.io", "v1"
KIND, PLURAL, SINGULAR, SHORT = (
    "VerticalPodAutoscaler",
    "verticalpodautoscalers",
    "verticalpodautoscaler",
    ("vpa",),
)
CHANGES = HIGHER, LOWER = ("TargetHigherThanRequests", "TargetLowerThanRequests")
MODES = ("Off", "Initial", "Recreate", "InPlaceOrRecreate", "Auto")

_QUANTITY = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": (
        r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
        r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
    ),
    "x-kubernetes-int-or-string": True,
}


def _amounts(description: str) -> shapes.Schema:
    return {"type": "object", "description": description, "additionalProperties": _QUANTITY}


_SCHEMA = shapes.record(
    {
        "spec": shapes.record(
            {
                "targetRef": shapes.record(
                    {
                        "apiVersion": shapes.STRING,
                        "kind": shapes.text("The workload's kind: Deployment, StatefulSet, …"),
                        "name": shapes.text("Its name."),
                    },
                    "kind",
                    "name",
                ),
                "updatePolicy": shapes.record(
                    {
                        "updateMode": shapes.text(
                            "Off: recommend only; Initial: new pods; Recreate: evict pods that"
                            " have too much or too little; InPlaceOrRecreate: resize them, evict"
                            " where that cannot be done; Auto: the same.",
                            enum=list(MODES),
                        ),
                        "minReplicas": {
                            "type": "integer",
                            "format": "int32",
                            "minimum": 1,
                            "description": "Evict only while at least so many pods live.",
                        },
                        "evictionRequirements": shapes.list_of(
                            shapes.record(
                                {
                                    "resources": shapes.list_of(
                                        shapes.text("cpu or memory.", enum=["cpu", "memory"]),
                                        "One of these has to change that way.",
                                    ),
                                    "changeRequirement": shapes.text(
                                        "Which way.", enum=list(CHANGES)
                                    ),
                                },
                                "resources",
                                "changeRequirement",
                            ),
                            "Pods are evicted only where all of these hold for one container.",
                        ),
                    }
                ),
                "resourcePolicy": shapes.record(
                    {
                        "containerPolicies": shapes.list_of(
                            shapes.record(
                                {
                                    "containerName": shapes.text(
                                        "A container, or * for all others."
                                    ),
                                    "mode": shapes.text("Auto or Off.", enum=["Auto", "Off"]),
                                    "minAllowed": _amounts("Never recommend less."),
                                    "maxAllowed": _amounts("Never recommend more."),
                                    "controlledResources": shapes.list_of(
                                        shapes.STRING, "cpu, memory; both by default."
                                    ),
                                    "controlledValues": shapes.text(
                                        "Do limits move along with requests?",
                                        enum=["RequestsAndLimits", "RequestsOnly"],
                                    ),
                                }
                            ),
                            "Bounds, by container.",
                        )
                    }
                ),
                "recommenders": shapes.list_of(
                    shapes.record({"name": shapes.STRING}, "name"),
                    "Who recommends; nothing here, or `motley`: Motley's own controller.",
                ),
            },
            "targetRef",
        ),
        "status": shapes.record(
            {
                "recommendation": shapes.record(
                    {
                        "containerRecommendations": shapes.list_of(
                            shapes.record(
                                {
                                    "containerName": shapes.STRING,
                                    "target": _amounts("What a pod should request."),
                                    "lowerBound": _amounts("With less a pod is changed."),
                                    "upperBound": _amounts("With more a pod is changed."),
                                    "uncappedTarget": _amounts("The target without bounds."),
                                },
                                "target",
                            ),
                            "By container; CPU in cores of speed 1 where nodes differ in speed.",
                        )
                    }
                ),
                "conditions": shapes.CONDITIONS,
            }
        ),
    },
    "spec",
)
_FIRST = ".status.recommendation.containerRecommendations[0].target"
_PROVIDED = '.status.conditions[?(@.type=="RecommendationProvided")].status'
_COLUMNS = (
    Column("Mode", "string", ".spec.updatePolicy.updateMode"),
    Column("CPU", "string", f"{_FIRST}.cpu"),
    Column("Mem", "string", f"{_FIRST}.memory"),
    Column("Provided", "string", _PROVIDED),
    AGE,
)


def rows() -> list[scheme.Kind]:
    """The rows of the group, ready for the table."""
    return [
        scheme.Kind(
            group=GROUP,
            version=VERSION,
            kind=KIND,
            plural=PLURAL,
            singular=SINGULAR,
            short_names=SHORT,
            namespaced=True,
            subresources=frozenset({"status"}),
            definition=Definition(
                kind=KIND,
                list_kind=f"{KIND}List",
                schema=_SCHEMA,
                columns=_COLUMNS,
                has_status=True,
                is_custom=False,
            ),
        )
    ]
