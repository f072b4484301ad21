"""Turns: how connections are spread over targets, evenly or by weight; pure.

A weight becomes a number of slots in a round, and the slots of one target lie as far apart as they
can: a node twice as fast gets every second connection of three, not two in a row and a pause.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

from motley.network.proxy.endpoints import Target

SLOTS = 64  # in a round; more only where there are many targets
_SLOTS_EACH = 4
_MOST_RULES = 8


def shares(weights: Sequence[Fraction], most: int | None = None) -> list[int]:
    """Slots per target, in lowest terms: exact where they fit, else the nearest that does.

    Nobody gets none: a slow endpoint is still one of the Service's.
    """
    most = most or max(SLOTS, _SLOTS_EACH * len(weights))
    scale = math.lcm(*(w.denominator for w in weights))
    exact = _lowest([int(w * scale) for w in weights])
    if sum(exact) <= most:
        return exact
    whole = sum(weights)
    ideal = [w * most / whole for w in weights]
    counts = [max(1, math.floor(i)) for i in ideal]
    while sum(counts) < most:
        counts[_first_largest([i - c for i, c in zip(ideal, counts, strict=True)])] += 1
    while sum(counts) > most:
        over = [c - i if c > 1 else Fraction(-most) for i, c in zip(ideal, counts, strict=True)]
        counts[_first_largest(over)] -= 1
    return _lowest(counts)


def _lowest(counts: Sequence[int]) -> list[int]:
    divisor = math.gcd(*counts)
    return [count // divisor for count in counts]


def _first_largest(values: Sequence[Fraction]) -> int:
    return max(range(len(values)), key=lambda i: (values[i], -i))


def turns(counts: Sequence[int]) -> list[int]:
    """One round: whose turn each slot is, each target's slots evenly apart."""
    placed = [((2 * k + 1) / (2 * c), i) for i, c in enumerate(counts) for k in range(c)]
    return [i for _, i in sorted(placed)]


def spread(protocol: str, chosen: Sequence[Target], counts: Sequence[int] = ()) -> list[str]:
    """The rules that send every connection to the next target.

    Round robin: every n-th connection to the first, every (n-1)-th of the rest to the next… Many
    targets, and weighted ones, are one rule with a map instead. Not always, because every map is a
    set to the kernel, and libnftables reads the list of all sets before each change.
    """
    dnat = f"meta l4proto {protocol} dnat to"
    weighted = len(set(counts)) > 1
    if weighted or len(chosen) > _MOST_RULES:
        order = turns(counts) if weighted else range(len(chosen))
        slots = [chosen[i] for i in order]
        listed = ", ".join(f"{slot} : {t.ip} . {t.port}" for slot, t in enumerate(slots))
        return [f"{dnat} numgen inc mod {len(slots)} map {{ {listed} }}"]
    *others, last = chosen
    rules = [
        f"numgen inc mod {len(chosen) - i} 0 {dnat} {t.ip}:{t.port}" for i, t in enumerate(others)
    ]
    return [*rules, f"{dnat} {last.ip}:{last.port}"]


def spread_chains(chains: Sequence[str], counts: Sequence[int] = ()) -> str:
    """The rule that gives every connection to the next chain."""
    order = turns(counts) if len(set(counts)) > 1 else range(len(chains))
    slots = [chains[i] for i in order]
    listed = ", ".join(f"{slot} : goto {chain}" for slot, chain in enumerate(slots))
    return f"numgen inc mod {len(slots)} vmap {{ {listed} }}"
