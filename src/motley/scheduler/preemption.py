"""Which pods must go so that a more important one can run.

    every node, in columns   would there be room without anything below the pod's priority, and
                             up to which priority must pods go?
    the most promising       pods taken out, then put back one by one, most important first,
                             wherever the pod still fits: who cannot come back is a victim

Many nodes are tried out in one go: a step puts one pod back on each of them and asks once. That
is done without touching the columns (`lineup`) as far as filters can tell what would be. Where
one has a say that cannot, pods are really taken out, and all filters are asked about the nodes
that look best, one by one if a filter looks beyond a node.

Invariant: whatever happens, the columns are afterwards as they were.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Protocol

import numpy as np
import numpy.typing as npt

from motley.scheduler.budgets import Budgets
from motley.scheduler.candidates import Candidate, Known, by_importance
from motley.scheduler.columns import PODS_ROW, Columns, Mask, PlacedPod
from motley.scheduler.lineup import Gone, Lineup, Lower
from motley.scheduler.nominations import is_stand_in
from motley.scheduler.podinfo import PodInfo

NOT_HELPFUL = "Preemption is not helpful for scheduling"
NO_VICTIMS = "No preemption victims found for incoming pod"

_FIRST_LOOK = 16  # nodes looked at together at first; then as many as are enough, or twice as many
_AHEAD = 64  # nodes looked at for the pods of the same template that come next
_NEVER = float("inf")
_NO_BUDGETS = Budgets()


class Trial(Protocol):
    """How the filters are asked again; see `motley.scheduler.trial`."""

    @property
    def nodes(self) -> Columns:
        """The columns they look at."""

    @property
    def pod(self) -> PodInfo:
        """The pod they are asked about."""

    @property
    def is_local(self) -> bool:
        """Does no filter look beyond a node and the pods on it?"""

    @property
    def is_simple(self) -> bool:
        """Do all filters look at nodes and at sums of requests only?"""

    @property
    def is_lasting(self) -> bool:
        """Is what they say of a node true until it or the pods on it change?"""

    def unsuited(self, rows: Mask) -> dict[str, Mask]:
        """Per filter that looks at nodes only, which of these rows it was the first to reject."""

    def hopeless(self, rejected_by: Mapping[str, Mask]) -> Mask:
        """Rows whose first rejection no removal of pods can lift."""

    def has_room(self) -> Mask:
        """Only the filters that look at sums of requests."""

    def explain_room(self, rows: Mask) -> Counter[str]:
        """Why `has_room` says no for these rows, counted."""

    @property
    def in_columns(self) -> bool:
        """Can all filters tell in columns what pods' leaving would do?"""

    def ask_vacated(self, gone: Gone) -> tuple[Mask, dict[str, Mask]]:
        """The filters that can tell in columns, as if pods had left, each row its own.

        Sums of requests are looked at as they are.
        """

    def explain_vacated(self, rejected: Mapping[str, Mask], gone: Gone) -> Counter[str]:
        """Reasons with counts, right after `ask_vacated`."""

    def ask(self) -> tuple[Mask, dict[str, Mask]]:
        """All filters: where the pod fits, and who rejects it elsewhere."""

    def explain(self, rejected: Mapping[str, Mask]) -> Counter[str]:
        """Reasons with counts, right after `ask`."""


# -- candidates -----------------------------------------------------------------------------


@dataclass(slots=True)
class Search:
    """What a search found: candidates, and why the other nodes are none."""

    candidates: list[Candidate] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    tried_out: int = 0  # nodes that all filters were asked about

    @property
    def best(self) -> Candidate | None:
        """The node whose victims are missed least."""
        return min(self.candidates, key=attrgetter("rank"), default=None)


