"""A table of nftables as values, and the changes between two of them.

A `Ruleset` is what we want: sets, chains with their rules, elements. `Applied` is what the kernel
has, known only by fingerprints that we leave in comments: nftables prints rules in its own words,
so text cannot be compared, but a fingerprint can, and a restarted proxy touches nothing that is
already right.

Invariant: `render(diff(desired, applied))` is one transaction. At no moment does a packet see a
half-made table.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple


class Set(NamedTuple):
    """A named set or map: its declaration without elements."""

    kind: Literal["set", "map"]
    body: str  # "type ipv4_addr; flags dynamic;"

    @property
    def fingerprint(self) -> str:
        """Stands for the declaration in the kernel's comment."""
        return f"{self.kind}:{_digest(self.body)}"


class Chain(NamedTuple):
    """A chain and its rules; `hook` is empty for a chain that others jump to."""

    rules: tuple[str, ...]
    hook: str = ""  # "type nat hook output priority -100;"

    @property
    def fingerprint(self) -> str:
        """Stands for the hook and rules; the number of rules shows one that was taken out."""
        return f"{_digest(self.hook)}.{_digest(*self.rules)}/{len(self.rules)}"


class Element(NamedTuple):
    """The name of one element: which set, which key."""

    set: str
    key: str


def _digest(*parts: str) -> str:
    return hashlib.blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()


@dataclass
class Ruleset:
    """What the table should be. An element's value is empty in a set, a verdict in a map."""

    sets: dict[str, Set] = field(default_factory=dict)
    chains: dict[str, Chain] = field(default_factory=dict)
    elements: dict[Element, str] = field(default_factory=dict)


@dataclass
class Applied:
    """What the kernel has: fingerprints of sets and chains, and the elements themselves."""

    exists: bool = False
    sets: dict[str, str] = field(default_factory=dict)
    chains: dict[str, str] = field(default_factory=dict)
    elements: dict[Element, str] = field(default_factory=dict)


@dataclass
class Changes:
    """What must happen to the table, in the order of the fields."""

    rebuild: bool = False  # start from an empty table, within the same transaction
    new_table: bool = False
    add_sets: dict[str, Set] = field(default_factory=dict)
    add_chains: dict[str, Chain] = field(default_factory=dict)
    del_elements: list[Element] = field(default_factory=list)
    set_rules: dict[str, Chain | None] = field(default_factory=dict)  # None: only flush
    add_elements: dict[Element, str] = field(default_factory=dict)
    del_chains: list[str] = field(default_factory=list)
    del_sets: dict[str, str] = field(default_factory=dict)  # name → set or map

    def __bool__(self) -> bool:
        return any(vars(self).values())

    @property
    def size(self) -> int:
        """How many objects change, for the log."""
        return sum(len(v) for v in vars(self).values() if not isinstance(v, bool))


def diff(desired: Ruleset, applied: Applied) -> Changes:
    """The changes that turn the whole of `applied` into `desired`."""
    if not applied.exists or _contradicts(desired, applied):
        changes = Changes(rebuild=applied.exists, new_table=True)
        everything = Applied(exists=True)
    else:
        changes, everything = Changes(), applied
    _diff_into(
        changes,
        desired,
        everything,
        sets=desired.sets.keys() | everything.sets.keys(),
        chains=desired.chains.keys() | everything.chains.keys(),
        elements=desired.elements.keys() | everything.elements.keys(),
    )
    return changes


def diff_touched(
    desired: Ruleset,
    applied: Applied,
    *,
    sets: Iterable[str],
    chains: Iterable[str],
    elements: Iterable[Element],
) -> Changes:
    """As `diff`, but looks only at these names: the cost of a change is the change."""
    if not applied.exists or _contradicts(desired, applied, sets):
        return diff(desired, applied)
    changes = Changes()
    _diff_into(changes, desired, applied, sets=sets, chains=chains, elements=elements)
    return changes


