"""What Routes and Ingresses become, and who wins when they disagree."""

import itertools

import pytest

from motley.api.views.base import Key
from motley.api.views.core import EndpointSlice, Service
from motley.api.views.paths import Ingress, IngressClass, Route
from motley.network.paths import nginxconf
from motley.network.paths.backends import Backends
from motley.network.paths.plan import World, is_ours, plan
from motley.network.paths.service import Gateway, Options
from motley.network.paths.sites import Certificate, Owner, Refused


def meta(name, namespace="default", at="2026-01-01T00:00:00Z", **more):
    return {"name": name, "namespace": namespace, "creationTimestamp": at, **more}


def service(name, ip="10.96.0.7", namespace="default", *, port=80, **spec):
    metadata = meta(name, namespace, **{k: spec.pop(k) for k in ["annotations"] if k in spec})
    ports = [{"name": "http", "port": port}]
    return Service.of({"metadata": metadata, "spec": {"clusterIP": ip, "ports": ports, **spec}})


def route(*paths, name="r", host="a.example", namespace="default", address="", **metadata):
    fields = [dict(zip(("path", "service", "port"), path, strict=True)) for path in paths]
    spec = {"host": host, "paths": fields, "address": address}
    return Route.of({"metadata": meta(name, namespace, **metadata), "spec": spec})


def ingress(*rules, name="i", **spec):
    metadata = meta(name, **{k: spec.pop(k) for k in ("annotations", "at") if k in spec})
    found = [
        {"host": host, "http": {"paths": [_path(*path) for path in paths]}}
        for host, *paths in rules
    ]
    return Ingress.of({"metadata": metadata, "spec": {"rules": found, **spec}})


def _path(path, kind="Prefix", name="web", port="http"):
    chosen = {"name": port} if isinstance(port, str) else {"number": port}
    backend = {"service": {"name": name, "port": chosen}}
    return {"path": path, "pathType": kind, "backend": backend}


def world(*objects, services=(), slices=None, certificates=None, classes=()):
    known = {one.key: one for one in services or (service("web"),)}
    return World(
        backends=Backends(known, slices or {}),
        routes=[o for o in objects if isinstance(o, Route)],
        ingresses=[o for o in objects if isinstance(o, Ingress)],
        classes=classes,
        certificates=certificates or {},
    )


def served(found):
    return {
        (site.host, o.match, o.path): (o.owner.name, *o.servers)
        for site in found.sites
        for o in site.locations
    }


def reasons(found):
    return [(problem.owner.name, problem.reason) for problem in found.problems]


@pytest.mark.parametrize(
    "said",
    [
        *("web", "web.default", "web.default.svc", "WEB.default.svc.cluster.local", "10.96.0.7"),
    ],
)
def test_a_route_names_a_service_by_name_or_address(said):
    found = plan(world(route(("/world", said, 80))))
    assert served(found) == {("a.example", "prefix", "/world"): ("r", "10.96.0.7:80")}
    assert found.problems == []


@pytest.mark.parametrize(
    ("said", "port", "reason"),
    [
        ("other", 80, "ServiceNotFound"),
        ("web", 81, "PortNotFound"),
        ("127.0.0.1", 80, "ServiceNotFound"),  # a way to the host's own ports, if it were served
        ("10.96.0.8", 80, "ServiceNotFound"),
        ("a.b.c.d", 80, "ServiceNotFound"),
        ("away", 80, "NotSupported"),
        ("none", 80, "NoEndpoints"),
        ("web.shop", 80, "NotAllowed"),
        ("10.96.1.7", 80, "NotAllowed"),
    ],
)
def test_a_path_that_leads_nowhere_is_kept_and_said(said, port, reason):
    services = (
        service("web"),
        service("away", "", type="ExternalName", externalName="x.example"),
        service("none", "None"),
        service("web", "10.96.1.7", "shop"),
    )
    found = plan(world(route(("/w", said, port), ("/ok", "web", 80)), services=services))
    assert reasons(found) == [("r", reason)]
    assert served(found)["a.example", "prefix", "/w"] == ("r",)
    assert served(found)["a.example", "prefix", "/ok"] == ("r", "10.96.0.7:80")


