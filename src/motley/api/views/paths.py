"""What the gateway reads: Routes, and Ingresses with their classes."""

from typing import ClassVar

import msgspec

from motley.api.views.base import Condition, Object, ObjectReference, View


class RoutePath(View):
    """One path of a Route and the Service it leads to: by name, or by address."""

    path: str = ""
    service: str = ""
    port: int = 0


class RouteSpec(View):
    """A name and its paths."""

    host: str = ""
    address: str = ""
    paths: list[RoutePath] = []


class RouteStatus(View):
    """Where the name leads."""

    address: str = ""
    conditions: list[Condition] = []


class Route(Object):
    """Several services under one name, told apart by path."""

    API_VERSION: ClassVar[str] = "motley.io/v1"
    KIND: ClassVar[str] = "Route"
    PLURAL: ClassVar[str] = "routes"

    spec: RouteSpec = msgspec.field(default_factory=RouteSpec)
    status: RouteStatus = msgspec.field(default_factory=RouteStatus)


class IngressServicePort(View):
    """A Service's port, by name or by number."""

    name: str = ""
    number: int = 0


class IngressServiceBackend(View):
    """A Service of the Ingress' own namespace."""

    name: str = ""
    port: IngressServicePort = msgspec.field(default_factory=IngressServicePort)


class IngressBackend(View):
    """Where requests go: a Service, or an object of some other kind."""

    service: IngressServiceBackend | None = None
    resource: ObjectReference | None = None


class IngressPath(View):
    """One path of a host."""

    path: str = ""
    path_type: str = "ImplementationSpecific"
    backend: IngressBackend = msgspec.field(default_factory=IngressBackend)


class IngressHTTP(View):
    """The paths of a host."""

    paths: list[IngressPath] = []


class IngressRule(View):
    """A host; an empty one is every host."""

    host: str = ""
    http: IngressHTTP | None = None


class IngressTLS(View):
    """The Secret with the certificate of some hosts."""

    hosts: list[str] = []
    secret_name: str = ""


class IngressSpec(View):
    """Hosts and paths."""

    ingress_class_name: str | None = None
    default_backend: IngressBackend | None = None
    rules: list[IngressRule] = []
    tls: list[IngressTLS] = []


class LoadBalancerIngress(View):
    """An address at which an Ingress is served."""

    ip: str = ""
    hostname: str = ""


class LoadBalancerStatus(View):
    """Where an Ingress is served."""

    ingress: list[LoadBalancerIngress] = []


class IngressStatus(View):
    """Where an Ingress is served."""

    load_balancer: LoadBalancerStatus = msgspec.field(default_factory=LoadBalancerStatus)


class Ingress(Object):
    """HTTP from outside to Services, by host and path."""

    API_VERSION: ClassVar[str] = "networking.k8s.io/v1"
    KIND: ClassVar[str] = "Ingress"
    PLURAL: ClassVar[str] = "ingresses"

    spec: IngressSpec = msgspec.field(default_factory=IngressSpec)
    status: IngressStatus = msgspec.field(default_factory=IngressStatus)


class IngressClassSpec(View):
    """Who serves the Ingresses of a class."""

    controller: str = ""


class IngressClass(Object):
    """A kind of gateway."""

    API_VERSION: ClassVar[str] = "networking.k8s.io/v1"
    KIND: ClassVar[str] = "IngressClass"
    PLURAL: ClassVar[str] = "ingressclasses"
    NAMESPACED: ClassVar[bool] = False

    spec: IngressClassSpec = msgspec.field(default_factory=IngressClassSpec)
