"""Rules by which a Prometheus records what nodes use, from node_exporter's series.

The real-usage scorers ask for averages over five minutes, LoadAware and Overcommit for the figures
of the moment. All are percentages per node; the label `node` must be the name of the Node, which is
a matter of how node_exporter is scraped.

CPU is everything but idle time, not user time alone; memory is what is neither free nor cache.
HTTP requests are counted by whoever serves them: of a counter that the user names, the rate per
node is recorded as a share of what a node can serve.
"""

from dataclasses import dataclass
from typing import Any

GROUP = "motley-node-usage"
MEMORY, CPU = "node_mem_usage", "node_cpu_usage"
HTTP_REQUESTS = "node_http_requests_percent"


@dataclass(frozen=True)
class HttpRequests:
    """A counter of requests with the label `node`, and how many a second are all a node can do."""

    counter: str
    per_node_max: float


def rules(
    *,
    window: str = "5m",
    step: str = "1m",
    rate: str = "1m",
    http_requests: HttpRequests | None = None,
) -> Any:
    """The document for `rule_files`.

    `window` and `step`: over how long, and how densely, the averages are made; `rate`: over how
    long CPU time, and requests, are compared.
    """
    unused = "node_memory_Buffers_bytes + node_memory_Cached_bytes + node_memory_MemFree_bytes"
    memory = f"(1 - ({unused}) / node_memory_MemTotal_bytes) * 100"
    idle = f'avg by (node) (rate(node_cpu_seconds_total{{mode="idle",node!=""}}[{rate}]))'
    recorded = [
        # A Prometheus that scrapes a node twice says the same twice.
        _record(MEMORY, f"max by (node) ({memory})"),
        _record(f"{MEMORY}_avg_5m", f"avg_over_time({MEMORY}[{window}:{step}])"),
        _record(CPU, f"(1 - {idle}) * 100"),
        _record(f"{CPU}_avg_5m", f"avg_over_time({CPU}[{window}:{step}])"),
    ]
    if http_requests is not None:
        served = f'sum by (node) (rate({http_requests.counter}{{node!=""}}[{rate}]))'
        share = f"{served} * 100 / {http_requests.per_node_max:.12g}"
        # A node with nobody who counts requests serves none: it must not look unknown.
        recorded.append(_record(HTTP_REQUESTS, f"{share} or {CPU} * 0"))
    return {"groups": [{"name": GROUP, "rules": recorded}]}


def custom_resource(document: Any, *, namespace: str) -> Any:
    """The same as the Prometheus Operator's object."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": GROUP, "namespace": namespace},
        "spec": document,
    }


def _record(name: str, expression: str) -> dict[str, str]:
    return {"record": name, "expr": expression}
