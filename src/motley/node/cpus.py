"""Exclusive cores: a Guaranteed container that asks for whole CPUs gets them for itself.

All other containers share what is left, the reserved CPUs included; those are never given away.
Whole sockets come first, then whole cores, then single threads, so that neighbours disturb
each other least. What was given is written down before a container uses it, and read again by
the next agent.

Invariant: no CPU is given to two containers, and none of the reserved ones to any.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from motley.api import quantity
from motley.api.views.pod import Container, Pod
from motley.lib import atomicfile, journal
from motley.node import resources
from motley.node.pods import is_sidecar

log = journal.get(__name__)

SYSTEM = Path("/sys/devices/system/cpu")
POLICIES = ("none", "static")
Set = frozenset[int]


class Place(NamedTuple):
    """Where a CPU is."""

    socket: int
    core: int


def parse(text: str) -> Set:
    """`0-3,8` as a set. Raises ValueError."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, dash, last = part.partition("-")
        found |= set(range(int(first), int(last if dash else first) + 1))
    return frozenset(found)


def text(cpus: Iterable[int]) -> str:
    """A set as the kernel writes it."""
    parts: list[list[int]] = []
    for cpu in sorted(cpus):
        if parts and parts[-1][1] == cpu - 1:
            parts[-1][1] = cpu
        else:
            parts.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def topology(system: Path = SYSTEM) -> dict[int, Place]:
    """The CPUs of this machine that are online."""

    def number(cpu: int, name: str) -> int:
        path = system / f"cpu{cpu}" / "topology" / name
        return int(path.read_text()) if path.exists() else cpu

    online = parse((system / "online").read_text())
    return {
        cpu: Place(number(cpu, "physical_package_id"), number(cpu, "core_id")) for cpu in online
    }


def take(places: Mapping[int, Place], free: Iterable[int], count: int) -> Set | None:
    """Choose `count` of the free CPUs; None when there are too few."""
    left = {cpu for cpu in free if cpu in places}
    if count > len(left):
        return None
    chosen: set[int] = set()
    groups: tuple[Callable[[int], Any], ...] = (
        lambda cpu: places[cpu].socket,
        lambda cpu: places[cpu],
        lambda cpu: cpu,
    )
    for group_of in groups:
        whole = defaultdict(set)
        for cpu in places:
            whole[group_of(cpu)].add(cpu)
        # The emptier socket's cores are kept together for whoever comes next.
        for _, members in sorted(whole.items(), key=lambda item: min(item[1])):
            if members <= left and len(members) <= count - len(chosen):
                chosen |= members
                left -= members
    return frozenset(chosen)


def whole_cpus(pod: Pod, container: Container) -> int:
    """How many CPUs the container is to have for itself; 0: it shares."""
    if (pod.status.qos_class or resources.qos_class(pod)) != "Guaranteed":
        return 0
    written = resources.requests_of(container).get("cpu")
    milli = quantity.cpu_milli(written) if written is not None else 0
    return milli // 1000 if milli % 1000 == 0 else 0


class _State(msgspec.Struct, rename="camel"):
    """The kubelet's `cpu_manager_state`."""

    policy_name: str = "static"
    default_cpu_set: str = ""
    entries: dict[str, dict[str, str]] = {}
    checksum: int = 0