def _contradicts(desired: Ruleset, applied: Applied, sets: Iterable[str] | None = None) -> bool:
    """Declarations and hooks cannot be changed in place: another version of us made the table."""
    if any(
        name in desired.sets
        and name in applied.sets
        and desired.sets[name].fingerprint != applied.sets[name]
        for name in (desired.sets if sets is None else sets)
    ):
        return True
    hooked = (name for name, chain in desired.chains.items() if chain.hook) if sets is None else ()
    return any(
        applied.chains.get(name)  # nothing: a chain whose first rule was taken out
        and _hook(applied.chains[name]) != _hook(desired.chains[name].fingerprint)
        for name in hooked
    )


def _hook(fingerprint: str) -> str:
    return fingerprint.partition(".")[0]


def _diff_into(
    changes: Changes,
    desired: Ruleset,
    applied: Applied,
    *,
    sets: Iterable[str],
    chains: Iterable[str],
    elements: Iterable[Element],
) -> None:
    for name in sorted(sets):
        if name in desired.sets and name not in applied.sets:
            changes.add_sets[name] = desired.sets[name]
        elif name not in desired.sets and name in applied.sets:
            changes.del_sets[name] = applied.sets[name].partition(":")[0]
    for name in sorted(chains):
        wanted, have = desired.chains.get(name), applied.chains.get(name)
        if wanted is None:
            if have is not None:
                changes.set_rules[name] = None
                changes.del_chains.append(name)
        elif have is None:
            changes.add_chains[name] = wanted
            changes.set_rules[name] = wanted
        elif have != wanted.fingerprint:
            changes.set_rules[name] = wanted
    for element in sorted(elements):
        value, present = desired.elements.get(element), applied.elements.get(element)
        if value == present:
            continue
        if present is not None:
            changes.del_elements.append(element)
        if value is not None:
            changes.add_elements[element] = value


def advance(applied: Applied, changes: Changes) -> None:
    """Make `applied` what it is after the kernel accepted `changes`."""
    if changes.rebuild:
        applied.sets.clear()
        applied.chains.clear()
        applied.elements.clear()
    applied.exists = applied.exists or changes.new_table
    applied.sets.update({name: s.fingerprint for name, s in changes.add_sets.items()})
    for element in changes.del_elements:
        del applied.elements[element]
    for name, chain in changes.set_rules.items():
        if chain is not None:
            applied.chains[name] = chain.fingerprint
    applied.elements.update(changes.add_elements)
    for name in changes.del_chains:
        del applied.chains[name]
    for name in changes.del_sets:
        del applied.sets[name]


def render(table: str, changes: Changes) -> str:
    """The changes as nft commands, to be run as one transaction."""
    where = f"ip {table}"
    lines: list[str] = []
    if changes.new_table or changes.rebuild:
        lines.append(f"add table {where}")
    if changes.rebuild:
        lines += [f"delete table {where}", f"add table {where}"]
    for name, s in changes.add_sets.items():
        lines.append(f'add {s.kind} {where} {name} {{ {s.body} comment "{s.fingerprint}"; }}')
    for name, chain in changes.add_chains.items():
        hook = f" {{ {chain.hook} }}" if chain.hook else ""
        lines.append(f"add chain {where} {name}{hook}")
    lines += _element_lines("delete", where, dict.fromkeys(changes.del_elements, ""))
    flushed = [name for name in changes.set_rules if name not in changes.add_chains]
    lines += [f"flush chain {where} {name}" for name in flushed]
    for name, rules in changes.set_rules.items():
        if rules is not None:
            lines += _rule_lines(where, name, rules)
    lines += _element_lines("add", where, changes.add_elements)
    lines += [f"delete chain {where} {name}" for name in changes.del_chains]
    lines += [f"delete {kind} {where} {name}" for name, kind in changes.del_sets.items()]
    return "\n".join(lines) + "\n"


def _rule_lines(where: str, name: str, chain: Chain) -> list[str]:
    first, *others = chain.rules
    return [
        f'add rule {where} {name} {first} comment "{chain.fingerprint}"',
        *(f"add rule {where} {name} {rule}" for rule in others),
    ]


def _element_lines(verb: str, where: str, elements: Mapping[Element, str]) -> list[str]:
    by_set: dict[str, list[str]] = {}
    for element, value in elements.items():
        text = f"{element.key} : {value}" if value else element.key
        by_set.setdefault(element.set, []).append(text)
    return [
        f"{verb} element {where} {name} {{ {', '.join(texts)} }}" for name, texts in by_set.items()
    ]
