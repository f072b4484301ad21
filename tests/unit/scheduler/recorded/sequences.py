"""Sequences of decisions: each pod is put where the real scheduler put it before the next."""

from typing import Any

import numpy as np

from motley.scheduler.podinfo import PodInfo

from . import meaning
from .agreement import CHOICE, FEASIBLE, REASONS, Agreement
from .world import Document, World


def replay(recorded: dict[str, Any], agreement: Agreement) -> None:
    """Take the decisions of one cluster again."""
    world = World(recorded["nodes"], recorded.get("namespaces"))
    for pod in recorded.get("placed_first") or []:
        world.place(pod, pod["spec"]["nodeName"])
    for decision in recorded["decisions"]:
        _compare(world, decision, f"{recorded.get('cluster', '?')}/", agreement)
        if decision.get("node"):
            world.place(decision["pod"], decision["node"])


def _compare(world: World, decision: Document, cluster: str, agreement: Agreement) -> None:
    where = cluster + decision["pod"]["metadata"]["name"]
    pod = world.info(decision["pod"])
    mask = world.cycle.evaluate(pod).feasible
    ours = sorted(world.nodes.names[row] for row in np.flatnonzero(mask))
    theirs = sorted(decision.get("feasible") or [])
    agreement.note(FEASIBLE, ours == theirs, f"{where}: feasible {ours} instead of {theirs}")
    if decision.get("message"):
        said = world.cycle.schedule(pod).message
        is_same = meaning.of(said) == meaning.of(decision["message"])
        text = f"{where}: says {said!r} instead of {decision['message']!r}"
        agreement.note(REASONS, is_same, text)
    if decision.get("scores"):
        _compare_scores(world, pod, decision, where, agreement)
        total = decision["total"]
        best = [node for node, score in total.items() if score == max(total.values())]
        chosen = world.cycle.schedule(pod).node
        agreement.note(CHOICE, chosen in best, f"{where}: on {chosen} instead of {best}")


def _compare_scores(
    world: World, pod: PodInfo, decision: Document, where: str, agreement: Agreement
) -> None:
    """Over the nodes that were feasible there, so that one difference is counted once.

    A plugin that only one side has, or that skipped itself, says 0 of every node: Kubernetes has
    scorers for things that a recording does not contain.
    """
    rows = world.nodes.rows
    feasible = [node for node in decision["feasible"] if node in rows]
    mask = np.zeros(world.nodes.size, np.bool_)
    mask[[rows[node] for node in feasible]] = True
    ours = world.cycle.score(pod, mask).scores
    theirs = decision["scores"]
    for plugin in sorted(ours.keys() | theirs.keys()):
        recorded = theirs.get(plugin, {})
        scores = ours.get(plugin)
        for node in feasible:
            score = float(scores[rows[node]]) if scores is not None else 0.0
            off = score - recorded.get(node, 0)
            agreement.note_score(plugin, off, f"{where} on {node}")
