"""What a workload has used, as those who decide by it read it: over the API, or from elsewhere.

In a Motley cluster the API server keeps the past (`history.motley.io`). Where it does not, the
command that starts the controllers hands over somebody who does.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from motley.api import status
from motley.client.rest import Client
from motley.lib.clock import parse_rfc3339

PATH = "/apis/history.motley.io/v1"
Figures = list[float | None]
_LONG, _SHORT = ("7d", "5m"), ("1h", "30s")
_LEAST_LONG = 36  # steps: three hours


class NoPast(Exception):
    """The past is not to be had; the message says why."""


class Past(NamedTuple):
    """One container of a workload, step by step; None where nothing is known.

    CPU in cores, `cpu_normalized` in cores of speed 1, memory in bytes, of all pods together; then
    of the largest pod, and the number of pods.
    """

    start: float
    step_s: float
    cpu: Figures
    cpu_normalized: Figures
    memory: Figures
    cpu_pod_max: Figures
    memory_pod_max: Figures
    pods: Figures

    def moment(self, index: int) -> float:
        """When a step began."""
        return self.start + index * self.step_s


class Pasts(Protocol):
    """Knows the past of workloads."""

    async def workload(
        self, namespace: str, kind: str, name: str, back: str, step: str, aggregation: str
    ) -> Mapping[str, Past]:
        """By container; empty where nothing is known of the workload. Raises NoPast."""


async def longest(pasts: Pasts, namespace: str, kind: str, name: str) -> Mapping[str, Past]:
    """What forecasts are made from: the last week at steps of five minutes, or, while less than
    three hours are known, the last hour at steps of half a minute. Raises NoPast."""
    found = await pasts.workload(namespace, kind, name, *_LONG, "avg")
    if not found or _is_long(found):
        return found
    return await pasts.workload(namespace, kind, name, *_SHORT, "avg")


def _is_long(pasts: Mapping[str, Past]) -> bool:
    known = [[i for i, v in enumerate(p.cpu) if v is not None] for p in pasts.values()]
    return any(places and places[-1] - places[0] >= _LEAST_LONG for places in known)


def whole(pasts: Mapping[str, Past], quantity: str, container: str = "") -> Figures:
    """What one container used, or all of them together; empty where there is none such.
    `quantity` is a field of `Past`."""
    lines: list[Figures] = [
        getattr(past, quantity) for name, past in pasts.items() if container in ("", name)
    ]
    if not lines:
        return []
    return [
        None if all(v is None for v in step) else sum(v for v in step if v is not None)
        for step in zip(*lines, strict=True)
    ]


class ApiPasts:
    """Asks `history.motley.io`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def workload(
        self, namespace: str, kind: str, name: str, back: str, step: str, aggregation: str
    ) -> Mapping[str, Past]:
        """See `Pasts`."""
        path = f"{PATH}/namespaces/{namespace}/workloads/{name}"
        params = {"kind": kind, "from": f"-{back}", "step": step, "aggregation": aggregation}
        try:
            return read(await self._client.raw("GET", path, params=params))
        except status.NotFound as error:
            if error.details.get("group") == "history.motley.io":
                return {}
            raise NoPast("nobody serves history.motley.io here") from None
        except status.ApiError as error:
            raise NoPast(f"usage history: {error.message}") from None


def read(answer: Any) -> dict[str, Past]:
    """The series of a WorkloadHistory. Raises NoPast for anything else."""
    try:
        start, step_s = parse_rfc3339(answer["from"]), float(answer["stepSeconds"])
        return {
            part.get("container", ""): Past(
                start,
                step_s,
                part["cpu"],
                part["cpuNormalized"],
                part["memory"],
                part["cpuPodMax"],
                part["memoryPodMax"],
                part["pods"],
            )
            for part in answer["series"]
        }
    except (LookupError, TypeError, ValueError) as error:
        raise NoPast(f"usage history not understood: {error!r}") from None
