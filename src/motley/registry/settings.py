"""How registries are reached: over TLS, unless the operator or the name says otherwise.

    registries:
      - host: local-registry:5000
        plainHTTP: true
      - host: images.example.com
        caFile: /etc/motley/images-ca.crt
      - host: docker.io
        endpoint: https://mirror.example.com

A registry that is not listed is spoken to over TLS with the machine's own trust. Where its name can
only mean a machine nearby (an address that is not routed, a name without a dot) plain HTTP is tried
after TLS, as container runtimes do for loopback, but then without credentials.
"""

import ipaddress
import ssl
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import yaml

from motley.registry.references import DOCKER_HUB

_HUB = "https://registry-1.docker.io"


class Registry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """One registry. `endpoint`: a mirror to ask instead."""

    host: str
    plain_http: bool = msgspec.field(default=False, name="plainHTTP")
    ca_file: str = ""
    insecure_skip_verify: bool = False
    endpoint: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for an endpoint that is no URL."""
        parts = urlsplit(self.endpoint)
        if self.endpoint and (parts.scheme not in ("http", "https") or not parts.netloc):
            raise ValueError(f"endpoint {self.endpoint!r} is not an http or https URL")

    def addresses(self) -> list[str]:
        """The URLs to try, in turn."""
        if self.endpoint:
            return [self.endpoint.rstrip("/")]
        if self.plain_http:
            return [f"http://{self.host}"]
        if self.host == DOCKER_HUB:
            return [_HUB]
        tried = [f"https://{self.host}"]
        return [*tried, f"http://{self.host}"] if self.is_near else tried

    @property
    def is_near(self) -> bool:
        """Can the name only mean a machine of this site?"""
        name = urlsplit(f"//{self.host}").hostname or ""
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return "." not in name
        return address.is_private or address.is_loopback or address.is_link_local

    def trusts(self, url: str) -> bool:
        """May credentials go there? Over plain HTTP only where the operator said so."""
        return url.startswith("https://") or self.plain_http or self.endpoint.startswith("http://")

    def ssl_context(self) -> ssl.SSLContext:
        """Raises OSError when the file is not there or holds no certificate."""
        changed_at = Path(self.ca_file).stat().st_mtime_ns if self.ca_file else 0
        return _context(self.ca_file, changed_at, self.insecure_skip_verify)


@lru_cache(maxsize=64)  # reading a machine's trust takes a while
def _context(ca_file: str, _changed_at: int, insecure: bool) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca_file or None)
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class Registries:
    """All of them; what is not listed has the defaults."""

    def __init__(self, listed: Iterable[Registry] = ()) -> None:
        self._by_host = {registry.host: registry for registry in listed}

    def listed(self) -> list[Registry]:
        """Those the operator said something about."""
        return list(self._by_host.values())

    def of(self, host: str) -> Registry:
        """The registry of this name."""
        return self._by_host.get(host) or Registry(host)


class _File(msgspec.Struct, forbid_unknown_fields=True):
    registries: list[Registry] = []


def load(path: Path) -> Registries:
    """Raises OSError, and ValueError that says what is wrong with the file."""
    try:
        document = msgspec.convert(yaml.load(path.read_text(), yaml.CSafeLoader) or {}, _File)
        return checked(document.registries)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ValueError(f"{path}: {error}") from None


def checked(listed: Iterable[Registry]) -> Registries:
    """Registries whose certificate files can be read. Raises OSError."""
    known = list(listed)
    for registry in known:
        registry.ssl_context()
    return Registries(known)
