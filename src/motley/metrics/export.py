"""The same figures for a Prometheus: as text to scrape, and as points to send. Pure.

CPU is there twice, as it was measured and in cores of speed 1; sums over unlike nodes mean
something only in the second. A pod's series carries its node and its workload, so that it can be
summed by either without a join.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from motley.metrics.history import NODE, POD, Sample, Series
from motley.metrics.history_rollup import Facts

_ABOUT = {
    "cpu_usage_cores": "CPU in use, in cores.",
    "cpu_usage_normalized_cores": "CPU in use, in cores of speed 1.",
    "memory_working_set_bytes": "Memory in use.",
    "speed": "How much a core of the node does.",
}
_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Point(NamedTuple):
    """One figure, with its labels in the order of their names."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


def points(
    samples: Mapping[Series, Sample], facts: Facts, speeds: Mapping[str, float]
) -> Iterator[Point]:
    """Of every node and every container; the use of workloads is the sum of it."""
    for series, sample in samples.items():
        if series.kind == NODE:
            prefix, labels = "motley_node", {"node": series.name}
        elif series.kind == POD:
            prefix, labels = "motley_container", _labels(series, facts)
        else:
            continue
        listed = tuple(sorted(labels.items()))
        yield Point(f"{prefix}_cpu_usage_cores", listed, sample.cpu)
        yield Point(f"{prefix}_cpu_usage_normalized_cores", listed, sample.cpu_normalized)
        yield Point(f"{prefix}_memory_working_set_bytes", listed, sample.memory)
    for node, speed in speeds.items():
        yield Point("motley_node_speed", (("node", node),), speed)


def _labels(series: Series, facts: Facts) -> dict[str, str]:
    labels = {"container": series.container, "namespace": series.namespace, "pod": series.name}
    fact = facts.get((series.namespace, series.name))
    if fact is not None:
        labels["node"] = fact.node
        if fact.owner is not None:
            labels |= {"workload": fact.owner.name, "workload_kind": fact.owner.kind}
    return labels


def text(listed: Iterable[Point], at: float) -> str:
    """Prometheus' text format; figures carry the moment they were measured at."""
    by_name: dict[str, list[Point]] = {}
    for point in listed:
        by_name.setdefault(point.name, []).append(point)
    lines = []
    for name in sorted(by_name):
        about = next(a for end, a in _ABOUT.items() if name.endswith(end))
        lines += [f"# HELP {name} {about}", f"# TYPE {name} gauge"]
        for point in by_name[name]:
            labels = ",".join(f'{k}="{v.translate(_ESCAPED)}"' for k, v in point.labels)
            lines.append(f"{name}{{{labels}}} {point.value:.12g} {int(at * 1000)}")
    return "\n".join([*lines, ""])
