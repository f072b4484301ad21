"""The PodDisruptionBudgets, as preemption looks at them.

The API server spends budgets when pods are evicted; preemption deletes, so it counts for itself, on
paper: what would be left if these pods went, in this order?
"""

from collections.abc import Iterable

from motley.api.selectors import Selector, SelectorError
from motley.api.views.base import Key
from motley.api.views.pod import Pod
from motley.api.views.policy import PodDisruptionBudget


class Budgets:
    """The PodDisruptionBudgets, by informer."""

    def __init__(self) -> None:
        self._budgets: dict[Key, tuple[PodDisruptionBudget, Selector]] = {}

    def set(self, key: Key, new: PodDisruptionBudget | None) -> None:
        """A budget came, changed or went."""
        self._budgets.pop(key, None)
        if new is None:
            return
        try:
            selector = Selector.of(new.spec.selector)
        except SelectorError:
            return  # it protects nothing
        if not selector.is_everything and not selector.is_nothing:
            self._budgets[key] = (new, selector)

    def __len__(self) -> int:
        return len(self._budgets)

    def violated_by(self, pods: Iterable[Pod]) -> list[bool]:
        """Of each pod, if they go in this order: is that more than its budgets allow?"""
        left = {
            key: budget.status.disruptions_allowed for key, (budget, _) in self._budgets.items()
        }
        return [self._spend(pod, left) for pod in pods]

    def _spend(self, pod: Pod, left: dict[Key, int]) -> bool:
        meta = pod.metadata
        for key, (budget, selector) in self._budgets.items():
            if (
                key.namespace == meta.namespace
                and meta.labels
                and selector.matches(meta.labels)
                # The API server has let it go already, and counted it.
                and meta.name not in budget.status.disrupted_pods
            ):
                left[key] -= 1
                if left[key] < 0:
                    return True
        return False
