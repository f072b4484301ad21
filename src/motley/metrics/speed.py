"""How fast nodes are, from what equal replicas use on them. Pure.

Replicas behind one Service get equal shares of its requests, so what one uses is inversely
proportional to the speed of the node under it:

    log usage = effort of the group - log speed of the node + noise

A group is one controller's replicas at one moment: its effort is unknown and of no interest. That
is a two-way model, linear in logarithms, solved by least squares over all groups and nodes at once;
observations far from the rest count less (Huber), so that one replica with a runaway thread does
not make its node look slow. The interval says how sure that is.

Only ratios can be seen. Nodes that share no group with each other, not even through others, form
separate components; each is set in scale by the nodes of known speed in it, or else so that its
geometric mean is 1.
"""

import math
from collections.abc import Hashable, Iterable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

_HUBER = 1.345  # 95 % as efficient as plain least squares where there are no outliers
_MAD = 0.6745  # the median distance from the mean, of a normal distribution of width 1
_ROUNDS = 50
_STILL = 1e-7
_LEAST_SCALE = 1e-6
_NARROW = 16  # samples in a group, up to which its pairs are taken one by one
_LARGEST = 700.0  # of what can be exponentiated

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.intp]


class Sample(NamedTuple):
    """What each of `replicas` of a group used on a node, in any unit, on average."""

    group: Hashable
    node: str
    usage: float
    replicas: int = 1


class Estimate(NamedTuple):
    """A node's speed; it lies between `low` and `high` with a confidence of 95 %."""

    speed: float
    low: float
    high: float
    samples: int

    @property
    def uncertainty(self) -> float:
        """Half the interval's width, as a share of the speed."""
        return (self.high - self.low) / 2 / self.speed


def estimate(
    samples: Iterable[Sample], known: Mapping[str, float] | None = None
) -> dict[str, Estimate]:
    """The speed of every node that shares a group with another; `known` ones set the scale."""
    taken = _informative([s for s in samples if s.usage > 0 and s.replicas > 0])
    estimates: dict[str, Estimate] = {}
    for component in _components(taken):
        estimates |= _Component(component).estimates(known or {})
    return estimates


def _informative(samples: list[Sample]) -> list[Sample]:
    """Those of groups that are on several nodes."""
    nodes: dict[Hashable, set[str]] = {}
    for sample in samples:
        nodes.setdefault(sample.group, set()).add(sample.node)
    return [s for s in samples if len(nodes[s.group]) > 1]


def _components(samples: list[Sample]) -> list[list[Sample]]:
    """Split where nothing connects nodes."""
    parent: dict[str, str] = {}

    def root(node: str) -> str:
        while parent.setdefault(node, node) != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    first: dict[Hashable, str] = {}
    for sample in samples:
        parent[root(sample.node)] = root(first.setdefault(sample.group, sample.node))
    found: dict[str, list[Sample]] = {}
    for sample in samples:
        found.setdefault(root(sample.node), []).append(sample)
    return [found[name] for name in sorted(found)]