def search(
    trial: Trial, potential: Mask, budgets: Budgets, *, enough: int, known: Known | None = None
) -> Search:
    """Look for room on the rows in `potential`; `enough`: how many nodes to look at closely.

    Nodes are taken in the order of the highest priority that must go there at least, so that
    stopping early loses little, and nothing where the next node could only be worse. `known` is
    what was found for pods of the same template before, and is added to.
    """
    if budgets or not trial.is_lasting:
        known = None  # what is spent of a budget on one node counts on all
    found = Search()
    if not potential.any():
        return found  # perhaps not all plugins have even seen the pod
    potential = _inhabited(trial, potential, found.reasons)
    unsuited = trial.unsuited(potential)
    found.reasons.update(trial.explain(unsuited))
    for mask in unsuited.values():
        potential = potential & ~mask
    rows, bounds = _promising(trial, potential, found.reasons)
    position, size = 0, _FIRST_LOOK
    while position < len(rows):
        best = found.best
        if best is not None and _settled(best, float(bounds[position]), position >= enough):
            break
        span = slice(position, position + size)
        if known is None:
            victims = _line_up(trial, rows[span].tolist(), bounds[span].tolist(), budgets, found)
        else:
            victims = _looked_at(trial, rows, bounds, span, found, known)
        if trial.in_columns:
            found.candidates += [candidate for candidate in victims.values() if candidate.victims]
        else:
            _verify(trial, victims, budgets, found)
        position, size = position + size, max(enough - position - size, 2 * size)
    return found


def _inhabited(trial: Trial, potential: Mask, reasons: Counter[str]) -> Mask:
    """Rows with anybody less important; of the others no filter is asked, as in Kubernetes."""
    nodes = trial.nodes
    inhabited: Mask = potential & (nodes.ranks.pods_below(trial.pod.priority, nodes.size) > 0)
    barren = int(np.count_nonzero(potential & ~inhabited))
    if barren:
        reasons[NO_VICTIMS] += barren
    return inhabited


def _settled(best: Candidate, bound: float, is_enough: bool) -> bool:
    violations, highest, _, victims, _ = best.rank
    if violations:
        return False
    return is_enough or highest < bound or (victims == 1 and highest <= bound)


def _verify(trial: Trial, rough: Mapping[int, Candidate], budgets: Budgets, found: Search) -> None:
    """Ask all filters, of the nodes that look best first, until the others can hardly be better."""
    ranks = {row: candidate.rank for row, candidate in rough.items()}
    rows = sorted(rough, key=lambda row: ranks[row])
    size = _FIRST_LOOK if trial.is_local else 1
    for position in range(0, len(rows), size):
        best = found.best
        looked = found.tried_out >= _FIRST_LOOK
        if best is not None and looked and best.rank <= ranks[rows[position]]:
            break
        _try_out(trial, rows[position : position + size], budgets, found)


def _promising(
    trial: Trial, potential: Mask, reasons: Counter[str]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float64]]:
    """Rows with room enough below the pod's priority, and the highest priority that must go."""
    nodes, priority = trial.nodes, trial.pod.priority
    left = potential.copy()
    bounds, number = np.full(nodes.size, _NEVER), np.zeros(nodes.size)
    with nodes.what_if() as requested:
        for level, amounts in nodes.ranks.below(priority):
            if not left.any():
                break
            estimate = _how_many(trial, amounts)
            requested[: amounts.shape[0], : amounts.shape[1]] -= amounts
            roomy = left & trial.has_room()
            bounds[roomy], number[roomy] = level, estimate[roomy]
            left &= ~roomy
        if left.any():
            reasons.update(trial.explain_room(left))
    if not trial.is_simple:
        bounds[_in_vain(trial, bounds < _NEVER, reasons)] = _NEVER
    rows = np.flatnonzero(bounds < _NEVER)
    rows = rows[np.lexsort((number[rows], bounds[rows]))]
    return rows, bounds[rows]


