"""What a role allows: RBAC's rules, compiled for asking and for comparing. Pure.

A rule of a stored role is a handful of lists; compiled, they are sets, and one question costs a
few look-ups. The second half compares rules: nobody may grant what they do not hold, so every
single right in a new role must be covered by the rights of its author.

Invariant: `Rule.shown` is the rule as its author wrote it; reviews and messages show that.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ALL = "*"


@dataclass(frozen=True, slots=True)
class Rule:
    """One compiled `PolicyRule`."""

    verbs: frozenset[str]
    groups: frozenset[str]
    resources: frozenset[str]
    names: frozenset[str]
    urls: tuple[str, ...]
    shown: Mapping[str, Any]

    @classmethod
    def of(cls, rule: Mapping[str, Any]) -> "Rule":
        """Compile one rule as a role carries it."""
        return cls(
            frozenset(rule.get("verbs") or ()),
            frozenset(rule.get("apiGroups") or ()),
            frozenset(rule.get("resources") or ()),
            frozenset(rule.get("resourceNames") or ()),
            tuple(rule.get("nonResourceURLs") or ()),
            rule,
        )

    def covers_resource(self, verb: str, group: str, resource: str, subresource: str) -> bool:
        """Whether the rule is about this, whatever names it is limited to."""
        if verb not in self.verbs and ALL not in self.verbs:
            return False
        if group not in self.groups and ALL not in self.groups:
            return False
        resources = self.resources
        if ALL in resources:
            return True
        if not subresource:
            return resource in resources
        return f"{resource}/{subresource}" in resources or f"*/{subresource}" in resources

    def allows_path(self, verb: str, path: str) -> bool:
        """Whether the rule allows this on a path that is no resource."""
        if verb not in self.verbs and ALL not in self.verbs:
            return False
        return any(_url_matches(url, path) for url in self.urls)


def _url_matches(url: str, path: str) -> bool:
    if url in (ALL, path):
        return True
    return url.endswith(ALL) and path.startswith(url.rstrip(ALL))


class Right(tuple[str, str, str, str, str]):
    """One indivisible right: group, resource, name (empty: any), URL, verb."""

    __slots__ = ()

    @property
    def is_path(self) -> bool:
        """Whether it is about a URL instead of a resource."""
        return bool(self[3])


def rights(rule: Rule) -> Iterator[Right]:
    """A rule, broken down, in the order it is written."""
    shown = rule.shown
    verbs = shown.get("verbs") or ()
    for group in shown.get("apiGroups") or ():
        for resource in shown.get("resources") or ():
            for verb in verbs:
                for name in shown.get("resourceNames") or ("",):
                    yield Right((group, resource, name, "", verb))
    for url in shown.get("nonResourceURLs") or ():
        for verb in verbs:
            yield Right(("", "", "", url, verb))


def holds(rule: Rule, right: Right) -> bool:
    """Whether having the rule means having the right."""
    group, resource, name, url, verb = right
    if verb not in rule.verbs and ALL not in rule.verbs:
        return False
    if right.is_path:
        return any(_url_matches(held, url) for held in rule.urls)
    if group not in rule.groups and ALL not in rule.groups:
        return False
    if rule.names and name not in rule.names:
        return False
    if resource in rule.resources or ALL in rule.resources:
        return True
    _, slash, subresource = resource.partition("/")
    return bool(slash) and f"*/{subresource}" in rule.resources


def missing(held: Sequence[Rule], wanted: Iterable[Rule]) -> list[Right]:
    """The rights in `wanted` that nobody who has `held` has."""
    return [
        right
        for rule in wanted
        for right in rights(rule)
        if not any(holds(owned, right) for owned in held)
    ]


def described(absent: Iterable[Right]) -> list[str]:
    """Rights as Kubernetes lists them: one line per resource and name, verbs together."""
    verbs: dict[tuple[str, str, str, str], list[str]] = {}
    for right in absent:
        found = verbs.setdefault(right[:4], [])
        if right[4] not in found:
            found.append(right[4])
    return sorted(_line(*key, listed) for key, listed in verbs.items())


def _line(group: str, resource: str, name: str, url: str, verbs: list[str]) -> str:
    parts = [] if url else [f'APIGroups:["{group}"]', f'Resources:["{resource}"]']
    if url:
        parts.append(f'NonResourceURLs:["{url}"]')
    if name:
        parts.append(f'ResourceNames:["{name}"]')
    quoted = " ".join(f'"{verb}"' for verb in verbs)
    return "{" + ", ".join([*parts, f"Verbs:[{quoted}]"]) + "}"
