"""Questions about one pod, answered by asking every filter on its own.

The cycle stops at the first filter that rejects a node, which is quick and says what counts. Who
wants to know what would help needs more: every filter that is against a node, by how much a node
is too small, which taint is in the way. Pure: values in, values out; nothing here is on the
scheduling path.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from motley.scheduler.columns import PODS_ROW, Columns, Mask
from motley.scheduler.contract import SKIP, ExplainsRejection, PodInfo, Reject, Scores
from motley.scheduler.cycle import Cycle
from motley.scheduler.facts import TaintKey
from motley.scheduler.nominations import Nominations
from motley.scheduler.plugins.taint_toleration import tolerates

_CORDON = "node.kubernetes.io/unschedulable"
_NAMED = 3  # nodes that a suggestion names


@dataclass(frozen=True, slots=True)
class Objection:
    """A filter that is against a node, and why."""

    plugin: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """A node that would do beside the one that is best."""

    place: int  # 1: nothing is better
    feasible: int
    scores: Mapping[str, float]  # weighted, by plugin
    best_node: str
    best_scores: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class WhyNot:
    """One node's side of a decision."""

    node: str
    objections: tuple[Objection, ...]  # in the order the filters are asked
    comparison: Comparison | None = None  # None: the node will not do


@dataclass(slots=True)
class _Answers:
    """What every filter says of every node, whatever the others say."""

    live: Mask
    against: dict[str, Mask] = field(default_factory=dict)  # plugin → rows
    narrowed: dict[str, Mask] = field(default_factory=dict)  # of those, by its PreFilter
    refused: dict[str, str] = field(default_factory=dict)  # plugin → why no node will do

    def feasible(self) -> Mask:
        mask = self.live.copy()
        for rows in self.against.values():
            mask &= ~rows
        return mask


def why_not(
    cycle: Cycle, nominations: Nominations, pod: PodInfo, node: str, chosen: str = ""
) -> WhyNot:
    """Why the pod is not on this node: all that is against it, or by how much it is worse.

    `chosen`: compare with this node where it would do, else with the best. KeyError: no such node.
    """
    row = cycle.nodes.rows[node]
    with nominations.seen_by(pod):
        answers = _ask(cycle, pod)
        objections = tuple(_objections(cycle, pod, answers, row))
        if objections:
            return WhyNot(node, objections)
        feasible = answers.feasible()
        scored = cycle.score(pod, feasible)
    total = scored.total if scored.total is not None else np.zeros(cycle.nodes.size)
    best = cycle.nodes.rows.get(chosen, -1)
    if best < 0 or not feasible[best]:
        best = int(np.argmax(np.where(feasible, total, -np.inf)))
    comparison = Comparison(
        place=1 + int(np.count_nonzero(total[feasible] > total[row])),
        feasible=int(np.count_nonzero(feasible)),
        scores=_at(scored.scores, row),
        best_node=cycle.nodes.names[best],
        best_scores=_at(scored.scores, best),
    )
    return WhyNot(node, (), comparison)


def _at(scores: Mapping[str, Scores], row: int) -> dict[str, float]:
    return {plugin: float(values[row]) for plugin, values in scores.items()}


def _ask(cycle: Cycle, pod: PodInfo) -> _Answers:
    nodes = cycle.nodes
    pod.state.clear()
    answers = _Answers(nodes.live.copy())
    idle: set[str] = set()
    for plugin in cycle.profile.pre_filter:
        answer = plugin.pre_filter(pod, nodes)
        if answer is SKIP:
            idle.add(plugin.name)
        elif isinstance(answer, Reject):
            answers.refused[plugin.name] = answer.reason
            answers.against[plugin.name] = nodes.live.copy()
            idle.add(plugin.name)
        elif answer is not None:
            outside = nodes.live & ~answer
            answers.narrowed[plugin.name] = answers.against[plugin.name] = outside
    for plugin in cycle.profile.filter:
        if plugin.name not in idle:
            rows = nodes.live & ~plugin.filter(pod, nodes)
            before = answers.against.get(plugin.name)
            answers.against[plugin.name] = rows if before is None else rows | before
    return answers


def _objections(cycle: Cycle, pod: PodInfo, answers: _Answers, row: int) -> Iterator[Objection]:
    nodes = cycle.nodes
    only = np.zeros(nodes.size, np.bool_)
    only[row] = True
    filters = {plugin.name: plugin for plugin in cycle.profile.filter}
    # A PreFilter that narrows is asked before any filter.
    names = [*answers.narrowed, *answers.refused]
    names += [name for name in filters if name not in names]
    for name in names:
        rows = answers.against.get(name)
        if rows is None or not rows[row]:
            continue
        if name in answers.refused:
            yield Objection(name, (answers.refused[name],))
        elif name not in filters or (name in answers.narrowed and answers.narrowed[name][row]):
            yield Objection(name, (f"node(s) didn't satisfy plugin(s) [{name}]",))
        else:
            yield Objection(name, tuple(_reasons(cycle, pod, name, only)))


# -- what would help ------------------------------------------------------------------------


def suggestions(cycle: Cycle, nominations: Nominations, pod: PodInfo) -> list[str]:
    """What would make the pod fit, the most promising first; empty: it fits."""
    if pod.gates:
        return [f"The pod is held back: remove its scheduling gate {g}." for g in pod.gates]
    if not cycle.nodes.count:
        return ["There are no nodes."]
    with nominations.seen_by(pod):
        answers = _ask(cycle, pod)
        if answers.feasible().any():
            return []
        if answers.refused:
            return [f"No node will do: {why} ({name})." for name, why in answers.refused.items()]
        found = list(_only_obstacles(cycle, pod, answers))
        found += _selectors(cycle.nodes, pod, answers)
        return found or _fewest(cycle.nodes, answers)


