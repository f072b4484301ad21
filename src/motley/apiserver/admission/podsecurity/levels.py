"""What a namespace's labels say about its pods.

    pod-security.kubernetes.io/<enforce|warn|audit>: privileged | baseline | restricted
    pod-security.kubernetes.io/<mode>-version:       latest | v1.N

A namespace that says nothing allows everything. A label that cannot be read is refused when it is
written; one that got in earlier counts as `restricted`, which is the safe side.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from motley.api.status import FieldError

PREFIX = "pod-security.kubernetes.io/"
MODES = ("enforce", "audit", "warn")
LEVELS = ("privileged", "baseline", "restricted")
LATEST = 1_000_000  # newer than every version
_VERSION = re.compile(r"v1\.(0|[1-9][0-9]*)")


class Policy(NamedTuple):
    """A level of the standards, as of a version."""

    level: str = "privileged"
    minor: int = LATEST

    def __str__(self) -> str:
        return f"{self.level}:latest" if self.minor == LATEST else f"{self.level}:v1.{self.minor}"


class Policies(NamedTuple):
    """What a namespace says."""

    enforce: Policy = Policy()
    audit: Policy = Policy()
    warn: Policy = Policy()


_SILENT = Policies()
_WORDS = frozenset(PREFIX + word for mode in MODES for word in (mode, f"{mode}-version"))


def of(labels: Mapping[str, str]) -> Policies:
    """The policies of a namespace with these labels."""
    if not _WORDS & labels.keys():
        return _SILENT
    return Policies(*(_policy(labels, mode) for mode in MODES))


def _policy(labels: Mapping[str, str], mode: str) -> Policy:
    level = labels.get(PREFIX + mode, "privileged")
    minor = _minor(labels.get(f"{PREFIX}{mode}-version", "latest"))
    if level not in LEVELS:
        level = "restricted"
    return Policy(level, LATEST if minor is None else minor)


def _minor(version: str) -> int | None:
    if version == "latest":
        return LATEST
    found = _VERSION.fullmatch(version)
    return int(found[1]) if found else None


def errors(labels: Mapping[str, str]) -> list[FieldError]:
    """Labels that mean nothing."""
    found = []
    for mode in MODES:
        for key, problem in (
            (PREFIX + mode, "must be one of privileged, baseline, restricted"),
            (f"{PREFIX}{mode}-version", 'must be "latest" or "v1.x"'),
        ):
            value = labels.get(key)
            if value is None:
                continue
            wrong = _minor(value) is None if key.endswith("-version") else value not in LEVELS
            if wrong:
                message = f'Invalid value: "{value}": {problem}'
                found.append(FieldError(f"metadata.labels[{key}]", "FieldValueInvalid", message))
    return found
