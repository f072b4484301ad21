"""Which faults happen, in which order and together with what: a pure function of a seed.

A storm first kills every kind of component once, on a node drawn by lot, then several at once.
Along with a fault something is asked of the cluster, so that it has to converge afterwards.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

CONTROL_PLANE = ("apiserver", "controllers", "scheduler")
ON_EVERY_NODE = ("node", "proxy", "containerd")
KINDS = (*CONTROL_PLANE, "gateway", *ON_EVERY_NODE)
REQUESTS = ("scale", "delete a pod", "nothing")
SIZES = (1, 2, 3)


@dataclass(frozen=True)
class Fault:
    """Components to kill at one moment, by node and name, and what is asked meanwhile."""

    killed: tuple[tuple[str, str], ...]
    request: str
    size: int

    def __str__(self) -> str:
        names = ", ".join(f"{node}/{name}" for node, name in self.killed)
        asked = f"scale to {self.size}" if self.request == "scale" else self.request
        return f"kill {names}; {asked}"


def storm(seed: int, nodes: Sequence[str], together: int = 2) -> list[Fault]:
    """Every kind once, then the control plane as a whole, then `together` random groups."""
    rng = Random(seed)
    victims = [[_one(rng, kind, nodes)] for kind in rng.sample(KINDS, len(KINDS))]
    victims.append([(nodes[0], name) for name in CONTROL_PLANE])
    for _ in range(together):
        kinds = rng.sample(KINDS, rng.randint(2, 4))
        victims.append(sorted({_one(rng, kind, nodes) for kind in kinds}))
    return [
        Fault(tuple(group), request, rng.choice(SIZES))
        for group, request in zip(victims, _requests(rng), strict=False)
    ]


def _one(rng: Random, kind: str, nodes: Sequence[str]) -> tuple[str, str]:
    return (rng.choice(nodes) if kind in ON_EVERY_NODE else nodes[0], kind)


def _requests(rng: Random) -> Iterator[str]:
    """Every request as often as any other, in an order drawn by lot."""
    while True:
        yield from rng.sample(REQUESTS, len(REQUESTS))
