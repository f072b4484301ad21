"""Schemas of the two kinds that network-aware placement goes by.

A NetworkTopology says how far apart places are (nodes, racks, zones: the values of a label), a
CallGraph which workloads talk to each other and how much that matters. A Motley cluster has both;
`crdmanifest` makes them known to any other.
"""

from typing import Any

from motley.api.structural import shapes

_STRING = {"type": "string"}
_LATENCY = {
    "type": "number",
    "minimum": 0,
    "description": "Milliseconds from one end to the other.",
}
_BITS = {
    "x-kubernetes-int-or-string": True,
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[kMGTPE])?$",
}
_BANDWIDTH = {**_BITS, "description": "Bits per second in each direction, as a quantity: 10G."}
_PLACE = {"minLength": 1, "maxLength": 253}
_LABEL_SELECTOR = shapes.record(
    {
        "matchLabels": {"type": "object", "additionalProperties": _STRING},
        "matchExpressions": shapes.list_of(
            shapes.record(
                {
                    "key": _STRING,
                    "operator": shapes.text(
                        "How the values are meant.",
                        enum=["In", "NotIn", "Exists", "DoesNotExist"],
                    ),
                    "values": shapes.list_of(_STRING, "The values."),
                },
                "key",
                "operator",
            ),
            "Requirements that must all hold.",
        ),
    },
    description="The pods of the workload, in the namespace of the graph.",
)


def _rule(rule: str, message: str) -> dict[str, Any]:
    return {"x-kubernetes-validations": [{"rule": rule, "message": message}]}


NETWORK_TOPOLOGY = shapes.record(
    {
        "spec": shapes.record(
            {
                "topologyKey": shapes.text(
                    "The label of nodes whose values the links name.",
                    default="kubernetes.io/hostname",
                    minLength=1,
                    maxLength=317,
                ),
                "links": shapes.keyed(
                    shapes.record(
                        {
                            "from": shapes.text("A value of the label.", **_PLACE),
                            "to": shapes.text("Another value of it.", **_PLACE),
                            "latencyMs": _LATENCY,
                            "bandwidth": _BANDWIDTH,
                        },
                        "from",
                        "to",
                        "latencyMs",
                        **_rule("self.from != self.to", "from and to are the same: use within"),
                    ),
                    "Pairs of places; one that is named in one direction only is the same in both.",
                    "from",
                    "to",
                )
                | {"maxItems": 10000},
                "within": shapes.record(
                    {"latencyMs": {**_LATENCY, "default": 0}, "bandwidth": _BANDWIDTH},
                    default={},
                    description="Between nodes with the same value.",
                ),
                "otherwise": shapes.record(
                    {"latencyMs": _LATENCY, "bandwidth": _BANDWIDTH},
                    "latencyMs",
                    description="Between places that no link names; else a coarser topology is"
                    " asked.",
                ),
            }
        )
    },
    "spec",
)
CALL_GRAPH = shapes.record(
    {
        "spec": shapes.record(
            {
                "workloads": shapes.keyed(
                    shapes.record(
                        {
                            "name": shapes.text("How the calls name it.", minLength=1,
                                                maxLength=63),
                            "selector": _LABEL_SELECTOR,
                        },
                        "name",
                        "selector",
                    ),
                    "Sets of pods.",
                    "name",
                )
                | {"maxItems": 200},
                "calls": shapes.keyed(
                    shapes.record(
                        {
                            "from": shapes.text("The workload that calls.", maxLength=63),
                            "to": shapes.text("The workload that is called.", maxLength=63),
                            "weight": shapes.count(
                                "How much it matters that they are near, beside other calls.",
                                default=1, minimum=1, maximum=100000,
                            ),
                            "maxLatencyMs": {
                                **_LATENCY,
                                "description": "A pod goes only where the pods at the other end"
                                " are no farther than this on average.",
                            },
                            "minBandwidth": {
                                **_BITS,
                                "description": "What each calling pod needs, in bits per second.",
                            },
                        },
                        "from",
                        "to",
                    ),
                    "Who calls whom.",
                    "from",
                    "to",
                )
                | {"maxItems": 500},
            },
            "workloads",
            "calls",
            **_rule(
                "self.calls.all(c, self.workloads.exists(w, w.name == c.from)"
                " && self.workloads.exists(w, w.name == c.to))",
                "every call must name workloads of this graph",
            ),
        )
    },
    "spec",
)  # fmt: skip
