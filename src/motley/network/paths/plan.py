"""From Routes and Ingresses to sites; pure.

Every object makes claims (a host, a path, a target); the older object's claim wins, so that nobody
takes a path away from those who have it. What cannot be served is a problem of the one object it is
in: the rest of it, and everybody else, stays.

Invariant: the result depends on the objects alone, not on the order they came in, so that every
gateway of a cluster makes the same.
"""

import ipaddress
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote

from motley.api import names
from motley.api.views.base import Key, Object
from motley.api.views.paths import Ingress, IngressBackend, IngressClass, IngressPath, Route
from motley.network.dns.hosts import GATEWAY
from motley.network.paths import annotations
from motley.network.paths.backends import Backends, Unserved
from motley.network.paths.sites import (
    DEFAULT_HOST,
    Certificates,
    Location,
    Owner,
    Plan,
    Problem,
    Refused,
    Settings,
    Site,
)

CONTROLLER = "motley.io/gateway"
DEFAULT_CLASS = "ingressclass.kubernetes.io/is-default-class"
_OLD_CLASS = "kubernetes.io/ingress.class"
CLASS_NAME = "motley"
# Letters of any script, digits and what paths are made of; nothing that means something to nginx.
_PATH = re.compile(r"/[\w/.~!&()*+,=:@% -]*")


@dataclass(frozen=True)
class World:
    """Everything the plan depends on."""

    backends: Backends
    routes: Sequence[Route] = ()
    ingresses: Sequence[Ingress] = ()
    classes: Sequence[IngressClass] = ()
    certificates: Certificates = field(default_factory=dict)
    left_out: frozenset[Owner] = frozenset()  # what nginx itself would not take
    domain: str = "cluster.local"


def service_of(address: str) -> Key:
    """The gateway's Service of an address that a Route chose; an empty one is its own."""
    suffix = f"-{address.replace('.', '-')}" if address else ""
    return Key(GATEWAY.namespace, GATEWAY.name + suffix)


def owner_of(obj: Object) -> Owner:
    """An object as the owner of claims."""
    return Owner(obj.KIND, obj.metadata.namespace, obj.metadata.name)


def is_ours(ingress: Ingress, classes: Sequence[IngressClass]) -> bool:
    """Is this Ingress for us: by its class, or because it has none and we are the default?"""
    named = ingress.spec.ingress_class_name or ingress.metadata.annotations.get(_OLD_CLASS)
    if named:
        found = [c for c in classes if c.metadata.name == named]
        return found[0].spec.controller == CONTROLLER if found else named == CLASS_NAME
    defaults = [c for c in classes if c.metadata.annotations.get(DEFAULT_CLASS) == "true"]
    return not defaults or any(c.spec.controller == CONTROLLER for c in defaults)


def plan(world: World) -> Plan:
    """What to serve."""
    return _Planner(world).run()