def _only_obstacles(cycle: Cycle, pod: PodInfo, answers: _Answers) -> Iterator[str]:
    """Nodes that a single filter is against."""
    _merge_cordons(cycle.nodes, pod, answers)
    against = np.sum(list(answers.against.values()), axis=0)
    near = {name: rows & (against == 1) for name, rows in answers.against.items()}
    for name, rows in sorted(near.items(), key=lambda item: -int(np.count_nonzero(item[1]))):
        if not rows.any():
            continue
        match name:
            case "NodeResourcesFit":
                yield from _room(cycle.nodes, pod, rows)
            case "TaintToleration":
                yield from _taints(cycle.nodes, pod, rows)
            case "NodeUnschedulable":
                listed = " ".join(_names(cycle.nodes, rows))
                yield f"{_some(rows)} would do if uncordoned: kubectl uncordon {listed}"
            case _:
                reasons = _reasons(cycle, pod, name, rows)
                yield f"{_some(rows)} would do but for {name}: {', '.join(reasons)}."


def _merge_cordons(nodes: Columns, pod: PodInfo, answers: _Answers) -> None:
    """A cordoned node has a taint that goes with the cordon: one obstacle, not two."""
    cordoned = answers.against.get("NodeUnschedulable")
    tainted = answers.against.get("TaintToleration")
    if cordoned is None or tainted is None:
        return
    for row in np.flatnonzero(cordoned & tainted).tolist():
        hard = _untolerated(nodes, pod, row)
        tainted[row] = any(taint.key != _CORDON for taint in hard)


def _untolerated(nodes: Columns, pod: PodInfo, row: int) -> list[TaintKey]:
    taints = nodes.facts[nodes.names[row]].taints
    return [t for t in taints if t.effect != "PreferNoSchedule" and not tolerates(pod, t)]


def _room(nodes: Columns, pod: PodInfo, rows: Mask) -> Iterator[str]:
    """By the resources that lack: on how many nodes, and how much on the best of them."""
    lacking: dict[str, Scores] = {}
    for name, wanted in [*pod.requests.items(), ("pods", 1)]:
        resource = PODS_ROW if name == "pods" else nodes.resource(name)
        if resource is None:
            lacking[name] = np.full(nodes.size, float(wanted))
        else:
            free = nodes.allocatable[resource] - nodes.requested[resource]
            lacking[name] = np.maximum(wanted - free, 0.0)
    kinds: dict[tuple[str, ...], list[int]] = {}
    for row in np.flatnonzero(rows).tolist():
        kinds.setdefault(tuple(n for n, lack in lacking.items() if lack[row] > 0), []).append(row)
    for names, where in sorted(kinds.items(), key=lambda item: -len(item[1])):
        if not names:
            continue
        best = min(where, key=lambda row: lacking[names[0]][row])
        amounts = " and ".join(f"{amount(n, lacking[n][best])} {n}" for n in names)
        more = "lacks" if len(where) == 1 else "lack"
        yield f"{_count(len(where))} {more} {', '.join(names)}: {nodes.names[best]} only {amounts}."


def amount(resource: str, value: float) -> str:
    """An amount as people write it, rounded up."""
    whole = int(np.ceil(value))
    if resource == "cpu":
        return f"{whole}m" if whole % 1000 else str(whole // 1000)
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        for unit, size in (("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)):
            if whole >= size:
                scaled = np.ceil(whole * 10 / size) / 10
                return f"{scaled:g}{unit}"
    return str(whole)


def _taints(nodes: Columns, pod: PodInfo, rows: Mask) -> Iterator[str]:
    counts: Counter[str] = Counter()
    for row in np.flatnonzero(rows).tolist():
        hard = _untolerated(nodes, pod, row)
        written = [f"{t.key}{'=' if t.value else ''}{t.value}:{t.effect}" for t in hard]
        counts[", ".join(written)] += 1
    for taint, count in counts.most_common():
        yield f"{_count(count)} would do if the pod tolerated {taint}."


def _selectors(nodes: Columns, pod: PodInfo, answers: _Answers) -> Iterator[str]:
    """Labels of the node selector that no node has."""
    rows = answers.against.get("NodeAffinity")
    if rows is None or not rows.any():
        return
    for key, value in pod.pod.spec.node_selector.items():
        number = nodes.values.find(value)
        if number <= 0 or not (nodes.label(key) == number)[nodes.live].any():
            yield f"No node has the label {key}={value} that the pod's nodeSelector asks for."


def _fewest(nodes: Columns, answers: _Answers) -> list[str]:
    """No filter alone is to blame: where the fewest are against."""
    against = np.sum(list(answers.against.values()), axis=0)
    fewest = int(against[nodes.live].min())
    rows = nodes.live & (against == fewest)
    row = int(np.flatnonzero(rows)[0])
    names = [name for name, there in answers.against.items() if there[row]]
    return [
        f"At least {fewest} filters are against every node; nearest is {nodes.names[row]}: "
        f"{', '.join(names)}."
    ]


def _reasons(cycle: Cycle, pod: PodInfo, name: str, rows: Mask) -> Iterable[str]:
    plugin = next((p for p in cycle.profile.filter if p.name == name), None)
    if plugin is None:
        return [f"didn't satisfy plugin {name}"]
    general: str = plugin.reason
    if isinstance(plugin, ExplainsRejection):
        return list(plugin.explain(pod, cycle.nodes, rows)) or [general]
    return [general]


def _names(nodes: Columns, rows: Mask) -> list[str]:
    return [nodes.names[row] for row in np.flatnonzero(rows).tolist()[:_NAMED]]


def _some(rows: Mask) -> str:
    return _count(int(np.count_nonzero(rows)))


def _count(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