@dataclass
class CpuManager:
    """Who has which CPUs. `is_static` False: everybody shares all."""

    checkpoint: Path
    places: Mapping[int, Place] = field(default_factory=topology)
    reserved: Set = frozenset()
    is_static: bool = False
    changed: Callable[[], None] = lambda: None

    def __post_init__(self) -> None:
        self._given: dict[str, dict[str, Set]] = {}
        if self.is_static:
            self._load()

    @property
    def shared(self) -> Set:
        """What all others share."""
        given = {cpu for of_pod in self._given.values() for s in of_pod.values() for cpu in s}
        return frozenset(self.places.keys() - given)

    def of(self, pod: Pod, container: str) -> Set | None:
        """The CPUs a container may run on; None: wherever it likes."""
        if not self.is_static:
            return None
        own = self._given.get(pod.metadata.uid, {})
        if container in own:
            return own[container]
        if own and any(c.name == container for c in pod.spec.init_containers):
            # It runs before those that have the pod's CPUs, so it may have them meanwhile.
            return frozenset().union(*own.values())
        return self.shared

    def has_any(self, uid: str) -> bool:
        """Has some container of the pod CPUs of its own?"""
        return uid in self._given

    def admit(self, pod: Pod) -> str:
        """Give the pod's containers their CPUs; why that is not possible, or empty."""
        uid = pod.metadata.uid
        if not self.is_static or uid in self._given:
            return ""
        sidecars = [c for c in pod.spec.init_containers if is_sidecar(c)]
        given: dict[str, Set] = {}
        free = self.shared - self.reserved
        for container in [*sidecars, *pod.spec.containers]:
            count = whole_cpus(pod, container)
            if not count:
                continue
            chosen = take(self.places, free, count)
            if chosen is None:
                return (
                    "Allocate failed due to not enough cpus available to satisfy request: "
                    f"requested={count}, available={len(free)}, which is unexpected"
                )
            given[container.name] = chosen
            free -= chosen
        if given:
            self._given[uid] = given
            self._save()
            log.info("exclusive cpus", pod=pod.key, cpus={n: text(s) for n, s in given.items()})
            self.changed()
        return ""

    def release(self, uid: str) -> None:
        """The pod has ended: others may have its CPUs."""
        if self._given.pop(uid, None) is not None:
            self._save()
            self.changed()

    def keep_only(self, uids: set[str]) -> None:
        """Take back what pods had that are no more."""
        for uid in self._given.keys() - uids:
            self.release(uid)

    # -- what survives the agent

    def _save(self) -> None:
        state = _State(
            default_cpu_set=text(self.shared),
            entries={
                uid: {name: text(cpus) for name, cpus in of_pod.items()}
                for uid, of_pod in self._given.items()
            },
        )
        state.checksum = _checksum(state)
        atomicfile.write(self.checkpoint, msgspec.json.encode(state))

    def _load(self) -> None:
        try:
            state = msgspec.json.decode(self.checkpoint.read_bytes(), type=_State)
            if state.checksum != _checksum(state):
                raise ValueError("checksum differs")
            found = {
                uid: {name: parse(cpus) for name, cpus in of_pod.items()}
                for uid, of_pod in state.entries.items()
            }
        except FileNotFoundError:
            return
        except (msgspec.DecodeError, ValueError) as error:
            log.error("cpu assignments not readable, starting anew", error=str(error))
            return
        given = [cpu for of_pod in found.values() for cpus in of_pod.values() for cpu in cpus]
        usable = self.places.keys() - self.reserved
        if len(given) != len(set(given)) or not set(given) <= usable:
            log.error("cpu assignments do not fit this machine, starting anew", cpus=text(given))
            return
        self._given = found


def _checksum(state: _State) -> int:
    plain = msgspec.json.encode([state.policy_name, state.default_cpu_set, state.entries])
    return int.from_bytes(hashlib.sha256(plain).digest()[:4], "big")


def reserved(named: str, system_reserved: Mapping[str, str], places: Mapping[int, Place]) -> Set:
    """The CPUs that are never given away: those named, or as many as are reserved.

    Raises ValueError: the static policy needs at least one for everybody else.
    """
    if named:
        found = parse(named)
        if not found <= places.keys():
            raise ValueError(f"--reserved-cpus {named}: this machine has {text(places)}")
        return found
    count = math.ceil(quantity.cpu_milli(system_reserved.get("cpu", "0")) / 1000)
    if not count:
        raise ValueError("the static CPU policy needs --reserved-cpus or cpu in --system-reserved")
    chosen = take(places, places, min(count, len(places)))
    return chosen or frozenset()