class _Planner:
    def __init__(self, world: World) -> None:
        self._world = world
        self._plan = Plan()
        self._sites: dict[str, Site] = {}
        self._taken: dict[tuple[str, str, str], Owner] = {}

    def run(self) -> Plan:
        world = self._world
        ours = [i for i in world.ingresses if is_ours(i, world.classes)]
        objects: list[Route | Ingress] = [*world.routes, *ours]
        for obj in sorted(objects, key=_age):
            owner = owner_of(obj)
            if owner in world.left_out or obj.metadata.deletion_timestamp is not None:
                continue
            if isinstance(obj, Route):
                self._route(obj, owner)
            else:
                self._ingress(obj, owner)
        self._plan.sites = [self._sites[host] for host in sorted(self._sites)]
        for site in self._plan.sites:
            site.locations.sort(key=lambda location: (location.path, location.match))
        return self._plan

    def _problem(self, owner: Owner, reason: str, message: str) -> None:
        self._plan.problems.append(Problem(owner, reason, message))

    def _settings(self, obj: Object, owner: Owner, *, is_stripped: bool) -> Settings:
        settings, wrong = annotations.read(obj.metadata.annotations, is_stripped=is_stripped)
        for message in wrong:
            self._problem(owner, "InvalidAnnotation", message)
        return settings

    def _route(self, route: Route, owner: Owner) -> None:
        host = route.spec.host.lower().rstrip(".")
        if not self._is_good_host(host, owner):
            return
        settings = self._settings(route, owner, is_stripped=True)
        for item in route.spec.paths:
            try:
                servers = self._world.backends.of_route(owner.namespace, item.service, item.port)
            except Unserved as error:
                self._problem(owner, error.reason, f"{item.path}: {error.message}")
                servers = ()
            self._claim(host, item.path, "prefix", owner, servers, settings)
        if route.spec.address and owner in self._plan.served:
            self._address(host, route.spec.address, owner)

    def _address(self, host: str, said: str, owner: Owner) -> None:
        """The address a Route wants for its name."""
        try:
            address = ipaddress.IPv4Address(said)
        except ValueError:
            self._problem(owner, "InvalidAddress", f"{said} is not an IPv4 address")
            return
        said = str(address)
        holder = self._world.backends.owner_of(said)
        if holder is not None and holder.key not in (GATEWAY, service_of(said)):
            self._problem(owner, "AddressTaken", f"{said} belongs to Service {holder.key}")
            return
        first = self._plan.addresses.setdefault(host, said)
        if first != said:
            self._problem(owner, "AddressTaken", f"{host} has the address {first} already")

    def _ingress(self, ingress: Ingress, owner: Owner) -> None:
        settings = self._settings(ingress, owner, is_stripped=False)
        hosts = []
        for rule in ingress.spec.rules:
            host = rule.host.lower()
            if host and not self._is_good_host(host, owner):
                continue
            hosts.append(host)
            for item in rule.http.paths if rule.http else ():
                self._ingress_path(host, item, owner, settings)
        default = ingress.spec.default_backend
        if default is not None:
            servers = self._ingress_servers(default, owner, "defaultBackend")
            for host in dict.fromkeys([*hosts, DEFAULT_HOST]):
                is_first = (host, "prefix", "/") not in self._taken
                if servers is not None and (is_first or host == DEFAULT_HOST):
                    self._claim(host, "/", "prefix", owner, servers, settings)
        self._certificates(ingress, owner, hosts)

    def _ingress_path(self, host: str, item: IngressPath, owner: Owner, settings: Settings) -> None:
        path = item.path or "/"
        servers = self._ingress_servers(item.backend, owner, path)
        if servers is None:
            return
        match: Literal["exact", "prefix"] = "exact" if item.path_type == "Exact" else "prefix"
        self._claim(host, path, match, owner, servers, settings)

    def _ingress_servers(
        self, backend: IngressBackend, owner: Owner, at: str
    ) -> tuple[str, ...] | None:
        """The servers; empty when there are none now, None when there never will be."""
        if backend.service is None:
            self._problem(
                owner,
                "NotSupported",
                f"{at}: a resource as backend is not supported; use a Service",
            )
            return None
        name, port = backend.service.name, backend.service.port
        try:
            return self._world.backends.of_ingress(owner.namespace, name, port.number or port.name)
        except Unserved as error:
            self._problem(owner, error.reason, f"{at}: {error.message}")
            return ()

    def _certificates(self, ingress: Ingress, owner: Owner, hosts: Collection[str]) -> None:
        for entry in ingress.spec.tls:
            key = Key(owner.namespace, entry.secret_name)
            found = self._world.certificates.get(key)
            if not entry.secret_name or found is None:
                self._problem(
                    owner, "SecretNotFound", f"there is no Secret {key} with a certificate"
                )
                continue
            if isinstance(found, Refused):
                self._problem(owner, "InvalidCertificate", f"Secret {key}: {found.why}")
                continue
            for host in hosts:
                site = self._sites.get(host)
                covered = not entry.hosts or any(_covers(h.lower(), host) for h in entry.hosts)
                if site is not None and covered and site.certificate is None:
                    site.certificate = found

    def _is_good_host(self, host: str, owner: Owner) -> bool:
        wild = host.startswith("*.")
        bad = names.check_wildcard_subdomain(host) if wild else names.check_dns_subdomain(host)
        if bad:
            self._problem(owner, "InvalidHost", f"host {host!r}: {bad[0]}")
            return False
        domain = self._world.domain
        if host == domain or host.endswith(f".{domain}") or host == "localhost":
            self._problem(owner, "InvalidHost", f"{host} is a name of the cluster's own")
            return False
        return True

    def _claim(
        self,
        host: str,
        said: str,
        match: Literal["exact", "prefix"],
        owner: Owner,
        servers: tuple[str, ...],
        settings: Settings,
    ) -> None:
        path = unquote(said)
        if not _PATH.fullmatch(path) or not path.isprintable():
            self._problem(owner, "InvalidPath", f"path {said!r} has characters that are not served")
            return
        if match == "prefix":
            path = path.rstrip("/") or "/"
        holder = self._taken.setdefault((host, match, path), owner)
        site = self._sites.setdefault(host, Site(host))
        if holder != owner or any(o.path == path and o.match == match for o in site.locations):
            by = "this object itself" if holder == owner else str(holder)
            self._problem(owner, "PathTaken", f"{host or '*'}{path} is served by {by} already")
            return
        site.locations.append(Location(path, match, owner, servers, settings))
        self._plan.served.add(owner)


def _age(obj: Object) -> tuple[str, str, str, str]:
    meta = obj.metadata
    return (meta.creation_timestamp or "", meta.namespace, meta.name, obj.KIND)


def _covers(pattern: str, host: str) -> bool:
    """Is a host one of those a certificate is given for? A wildcard stands for one label."""
    if pattern.startswith("*."):
        return host == pattern or host.partition(".")[2] == pattern[2:]
    return pattern == host
