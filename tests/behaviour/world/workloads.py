"""Documents that many tests of workloads need, and what they wait for."""

from typing import Any

from motley.controllers.workload import Deployment
from world.world import World


def deployment(
    name: str = "web", replicas: int = 3, image: str = "one", **spec: Any
) -> dict[str, Any]:
    """A Deployment of one container; `spec` adds fields."""
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "c", "image": image}]},
            },
            **spec,
        },
    }


def replica_set(
    name: str = "web", replicas: int = 3, image: str = "one", **spec: Any
) -> dict[str, Any]:
    """A ReplicaSet of one container; `spec` adds fields."""
    return deployment(name, replicas, image, **spec)


async def set_image(world: World, image: str, name: str = "web") -> None:
    """Change a Deployment's template."""
    change = {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": image}]}}}}
    await world.patch(Deployment, name, change, type="strategic")


def is_complete(d: Deployment) -> bool:
    """What `kubectl rollout status` waits for."""
    s = d.status
    counts = (s.replicas, s.updated_replicas, s.available_replicas)
    return s.observed_generation == d.metadata.generation and counts == (d.spec.replicas,) * 3


async def completed(world: World, name: str = "web", within_s: float = 600.0) -> None:
    """Wait for the end of a rollout."""

    async def is_done() -> bool:
        return is_complete(await world.get(Deployment, name))

    await world.until(is_done, f"rollout of {name}", within_s=within_s)
