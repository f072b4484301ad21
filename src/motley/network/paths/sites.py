"""What the gateway is to serve, as values: sites (hosts) with locations (paths) to targets.

These are the words between the plan, which knows Kubernetes, and the configuration, which knows
nginx. Everything in them has been checked: whatever is in a `Site` may be written down.
"""

from dataclasses import dataclass, field
from typing import Literal

from motley.api.views.base import Key

DEFAULT_HOST = ""  # every host that no other site has
_READ_TIMEOUT_S = 60


@dataclass(frozen=True, order=True)
class Owner:
    """The object a location comes from."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True)
class Problem:
    """Something about an object that is not served as it says, for its events."""

    owner: Owner
    reason: str
    message: str


@dataclass(frozen=True)
class Settings:
    """What annotations of an object say about its requests."""

    strip_prefix: bool = False
    ssl_redirect: bool = False
    body_size: str = "0"  # without limit: bodies are passed on, never stored
    connect_timeout_s: int = 5
    read_timeout_s: int = _READ_TIMEOUT_S


@dataclass(frozen=True)
class Location:
    """Requests of one path, and where they go; without servers there is nobody to serve them."""

    path: str  # begins with a slash, ends without one, unless it is "/"
    match: Literal["exact", "prefix"]
    owner: Owner
    servers: tuple[str, ...] = ()  # ADDRESS:PORT
    settings: Settings = Settings()


@dataclass(frozen=True)
class Certificate:
    """A certificate that has been checked, as files that nginx reads."""

    certificate: str
    key: str


@dataclass(frozen=True)
class Refused:
    """A certificate that cannot be used, and why."""

    why: str


@dataclass
class Site:
    """One host."""

    host: str
    locations: list[Location] = field(default_factory=list)
    certificate: Certificate | None = None


@dataclass
class Plan:
    """Everything to serve, and what stands in the way."""

    sites: list[Site] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    served: set[Owner] = field(default_factory=set)
    addresses: dict[str, str] = field(default_factory=dict)  # host → address it is to have

    def hosts(self, default: str) -> dict[str, str]:
        """Every name with its address, for DNS; `default` is the gateway's own."""
        named = (site.host for site in self.sites if site.host != DEFAULT_HOST)
        return {host: self.addresses.get(host, default) for host in sorted(named)}


Certificates = dict[Key, Certificate | Refused]