class _Component:
    """One connected part of the model."""

    def __init__(self, samples: list[Sample]) -> None:
        self.names = sorted({s.node for s in samples})
        numbers = {name: i for i, name in enumerate(self.names)}
        groups = {group: i for i, group in enumerate(dict.fromkeys(s.group for s in samples))}
        self._node: Numbers = np.array([numbers[s.node] for s in samples], np.intp)
        self._group: Numbers = np.array([groups[s.group] for s in samples], np.intp)
        self._y: Floats = -np.log([s.usage for s in samples])
        # The mean of several replicas is that much less noisy.
        self._weight: Floats = np.array([s.replicas for s in samples], np.float64)
        self._groups = len(groups)
        self._pairs, self._wide = self._neighbours()

    def _neighbours(self) -> tuple[tuple[Numbers, Numbers], Numbers]:
        """Which samples meet in a group: as pairs where groups are narrow, which nearly all are;
        and the samples of wide groups, whose pairs would be too many."""
        sizes = np.bincount(self._group, minlength=self._groups)
        is_wide = sizes[self._group] > _NARROW
        narrow = np.flatnonzero(~is_wide)
        narrow = narrow[np.argsort(self._group[narrow], kind="stable")]
        size = sizes[self._group[narrow]]
        begins = np.searchsorted(self._group[narrow], self._group[narrow])
        offsets = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
        pairs = np.repeat(narrow, size), narrow[np.repeat(begins, size) + offsets]
        return pairs, np.flatnonzero(is_wide)

    def estimates(self, known: Mapping[str, float]) -> dict[str, Estimate]:
        """Solve, set the scale, say how sure."""
        speeds, residuals, scale, laplacian = self._solve()
        wide = self._width(residuals, scale)
        inverse = _pseudo_inverse(laplacian)
        anchors = [i for i, name in enumerate(self.names) if known.get(name, 0.0) > 0]
        levels = [math.log(known[self.names[i]]) for i in anchors]
        if not anchors:
            anchors, levels = list(range(len(self.names))), [0.0] * len(self.names)
        shift = float(np.mean(np.array(levels) - speeds[anchors]))
        # The variance of each node's difference from the mean of the anchors.
        cross, mean = inverse[:, anchors].mean(axis=1), inverse[np.ix_(anchors, anchors)].mean()
        variance = np.maximum(np.diag(inverse) - 2 * cross + mean, 0.0)
        counts = np.bincount(self._node, minlength=len(self.names))
        found = {}
        for i, name in enumerate(self.names):
            level = float(speeds[i]) + shift
            # Where all anchors are this node it is exact by definition.
            half = wide * math.sqrt(variance[i]) if variance[i] > 1e-12 else 0.0
            bounds = (_exp(level - half), _exp(level + half))
            found[name] = Estimate(_exp(level), *bounds, samples=int(counts[i]))
        return found

    def _solve(self) -> tuple[Floats, Floats, float, Floats]:
        robust: Floats = np.ones_like(self._y)
        speeds: Floats = np.zeros(len(self.names))
        root = np.sqrt(self._weight)
        for _ in range(_ROUNDS):
            weight = self._weight * robust
            laplacian, right = self._normal(weight)
            shifted = laplacian + _level(len(laplacian))
            before, speeds = speeds, np.asarray(np.linalg.solve(shifted, right), np.float64)
            residuals = (self._y - speeds[self._node] - self._efforts(weight, speeds)) * root
            scale = max(float(np.median(np.abs(residuals))) / _MAD, _LEAST_SCALE)
            far = np.abs(residuals) / (_HUBER * scale)
            robust = 1.0 / np.maximum(far, 1.0)
            if float(np.max(np.abs(speeds - before))) < _STILL:
                break
        plain, _ = self._normal(self._weight)
        return speeds, residuals, scale, plain

    def _efforts(self, weight: Floats, speeds: Floats) -> Floats:
        total = np.bincount(self._group, weight, self._groups)
        sums = np.bincount(self._group, weight * (self._y - speeds[self._node]), self._groups)
        efforts: Floats = (sums / total)[self._group]
        return efforts

    def _normal(self, weight: Floats) -> tuple[Floats, Floats]:
        """The normal equations of the nodes, the groups having been eliminated."""
        nodes, node, group = len(self.names), self._node, self._group
        total = np.bincount(group, weight, self._groups)
        laplacian: Floats = np.diag(np.bincount(node, weight, nodes)).astype(np.float64)
        one, other = self._pairs
        met = weight[one] * weight[other] / total[group[one]]
        laplacian -= np.bincount(node[one] * nodes + node[other], met, nodes**2).reshape(nodes, -1)
        if len(wide := self._wide):
            numbers, column = np.unique(group[wide], return_inverse=True)
            shared = np.zeros((nodes, len(numbers)))
            np.add.at(shared, (node[wide], column), weight[wide])
            laplacian -= (shared / total[numbers]) @ shared.T
        effort = np.bincount(group, weight * self._y, self._groups) / total
        right: Floats = np.bincount(node, weight * (self._y - effort[group]), nodes).astype(float)
        return laplacian, right

    def _width(self, residuals: Floats, scale: float) -> float:
        """How many units of the inverse's root the interval is wide, to one side."""
        freedom = len(self._y) - self._groups - len(self.names) + 1
        if freedom < 1:
            return math.inf  # as many unknowns as observations: anything would fit
        bound = _HUBER * scale
        clipped = np.clip(residuals, -bound, bound)
        inside = float(np.mean(np.abs(residuals) <= bound))
        if inside == 0.0:
            return math.inf
        # Huber's correction: residuals are smaller than noise, the fewer observations the more.
        parameters = len(self._y) - freedom
        correction = 1.0 + parameters / len(self._y) * (1.0 - inside) / inside
        sigma = math.sqrt(float(np.sum(clipped**2)) / freedom) / inside * correction
        return _student(freedom) * sigma


def _pseudo_inverse(laplacian: Floats) -> Floats:
    """Of the Laplacian of a connected graph: only the constant vector is lost."""
    ones = _level(len(laplacian))
    inverse: Floats = np.linalg.inv(laplacian + ones) - ones
    return inverse


def _level(size: int) -> Floats:
    """Added to such a Laplacian it can be inverted, and the mean of a solution is 0."""
    return np.full((size, size), 1.0 / size)


def _exp(level: float) -> float:
    return math.exp(level) if level < _LARGEST else math.inf


_FEW = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}


def _student(freedom: int) -> float:
    """The 97.5th percentile of Student's distribution."""
    if freedom in _FEW:
        return _FEW[freedom]
    z = 1.959964
    series = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return z + series[0] / freedom + series[1] / freedom**2