@pytest.mark.parametrize("admitted", ["*", "default", "x, default"])
def test_a_service_may_admit_routes_of_other_namespaces(admitted):
    marks = {"motley.io/routes-from": admitted}
    services = (service("web", "10.96.1.7", "shop", annotations=marks),)
    found = plan(world(route(("/w", "web.shop", 80)), services=services))
    assert served(found)["a.example", "prefix", "/w"] == ("r", "10.96.1.7:80")


def test_a_headless_service_is_served_by_its_ready_endpoints():
    piece = EndpointSlice.of(
        {
            "metadata": meta("s"),
            "ports": [{"name": "http", "port": 8080}, {"name": "x", "port": 1}],
            "endpoints": [
                {"addresses": ["10.244.0.9"], "conditions": {"ready": True}},
                {"addresses": ["10.244.0.8"]},
                {"addresses": ["10.244.0.7"], "conditions": {"ready": False}},
            ],
        }
    )
    services, slices = (service("web", "None"),), {Key("default", "web"): [piece]}
    found = plan(world(ingress(("b.example", ("/",))), services=services, slices=slices))
    assert served(found)["b.example", "prefix", "/"] == ("i", "10.244.0.8:8080", "10.244.0.9:8080")


def test_the_older_object_has_the_path_whatever_the_order_they_come_in():
    objects = [
        route(("/x", "web", 80), name="second", at="2026-01-02T00:00:00Z"),
        route(("/x/", "web", 80), ("/y", "web", 80), name="first"),
        ingress(("a.example", ("/x",), ("/x", "Exact")), name="third", at="2026-01-03T00:00:00Z"),
    ]
    for order in itertools.permutations(objects):
        found = plan(world(*order))
        assert {key: names[0] for key, names in served(found).items()} == {
            ("a.example", "prefix", "/x"): "first",
            ("a.example", "prefix", "/y"): "first",
            ("a.example", "exact", "/x"): "third",
        }
        assert reasons(found) == [("second", "PathTaken"), ("third", "PathTaken")]


def test_the_default_backend_has_its_hosts_rest_and_every_other_host():
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    found = plan(world(ingress(("b.example", ("/x",)), defaultBackend=backend)))
    assert set(served(found)) == {
        ("b.example", "prefix", "/x"),
        ("b.example", "prefix", "/"),
        ("", "prefix", "/"),
    }
    assert found.hosts("10.96.0.3") == {"b.example": "10.96.0.3"}


def klass(name, controller, *, default=False):
    marks = {"ingressclass.kubernetes.io/is-default-class": "true"} if default else {}
    metadata = {"name": name, "annotations": marks}
    return IngressClass.of({"metadata": metadata, "spec": {"controller": controller}})


@pytest.mark.parametrize(
    ("spec", "classes", "expected"),
    [
        ({}, [], True),
        ({}, [klass("motley", "motley.io/gateway", default=True)], True),
        ({}, [klass("nginx", "k8s.io/ingress-nginx", default=True)], False),
        ({"ingressClassName": "motley"}, [], True),
        ({"ingressClassName": "inner"}, [klass("inner", "motley.io/gateway")], True),
        ({"ingressClassName": "nginx"}, [], False),
        ({"ingressClassName": "nginx"}, [klass("nginx", "k8s.io/ingress-nginx")], False),
        ({"annotations": {"kubernetes.io/ingress.class": "motley"}}, [], True),
        ({"annotations": {"kubernetes.io/ingress.class": "gce"}}, [], False),
    ],
)
def test_an_ingress_is_ours_by_its_class(spec, classes, expected):
    assert is_ours(ingress(**spec), classes) is expected


@pytest.mark.parametrize(
    "path", ["/a;b", '/a"b', "/a{b}", "/a$b", "/a\\b", "/a\nb", "a", "/a%0ab", "/a'b", "/a#b"]
)
def test_a_path_with_characters_that_mean_something_to_nginx_is_refused(path):
    found = plan(world(route((path, "web", 80))))
    assert reasons(found) == [("r", "InvalidPath")]
    assert not any(site.locations for site in found.sites)


@pytest.mark.parametrize(
    "host", ["", "a b", "a_b.example", "web.default.svc.cluster.local", "localhost", "*", "a;b"]
)
def test_a_host_that_is_none_or_the_clusters_own_is_refused(host):
    found = plan(world(route(("/", "web", 80), host=host)))
    assert reasons(found) == [("r", "InvalidHost")]
    assert found.sites == []


