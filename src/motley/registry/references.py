"""Image names: registry, repository, tag and digest of what a pod writes. Pure.

`nginx` is `docker.io/library/nginx:latest`; the first part is a registry's host when it has a dot
or a port, or is `localhost`. A port is no tag: `local-registry:5000/web` has none.
"""

import ipaddress
import re
from functools import lru_cache
from typing import NamedTuple

DOCKER_HUB = "docker.io"
_HUB_NAMES = ("index.docker.io", "registry-1.docker.io", "registry.hub.docker.com")
_HOST = re.compile(r"(?:[a-zA-Z0-9._-]+|\[[0-9a-fA-F:.]+\])(?::[0-9]{1,5})?")
_PART = re.compile(r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*")
_LONGEST = 255  # of a repository; the distribution specification
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}")
DIGEST = re.compile(r"[a-z0-9]+(?:[.+_-][a-z0-9]+)*:[0-9a-fA-F]{32,}")


class Reference(NamedTuple):
    """A whole image name."""

    host: str
    repository: str
    tag: str
    digest: str

    def __str__(self) -> str:
        tail = f"@{self.digest}" if self.digest else f":{self.tag}"
        return f"{self.host}/{self.repository}{tail}"

    @property
    def version(self) -> str:
        """What the registry is asked for: the digest where there is one, as runtimes do."""
        return self.digest or self.tag

    @property
    def is_local(self) -> bool:
        """Images made on the machines themselves carry this name: no registry has them."""
        return self.host == "localhost"


def parse(text: str) -> Reference:
    """Raises ValueError for what is no image name."""
    rest, at, digest = text.partition("@")
    if at and not DIGEST.fullmatch(digest):
        raise ValueError(f"{text!r}: {digest!r} is no digest")
    first, slash, others = rest.partition("/")
    is_host = slash and ("." in first or ":" in first or first == "localhost")
    host, path = (first, others) if is_host else (DOCKER_HUB, rest)
    path, colon, tag = path.partition(":")
    if not _HOST.fullmatch(host) or not _is_address(host) or not _has_port(host):
        raise ValueError(f"{text!r}: {host!r} is no registry")
    if len(path) > _LONGEST or not all(_PART.fullmatch(part) for part in path.split("/")):
        raise ValueError(f"{text!r}: {path!r} is no repository")
    if colon and not _TAG.fullmatch(tag):
        raise ValueError(f"{text!r}: {tag!r} is no tag")
    if host in _HUB_NAMES:
        host = DOCKER_HUB
    if host == DOCKER_HUB and "/" not in path:
        path = f"library/{path}"
    return Reference(host, path, tag if tag or digest else "latest", digest)


def _is_address(host: str) -> bool:
    """Is what stands in brackets an address of IPv6?"""
    if not host.startswith("["):
        return True
    try:
        return bool(ipaddress.IPv6Address(host[1:].partition("]")[0]))
    except ValueError:
        return False


def _has_port(host: str) -> bool:
    """Is what stands behind the colon, if anything does, the number of a port?"""
    _, colon, port = host.rpartition(":")
    return not colon or not port.isdecimal() or int(port) < 1 << 16


def tagged(image: str) -> str:
    """An image name with its tag, as nodes report it."""
    return image if image.rfind(":") > image.rfind("/") else f"{image}:latest"


@lru_cache(maxsize=4096)
def canonical(image: str) -> str:
    """One name for all that mean the same image; of what is no image name, itself."""
    try:
        return str(parse(image))
    except ValueError:
        return tagged(image)
