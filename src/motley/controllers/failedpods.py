"""How long a daemon that failed on a node is not started there again. Pure but for its memory.

A node that refuses a pod would refuse it a hundred times a second. Each failure on the same node
doubles the wait; a long time without failure starts it anew.
"""

from dataclasses import dataclass, field

_FIRST_S = 1.0  # kube-controller-manager's: one second to fifteen minutes
_CAP_S = 900.0
_KEPT = 1024


@dataclass
class FailedPods:
    """Failures by key: DaemonSet, generation and node."""

    _last: dict[str, tuple[float, float]] = field(default_factory=dict)  # key -> (when, wait)

    def wait_s(self, key: str, now: float) -> float:
        """Seconds until a failed pod may be replaced; 0 when it may be now."""
        at, wait_s = self._last.get(key, (now, 0.0))
        return max(0.0, at + wait_s - now)

    def note(self, key: str, now: float) -> None:
        """A failed pod is being replaced."""
        at, wait_s = self._last.get(key, (now, 0.0))
        if now - at > 2 * _CAP_S:
            wait_s = 0.0
        self._last[key] = (now, min(_CAP_S, wait_s * 2) or _FIRST_S)
        if len(self._last) > _KEPT:
            fresh = {k: v for k, v in self._last.items() if now - v[0] <= 2 * _CAP_S}
            self._last = fresh
