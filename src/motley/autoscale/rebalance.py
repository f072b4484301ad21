"""Which pods to move off hot nodes, and why not the others. Pure.

A node is hot when it uses more of a resource than the high threshold. Pods leave it one by one,
the least important and then the busiest first, until it is expected to be at the middle again. A
move is planned only where another node would take the pod and stay clearly cooler than the hot node
is now; where it will really go is the scheduler's business.

CPU moves in work: on a node of half the speed a pod takes twice the cores.

Invariant: no pod without a controller, of a DaemonSet, with critical priority or beyond a budget
(disruptions allowed, moves per round, per node and per workload, rest since the last move) is ever
moved; every pod of a hot node is either in a move or in a refusal with its reason.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

CRITICAL = 2_000_000_000  # system-cluster-critical
RESOURCES = ("cpu", "memory")


class Amount(NamedTuple):
    """Cores and bytes."""

    cpu: float = 0.0
    memory: float = 0.0

    def plus(self, other: "Amount") -> "Amount":
        """The sum."""
        return Amount(self.cpu + other.cpu, self.memory + other.memory)

    def minus(self, other: "Amount") -> "Amount":
        """What is left."""
        return Amount(self.cpu - other.cpu, self.memory - other.memory)


NOTHING = Amount()


@dataclass(frozen=True)
class Node:
    """What a node has, uses and has promised."""

    name: str
    capacity: Amount
    used: Amount
    requested: Amount = NOTHING
    speed: float = 1.0
    takes_pods: bool = True  # ready and not cordoned
    promisable: Amount | None = None  # what may be requested of it, if not its capacity

    def share(self, used: Amount, resource: str) -> float:
        """How much of a resource that would be."""
        whole: float = getattr(self.capacity, resource)
        return getattr(used, resource) / whole if whole else 0.0


@dataclass(frozen=True)
class Pod:
    """A pod on a node, and what is known against moving it."""

    namespace: str
    name: str
    node: str
    used: Amount
    requested: Amount = NOTHING
    workload: str = ""  # kind/name; empty: nobody would make it anew
    priority: int = 0
    budgets: tuple[str, ...] = ()  # the names of the disruption budgets that count it
    objection: str = ""  # any other reason to leave it alone

    @property
    def key(self) -> str:
        """As people name it."""
        return f"{self.namespace}/{self.name}"

    @property
    def group(self) -> str:
        """Its workload among all."""
        return f"{self.namespace}/{self.workload}"


@dataclass(frozen=True)
class Settings:
    """What an operator may choose; shares of what a node has."""

    high: Mapping[str, float] = field(default_factory=lambda: {"cpu": 0.8, "memory": 0.8})
    middle: Mapping[str, float] = field(default_factory=lambda: {"cpu": 0.65, "memory": 0.65})
    gain: float = 0.1  # by how much cooler the other node must stay
    per_round: int = 5
    per_node: int = 2
    per_workload: int = 1
    rest_s: float = 600.0
    every_s: float = 120.0

    def __post_init__(self) -> None:
        """Raises ValueError where the thresholds contradict each other."""
        for name in RESOURCES:
            if not 0 < self.middle[name] <= self.high[name] <= 1:
                raise ValueError(f"{name}: 0 < middle <= high <= 1 does not hold")


class Move(NamedTuple):
    """A pod to evict, and where it could go."""

    pod: Pod
    to: str
    reason: str


class Refusal(NamedTuple):
    """A pod of a hot node that stays."""

    pod: Pod
    reason: str


@dataclass
class Plan:
    """What to do, and what not."""

    hot: dict[str, str] = field(default_factory=dict)  # node: what is too much
    moves: list[Move] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)


Fits = Callable[[Pod, Node], str]
"""Why a pod may not run on a node at all (selectors, taints); empty: it may."""


@dataclass
class _State:
    """The world as it will be after the moves so far."""

    used: dict[str, Amount]
    requested: dict[str, Amount]
    budgets: dict[str, int]
    moved: Counter[str] = field(default_factory=Counter)
    # Nodes that might take a pod, and why the others take none: asked for every pod there is.
    open: dict[str, Node] = field(default_factory=dict)
    closed: dict[str, str] = field(default_factory=dict)
    refusing: Counter[str] = field(default_factory=Counter)  # how many of them, by reason

    def note(self, node: Node, settings: Settings) -> None:
        """See whether a node could take any pod at all."""
        why = "" if node.takes_pods else "take no pods"
        if not why and (over := _over(node, self.used[node.name], settings.middle)):
            why = _above(over[0], settings)
        self.open.pop(node.name, None)
        if before := self.closed.pop(node.name, ""):
            self.refusing[before] -= 1
        if why:
            self.closed[node.name] = why
            self.refusing[why] += 1
        else:
            self.open[node.name] = node


def plan(
    nodes: Sequence[Node],
    pods: Sequence[Pod],
    budgets: Mapping[str, int],
    settings: Settings,
    rested: Mapping[str, float],
    now: float,
    fits: Fits,
) -> Plan:
    """One round. `budgets`: disruptions allowed, by name; `rested`: when pods of a workload or of a
    node were last moved, by `Pod.group` and by the node's name."""
    found = Plan()
    state = _State(
        {n.name: n.used for n in nodes},
        {n.name: n.requested for n in nodes},
        dict(budgets),
    )
    for node in nodes:
        state.note(node, settings)
    theirs: dict[str, list[Pod]] = {}
    for pod in pods:
        theirs.setdefault(pod.node, []).append(pod)
    for node in sorted(nodes, key=lambda n: -_heat(n, n.used, settings)):
        over = _over(node, node.used, settings.high)
        if not over:
            break
        found.hot[node.name] = "; ".join(
            f"{r} at {node.share(node.used, r):.0%}, threshold {settings.high[r]:.0%}" for r in over
        )
        # What is too much decides who leaves first.
        leaving = theirs.get(node.name, [])
        leaving.sort(key=lambda p: (p.priority, -max(node.share(p.used, r) for r in over), p.key))
        for pod in leaving:
            if why := _objection(pod, node, state, settings, rested, now, found):
                found.refusals.append(Refusal(pod, why))
                continue
            target, why = _target(pod, node, state, settings, over, fits)
            if target is None:
                found.refusals.append(Refusal(pod, why))
                continue
            _carry(pod, node, target, state)
            for changed in (node, target):
                state.note(changed, settings)
            found.moves.append(Move(pod, target.name, why))
    return found