def _in_vain(trial: Trial, roomy: Mask, reasons: Counter[str]) -> Mask:
    """Of the rows with room enough, those that are rejected even without anybody less important."""
    nodes, priority = trial.nodes, trial.pod.priority
    lower = Lower(nodes, priority)
    with nodes.what_if() as requested:
        for _, amounts in nodes.ranks.below(priority):
            requested[: amounts.shape[0], : amounts.shape[1]] -= amounts
        fits, rejected = trial.ask_vacated(lower)
        lost: Mask = roomy > fits
        refused = {name: mask & lost for name, mask in rejected.items()}
        reasons.update(trial.explain_vacated(refused, lower))
    return lost


def _how_many(trial: Trial, amounts: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """By row, about how many pods of this level must go: what lacks, in pods of mean size."""
    nodes = trial.nodes
    level = np.zeros((nodes.allocatable.shape[0], nodes.size))
    height, width = amounts.shape[0], min(amounts.shape[1], nodes.size)
    level[:height, :width] = amounts[:, :width]
    number = np.zeros(nodes.size)
    for name, wanted in (("pods", 1), *trial.pod.requests.items()):
        row = nodes.resource(name)
        if row is not None:
            lacking = nodes.requested[row] + wanted - nodes.allocatable[row]
            mean = level[row] / np.maximum(level[PODS_ROW], 1)
            np.maximum(number, np.ceil(lacking / np.maximum(mean, 1)), out=number)
    return number


def _lower(trial: Trial, row: int, bound: float = _NEVER) -> list[PlacedPod]:
    """The pods on a node that might have to go, up to a priority, most important first."""
    nodes, priority = trial.nodes, trial.pod.priority
    return by_importance(
        [
            placed
            for uid, placed in nodes.pods_on(nodes.names[row]).items()
            if placed.info.priority < priority
            and placed.info.priority <= bound
            and not is_stand_in(uid)
        ]
    )


def _looked_at(
    trial: Trial,
    rows: npt.NDArray[np.intp],
    bounds: npt.NDArray[np.float64],
    span: slice,
    found: Search,
    known: Known,
) -> dict[int, Candidate]:
    """The victims on the rows of a span; who is known is not looked at again."""
    wanted = rows[span].tolist()
    candidates = known.among(wanted)
    new = [span.start + i for i, row in enumerate(wanted) if row not in candidates]
    if not new:
        return candidates
    made = _line_up(trial, rows[new].tolist(), bounds[new].tolist(), _NO_BUDGETS, found)
    known.keep(made)
    if len(new) < _AHEAD:
        # Looking at many costs hardly more than at one: the next pods will want the next rows.
        ahead = slice(span.stop, span.stop + _AHEAD)
        some, limits = rows[ahead].tolist(), bounds[ahead].tolist()
        known.keep(_line_up(trial, some, limits, _NO_BUDGETS, Search()))
    candidates |= made
    return {row: candidates[row] for row in wanted if row in candidates}


def _line_up(
    trial: Trial, rows: Sequence[int], bounds: Sequence[float], budgets: Budgets, found: Search
) -> dict[int, Candidate]:
    """The victims on all these nodes together, as far as can be told in columns."""
    tried: dict[int, list[tuple[PlacedPod, bool]]] = {}
    for row, bound in zip(rows, bounds, strict=True):
        # Where only requests count, whoever is above the bound comes back in any case.
        limit = bound if trial.is_simple else _NEVER
        order = _in_order(_lower(trial, row, _NEVER if budgets else limit), budgets)
        if budgets and not any(violates for _, violates in order):
            order = [entry for entry in order if entry[0].info.priority <= limit]
        tried[row] = order
    nodes = trial.nodes
    with nodes.what_if() as requested:
        lineup = Lineup(nodes, tried, requested)
        fits, rejected = trial.ask_vacated(lineup)
        here = np.zeros(nodes.size, np.bool_)
        here[lineup.rows] = True
        refused = {name: mask & here for name, mask in rejected.items()}
        found.reasons.update(trial.explain_vacated(refused, lineup))
        victims = lineup.reprieve(lambda: trial.ask_vacated(lineup)[0])
    possible = {row: order for row, order in tried.items() if fits[row]}
    return _candidates(nodes, possible, victims, budgets)


def _try_out(trial: Trial, rows: Sequence[int], budgets: Budgets, found: Search) -> None:
    """The victims as all filters decide; more than one row only where no filter looks further."""
    nodes = trial.nodes
    lower = {row: _lower(trial, row) for row in rows}
    with _absences(nodes) as absent:
        for pods in lower.values():
            for placed in pods:
                absent.take(placed)
        fits, rejected = trial.ask()
        here = np.zeros(nodes.size, np.bool_)
        here[rows] = True
        found.reasons.update(trial.explain({name: mask & here for name, mask in rejected.items()}))
        tried = {row: _in_order(lower[row], budgets) for row in rows if fits[row]}
        victims = _reprieve(lambda: trial.ask()[0], tried, absent)
    made = _candidates(nodes, tried, victims, budgets)
    found.tried_out += len(rows)
    found.candidates += [candidate for candidate in made.values() if candidate.victims]


def _candidates(
    nodes: Columns,
    tried: Mapping[int, list[tuple[PlacedPod, bool]]],
    victims: Mapping[int, list[PlacedPod]],
    budgets: Budgets,
) -> dict[int, Candidate]:
    if not budgets:  # then they are in order of importance already
        return {row: Candidate(nodes.names[row], tuple(victims[row]), 0) for row in tried}
    made: dict[int, Candidate] = {}
    for row, order in tried.items():
        chosen = {placed.info.uid for placed in victims[row]}
        violations = sum(violates for placed, violates in order if placed.info.uid in chosen)
        made[row] = Candidate(nodes.names[row], tuple(by_importance(victims[row])), violations)
    return made


def _in_order(pods: list[PlacedPod], budgets: Budgets) -> list[tuple[PlacedPod, bool]]:
    """Who comes back first: pods whose end would violate a budget, then by importance."""
    if not budgets:
        return [(placed, False) for placed in pods]
    violations = budgets.violated_by(placed.info.pod for placed in pods)
    return sorted(zip(pods, violations, strict=True), key=lambda entry: not entry[1])


def _reprieve(
    fitting: Callable[[], Mask],
    tried: Mapping[int, list[tuple[PlacedPod, bool]]],
    absent: "_Absences",
) -> dict[int, list[PlacedPod]]:
    """Step by step one pod comes back on each node; who leaves no room again is a victim."""
    victims: dict[int, list[PlacedPod]] = {row: [] for row in tried}
    for step in range(max(map(len, tried.values()), default=0)):
        returned = {row: order[step][0] for row, order in tried.items() if step < len(order)}
        for placed in returned.values():
            absent.put_back(placed)
        fits = fitting()
        for row, placed in returned.items():
            if not fits[row]:
                absent.take(placed)
                victims[row].append(placed)
    return victims


class _Absences:
    """Pods taken out of the columns for the time of a question."""

    def __init__(self, nodes: Columns) -> None:
        self._nodes = nodes
        self._taken: dict[str, PlacedPod] = {}

    def take(self, placed: PlacedPod) -> None:
        """Count the pod no longer."""
        self._nodes.remove_pod(placed.info.uid)
        self._taken[placed.info.uid] = placed

    def put_back(self, placed: PlacedPod) -> None:
        """Count it again, as it was."""
        del self._taken[placed.info.uid]
        self._nodes.add_pod(placed.info, placed.node, assumed=placed.assumed)

    def end(self) -> None:
        """Put everybody back."""
        for placed in list(self._taken.values()):
            self.put_back(placed)


@contextmanager
def _absences(nodes: Columns) -> Iterator[_Absences]:
    absent = _Absences(nodes)
    try:
        yield absent
    finally:
        absent.end()
