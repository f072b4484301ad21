"""What an image is built for, and what its name gives away about it. Pure.

A platform is an operating system, an architecture and, where one architecture has several
generations (`arm/v6`, `arm/v7`), a variant. Images of a lower variant run on machines of a higher
one, never the other way round.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

# Keywords that stand for an architecture wherever they appear in a name, arm64 before arm …
_DISTINCT = ("amd64", "arm64", "ppc64le", "s390x", "mips64le", "riscv64")
# … and those that are also part of ordinary words.
_WORD = re.compile(r"(?<![a-z0-9])(386|arm)(?:32)?(v[5-7])?(?![a-z0-9])")
_VARIANT = re.compile(r"v(\d+)(?:\.(\d+))?")
# What is meant where nothing is said: every arm64 machine is v8, every amd64 machine v1.
_LEAST = {"arm64": "v8", "amd64": "v1"}


class Platform(NamedTuple):
    """What an image is built for."""

    os: str
    arch: str
    variant: str = ""

    def __str__(self) -> str:
        return "/".join(part for part in self if part)


ASSUMED = Platform("linux", "amd64")


def parse(text: str) -> Platform:
    """A platform as people write it: `arm64`, `linux/arm64`, `linux/arm/v7`, `arm/v7`."""
    parts = [part.strip() for part in text.strip().split("/")]
    if len(parts) > 1 and _VARIANT.fullmatch(parts[-1]):
        *head, variant = parts
    else:
        head, variant = parts, ""
    system, arch = ("linux", head[0]) if len(head) == 1 else (head[0], head[1])
    return normal(system, arch, variant)


def normal(os: str, arch: str, variant: str = "") -> Platform:
    """A platform in the words of OCI: other spellings of the same are read, too."""
    arch, variant = arch.lower(), variant.lower()
    arch = {"x86_64": "amd64", "aarch64": "arm64", "i386": "386", "armhf": "arm"}.get(arch, arch)
    if variant == _LEAST.get(arch):
        variant = ""
    return Platform(os.lower() or "linux", arch, variant)


def rank(variant: str) -> tuple[int, int]:
    """Variants in order: what runs on a rank runs on every higher one."""
    found = _VARIANT.fullmatch(variant)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


def best(found: Iterable[Platform], here: Platform) -> Platform | None:
    """The one of several platforms whose image a machine should run; None: none of them."""
    fitting = [p for p in found if (p.os, p.arch) == (here.os, here.arch)]
    if here.variant:
        fitting = [p for p in fitting if rank(p.variant) <= rank(here.variant)]
    choose = max if here.variant else min
    return choose(fitting, key=lambda p: rank(p.variant), default=None)


@lru_cache(maxsize=4096)
def keyword(image: str) -> str | None:
    """The architecture an image's name gives away, as in `nginx:1.27-arm64` or `arm64v8/nginx`.

    `arm` and `386` count only as words of their own: `alarm` names no architecture, and a
    digest is no name. Nor is a registry's: `registry.arm.example/web` says nothing of web.
    """
    name = image.lower().partition("@")[0]
    first, slash, rest = name.partition("/")
    if slash and ("." in first or ":" in first):
        name = rest
    found = next((arch for arch in _DISTINCT if arch in name), None)
    if found is None:
        word = _WORD.search(name)
        found = word[1] if word else None
    return found
