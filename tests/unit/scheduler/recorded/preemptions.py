"""Preemptions in full clusters.

Among equally good nodes the choice is free: ours must be at least as good by Kubernetes' order, and
on the recorded node the victims must be the same.
"""

from typing import Any

import numpy as np

from motley.api.views.policy import PodDisruptionBudget
from motley.scheduler import preemption
from motley.scheduler.candidates import Candidate
from motley.scheduler.contract import PodInfo
from motley.scheduler.decisions import Decision
from motley.scheduler.trial import Trial

from . import meaning
from .agreement import NOMINATED, PLACED, REFUSED, VICTIMS, Agreement
from .world import Document, World

_ALL = 1000  # candidates, not only as many as a scheduler in a hurry would look at


def replay(recorded: dict[str, Any], agreement: Agreement) -> None:
    """Decide about the preemptor of one cluster again."""
    world = World(recorded["nodes"], recorded.get("namespaces"))
    for pod in recorded.get("running") or []:
        world.place(pod, pod["spec"]["nodeName"])
    for budget in recorded.get("budgets") or []:
        made = PodDisruptionBudget.of(budget)
        world.handle.budgets.set(made.key, made)
    pod = world.info(recorded["preemptor"])
    decision = world.cycle.schedule(pod)
    where = f"{recorded.get('cluster', '')}/{recorded['preemptor']['metadata']['name']}"
    if not recorded.get("node"):
        _compare_refusal(decision, recorded, where, agreement)
    elif not recorded.get("victims"):
        text = f"{where}: {decision.message} instead of {recorded['node']}"
        agreement.note(PLACED, decision.node is not None, text)
    else:
        _compare_nomination(world, pod, decision, recorded, where, agreement)


def _compare_refusal(
    decision: Decision, recorded: Document, where: str, agreement: Agreement
) -> None:
    is_nothing = decision.node is None and decision.nomination is None
    said = recorded.get("message", "")
    is_same = is_nothing and meaning.of(decision.message) == meaning.of(said)
    agreement.note(REFUSED, is_same, f"{where}: {decision.message!r} instead of {said!r}")


def _compare_nomination(
    world: World,
    pod: PodInfo,
    decision: Decision,
    recorded: Document,
    where: str,
    agreement: Agreement,
) -> None:
    candidates = _candidates(world, pod)
    node, theirs = recorded["node"], sorted(recorded["victims"])
    there, ours = candidates.get(node), decision.nomination
    victims = sorted(v.info.key.name for v in there.victims) if there else None
    text = f"{where}: victims {victims} on {node} instead of {theirs}"
    agreement.note(VICTIMS, victims == theirs, text)
    is_as_good = (
        ours is not None
        and there is not None
        and ours.node in candidates
        and candidates[ours.node].rank <= there.rank
    )
    text = f"{where}: {ours.node if ours else decision.message} instead of {node}"
    agreement.note(NOMINATED, is_as_good, text)


def _candidates(world: World, pod: PodInfo) -> dict[str, Candidate]:
    cycle = world.cycle
    evaluation = cycle.evaluate(pod)
    nominations = world.handle.nominations
    trial = Trial(cycle.profile, cycle.nodes, pod, evaluation.skipped, nominations)
    potential = np.zeros(cycle.nodes.size, np.bool_)
    for mask in evaluation.rejected.values():
        potential |= mask
    found = preemption.search(trial, potential, world.handle.budgets, enough=_ALL)
    return {candidate.node: candidate for candidate in found.candidates}