def test_a_route_may_choose_the_address_of_its_name_unless_a_service_has_it():
    found = plan(
        world(
            route(("/", "web", 80), address="10.8.0.1"),
            route(("/", "web", 80), name="s", host="b.example", address="10.96.0.7"),
            route(("/", "web", 80), name="t", host="c.example", address="x"),
            route(("/z", "web", 80), name="z", address="10.8.0.2"),
        )
    )
    assert found.hosts("10.96.0.3") == {
        "a.example": "10.8.0.1",
        "b.example": "10.96.0.3",
        "c.example": "10.96.0.3",
    }
    assert reasons(found) == [("s", "AddressTaken"), ("t", "InvalidAddress"), ("z", "AddressTaken")]


def test_certificates_are_given_to_the_hosts_they_are_for():
    tls = [{"hosts": ["*.b.example"], "secretName": "wild"}, {"secretName": "bad"}]
    hosts = [(host, ("/",)) for host in ("x.b.example", "x.y.b.example", "b.example")]
    pair = Certificate("c", "k")
    certificates = {Key("default", "wild"): pair, Key("default", "bad"): Refused("no key")}
    found = plan(world(ingress(*hosts, tls=tls), certificates=certificates))
    given = {site.host: site.certificate for site in found.sites}
    assert given == {"x.b.example": pair, "x.y.b.example": None, "b.example": None}
    assert reasons(found) == [("i", "InvalidCertificate")]
    assert reasons(plan(world(ingress(*hosts, tls=tls[:1])))) == [("i", "SecretNotFound")]


def test_a_resource_as_backend_is_refused_and_the_rest_served():
    one = ingress(("b.example", ("/x",)))
    resource = {"resource": {"kind": "Bucket", "name": "b"}}
    spec = {"rules": [{"http": {"paths": [{"path": "/r", "backend": resource}]}}]}
    two = Ingress.of({"metadata": meta("two"), "spec": spec})
    found = plan(world(one, two))
    assert set(served(found)) == {("b.example", "prefix", "/x")}
    assert reasons(found) == [("two", "NotSupported")]
    assert found.served == {Owner("Ingress", "default", "i")}


def test_annotations_set_how_requests_are_passed_and_wrong_ones_are_said():
    marks = {
        "motley.io/body-size": "8M",
        "motley.io/read-timeout": "300",
        "motley.io/strip-prefix": "true",
        "motley.io/connect-timeout": "soon; return 200",
    }
    found = plan(world(ingress(("b.example", ("/x",)), annotations=marks)))
    settings = found.sites[0].locations[0].settings
    assert (settings.body_size, settings.read_timeout_s, settings.strip_prefix) == ("8m", 300, True)
    assert settings.connect_timeout_s == 5
    assert reasons(found) == [("i", "InvalidAnnotation")]


def test_an_object_that_is_being_deleted_is_served_no_more():
    gone = route(("/", "web", 80), deletionTimestamp="2026-01-02T00:00:00Z")
    assert plan(world(gone)).sites == []


class PickyNginx:
    """Takes every configuration but those with certain hosts."""

    def __init__(self, *bad):
        self.bad = bad
        self.checks = 0

    async def check(self, text):
        self.checks += 1
        found = [host for host in self.bad if f"server_name {host};" in text]
        return f"invalid {found[0]}" if found else ""


async def test_what_nginx_refuses_is_found_and_left_out_and_the_rest_served(tmp_path):
    gateway = Gateway(None, Options("node-1", tmp_path, "127.0.0.1"))
    gateway._nginx = nginx = PickyNginx("h3.example", "h12.example")
    routes = [route(("/", "web", 80), name=f"r{n}", host=f"h{n}.example") for n in range(16)]
    everything = world(*routes)
    wanted = plan(everything)
    text, generation = nginxconf.render(wanted, gateway._options.listening)
    left, text, _ = await gateway._accepted(everything, wanted, text, generation)
    assert {site.host for site in left.sites} == {
        f"h{n}.example" for n in range(16) if n not in (3, 12)
    }
    assert reasons(left) == [("r12", "Refused"), ("r3", "Refused")]
    assert "h3.example" not in text
    assert nginx.checks < 2 * 2 * 5 + 3  # by halves, not one by one
