"""What tests of Jobs and CronJobs have in common: how their pods behave, and what was said."""

from collections import Counter
from typing import Any

from motley.api.views.core import Event
from world.kubelet import Behaviour
from world.world import World

QUICK = Behaviour(start_s=0.5, ready_s=0.25, run_s=2.0)
FAILING = Behaviour(start_s=0.5, ready_s=0.25, run_s=2.0, exit_code=1)
ENDLESS = Behaviour(start_s=0.5, ready_s=0.25, stop_s=3.0, stop_code=143)


def job(
    name: str = "work",
    restart: str = "Never",
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A Job of one container; `spec` adds fields."""
    return {
        "metadata": {"name": name},
        "spec": {
            "template": {
                "metadata": {"labels": labels or {}},
                "spec": {
                    "restartPolicy": restart,
                    "containers": [{"name": "c", "image": "one"}],
                },
            },
            **spec,
        },
    }


async def events(world: World, kind: str = "Job") -> Counter[str]:
    """How often each reason was given in events about a kind."""
    found: Counter[str] = Counter()
    for event in await world.list(Event):
        if event.involved_object.kind == kind:
            found[event.reason] += event.count
    return found
