"""When a node is short of something: thresholds in the kubelet's flag syntax.

    --eviction-hard memory.available<100Mi,nodefs.available<10%
    --eviction-soft memory.available<300Mi --eviction-soft-grace-period memory.available=1m30s

A value is a quantity or a share of what there is. A hard threshold has no grace period; a soft
one must name it. What a flag says replaces the defaults as a whole, as with the kubelet.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from motley.api import quantity
from motley.lib import durations

MEMORY = "memory.available"
ALLOCATABLE_MEMORY = "allocatableMemory.available"
NODEFS = "nodefs.available"
NODEFS_INODES = "nodefs.inodesFree"
IMAGEFS = "imagefs.available"
IMAGEFS_INODES = "imagefs.inodesFree"
PIDS = "pid.available"

# Signal → node condition, and the resource that is short. Memory comes first: it is the one whose
# shortage the kernel answers by itself.
SIGNALS: Mapping[str, tuple[str, str]] = {
    MEMORY: ("MemoryPressure", "memory"),
    ALLOCATABLE_MEMORY: ("MemoryPressure", "memory"),
    NODEFS: ("DiskPressure", "ephemeral-storage"),
    NODEFS_INODES: ("DiskPressure", "inodes"),
    IMAGEFS: ("DiskPressure", "ephemeral-storage"),
    IMAGEFS_INODES: ("DiskPressure", "inodes"),
    PIDS: ("PIDPressure", "pids"),
}
DEFAULT_HARD = f"{MEMORY}<100Mi,{NODEFS}<10%,{NODEFS_INODES}<5%,{IMAGEFS}<15%,{IMAGEFS_INODES}<5%"


@dataclass(frozen=True, slots=True)
class Amount:
    """A quantity in units, or a share of the capacity."""

    units: int = 0
    share: float | None = None

    def of(self, capacity: int) -> int:
        """In units, on a node that has this much."""
        return self.units if self.share is None else int(capacity * self.share)


@dataclass(frozen=True, slots=True)
class Threshold:
    """Below `value` the node is short; None for `grace_s` means at once."""

    signal: str
    value: Amount
    grace_s: float | None = None
    min_reclaim: Amount = Amount()

    @property
    def is_hard(self) -> bool:
        """Does it act at once, and end pods without grace?"""
        return self.grace_s is None

    @property
    def condition(self) -> str:
        """The node condition that shows it."""
        return SIGNALS[self.signal][0]

    @property
    def resource(self) -> str:
        """What is short."""
        return SIGNALS[self.signal][1]


def parse(
    hard: str = DEFAULT_HARD, soft: str = "", soft_grace: str = "", min_reclaim: str = ""
) -> tuple[Threshold, ...]:
    """The thresholds of four flags. Raises ValueError that says which part is wrong."""
    graces = {
        signal: _duration(signal, text) for signal, text in _pairs(soft_grace, "=", "grace period")
    }
    reclaims = {
        signal: _amount(signal, text)
        for signal, text in _pairs(min_reclaim, "=", "minimum reclaim")
    }
    found = [Threshold(signal, _amount(signal, text)) for signal, text in _pairs(hard, "<")]
    for signal, text in _pairs(soft, "<"):
        if signal not in graces:
            raise ValueError(
                f"grace period must be specified for the soft eviction threshold {signal}"
            )
        found.append(Threshold(signal, _amount(signal, text), graces[signal]))
    found = [replace(t, min_reclaim=reclaims.get(t.signal, t.min_reclaim)) for t in found]
    # What pods together may have is enforced like what the machine has.
    found += [
        replace(t, signal=ALLOCATABLE_MEMORY) for t in found if t.is_hard and t.signal == MEMORY
    ]
    return tuple(t for t in found if t.value != Amount())


def _pairs(text: str, sign: str, what: str = "threshold") -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for item in filter(None, (part.strip() for part in text.split(","))):
        signal, found, value = (part.strip() for part in item.partition(sign))
        if not found or not value:
            raise ValueError(f"eviction {what} {item!r} is not of the form SIGNAL{sign}VALUE")
        if signal not in SIGNALS or signal == ALLOCATABLE_MEMORY:
            known = ", ".join(name for name in SIGNALS if name != ALLOCATABLE_MEMORY)
            raise ValueError(f"unsupported eviction signal {signal!r}, not one of {known}")
        if signal in seen:
            raise ValueError(f"eviction {what} of {signal} is there twice")
        seen.add(signal)
        yield signal, value


def _amount(signal: str, text: str) -> Amount:
    if text.endswith("%"):
        try:
            percent = float(text[:-1])
        except ValueError:
            raise ValueError(f"eviction percentage {text!r} of {signal} is no number") from None
        if not 0 <= percent <= 100:
            raise ValueError(f"eviction percentage {text} of {signal} must be from 0% to 100%")
        return Amount(share=percent / 100) if percent else Amount()
    try:
        units = quantity.to_int(text)
    except ValueError as error:
        raise ValueError(f"eviction threshold of {signal}: {error}") from error
    if units < 0:
        raise ValueError(f"eviction threshold {text} of {signal} must not be negative")
    return Amount(units)


def _duration(signal: str, text: str) -> float:
    try:
        return durations.seconds(text)
    except ValueError as error:
        raise ValueError(f"eviction grace period of {signal}: {error}") from error
