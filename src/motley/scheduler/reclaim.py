"""Which pods must go so that a namespace gets what its quota guarantees.

As `preemption`, but who may be ended depends on the quotas, and so does when it is enough: a pod
can be refused although there is room. Only nodes with such pods come into question, and
only some of them are looked at closely, one by one: a reclaim is rare.

    take out whoever may go, least important first  →  does the pod fit, and do the quotas allow it?
    put them back one by one, most important first  →  who cannot come back is a victim

Invariant: whatever happens, columns and quotas are afterwards as they were.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from motley.scheduler.budgets import Budgets
from motley.scheduler.candidates import Candidate, by_importance
from motley.scheduler.columns import Columns, Mask, PlacedPod
from motley.scheduler.elastic import Absent, ElasticQuotas
from motley.scheduler.preemption import Search, Trial

_CLOSE_LOOKS = 32  # nodes tried out
_ENOUGH = 8  # candidates among which the best is taken

MayGo = Callable[[PlacedPod], bool]


def search(
    trial: Trial,
    potential: Mask,
    victims: Mapping[str, list[PlacedPod]],
    quotas: ElasticQuotas,
    budgets: Budgets,
    *,
    may_go: MayGo,
    suffices: Callable[[], bool],
) -> Search:
    """Look for room on rows in `potential` where there are `victims`, by node.

    `may_go` is asked again before each pod is taken out, because those before it may have paid
    back all that was borrowed; `suffices`: do the quotas allow the pod now?
    """
    found = Search()
    nodes = trial.nodes
    rows = [nodes.rows[node] for node in victims if node in nodes.rows]
    rows = [row for row in rows if potential[row]]
    rows.sort(key=lambda row: _promise(victims[nodes.names[row]]))
    for row in rows[:_CLOSE_LOOKS]:
        if len(found.candidates) >= _ENOUGH:
            break
        there = victims[nodes.names[row]]
        candidate = _try_out(trial, row, there, quotas, budgets, may_go, suffices)
        found.tried_out += 1
        if candidate is not None:
            found.candidates.append(candidate)
    return found


def _promise(victims: list[PlacedPod]) -> tuple[int, int]:
    return min(placed.info.priority for placed in victims), -len(victims)


def _try_out(
    trial: Trial,
    row: int,
    victims: list[PlacedPod],
    quotas: ElasticQuotas,
    budgets: Budgets,
    may_go: MayGo,
    suffices: Callable[[], bool],
) -> Candidate | None:
    order = _in_order(by_importance(victims), budgets)
    with _absences(trial.nodes, quotas) as absent:
        taken = []
        for placed, violates in reversed(order):
            if may_go(placed):
                absent.take(placed)
                taken.append((placed, violates))
        if not taken or not suffices() or not trial.ask()[0][row]:
            return None
        chosen = []
        for placed, violates in reversed(taken):
            absent.put_back(placed)
            if not (suffices() and trial.ask()[0][row]):
                absent.take(placed)
                chosen.append((placed, violates))
    if not chosen:
        return None
    gone = tuple(by_importance(placed for placed, _ in chosen))
    return Candidate(trial.nodes.names[row], gone, sum(violates for _, violates in chosen))


def _in_order(pods: list[PlacedPod], budgets: Budgets) -> list[tuple[PlacedPod, bool]]:
    """Who goes last and comes back first: pods whose end would violate a budget, then the
    important ones."""
    if not budgets:
        return [(placed, False) for placed in pods]
    violations = budgets.violated_by(placed.info.pod for placed in pods)
    return sorted(zip(pods, violations, strict=True), key=lambda entry: not entry[1])


class _Absences:
    """Pods taken out of columns and quotas for the time of a question."""

    def __init__(self, nodes: Columns, quotas: ElasticQuotas) -> None:
        self._nodes = nodes
        self._quotas = quotas
        self._taken: dict[str, tuple[PlacedPod, Absent | None]] = {}

    def take(self, placed: PlacedPod) -> None:
        """Count the pod no longer."""
        uid = placed.info.uid
        self._nodes.remove_pod(uid)
        self._taken[uid] = (placed, self._quotas.remove(uid))

    def put_back(self, placed: PlacedPod) -> None:
        """Count it again, as it was."""
        _, absent = self._taken.pop(placed.info.uid)
        self._nodes.add_pod(placed.info, placed.node, assumed=placed.assumed)
        if absent is not None:
            self._quotas.put_back(absent)

    def end(self) -> None:
        """Put everybody back."""
        for placed, _ in list(self._taken.values()):
            self.put_back(placed)


@contextmanager
def _absences(nodes: Columns, quotas: ElasticQuotas) -> Iterator[_Absences]:
    absent = _Absences(nodes, quotas)
    try:
        yield absent
    finally:
        absent.end()


def by_node(placed: Iterable[PlacedPod]) -> dict[str, list[PlacedPod]]:
    """Pods sorted into their nodes."""
    found: dict[str, list[PlacedPod]] = {}
    for one in placed:
        found.setdefault(one.node, []).append(one)
    return found
