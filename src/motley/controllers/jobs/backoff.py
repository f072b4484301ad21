"""How long a Job waits before it replaces failed pods. Pure.

10 s after the first failure, doubling to 10 minutes; one success starts it anew.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from motley.api.views.pod import Pod
from motley.controllers.jobs import pods

_BASE_S, _CAP_S = 10.0, 600.0  # kube-controller-manager's


@dataclass(frozen=True)
class Record:
    """The failures of a Job since its last success."""

    failures: int = 0
    last: float = 0.0

    def after(self, succeeded: Sequence[Pod], failed: Sequence[Pod]) -> "Record":
        """The record with pods that ended since."""
        times = sorted(pods.finished_at(pod) for pod in failed)
        if succeeded:
            best = max(pods.finished_at(pod) for pod in succeeded)
            times = [time for time in times if time > best]
            return Record(len(times), times[-1] if times else 0.0)
        return Record(self.failures + len(times), times[-1]) if times else self

    def wait_s(self, now: float) -> float:
        """Seconds until pods may be made again."""
        return wait_s(self.failures, self.last, now)


def wait_s(failures: int, last: float, now: float) -> float:
    """Seconds to wait after so many failures in a row, the last of them then."""
    if not failures:
        return 0.0
    step = min(_CAP_S, _BASE_S * 2.0 ** min(failures - 1, 16))
    return max(0.0, last + step - now)


def index_wait_s(last: Pod | None, now: float) -> float:
    """Seconds until an index whose last pod failed may be tried again."""
    if last is None:
        return 0.0
    return wait_s(pods.index_attempts(last) + 1, pods.finished_at(last), now)


def ready_indexes(
    wanted: Iterable[int], failed: dict[int, Pod], now: float
) -> tuple[list[int], float]:
    """The indexes that may be tried now; if none may, how long until the first may."""
    waits = {index: index_wait_s(failed.get(index), now) for index in wanted}
    ready = [index for index, wait in waits.items() if not wait]
    return ready, 0.0 if ready or not waits else min(waits.values())