def _heat(node: Node, used: Amount, settings: Settings) -> float:
    return max(node.share(used, r) / settings.high[r] for r in RESOURCES)


def _over(node: Node, used: Amount, bounds: Mapping[str, float]) -> list[str]:
    return [r for r in RESOURCES if node.share(used, r) > bounds[r]]


def _objection(
    pod: Pod,
    node: Node,
    state: _State,
    settings: Settings,
    rested: Mapping[str, float],
    now: float,
    found: Plan,
) -> str:
    """Why this pod stays, wherever it could go."""
    if not pod.workload:
        return "no controller would make it anew"
    if pod.workload.startswith("DaemonSet/"):
        return "a DaemonSet's pod belongs to its node"
    if pod.priority >= CRITICAL:
        return "its priority is critical"
    if pod.objection:
        return pod.objection
    if not _over(node, state.used[node.name], settings.middle):
        return "the node will be cool enough without it"
    for what, key in (("node", node.name), ("workload", pod.group)):
        if key in rested and now - rested[key] < settings.rest_s:
            left_s = settings.rest_s - (now - rested[key])
            return f"the {what} rests after its last move for another {left_s:.0f} s"
    if len(found.moves) >= settings.per_round:
        return f"this round has its {settings.per_round} moves"
    if state.moved[node.name] >= settings.per_node:
        return f"the node has its {settings.per_node} moves of this round"
    if state.moved[pod.group] >= settings.per_workload:
        return f"its workload has its {settings.per_workload} moves of this round"
    if len(pod.budgets) > 1:
        return "more than one disruption budget counts it: it cannot be evicted"
    spent = [name for name in pod.budgets if state.budgets.get(name, 0) <= 0]
    if spent:
        return f"disruption budget {spent[0]} allows no more"
    return ""


def _target(
    pod: Pod, source: Node, state: _State, settings: Settings, over: Sequence[str], fits: Fits
) -> tuple[Node | None, str]:
    """The coolest node that takes the pod, with the reason for the move or for its absence."""
    best: tuple[float, Node] | None = None
    reasons: Counter[str] = Counter()
    heat = max(source.share(state.used[source.name], r) for r in over)
    for node in state.open.values():
        if node.name == source.name:
            continue
        after = state.used[node.name].plus(_there(pod, source, node))
        reached = max(node.share(after, r) for r in over)
        why = _full(pod, node, after, state, settings)
        if not why and reached + settings.gain > heat:
            why = "would not be clearly cooler"
        if why := why or fits(pod, node):
            reasons[why] += 1
        elif best is None or (reached, node.name) < (best[0], best[1].name):
            best = (reached, node)
    if best is None:
        reasons += state.refusing
        if source.name in state.closed:
            reasons[state.closed[source.name]] -= 1
        listed = ", ".join(f"{n} node(s) {why}" for why, n in sorted((+reasons).items()))
        return None, f"nowhere is better: {listed or 'there is no other node'}"
    name = over[0]
    gone = source.share(pod.used, name)
    return best[1], (
        f"takes {gone:.0%} of the {name} of {source.name};"
        f" {best[1].name} would be at {best[0]:.0%} with it"
    )


def _there(pod: Pod, source: Node, node: Node) -> Amount:
    return Amount(pod.used.cpu * source.speed / node.speed, pod.used.memory)


def _full(pod: Pod, node: Node, after: Amount, state: _State, settings: Settings) -> str:
    promised = state.requested[node.name].plus(pod.requested)
    for name in RESOURCES:
        if getattr(promised, name) > getattr(node.promisable or node.capacity, name):
            return f"have too little {name} left to request"
    if over := _over(node, after, settings.middle):
        return _above(over[0], settings)
    return ""


def _above(resource: str, settings: Settings) -> str:
    return f"would be above {settings.middle[resource]:.0%} of {resource}"


def _carry(pod: Pod, source: Node, target: Node, state: _State) -> None:
    state.used[source.name] = state.used[source.name].minus(pod.used)
    state.used[target.name] = state.used[target.name].plus(_there(pod, source, target))
    state.requested[source.name] = state.requested[source.name].minus(pod.requested)
    state.requested[target.name] = state.requested[target.name].plus(pod.requested)
    state.moved[source.name] += 1
    state.moved[pod.group] += 1
    for name in pod.budgets:
        state.budgets[name] = state.budgets.get(name, 0) - 1
